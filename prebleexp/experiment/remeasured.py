"""A run under other limits: what is kept of its requests says how well these were kept, and nothing is simulated.

The same run under different limits has different keys. Where its requests are kept under one of them, the others find
them by the key that it has without limits: they are there, or a note says where.
"""

from __future__ import annotations

import io
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from prebleexp.experiment.cache import Cache, Entry
from prebleexp.experiment.cell import Cell, spec_identity
from prebleexp.experiment.key import digest
from prebleexp.service.attainment import NEEDS, Attained


def note(cache: Cache, cell: Cell, key: str, content: Mapping[str, Any]) -> None:
    """After the requests of a run were kept: let it be found under other limits. Raises PrebleexpError if the disk
    refuses."""
    plain = without_limits(cell, content)
    if plain != key and not cell.slo.needs_gaps:  # else its requests have more columns
        cache.note_requests(plain, key)


def remeasured(cache: Cache, cell: Cell, key: str, content: Mapping[str, Any]) -> tuple[Entry, bytes] | None:
    """The run as it is under its cell's limits, with its requests; None where requests are not kept under any, or do
    not say that. Raises InvalidInput if the cache cannot be read."""
    if cell.slo.needs_unloaded or cell.slo.needs_gaps or not cell.faults.changes_nothing:
        return None  # when a GPU was lost is not kept, and promises of the minute after are metrics
    plain = key if cell.slo.changes_nothing else without_limits(cell, content)
    for other in (plain, cache.noted_requests(plain)):
        entry = None if other in (None, key) else cache.get(str(other), requests=True)
        if entry is not None:
            requests = cache.requests_path(entry.key).read_bytes()
            return replace(entry, key=key, content=content, metrics=_measured(entry, requests, cell)), requests
    return None


def without_limits(cell: Cell, content: Mapping[str, Any]) -> str:
    """The key that a run has where nothing is promised."""
    level = cell.slo.without_limits
    own = {} if level.changes_nothing else {"slo": spec_identity(level)}
    rest = {name: value for name, value in content["cell"].items() if name != "slo"}
    return digest({**content, "cell": rest | own})


def _is_lost(metric: str) -> bool:
    """Whether requests alone do not say what it is under other limits."""
    return "_slowdown_" in metric


def _measured(entry: Entry, requests: bytes, cell: Cell) -> dict[str, Any]:
    import pyarrow.parquet as pq

    table = pq.read_table(io.BytesIO(requests), columns=[*NEEDS])
    columns = {name: table[name].to_numpy() for name in table.column_names}
    attained = Attained.of_kept(columns, entry.metrics["end_s"], cell.gpus, cell.slo)
    others = {name: None if _is_lost(name) else value for name, value in entry.metrics.items()}
    return others | attained.of_limits
