"""The search of a recommendation: rounds of successive halving, then a plan of those that are left, all over cached
cells."""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Callable, Hashable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import replace
from functools import partial

from prebleexp.errors import InvalidInput, PrebleexpError
from prebleexp.experiment.cell import Cell
from prebleexp.experiment.results import Result, distinct
from prebleexp.intervals import mean_interval
from prebleexp.launch.configure import Settings, job
from prebleexp.launch.progress import Progress
from prebleexp.launch.rows import Row
from prebleexp.launch.session import Session
from prebleexp.planning import gpus, recorded
from prebleexp.planning.answer import Answer
from prebleexp.planning.beside import Beside, beyond
from prebleexp.planning.load import Search
from prebleexp.planning.together import together
from prebleexp.planning.trials import Sample, Trial
from prebleexp.recommending import halving
from prebleexp.recommending.asked import Asked
from prebleexp.recommending.candidates import KEPT, Candidate, Point, ordered, other_kinds, seen, without_twins
from prebleexp.recommending.designs import Design, shorter
from prebleexp.recommending.halving import Found, Judged, Priced, Trying
from prebleexp.recommending.space import Space, question_of, space
from prebleexp.recommending.strain import strain

LAST = 12
"""designs that the last round has, beside the best of each kind of GPU"""
MORE = (1.25, 1.5)
"""times the replicas of the answer, that are measured too, of so many designs: what more money buys"""
MORE_OF = 3
RIVALS = 3
"""routers beside that of the first, of which it is asked what survives a loss"""
NEAR = 0.9
"""of a limit of requests at a time: up to there steps are far from it, though requests that are part-way in their
prompts, or whose end is not heard of yet, hold places beside those of a step"""


def recommend(lines: Sequence[str], asked: Asked) -> Recommender:
    """Raises InvalidInput for what is not valid, or if nothing that can be had keeps the promise; PrebleexpError if
    no run succeeds."""
    made = Recommender(settings_of(lines), space(lines, asked), asked)
    made.search()
    return made


def settings_of(lines: Sequence[str]) -> Settings:
    from prebleexp.launch import several

    # without hardware: the first of each may not go together, and settings are none of theirs
    first = [one[0] for key, one in several.by_key(lines).items() if not key.startswith("hardware")]
    kept = [] if any(line.startswith("keep_requests=") for line in first) else ["keep_requests=none"]
    return job([*first, *kept]).settings


