"""Comparisons of routers whose runs found nothing in any prefix cache, in words."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any


def sentences(rows: Iterable[Mapping[str, Any]]) -> list[str]:
    """One, if these runs, of which each has its metrics and its policy, are of several routers, and none found a token
    of a prompt in a GPU's prefix cache."""
    every = list(rows)
    routers = {str(row["policy"]) for row in every if row.get("policy") is not None}
    if len(routers) < 2 or any(row.get("hit_ratio") != 0 for row in every):
        return []
    return [
        "no run found a prompt's token in a prefix cache (hit_ratio is 0), so that routers that follow prefixes have "
        "nothing to find here: `prebleexp workload describe` says what prompts share"
    ]
