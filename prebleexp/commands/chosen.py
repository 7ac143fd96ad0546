"""Which runs of a cache are meant, by the names that they have on the command line."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from prebleexp import indexing, store
from prebleexp.commands.arguments import Given
from prebleexp.errors import unknown
from prebleexp.experiment import maintenance
from prebleexp.experiment.cache import Cache
from prebleexp.experiment.maintenance import Item
from prebleexp.launch import configs
from prebleexp.launch.from_cache import Options

NAMES = "policy", "workload"
FILTERS = (*NAMES, "gpus", "replicas", "rps", "duration_s", "seed", "state", "code")


def matching(cache: Cache, given: Given) -> list[Item]:
    """Those that have what is asked for. Raises InvalidInput, naming what there is, for a name that no run has."""
    filters = {name: given[name] for name in FILTERS if given[name] is not None}
    of_sweep = _of_sweep(cache, given["sweep"])
    found, named, there = [], Named(), {name: set[str]() for name in NAMES}
    for item in maintenance.items(cache):
        columns = named.columns(item)
        for name in NAMES:
            there[name].add(str(columns.get(name)))
        inside = of_sweep is None or item.key in of_sweep
        if inside and all(_same(columns.get(name), value) for name, value in filters.items()):
            found.append(item)
    for name in NAMES:
        if name in filters and filters[name] not in there[name]:
            raise unknown(f"{name} of a run:", filters[name], there[name])
    return found


def _of_sweep(cache: Cache, sweep: str | None) -> set[str] | None:
    """Keys of a sweep's runs; None if no sweep is asked for."""
    if sweep is None:
        return None
    indexing.refresh(cache)
    known = store.names(cache.database)["experiment"]
    if sweep not in known:
        raise unknown("sweep", sweep, known)
    return set(store.keys(cache.database, experiment=sweep))


class Named:
    """What runs are called: by options of ./conf and those that ship, as on the command line."""

    def __init__(self) -> None:
        self._options: Options | None = None
        self._names: dict[tuple[str, str], str] = {}

    def columns(self, item: Item) -> dict[str, Any]:
        """As a row of a table."""
        cell = item.run.content["cell"]
        return item.columns() | {spec: self.option(spec, cell[spec]) for spec in ("policy", "workload") if spec in cell}

    def option(self, spec: str, content: Mapping[str, Any]) -> str:
        """That a spec is of; of a class that has none, its module."""
        at = spec, json.dumps(content, sort_keys=True)
        if at not in self._names:
            self._options = self._options or Options(configs.loader())
            module = str(content["_target_"]).split(".")[-2]
            self._names[at] = self._options.nearest(spec, content) or module
        return self._names[at]


def _same(value: object, wanted: str) -> bool:
    if isinstance(value, int | float):
        try:
            return value == float(wanted)
        except ValueError:
            return False
    return str(value) == wanted
