"""How far a recommendation comes with what the cache has, and how long the rest would take."""

from __future__ import annotations

import os
from collections.abc import Sequence
from functools import cached_property

from prebleexp.experiment.cache import Cache
from prebleexp.experiment.cell import Cell
from prebleexp.experiment.results import Result, look_up
from prebleexp.experiment.work import Task
from prebleexp.launch.configure import Settings
from prebleexp.launch.survey import duration, expected_s, known_of
from prebleexp.recommending import halving
from prebleexp.recommending.asked import Asked
from prebleexp.recommending.recommender import LAST, Recommender, settings_of
from prebleexp.recommending.space import Space, space

USUAL, USUAL_LAST = 1.5, 5.0
"""sizes that a design is tried at, in a round and in the last one, as 288 designs for a log of 738 requests had"""


class Unknown(Exception):
    """A run that is needed, and that the cache does not have."""


def outlook(lines: Sequence[str], asked: Asked) -> Outlook:
    """Which runs of a search are cached, as far as these go. Computes none; raises InvalidInput as `recommend` does."""
    made = Outlook(settings_of(lines), space(lines, asked), asked)
    made.search()
    return made


class Outlook(Recommender):
    """A search that looks its runs up in the cache and computes none: what `--dry` reports."""

    def __init__(self, settings: Settings, of: Space, asked: Asked) -> None:
        super().__init__(settings, of, asked)
        self.missing: list[Task] = []

    @cached_property
    def cache(self) -> Cache:
        return Cache(self.settings.cache_dir, make=False)

    def search(self) -> None:
        try:
            super().search()
        except Unknown as unknown:
            self.missing = unknown.args[0]

    def _results(self, cells: Sequence[Cell], keep_requests: str) -> list[Result]:
        plan = look_up(cells, self.cache, keep_requests=keep_requests, retry=self.settings.retry)
        if plan.missing:
            raise Unknown(plan.missing)
        return plan.results()

    def say(self, line: str) -> None:
        pass

    def lines(self) -> list[list[str]]:
        """Of each round how many designs it has, how many of its runs are in the cache, and how many are to come."""
        return [
            [str(i), f"{designs:,}", f"{known:,}", f"about {left:,}" if left else "0"]
            for i, (designs, known, left) in enumerate(self._rounds(), 1)
        ]

    def _rounds(self) -> list[tuple[int, int, int]]:
        designs, last = self.space.designs, len(halving.ROUNDS)
        contests = len({one.but_budget for one in designs})
        usual = [len(designs), contests, min(contests, LAST + len({one.gpu for one in designs}) - 1)]
        counts = [*self.rounds, *(usual[len(self.rounds) :] if self.missing else [])]
        seeds = [*(seeds if self._seeds > 1 else 1 for _, seeds in halving.ROUNDS), self._seeds]
        found = []
        for i, count in enumerate(counts):
            known = self.in_round[i] if i < len(self.in_round) else 0
            runs = round(count * seeds[i] * (USUAL if i < last else USUAL_LAST))
            is_over = not self.missing or i + 1 < len(self.in_round)
            found.append((count, known, 0 if is_over else max(runs - known, 1)))
        return found

    @property
    def _seeds(self) -> int:
        """Request streams of the last round: of a recording there is one, in every round."""
        one = self.space.designs[0].contender
        return self.asked.seeds if one.cell.draws and not one.is_recorded else 1

    def says(self) -> str:
        """How long the rest would take, in a line."""
        if not self.missing:
            return "all that this recommendation needs is in the cache"
        expected = expected_s(self.missing, list(known_of(self.found, self.cache)))
        if expected is None:
            return "how long that takes is not known before the first run"
        workers = self.settings.workers or os.cpu_count() or 1
        left = sum(left for _, _, left in self._rounds())
        seconds = expected / len(self.missing) * left / workers
        return f"about {left:,} runs, {duration(seconds)} with workers={workers}, beside compiling; a guess"
