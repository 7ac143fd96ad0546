"""What was simulated, and what is measured: computed from the rows, so that it is what these runs had."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from prebleexp.report.meanings import meanings
from prebleexp.report.summary import Row
from prebleexp.report.wording import listed, plain

SPECS = {
    "policy": "Which GPU a request is sent to.",
    "lengths": "What the policy is told of output lengths.",
    "overhead": "What a routing decision takes.",
    "engine": "How a GPU batches, queues and caches: continuous batching with a radix tree of prefixes.",
    "hardware": "What a prefill or a decode step costs, and how much KV fits.",
    "workload": "Where requests come from. The same seed gives every policy the same requests.",
    "output_length": "How many tokens requests generate.",
}
SHOWN = 80
"""letters of a value"""


@dataclass(frozen=True)
class Section:
    title: str
    entries: tuple[tuple[str, str], ...]


def methods(rows: Sequence[Row]) -> list[Section]:
    """The cluster as these rows have it, and the definitions of the metrics they have."""
    cluster = [(spec, f"{SPECS[spec]} {_choices(spec, rows)}") for spec in SPECS if any(spec in row for row in rows)]
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
        fields = [column for column in members[0] if column.startswith(f"{spec}.")]
        fixed = []
        for field in fields:
            values = {row.get(field) for row in members}
            text = plain(next(iter(values)))
            if len(values) == 1 and text != "null" and len(text) <= SHOWN:
                fixed.append(f"{field.removeprefix(f'{spec}.')}={text}")
        found.append(f"{plain(name)} ({', '.join(fixed)})" if fixed else plain(name))
    return f"Here: {'; '.join(found)}."
