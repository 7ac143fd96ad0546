"""The database as an index of a cache folder: what it lacks of the runs and experiments there, and bringing it up."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from prebleexp import store
from prebleexp.errors import PrebleexpError
from prebleexp.experiment import history
from prebleexp.experiment.cache import Cache, Entry
from prebleexp.experiment.history import Experiment
from prebleexp.history_tables import Kept

Row = Mapping[str, Any]


def bring_up(
    cache: Cache,
    experiments: Sequence[Experiment],
    rows: Sequence[Row] = (),
    request_files: Mapping[str, Path] | None = None,
    failures: Sequence[Row] = (),
) -> None:
    """Bring the database up to these experiments and to those that wait. `rows`, `request_files` and `failures` are of
    runs that the caller has at hand; what else the database lacks of the experiments' runs is read from the cache.

    Raises Held if another process has the database open, PrebleexpError if it cannot be written.
    """
    by_id = {one.id: one for one in (*history.waiting(cache), *experiments)}
    keys = {str(run["key"]) for one in by_id.values() for run in one.runs}
    at_hand = {str(row["key"]) for row in (*rows, *failures)}
    others = keys - at_hand
    if others:
        others -= _listed(cache).keys()
    found = Found(cache, sorted(others))
    store.load(
        cache.database,
        [*rows, *found.rows],
        {**(request_files or {}), **found.request_files},
        [*failures, *found.failures],
        list(by_id.values()),
        histories=found.histories | _histories(cache, rows),
    )
    history.settle(cache, by_id.values())


def refresh(cache: Cache) -> None:
    """Before the database is read: bring it up to what waits, as far as it can be written, and say on standard error
    how many runs it lacks. Raises PrebleexpError if another process keeps it open."""
    if history.waiting(cache):
        with suppress(PrebleexpError):  # then what it has must do
            bring_up(cache, [])
    finished = keys_of(cache)
    unlisted = len(finished - _listed(cache).keys()) if finished else 0
    if unlisted:
        print(
            f"prebleexp: {len(finished) - unlisted:,} of {len(finished):,} cached runs are listed; "
            "python -m prebleexp cache index lists them all",
            file=sys.stderr,
        )


def missing(cache: Cache, on_read: Callable[[], object] = lambda: None) -> Found:
    """The runs that the database lacks. `on_read` is called for each that is read. Raises Held likewise."""
    listed, finished = _listed(cache), keys_of(cache)
    found = Found(cache, [*sorted(finished - listed.keys()), *cache.failed_keys()], on_read)
    for key in (key for key, requests in listed.items() if not requests and key in finished):
        if cache.requests_path(key).exists():
            found.request_files[key] = cache.requests_path(key)
    return found


def rebuild(cache: Cache, found: Found) -> int:
    """Bring the database up to all that the cache has, given what it lacks, and take out what the cache has no more;
    returns how many runs are listed then. Raises as `bring_up`."""
    experiments = history.every(cache)

    def kept() -> set[str]:  # a run is in the cache before it is in the database
        return keys_of(cache) | set(cache.failed_keys())

    store.load(cache.database, found.rows, found.request_files, found.failures, experiments, kept, found.histories)
    history.settle(cache, experiments)
    return len(keys_of(cache) & _listed(cache).keys())


def keys_of(cache: Cache) -> set[str]:
    """Of all finished runs, unread and without a look at a single file: there may be many."""
    found: set[str] = set()
    with suppress(FileNotFoundError):
        for folder in (one for one in os.scandir(cache.runs) if len(one.name) == 2 and one.is_dir()):
            names = (file.name for file in os.scandir(folder))
            found.update(name[:64] for name in names if len(name) == 69 and name.endswith(".json"))
    return found


def _histories(cache: Cache, rows: Iterable[Row]) -> dict[str, Kept]:
    """What became of the GPUs and of moved requests of runs at hand, of those that have a metric of that."""
    keys = [
        str(row["key"])
        for row in rows
        if row.get("most_replicas") is not None or row.get("moves") or row.get("moves_aborted")
    ]
    return {key: entry.history for key in keys if (entry := cache.get(key)) is not None}


def _listed(cache: Cache) -> dict[str, bool]:
    """What the database has; nothing where there is none, or a damaged one, which `store.load` sets aside."""
    if not cache.database.is_file():
        return {}
    try:
        return store.listed(cache.database)
    except store.Held:
        raise
    except PrebleexpError:
        return {}


class Found:
    """Runs as the cache has them, in rows for the database."""

    def __init__(self, cache: Cache, keys: Iterable[str], on_read: Callable[[], object] = lambda: None) -> None:
        self.rows: list[Row] = []
        self.failures: list[Row] = []
        self.request_files: dict[str, Path] = {}
        self.histories: dict[str, Kept] = {}
        keys = list(keys)
        if not keys:
            return

        from prebleexp.launch import configs
        from prebleexp.launch.from_cache import Options
        from prebleexp.launch.rows import stored_entry, stored_failed

        options = Options(configs.loader())
        for key in keys:
            on_read()
            run = cache.get(key) or cache.failure(key)
            if isinstance(run, Entry):
                self.rows.append(stored_entry(run, options))
                if run.history:
                    self.histories[key] = run.history
                if run.requests_sha256 is not None:
                    self.request_files[key] = cache.requests_path(key)
            elif run is not None:
                self.failures.append(stored_failed(run, options))
