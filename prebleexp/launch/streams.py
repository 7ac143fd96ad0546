"""Two runs of one stream, batch by batch: which of the requests that the cache keeps of a run kept its limits."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields, replace

import numpy as np

from prebleexp.comparison import ATTAINMENT, Measured, Value
from prebleexp.experiment.cache import Cache, Entry
from prebleexp.service.attainment import NEEDS, Attained
from prebleexp.service.batches import Stream
from prebleexp.service.level import SLOWDOWNS, ServiceLevel

MARGIN = "slo_margin"
UNKEPT = ("_target_", "alone_on")
"""of a service level in a key: its class, and hardware that only limits on slowdowns need"""


def with_streams(cache: Cache, keys: Sequence[str], runs: Sequence[Measured]) -> list[Measured]:
    """The runs, with their streams where a configuration has one seed, as nothing else says how sure they are then.
    Raises InvalidInput if the cache cannot be read."""
    places = [repr(sorted(run.place.items(), key=str)) for run in runs]
    seeds: dict[str, set[Value]] = {}
    for run, place in zip(runs, places, strict=True):
        seeds.setdefault(place, set()).add(run.seed)
    return [
        replace(run, streams=_of_key(cache, key)) if len(seeds[place]) == 1 and _may_have(run) else run
        for key, run, place in zip(keys, runs, places, strict=True)
    ]


def _may_have(run: Measured) -> bool:
    return any(run.metrics.get(name) is not None for name in (ATTAINMENT, MARGIN))


def _of_key(cache: Cache, key: str) -> Mapping[str, Stream]:
    entry = cache.get(key, requests=True)
    return {} if entry is None else _streams(cache, entry)


def _streams(cache: Cache, entry: Entry) -> dict[str, Stream]:
    """By metric; nothing where requests alone do not say who kept the limits: those on slowdowns, or of other code."""
    import pyarrow.parquet as pq

    kept = entry.content["cell"].get("slo") or {}
    limits = {name: value for name, value in kept.items() if name not in UNKEPT}
    if not limits.keys() <= {one.name for one in fields(ServiceLevel)} or any(limits.get(name) for name in SLOWDOWNS):
        return {}
    level = ServiceLevel(**limits)
    table = pq.read_table(cache.requests_path(entry.key), columns=[*NEEDS])
    if len(table.column_names) < len(NEEDS):
        return {}
    columns = {name: table[name].to_numpy() for name in table.column_names}
    attained = Attained.of_kept(columns, entry.metrics["end_s"], 1, level)  # shares need no number of GPUs
    due_s = np.where(attained.due, columns["due_s"], np.nan)
    found = {name: attained.decisive(name.removeprefix("slo_")) for name in (ATTAINMENT, MARGIN)}
    return {name: Stream(due_s, flags) for name, flags in found.items() if flags is not None}