class Recommender(Session):
    """Finds the cheapest designs. All that its searches ask for at a time is computed at a time."""

    def __init__(self, settings: Settings, of: Space, asked: Asked) -> None:
        super().__init__(settings)
        self.space, self.asked = of, asked
        self.candidates: list[Candidate] = []
        """of the last round, the best first"""
        self.points: list[Point] = []
        """that the last round measured"""
        self.strain: Beside | None = None
        """what the first candidate does under a greater load, without a replica, and if step times are off"""
        self.rounds: list[int] = []
        """designs of each"""
        self.in_round: list[int] = []
        """runs that each asked for, by now"""
        self.equal: dict[str, set[str]] = {}
        """by a design's name the routers that did as well as its own before the last round, itself among them"""
        self._runs: dict[str, Result] = {}
        self._failed: dict[str, str] = {}
        self._peaks: dict[Hashable, dict[int, float]] = {}
        """by what designs are but for their limit, and by that, the most requests that a step of this round had"""
        self._of_last: set[str] = set()
        """keys of runs of the last round"""
        self._asides: set[str] = set()

    @property
    def job_dirs(self) -> bool:
        return False

    # ---------------------------------------------------------------- the search
    def search(self) -> None:
        start = time.perf_counter()
        designs = dict(enumerate(self.space.designs))
        known = {i: Priced(one.price, one.least, one.most, one.least) for i, one in designs.items()}
        for at, (share, seeds) in enumerate(halving.ROUNDS, 1):
            of = shorter(designs[0].contender, share)
            contests = {i: _contest(designs[i], share) for i in known}
            judged = self._round(
                at, {i: designs[i].with_stream(of) for i in known}, known, contests.__getitem__, share, seeds
            )
            self.rounds.append(len(known))
            if share < 1:
                going_on = halving.best_of_each(judged, contests.__getitem__)
            else:
                going_on = self._for_last(judged)
                self.equal = _equal(designs, judged)
            known = {one.name: halving.guessed(known[one.name], one) for one in going_on}
        self.rounds.append(len(known))
        self._last({i: designs[i] for i in known}, known)
        self.results = [[one] for one in self.found]
        self.axes = [key for key in self.space.axes if "/" not in key]
        self.seconds += time.perf_counter() - start

    @property
    def found(self) -> list[Result]:
        """All runs that were found so far."""
        return list(self._runs.values())

    @property
    def asides(self) -> AbstractSet[str]:
        """Headroom, the loss of a replica, and step times that are off."""
        return self._asides

    @property
    def last_rows(self) -> list[Row]:
        """Of runs of the last round."""
        return [one for one in self.rows if one["key"] in self._of_last]

    def _round(
        self,
        at: int,
        designs: Mapping[int, Design],
        known: Mapping[int, Priced],
        contest: Callable[[int], Hashable],
        share: float,
        seeds: int,
    ) -> list[Judged[int]]:
        """The best first."""
        of = len(halving.ROUNDS) + 1
        self.in_round.append(0)
        self._peaks.clear()
        self.say(
            f"round {at} of {of}: {len(designs):,} designs, {share:.0%} of a stream, {seeds} of them".replace("%", " %")
        )
        with Progress(len(designs), "designs") as progress:

            def find(tried: Mapping[int, Trying]) -> Mapping[int, Found]:
                return together(tried, partial(self._samples, designs))  # type: ignore[arg-type,return-value]

            return halving.round_of(
                known,
                lambda i: question_of(designs[i], self.asked, share, seeds),
                find,
                contest,
                lambda done: progress.advance(done - progress.done),
                lambda i: self._is_needless(designs[i]),
            )

    def _is_needless(self, of: Design) -> bool:
        """Whether its limit of requests at a time is all that tells it from a design that was tried in this round, and
        would not have mattered there."""
        tried = self._peaks.get(of.but_limit, {})
        return any(limit != of.limit and peak <= NEAR * min(limit, of.limit) for limit, peak in tried.items())

    def _for_last(self, judged: Sequence[Judged[int]]) -> list[Judged[int]]:
        """Of each model the best, and of each kind of GPU the best with that model, if any keeps the promise."""
        designs = self.space.designs
        models: dict[str | None, list[Judged[int]]] = {}
        kinds: dict[Hashable, Judged[int]] = {}
        for one in judged:
            models.setdefault(designs[one.name].model, []).append(one)
            if one.found.size is not None:
                kinds.setdefault(designs[one.name].gpu, one)
        each = math.ceil(LAST / len(models))
        found = [one for own in models.values() for one in halving.going_on(own, each)]
        return list({one.name: one for one in (*found, *kinds.values())}.values())

    def _last(self, designs: Mapping[int, Design], known: Mapping[int, Priced]) -> None:
        self.say(f"round {len(halving.ROUNDS) + 1}: {len(designs)} designs, whole streams, with intervals")
        self.in_round.append(0)
        searches = {i: self._search(one, known[i]) for i, one in designs.items()}
        sized: dict[tuple[int, int], list[Result]] = {}
        with Progress(len(designs), "designs"):
            answers = together(searches, partial(self._samples, designs, sized=sized))
            answers = {i: one for i, one in answers.items() if one.size is not None}
            if not answers:
                raise InvalidInput(self._none())
            made = self._made(designs, answers, sized)
            wanted = [
                (i, math.ceil(answers[i].size * times))  # type: ignore[operator]
                for i in list(made)[:MORE_OF]
                for times in MORE
                if math.ceil(answers[i].size * times) <= known[i].most  # type: ignore[operator]
            ]
            trials = [
                (i, Trial(float(size), seed, answers[i].requests))
                for i, size in wanted
                for seed in range(answers[i].seeds)
            ]
            self._samples(designs, trials, sized=sized)
        self.candidates = without_twins(list(self._made(designs, answers, sized).values()))
        self.points = [
            self._point(designs[i], size, _longest(results))
            for (i, size), results in sorted(sized.items())
            if i in answers
        ]
        first = self.candidates[0]
        question = question_of(first.design, self.asked, 1.0, self.asked.seeds)
        question = replace(question, tolerance=self.asked.tolerance)
        rivals = self._routers(first.design), other_kinds(self.candidates)
        self.strain = strain(first, *rivals, question, self.asked.prices, self._aside)

    def _routers(self, of: Design) -> list[Design]:
        """The same design with other routers that did as well, which the loss of a replica may tell apart."""
        names = self.equal.get(of.name, set()) - {of.at["policy"]}
        found = [one for one in self.space.designs if one.at["policy"] in names]
        return [one for one in found if {**one.at, "policy": of.at["policy"]} == of.at][:RIVALS]

    def _aside(self, cells: Sequence[Cell]) -> list[Result]:
        found = self._results(cells, self.settings.keep_requests)
        self.in_round[-1] += len(cells)
        self._asides |= {one.key for one in found} - self._runs.keys()
        self._runs = distinct([*self._runs.values(), *found])
        return found

    def _search(self, design: Design, known: Priced) -> Search:
        asked = self.asked
        question = replace(
            question_of(design, asked, 1.0, asked.seeds),
            tolerance=asked.tolerance,
            most_seeds=asked.most_seeds if design.contender.cell.draws else 1,
        )
        if design.contender.is_recorded:
            return recorded.fewest(question, known.guess, known.most, 1, known.least)
        question = replace(question, most_requests=question.requests)
        return gpus.fewest(question, known.guess, known.most, 1, known.least)

    def _made(
        self,
        designs: Mapping[int, Design],
        answers: Mapping[int, Answer],
        sized: Mapping[tuple[int, int], list[Result]],
    ) -> dict[int, Candidate]:
        """The best first."""
        found = {}
        for i, answer in answers.items():
            size = int(answer.size or 0)
            found[i] = self._candidate(designs[i], answer, size, sized[i, size])
        number = {id(one): i for i, one in found.items()}
        return {number[id(one)]: one for one in ordered(list(found.values()))}

    def _candidate(self, design: Design, answer: Answer, size: int, runs: Sequence[Result]) -> Candidate:
        return Candidate(design, answer, self._point(design, size, _longest(runs)))

    def _point(self, design: Design, size: int, runs: Sequence[Result]) -> Point:
        metrics = [one.metrics or {} for one in runs]
        to_keep = design.contender.to_keep
        kept = mean_interval([to_keep.kept(one) for one in metrics])
        found = {KEPT: kept, **seen(metrics)}
        return Point(design, size, found, kept[0] >= to_keep.target, beyond(design.at_size(size), metrics))

    def _none(self) -> str:
        most = max(one.most for one in self.space.designs)
        return f"nothing that can be had keeps the promise, not {most:,} replicas of any; most_gpus= or looser limits"

    # ---------------------------------------------------------------- runs
    def _samples(
        self,
        designs: Mapping[int, Design],
        batch: Sequence[tuple[int, Trial]],
        sized: dict[tuple[int, int], list[Result]] | None = None,
    ) -> list[Sample]:
        """What runs say; too few replicas to be split keep nothing. A run that failed keeps nothing either, and why is
        said; raises PrebleexpError if all of them did."""
        there = [trial.size >= designs[i].fewest for i, trial in batch]
        cells = [designs[i].cell_of(trial) for (i, trial), one in zip(batch, there, strict=True) if one]
        found = iter(self._results(cells, self.settings.keep_requests))
        self.in_round[-1] += len(cells)
        made = []
        for (i, trial), one in zip(batch, there, strict=True):
            if not one:
                made.append(Sample(0.0, 1, None))
                continue
            result = next(found)
            self._runs.setdefault(result.key, result)
            if result.error is not None:
                self._failed[designs[i].name] = f"{result.error.type}: {result.error.message}"
                made.append(Sample(0.0, 1, None))
                continue
            if sized is not None:
                sized.setdefault((i, int(trial.size)), []).append(result)
                self._of_last.add(result.key)
            made.append(designs[i].contender.sample(result.metrics or {}))
            limits = self._peaks.setdefault(designs[i].but_limit, {})
            peak = (result.metrics or {}).get("peak_running", math.inf)
            limits[designs[i].limit] = max(peak, limits.get(designs[i].limit, 0))
        if self._failed and len(self._failed) == len(self.space.designs):
            name, why = next(iter(self._failed.items()))
            raise PrebleexpError(f"{name}: a run failed: {why}")
        return made

    def _results(self, cells: Sequence[Cell], keep_requests: str) -> list[Result]:
        """Without a bar: there is one of designs."""
        return self._run(cells, keep_requests)

    def say(self, line: str) -> None:
        """Prints a line of progress to standard error."""
        print(f"prebleexp: {line}", file=sys.stderr, flush=True)

    @property
    def failures(self) -> Mapping[str, str]:
        """By design, why a run of it failed."""
        return self._failed


def _equal(designs: Mapping[int, Design], judged: Sequence[Judged[int]]) -> dict[str, set[str]]:
    def but_router(one: Judged[int]) -> str:
        at = {key: value for key, value in designs[one.name].at.items() if key != "policy"}
        return repr((at, one.found))

    found: dict[str, set[str]] = {}
    for one in judged:
        found.setdefault(but_router(one), set()).add(designs[one.name].at["policy"])
    return {designs[one.name].name: found[but_router(one)] for one in judged}


def _contest(of: Design, share: float) -> Hashable:
    """Among whom a design is dropped: a short stream tells budgets of one engine behind one router apart; all of it,
    whatever runs on one kind of GPU."""
    return of.but_budget if share < 1 else of.gpu


def _longest(runs: Sequence[Result]) -> list[Result]:
    """Runs that were made longer are another length, and those of a stream are there once."""
    most = max(one.cell.duration_s for one in runs)
    return list({one.key: one for one in runs if one.cell.duration_s == most}.values())
