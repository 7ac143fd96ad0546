"""What a plan would compute: how many runs are to come, if each answer is where its search begins."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from functools import cached_property

from prebleexp.experiment.cache import Cache
from prebleexp.experiment.cell import Cell
from prebleexp.experiment.results import Result, look_up
from prebleexp.experiment.work import Task
from prebleexp.launch.asked_plan import Asked, asked_by
from prebleexp.launch.configure import Settings
from prebleexp.launch.multirun import Multirun
from prebleexp.launch.planner import Planner, launched, made_of
from prebleexp.launch.survey import duration, expected_s, known_of
from prebleexp.planning.assumed import Assumed
from prebleexp.planning.contender import GPUS, LOOK_REPLICAS, Contender
from prebleexp.planning.together import together
from prebleexp.planning.trials import Sample, Trial

BESIDE = {GPUS: 4}
"""times as many runs as a search what is said besides its answer takes (3.5 and 3.9 of two plans); of a load once, at
most"""


def sweep_outlook(multirun: Multirun, overrides: Sequence[str]) -> Outlook:
    return made_of(Outlook, multirun, asked_by(multirun, overrides))


def outlook(overrides: Sequence[str], asked: Asked) -> Outlook:
    """Which runs of a plan are in the cache and which are to come. Computes none; raises InvalidInput as `plan`
    does."""
    return launched(Outlook, overrides, asked)


class Unknown(Exception):
    """A run of what is said besides the answers, and the cache does not have it."""


class Outlook(Planner):
    """Looks up, and computes nothing: how far the searches come with what the cache has."""

    def __init__(self, settings: Settings, asked: Asked) -> None:
        super().__init__(settings, asked)
        self.missing: dict[str, list[Task]] = {}
        """by contender, what it would ask for"""
        self._unseen: set[str] = set()
        """contenders whose first look is missing"""

    @cached_property
    def cache(self) -> Cache:
        return Cache(self.settings.cache_dir, make=False)

    def _find(self, contenders: Mapping[str, Contender]) -> None:
        for name, one in contenders.items():
            try:
                super()._find({name: one})
            except Unknown:
                self._of[name] = []
                self._assume(name, one)

    def _assume(self, name: str, one: Contender) -> None:
        """Count what a contender's search asks for, if its answer is where it begins."""
        question, assumed = self._question(one), Assumed(one)
        ((look, task),) = self._there([one.first_look()])
        if look is None:
            self._unseen.add(name)
        guess = LOOK_REPLICAS if one.searched == GPUS else one.load or 1.0
        search = one.search_from(question, guess) if look is None else one.search(question, look.metrics or {})
        known = {} if look is None else {look.key: look}
        tasks = {} if task is None else {task.key: task}

        def samples(batch: Sequence[tuple[str, Trial]]) -> list[Sample]:
            found = []
            for (_, trial), (result, task) in zip(
                batch, self._there([one.cell_of(of) for _, of in batch]), strict=True
            ):
                if result is not None:
                    known[result.key] = result
                    sample = one.sample(result.metrics or {})
                    assumed.know(trial, sample)
                else:
                    assert task is not None
                    tasks[task.key] = task
                    sample = assumed.sample(trial)
                found.append(sample)
            return found

        together({name: search}, samples)
        self._of[name], self.missing[name] = list(known.values()), list(tasks.values())

    def _there(self, cells: Sequence[Cell]) -> list[tuple[Result | None, Task | None]]:
        """Of each cell the run that the cache has, or what would compute it."""
        plan = look_up(cells, self.cache, keep_requests=self.settings.keep_requests, retry=self.settings.retry)
        tasks = {task.key: task for task in plan.missing}
        return [(None, tasks[result.key]) if result.key in tasks else (result, None) for result in plan.results()]

    def _look_beside(self) -> None:
        if self.missing:
            return
        known = set(self._of)
        try:
            super()._look_beside()
        except Unknown as unknown:
            self.missing[next(name for name in reversed(self._of) if name not in known)] = unknown.args[0]

    def _results(self, cells: Sequence[Cell], keep_requests: str) -> list[Result]:
        plan = look_up(cells, self.cache, keep_requests=keep_requests, retry=self.settings.retry)
        if plan.missing:
            raise Unknown(plan.missing)
        return plan.results()

    def lines(self) -> list[list[str]]:
        """Of each contender its runs in the cache, and how many are to come; of a recording at least, as streams like
        it have intervals that no cell of the cache tells of."""
        found = [[name, f"{len(results):,}", self._count(name)] for name, results in self._of.items()]
        how = "at least" if self._recorded & self.missing.keys() else "about"
        return [*found, *([["besides the answers", "0", f"{how} {beside:,}"]] if (beside := self._besides) else [])]

    def _count(self, name: str) -> str:
        if name not in self.missing:
            return "0"
        return f"{'at least' if name in self._recorded else 'about'} {len(self.missing[name]):,}"

    @property
    def _besides(self) -> int:
        """Runs of what is said besides the answers, while these are not known."""
        sizes = [len(self._of[name]) + len(of) for name, of in self.missing.items() if name in self._at]
        if self.asked.answer_only or self.places or not sizes:
            return 0
        return round(BESIDE.get(self.asked.searched, 1) * sum(sizes) / len(sizes))

    def says(self) -> str:
        """How long the rest would take, in a line."""
        if not self.missing:
            return "all that this plan needs is in the cache"
        workers = self.settings.workers or os.cpu_count() or 1
        to_come = sum(map(len, self.missing.values()))
        seconds = 0.0
        for name, tasks in self.missing.items():
            expected = expected_s(tasks, list(known_of(self._of[name], self.cache)))
            if expected is None:
                return f"how long that takes is not known before the first run{self._guessed}"
            seconds += expected * (1 + self._besides / to_come)
        took = duration(seconds / workers)
        return f"about {took} with workers={workers}, beside compiling; a guess{self._guessed}"

    @property
    def _guessed(self) -> str:
        """Of GPUs before a first look, at how many the count is aimed."""
        if not self._unseen or self.asked.searched != GPUS:
            return ""
        return f", as if {LOOK_REPLICAS} replicas were enough; each smaller number is tried, so a larger one takes more"
