"""The tables `gpu_states`, `autoscaler_decisions` and `moves` of docs/tables.md, and the form in which the cache has
their rows: of each table its columns, as lists."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, get_type_hints

from prebleexp.sim.history import Decision, GpuState, History, Move

Columns = Mapping[str, Sequence[Any]]
Kept = Mapping[str, Columns]
"""by table; a table without rows is not there"""
Execute = Callable[..., Any]
"""a statement, and its parameters"""
OF_KIND = {int: "BIGINT", float: "DOUBLE", bool: "BOOLEAN"}
TYPES = {
    "gpu_states": {"at_s": "DOUBLE", "gpu": "BIGINT", "state": "VARCHAR", "cluster_group": "BIGINT", "role": "VARCHAR"},
    "autoscaler_decisions": {"at_s": "DOUBLE"} | dict.fromkeys(Decision._fields[1:], "BIGINT"),
    "moves": {name: OF_KIND[kind] for name, kind in get_type_hints(Move).items()},
}


def kept(history: History, groups: Sequence[tuple[int, str | None]] = (), with_requests: bool = True) -> Kept:
    """In numbers and words that JSON has a form for; nothing of a run in which nothing happens to GPUs. `groups` are
    those of the cluster: how many replicas each has, and its role. Moves are kept where requests are, as there may
    be as many."""
    of = [(i, role) for i, (replicas, role) in enumerate(groups) for _ in range(replicas)]
    rows: dict[str, list[tuple[float | int | str | None, ...]]] = {
        "gpu_states": [
            (float(at_s), int(gpu), GpuState(state).name.lower(), *(of[gpu] if of else (None, None)))
            for at_s, gpu, state in history.gpu_states
        ],
        "autoscaler_decisions": [(float(one.at_s), *map(int, one[1:])) for one in history.decisions],
        "moves": list(history.moves) if with_requests else [],
    }
    return {
        table: dict(zip(TYPES[table], map(list, zip(*some, strict=True)), strict=True))
        for table, some in rows.items()
        if some
    }


def bring_up(execute: Execute, histories: Mapping[str, Kept]) -> None:
    """Load what was kept of runs, by key, unless it is there. The tables are there, if empty, from now on."""
    for table, types in TYPES.items():
        columns = ", ".join(f"{name} {kind}" for name, kind in {"key": "VARCHAR", **types}.items())
        execute(f"CREATE TABLE IF NOT EXISTS {table} ({columns})")
        of_table = {key: one[table] for key, one in histories.items() if table in one}
        if not of_table:
            continue
        there = {key for (key,) in execute(f"SELECT DISTINCT key FROM {table}").fetchall()}  # noqa: S608 -- our own names
        missing = {key: one for key, one in of_table.items() if key not in there}
        if missing:
            incoming = {"key": [key for key, one in missing.items() for _ in one["at_s"]]}
            incoming |= {name: [value for one in missing.values() for value in one[name]] for name in types}
            lists = ", ".join(f"unnest(?::{types.get(name, 'VARCHAR')}[]) AS {name}" for name in incoming)
            execute(f"INSERT INTO {table} BY NAME SELECT {lists}", list(incoming.values()))
