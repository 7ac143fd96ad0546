"""What was simulated, and what is measured: computed from the rows, so that it is what these runs had."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from prebleexp.hardware.domain import COLUMNS, farthest
from prebleexp.report.meanings import meanings
from prebleexp.report.summary import Row
from prebleexp.report.wording import listed, plain

SPECS = {
    "policy": "Which GPU a request is sent to.",
    "lengths": "What the policy is told of output lengths.",
    "overhead": "What a routing decision takes.",
    "engine": "How a GPU batches, queues and caches: continuous batching, and a cache of prefixes.",
    "hardware": "What a prefill or a decode step costs, and how much KV fits.",
    "workload": "Where requests come from. The same seed gives every policy the same requests.",
    "arrivals": "Gaps between made-up requests, or starts of sessions.",
    "profile": "How the rate changes over time.",
    "adapters": "LoRA adapters with which requests are computed.",
    "warm": "What is served before the run, so that caches are not empty.",
    "cluster": "GPUs of one kind, or groups of several.",
    "faults": "What happens to GPUs: lost, slow, drained.",
    "autoscaler": "How many GPUs there are to be, by what they report.",
    "gateway": "What requests pass before the router: limits, and who is next; how many routers there are.",
    "slo": "What is promised: limits on requests, and for which share of them they hold.",
    "output_length": "How many tokens requests generate.",
}
OF_RECORDINGS = ("recorded", "scaled", "window")
"""loads of which a trace says itself when requests come and how much they generate"""
OF_OTHERS = ("arrivals", "output_length")
"""what does not matter to these"""
SUPPORT = "hardware.support"
SHOWN = 80
"""letters of a value"""


@dataclass(frozen=True)
class Section:
    title: str
    entries: tuple[tuple[str, str], ...]


def methods(rows: Sequence[Row]) -> list[Section]:
    """The cluster as these rows have it, and the definitions of the metrics they have."""
    recorded = all(row.get("workload.load") in OF_RECORDINGS for row in rows)
    there = [spec for spec in SPECS if any(spec in row for row in rows) and not (recorded and spec in OF_OTHERS)]
    cluster = [(spec, f"{SPECS[spec]} {_choices(spec, rows)}") for spec in there]
    believed = _believed(rows)
    cluster += [("step times", f"How far they can be believed. Here: {believed}.")] if believed else []
    farther = farthest([({name: row.get(f"hardware.{name}") for name in COLUMNS}, row) for row in rows])
    cluster += [("beyond what was measured", f"{farther}.")] if farther else []
    for name in ("duration_s", "horizon"):
        values = list(dict.fromkeys(plain(row[name]) for row in rows if name in row))
        if values:
            cluster.append((name, listed(values)))
    measured = {name for row in rows for name, value in row.items() if value is not None}
    metrics = [(name, meaning) for name, meaning in meanings().items() if name in measured]
    sections = [Section("What was simulated", tuple(cluster)), Section("What is measured", tuple(metrics))]
    return [section for section in sections if section.entries]


def _choices(spec: str, rows: Sequence[Row]) -> str:
    """Each choice with those of its fields that do not vary."""
    found = []
    for name in dict.fromkeys(row.get(spec) for row in rows):
        members = [row for row in rows if row.get(spec) == name]
        # of what a field is composed of, as hardware.gpu.hbm_gb_s, its name is enough
        own = [column for column in members[0] if column.startswith(f"{spec}.") and column != SUPPORT]
        fields = [column for column in own if column.count(".") == 1]
        fixed = []
        for field in fields:
            values = {row.get(field) for row in members}
            text = plain(next(iter(values)))
            if len(values) == 1 and text != "null" and len(text) <= SHOWN:
                fixed.append(f"{field.removeprefix(f'{spec}.')}={text}")
        if spec == "slo" and name == "none" and fixed:  # limits that were set one by one, of no preset
            found.append(", ".join(fixed))
            continue
        found.append(f"{plain(name)} ({', '.join(fixed)})" if fixed else plain(name))
    return f"Here: {'; '.join(found)}."


def _believed(rows: Sequence[Row]) -> str:
    """What each choice of hardware says of its step times, once for all choices that say the same."""
    names: dict[str, list[str]] = {}
    for row in rows:
        if row.get(SUPPORT):
            made_of = (row.get("hardware"), row.get("hardware.gpu"), row.get("hardware.model"))
            name = " ".join(str(one) for one in made_of if one)
            said = names.setdefault(str(row[SUPPORT]), [])
            said += [name] if name not in said else []
    return "; ".join(f"{listed(those)}: {support}" for support, those in names.items())
