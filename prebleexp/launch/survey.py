"""What a command would compute: done, failed and missing runs, and how long the rest would take."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from itertools import islice

import numpy as np

from prebleexp.experiment.cache import Cache
from prebleexp.experiment.cell import Cell
from prebleexp.experiment.results import Result, look_up
from prebleexp.experiment.work import Task
from prebleexp.launch import tables
from prebleexp.launch.parts import Place
from prebleexp.launch.progress import runs_of
from prebleexp.launch.rows import Row
from prebleexp.launch.session import Session
from prebleexp.workloads.replayed import WHOLE, Replayed

SAMPLE = 2000
"""entries of the cache that are looked at for durations, if the sweep itself tells too little"""
OVERHEAD_S = 0.001
"""of each run, besides its simulation"""
Known = tuple[str, float, float]
"""of a run that was computed: its policy's class, its requests, its seconds"""


class Survey(Session):
    """A sweep that looks its runs up in the cache and computes none: what `--dry` reports."""

    @property
    def job_dirs(self) -> bool:
        return False

    @cached_property
    def cache(self) -> Cache:
        return Cache(self.settings.cache_dir, make=False)

    def _results(self, cells: Sequence[Cell], keep_requests: str) -> list[Result]:
        plan = look_up(cells, self.cache, keep_requests=keep_requests, retry=self.settings.retry)
        self.tasks.update({task.key: task for task in plan.missing})
        return plan.results()

    @cached_property
    def tasks(self) -> dict[str, Task]:
        """What would be computed, by key."""
        return {}

    def show(self, listing: bool) -> None:
        """How many runs are done, failed and missing; if `listing`, of each configuration that lacks some, as a table
        of the first."""
        if self.settings.output != "table":
            tables.write_rows([*self._lines()] if listing else [*self._totals()], self.settings.output)
            return
        lines = [*self._lines()] if listing else [*self._totals()]
        if lines:
            heads = list(lines[0])
            show = tables.show_first if listing else tables.show
            show(heads, [[tables.number(line[head]) for head in heads] for line in lines])
        script = self.settings.backend.job_script() if listing and self.tasks else None
        if script is not None:
            print(f"\nwould submit:\n{script}", end="")

    def outlook(self) -> str:
        """What is left, and how long it would take, in a line."""
        if not self.tasks:
            return f"{runs_of(len(self.runs))}, nothing to compute"
        workers = self.settings.workers or os.cpu_count() or 1
        known = list(known_of(self.runs, self.cache))
        seconds = expected_s(self.tasks.values(), known)
        says = f"{len(self.tasks):,} of {runs_of(len(self.runs))} to compute"
        if seconds is None:
            return f"{says}; how long that takes is not known before the first"
        seconds /= workers
        new = {task.cell.names.get("policy", "") for task in self.tasks.values()} - self._policies(known)
        judged = f"judged by {runs_of(len(known))}"
        if new:
            judged = f"a guess: nothing is known yet of {', '.join(sorted(new))}"
        return f"{says}: about {duration(seconds)} with workers={workers}, {judged}"

    def _policies(self, known: Sequence[Known]) -> set[str]:
        """The names of those, among the tasks', of which runs are known."""
        targets = {target for target, _, _ in known}
        return {
            task.cell.names.get("policy", "") for task in self.tasks.values() if _target(task.cell.policy) in targets
        }

    def _totals(self) -> Iterator[Row]:
        """A row for each part, and one for all."""
        if self.places:
            for part in self.settings.parts:
                of_part = [of for of, place in zip(self.results, self.places, strict=True) if place.part == part.name]
                yield {"part": part.name} | self._count({one.key: one for of in of_part for one in of}.values())
            yield {"part": "all"} | self._count(self.runs)
        else:
            yield self._count(self.runs)

    def _lines(self) -> Iterator[Row]:
        places: Sequence[Place | None] = self.places or [None] * len(self.results)
        for results, place in zip(self.results, places, strict=True):
            if not any(result.key in self.tasks for result in results):
                continue
            columns = results[0].cell.columns() | ({"part": place.part, "line": place.line} if place else {})
            axes = [axis for axis in self.axes if axis in columns] or ["gpus", "rps", "policy"]
            yield {axis: columns[axis] for axis in axes} | self._count(results)

    def _count(self, results: Iterable[Result]) -> Row:
        states = Counter(
            "failed" if result.error else "missing" if result.metrics is None else "done" for result in results
        )
        return {"runs": states.total(), **{state: states[state] for state in ("done", "failed", "missing")}}


def known_of(runs: Sequence[Result], cache: Cache) -> Iterator[Known]:
    """Those of these runs that were computed; if none was, those of the cache."""
    done = [result for result in runs if result.metrics is not None]
    for result in done:
        assert result.metrics is not None
        yield _target(result.cell.policy), float(result.metrics["n_requests"] or 0), result.seconds
    if not done:
        for key in islice(cache.keys(), SAMPLE):
            entry = cache.get(key)
            if entry is not None and "policy" in entry.content["cell"]:  # some engines route by themselves
                target = str(entry.content["cell"]["policy"]["_target_"])
                yield target, float(entry.metrics["n_requests"] or 0), float(entry.provenance["seconds"])


def expected_s(tasks: Iterable[Task], known: Sequence[Known]) -> float | None:
    """Seconds of one worker for these tasks. A run takes so much, and so much a request, as runs of the same policy
    did, or of any. None if nothing is known."""
    if not known:
        return None
    costs: dict[str, tuple[float, float]] = {}
    total = 0.0
    for task in tasks:
        name = _target(task.cell.policy)
        if name not in costs:
            costs[name] = _line([one for one in known if one[0] == name] or known)
        fixed, each = costs[name]
        total += OVERHEAD_S + fixed + each * _requests(task.cell, known)
    return total


def _requests(cell: Cell, known: Sequence[Known]) -> float:
    """Of a run: by its rate, or of a recording; of others as many as known ones had."""
    workload = cell.workload
    if isinstance(workload, Replayed) and workload.load in (None, *WHOLE) and workload.recorded_rps:
        return workload.span_s * (cell.rps if "rps" in workload.obeys else workload.recorded_rps)
    if "rps" in workload.obeys:
        return cell.rps * cell.duration_s
    return sum(one[1] for one in known) / len(known)


def _target(policy: object) -> str:
    """The path of its class, as keys have it."""
    return f"{type(policy).__module__}.{type(policy).__qualname__}"


def _line(known: Sequence[Known]) -> tuple[float, float]:
    """Seconds a run and seconds a request, by least squares."""
    requests, seconds = np.array([one[1] for one in known]), np.array([one[2] for one in known])
    spread = float(((requests - requests.mean()) ** 2).sum())
    if spread == 0:
        return 0.0, float(seconds.sum() / max(requests.sum(), 1))
    each = float(((requests - requests.mean()) * (seconds - seconds.mean())).sum()) / spread
    each = max(each, 0.0)
    return max(float(seconds.mean() - each * requests.mean()), 0.0), each


def duration(seconds: float) -> str:
    """A duration in words, such as "5 min"."""
    for unit, size in (("h", 3600), ("min", 60)):
        if seconds >= 2 * size:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds:.0f} s" if seconds >= 1 else "a second"
