"""The results of many cells: what the cache has of them, and the rest computed."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from prebleexp.errors import InvalidInput
from prebleexp.experiment.backends import Backend, Threads
from prebleexp.experiment.cache import Cache, Entry
from prebleexp.experiment.cell import Cell
from prebleexp.experiment.claims import Claims
from prebleexp.experiment.key import CONFIGURATION, contents, digest
from prebleexp.experiment.pool import compute
from prebleexp.experiment.remeasured import remeasured
from prebleexp.experiment.work import Attempt, Failure, Orders, Task, keep

RETRIES = ("failed", "none", "all")
POLL_S = 0.1
LEASE_S = 300.0
"""for so long another process may have a run claimed while none of those we wait for is finished"""


@dataclass(frozen=True)
class Result:
    """What became of a cell: metrics, or an error, or neither yet."""

    cell: Cell
    key: str
    metrics: dict[str, Any] | None = None
    error: Failure | None = None
    cached: bool = False
    provenance: Mapping[str, Any] = field(default_factory=dict)

    @property
    def seconds(self) -> float:
        """In the simulator, when it was computed."""
        return float(self.provenance.get("seconds", 0.0))


@dataclass(frozen=True)
class Plan:
    """What the cache has of some cells, and what there is to compute."""

    cells: Sequence[Cell]
    keys: Sequence[str]
    """of the cells, in order; equal cells have equal keys"""
    found: dict[str, Result]
    """finished, or failed and not to be tried again"""
    missing: list[Task]
    failed_before: dict[str, Failure]
    """of those missing, why they failed when they were last tried"""
    remeasured: list[tuple[Entry, bytes | None]]
    """of those found, what the cache does not have yet: runs that it has under other limits, and their requests where
    they are to be kept"""

    def results(self) -> list[Result]:
        """One a cell, in order; those that are missing have neither metrics nor error, unless they failed before."""
        return [
            replace(self.found.get(key) or Result(cell, key, error=self.failed_before.get(key)), cell=cell)
            for cell, key in zip(self.cells, self.keys, strict=True)
        ]


def look_up(cells: Sequence[Cell], cache: Cache, *, keep_requests: str = "first", retry: str = "failed") -> Plan:
    """Ask the cache for cells, and compute nothing.

    `keep_requests` is "all", "none" or "first": of cells that differ only in their seed, that of the least. `retry`
    says what is computed although there is a result: "failed" runs, "none" or "all". Raises InvalidInput for cells that
    have no key.
    """
    of_cells = contents(cells)
    keys = [digest(content) for content in of_cells]
    kept = _kept(cells, keys, keep_requests)
    found: dict[str, Result] = {}
    missing: dict[str, Task] = {}
    failed: dict[str, Failure] = {}
    again: list[tuple[Entry, bytes | None]] = []
    for cell, key, content in zip(cells, keys, of_cells, strict=True):
        if key in found or key in missing:
            continue
        known = None if retry == "all" else _known(cache, cell, key, key in kept)
        if known is not None and (known.error is None or retry == "none"):
            found[key] = known
            continue
        other = None if retry == "all" else remeasured(cache, cell, key, content)
        if other is not None:
            found[key] = _found(cell, other[0])
            again.append((other[0], other[1]) if key in kept else (replace(other[0], requests_sha256=None), None))
            continue
        missing[key] = Task(cell, key, content, key in kept)
        if known is not None and known.error is not None:
            failed[key] = known.error
    return Plan(cells, keys, found, list(missing.values()), failed, again)


def distinct(results: Iterable[Result]) -> dict[str, Result]:
    """By key, each run once: one that was asked for again was computed all the same."""
    found: dict[str, Result] = {}
    for result in results:
        if result.key not in found or not result.cached:
            found[result.key] = result
    return found


def run_all(
    cells: Sequence[Cell],
    cache: Cache,
    *,
    workers: int | None = None,
    backend: Backend | None = None,
    keep_requests: str = "first",
    retry: str = "failed",
    time_limit_s: float | None = None,
    check: bool = True,
    on_plan: Callable[[int, int], object] = lambda runs, missing: None,
    on_done: Callable[[], object] = lambda: None,
) -> list[Result]:
    """One result a cell, in order; the cache is asked first (see `look_up`), equal cells are computed once, a failure
    does not stop the rest.

    Runs that another process is computing are waited for. `time_limit_s` is for each run. `check`: plugs that are not
    the package's look at every index. `on_plan` is told how many runs there are, and how many of them are to be
    computed; `on_done` is called in the calling thread whenever a run is finished. Raises InvalidInput, before anything
    is computed, for cells that have no key and for a cache that could not keep the results; PrebleexpError if the disk
    refuses them or no worker answers.
    """
    plan = look_up(cells, cache, keep_requests=keep_requests, retry=retry)
    if plan.missing and cache.read_only:
        raise InvalidInput(
            f"{len(plan.missing)} of {len(set(plan.keys))} runs are not in the cache folder {cache.folder}, and it "
            f"cannot be written: {cache.read_only}; choose another with cache_dir="
        )
    if not cache.read_only:
        for entry, requests in plan.remeasured:
            cache.put(entry, requests)
    on_plan(len(set(plan.keys)), len(plan.missing))
    if plan.missing:
        for _ in plan.found:
            on_done()
        backend = backend or Threads()
        workers = workers or os.cpu_count() or 1
        orders = Orders(None if backend.elsewhere else cache, time_limit_s, workers, check)
        cell_of = {task.key: task.cell for task in plan.missing}
        for result in _compute(plan.missing, cache, backend, orders, again=retry == "all"):
            plan.found[result.key] = replace(result, cell=cell_of[result.key])
            on_done()
    return plan.results()


def _compute(tasks: list[Task], cache: Cache, backend: Backend, orders: Orders, again: bool) -> Iterator[Result]:
    """Compute what nobody else does, and wait for the rest."""
    task_of = {task.key: task for task in tasks}
    with Claims(cache.folder) as claims:
        elsewhere: list[Task] = []
        arrived: list[Result] = []

        def admit(batch: Sequence[Task]) -> list[Task]:
            mine = []
            for task in batch:
                if not claims.take(task.key):
                    elsewhere.append(task)
                    continue
                known = None if again else cache.get(task.key, requests=task.keep_requests)
                if known is not None:  # somebody has finished it meanwhile
                    claims.release(task.key)
                    arrived.append(_found(task.cell, known))
                    continue
                cache.forget(task.key, failure_only=not again)
                mine.append(task)
            return mine

        waiting = list(tasks)
        while waiting:
            for attempt in compute(waiting, backend, orders, admit):
                if backend.elsewhere:
                    attempt = keep(attempt, task_of[attempt.key], cache)
                claims.release(attempt.key)
                yield _result(attempt, task_of[attempt.key])
            yield from arrived
            arrived.clear()
            waiting = yield from _wait(elsewhere, cache, claims)
            elsewhere.clear()


def _wait(tasks: Sequence[Task], cache: Cache, claims: Claims) -> Generator[Result, None, list[Task]]:
    """Until another process has finished these; yields their results and returns those that it gave up."""
    left = {task.key: task for task in tasks}
    if left:
        runs = "a run" if len(left) == 1 else f"{len(left)} runs"
        print(f"waiting for {runs} that another process computes", file=sys.stderr)
    progress = time.monotonic()
    while left:
        time.sleep(POLL_S)
        free = False
        for key, task in list(left.items()):
            known = _known(cache, task.cell, key, task.keep_requests)
            if known is not None:
                del left[key]
                progress = time.monotonic()
                yield known
            elif claims.take(key):
                claims.release(key)
                free = True
        if free:
            break
        if time.monotonic() - progress > LEASE_S:
            claims.disregard()
            break
    return list(left.values())


def _known(cache: Cache, cell: Cell, key: str, requests: bool) -> Result | None:
    entry = cache.get(key, requests)
    if entry is not None:
        return _found(cell, entry)
    failed = cache.failure(key)
    if failed is not None:
        return Result(cell, key, None, Failure(**failed.error), True, failed.provenance)
    return None


def _found(cell: Cell, entry: Entry) -> Result:
    return Result(cell, entry.key, dict(entry.metrics), None, True, entry.provenance)


def _result(attempt: Attempt, task: Task) -> Result:
    metrics = None if attempt.metrics is None else dict(attempt.metrics)
    return Result(task.cell, task.key, metrics, attempt.error, False, attempt.provenance)


def _kept(cells: Sequence[Cell], keys: Sequence[str], keep_requests: str) -> set[str]:
    if keep_requests != "first":
        return set(keys) if keep_requests == "all" else set()
    numbers: dict[tuple[object, ...], int] = {}
    known: dict[tuple[int, ...], int] = {}
    """of objects: cells share most of theirs, and to hash what they are made of takes long"""
    least: dict[int, tuple[int, str]] = {}
    for cell, name in zip(cells, keys, strict=True):
        configuration = CONFIGURATION(cell)
        at = tuple(map(id, configuration))
        if at not in known:
            known[at] = numbers.setdefault(configuration, len(numbers))
        least[known[at]] = min(least.get(known[at], (cell.seed, name)), (cell.seed, name))
    return {name for _, name in least.values()}
