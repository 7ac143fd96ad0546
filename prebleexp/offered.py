"""Runs to which requests came at another rate than `rps`, in words: sessions start within `duration_s`, and their later
turns come after it."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from prebleexp.errors import significant

LONGER, DEVIATIONS = 1.25, 3.0
"""times `duration_s` in which requests came, from where on it is said, and so many times what chance makes of it"""


def rate(rows: Sequence[Mapping[str, Any]]) -> tuple[float, float] | None:
    """Of runs of one cell the requests a second that came and the seconds in which they did, on average; None where
    that is what was asked for, or cannot be told."""
    told = [
        (float(row["offered_per_s"]), float(row["offered_s"]))
        for row in rows
        if row.get("rps") and row.get("duration_s") and row.get("offered_per_s") and row.get("users") is None
        if row["offered_s"] > (LONGER + DEVIATIONS / math.sqrt(row["n_requests"])) * row["duration_s"]
        and row["offered_per_s"] * LONGER < row["rps"]
    ]
    if not told:
        return None
    return sum(per_s for per_s, _ in told) / len(told), sum(over_s for _, over_s in told) / len(told)


def sentences(cells: Sequence[tuple[str, Sequence[Mapping[str, Any]]]]) -> list[str]:
    """One, if to any of these cells requests came more slowly than `rps` says. A cell is a name and the runs of its
    seeds; of several, the one with the least of its rate is named."""
    found = [(made[0] / float(rows[0]["rps"]), made, rows[0], name) for name, rows in cells if (made := rate(rows))]
    if not found:
        return []
    _, (per_s, over_s), row, name = min(found, key=lambda one: one[0])
    where, worst = "", ""
    if len(cells) > 1:
        where, worst = f"in {len(found):,} of {len(cells):,} cells ", f", at worst ({name})"
    asked = f"rps={row['rps']:g} and duration_s={row['duration_s']:g}"
    return [
        f"{where}requests came more slowly than rps says{worst}: {significant(per_s)}/s on average over "
        f"{significant(over_s)} s, for {asked}; sessions start within duration_s, and later turns come after it: take "
        "one that is long against a session, or workload.load=population"
    ]
