"""A plan as one command: its contenders are a sweep's jobs, and what their searches ask for are cached cells."""

from __future__ import annotations

import sys
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import replace
from functools import partial
from typing import Any, TypeVar

from omegaconf import OmegaConf

from prebleexp import losses
from prebleexp.errors import InvalidInput, PrebleexpError
from prebleexp.experiment.cell import Cell
from prebleexp.experiment.results import Result
from prebleexp.experiment.work import Failure
from prebleexp.launch import besides, idle
from prebleexp.launch.asked_plan import MANY, NOT_ONE, Asked, asked_by
from prebleexp.launch.configure import Job, Settings
from prebleexp.launch.multirun import Multirun
from prebleexp.launch.parts import key_of
from prebleexp.launch.plan_progress import Stage, line
from prebleexp.launch.plans import Plans
from prebleexp.launch.rows import Row
from prebleexp.launch.session import Session
from prebleexp.planning import contender_names
from prebleexp.planning.answer import Answer, Verdict
from prebleexp.planning.beside import Beside, beside
from prebleexp.planning.contender import DURATION_S, GPUS, RPS, Contender, question
from prebleexp.planning.load import Search
from prebleexp.planning.planned import Planned, best_first, others_first
from prebleexp.planning.promise import refuse_target
from prebleexp.planning.together import together
from prebleexp.planning.trials import Question, Sample, Trial

Kind = TypeVar("Kind", bound="Planner")
RIVALS = 3
"""contenders beside the best, those of other GPUs first, of which it is said what survives the loss of a GPU"""
USUAL_RUNS = {GPUS: 40}
"""of a search, as two plans had; of a load …"""
USUAL = 60
"""… as coverage was measured (docs/validation.md). Of a recording it depends on the answer alone, so nobody knows"""


def sweep(multirun: Multirun, overrides: Sequence[str]) -> Planner:
    """Find the answers of all parts. Raises as `plan` does."""
    return made_of(Planner, multirun, asked_by(multirun, overrides))


def plan(overrides: Sequence[str], asked: Asked) -> Planner:
    """Find all answers. Raises InvalidInput for what is not valid, PrebleexpError if a run fails."""
    return launched(Planner, overrides, asked)


def launched(kind: type[Kind], overrides: Sequence[str], asked: Asked) -> Kind:
    keys = {key_of(line) for line in overrides}
    kept = [] if "keep_requests" in keys else ["keep_requests=none"]
    return made_of(kind, Multirun.of([*overrides, *kept]), asked)


def made_of(kind: type[Kind], multirun: Multirun, asked: Asked) -> Kind:
    made = kind(multirun.settings, asked)
    multirun.launch(made)
    own = {name: multirun.master[name] for name in multirun.master if name != "hydra"}
    made.configuration = OmegaConf.to_yaml(OmegaConf.create(own))
    return made


class Planner(Session):
    """Finds the answer of each job's contender. All that its searches ask for at a time is computed at a time."""

    asks_on = True

    def __init__(self, settings: Settings, asked: Asked) -> None:
        super().__init__(settings)
        self.asked = asked
        self.found: list[Planned] = []
        self.configuration = ""
        """that the contenders' settings were applied to, as YAML"""
        self._at: dict[str, dict[str, object]] = {}
        """by contender, its place on the axes, or in a sweep of plans"""
        self._of: dict[str, list[Result]] = {}
        """by contender, its runs"""
        self._looked: set[str] = set()
        """keys of first looks, but for those at a size that was asked for, too"""
        self._stage = Stage(())
        self._recorded: set[str] = set()
        """contenders whose load is a recording"""
        self._failed: dict[str, PrebleexpError] = {}
        """by contender, or what is asked of the best besides, why it has no answer"""
        self.beside: Beside | None = None

    @property
    def asides(self) -> AbstractSet[str]:
        return self._looked

    @property
    def leaves_out(self) -> bool:
        return not self.settings.parts

    @property
    def left_out(self) -> list[str]:
        """What does not fit, and so is no contender: each reason once; what failed; and whose GPUs cannot hold all
        requests."""
        counts = Counter(str(error) for _, error in self.misfits)
        said = [f"left out{f', {count} contenders' if count > 1 else ''}: {why}" for why, count in counts.items()]
        said += [f"left out: {name}: {why}" for name, why in self._failed.items()]
        of = {one.name: self._of[one.name] for one in self.found}
        return (
            said
            + self._idle_settings
            + losses.refused([(name, [run.metrics or {} for run in runs]) for name, runs in of.items()])
        )

    @property
    def _idle_settings(self) -> list[str]:
        """Of seeds, which a recording has none of."""
        said = [(name, getattr(self.asked, name), getattr(Plans, name)) for name in ("seeds", "most_seeds")]
        given = [f"{name}={value}" for name, value, usual in said if value != usual]
        if not given or not self._recorded >= {one.name for one in self.found}:
            return []
        return [f"a recording is one stream: {' and '.join(given)} do{'es' if len(given) == 1 else ''} nothing here"]

    @property
    def job_dirs(self) -> bool:
        return False

    def run(self, jobs: Sequence[Job], axes: Sequence[str] = ()) -> list[list[Result]]:
        """A contender of which a run fails is left out. Raises what it failed with where there is no other, or in a
        sweep; InvalidInput for what cannot be planned."""
        self._refuse_differences(jobs)
        start = time.perf_counter()
        self.axes += [axis for axis in axes if axis not in self.axes]
        given = [Contender(job.cells[0], self.asked.searched) for job in jobs]
        for i, one in enumerate(given):
            self._check_load(one)
            self._check_length(one, self._lasting(i))
            if self.asked.prices is not None:
                self.asked.prices.an_hour(one.cell)  # whether all its kinds have one
        if self.asked.target_given:
            refuse_target([one.to_keep for one in given])
        contenders = self._named(given)
        self._of = {name: [] for name in contenders}
        self._recorded = {name for name, one in contenders.items() if one.is_recorded}
        self._find(contenders)
        if not self.asked.answer_only:
            self._look_beside()
        self.results += self._of.values()
        self.axes += [axis for axis in (self.asked.searched, "policy") if axis not in self.axes]
        self.seconds += time.perf_counter() - start
        return [self._of[name] for name in contenders]

    def _check_load(self, one: Contender) -> None:
        if not one.is_recorded and not self.asked.load_given:
            load = one.load_key
            raise InvalidInput(NOT_ONE.format(load=load, said="neither", many=MANY[load]))
        if one.is_recorded and self.asked.load_given and RPS not in one.cell.workload.obeys:
            raise InvalidInput(f"rps does nothing here: {idle.why(RPS, one.cell)}")

    def _check_length(self, one: Contender, lasting: bool) -> None:
        if not one.cell.workload.synthetic and DURATION_S not in one.cell.workload.obeys:
            if lasting and one.cell.horizon == "drain" and one.cell.profile.changes_nothing:
                raise InvalidInput(f"duration_s does nothing here: {idle.why('duration_s', one.cell)}")
            return
        if one.is_nested and not lasting:
            name = one.cell.names["workload"]
            raise InvalidInput(
                f"workload={name}: how long are its runs? Set duration_s=60, say: each seed draws such a window"
            )
        if lasting and not one.is_nested:
            raise InvalidInput("duration_s: a plan's runs have as many requests at every load: requests=")

    def _lasting(self, i: int) -> bool:
        """Whether it is said how long the runs of a job are, by the command or by its part of a sweep."""
        parts = {part.name: (*part.overrides, *part.params) for part in self.settings.parts}
        own = parts[self.places[i].part] if self.places else ()
        return self.asked.lasting or any(key_of(line) == "duration_s" for line in own)

    @property
    def tried(self) -> list[Row]:
        """A row for each run of a search; in a sweep of plans with its part, variant and line."""
        rows: Sequence[Row] = self.rows
        if self.places:
            rows = [row | {"part": part} for part, of in self.rows_by_part.items() for row in of]
        return [row for row in rows if row["key"] not in self._looked]

    def _find(self, contenders: Mapping[str, Contender]) -> None:
        searches: dict[str, Search] = {}
        for (name, one), look in self._looks(contenders):
            try:
                searches[name] = one.search(self._question(one), look)
            except InvalidInput as error:
                self._failed[name] = error
        self._refuse_failures(contenders)
        answers = together(searches, partial(self._samples, contenders))
        self._refuse_failures(contenders)
        for name, answer in answers.items():
            self.found.append(Planned(name, self._at[name], contenders[name], answer, self.asked.prices))

    def _refuse_failures(self, contenders: Mapping[str, Contender]) -> None:
        if self._failed and (self.places or len(self._failed) == len(contenders)):
            name, why = next(iter(self._failed.items()))
            raise (InvalidInput if isinstance(why, InvalidInput) else PrebleexpError)(f"{name}: {why}")

    def _look_beside(self) -> None:
        """What else there is to say of the best answer."""
        order = [one for one in best_first(self.found) if one.answer.verdict is Verdict.FOUND]
        if not order:
            return
        best, *rivals = others_first(order)[: 1 + RIVALS]
        size, metrics = besides.at_answer(best, self._of[best.name])
        question = replace(self._question(best.contender), requests=best.answer.requests)
        tried = set(self._of)
        self.beside = beside(best, question, metrics, size, self._answers, self._metrics, rivals)
        own = {result.key for name in tried for result in self._of[name]}
        self._looked |= {one.key for name, of in self._of.items() if name not in tried for one in of} - own

    def _answers(self, asked: Mapping[str, tuple[Contender, Search]]) -> dict[str, Answer]:
        self._of |= {name: [] for name in asked}
        contenders = {name: one for name, (one, _) in asked.items()}
        return together({name: search for name, (_, search) in asked.items()}, partial(self._samples, contenders))

    def _metrics(self, name: str, cells: Sequence[Cell]) -> list[Mapping[str, Any]]:
        """Raises PrebleexpError if a run fails."""
        self._of[name], self._stage = [], Stage([self._briefly(name)], len(self.found))
        found = self._computed([(name, cell) for cell in cells])
        if (error := self._failed.pop(name, None)) is not None:
            raise error
        return [result.metrics or {} for result in found]

    @property
    def _usual(self) -> int:
        """Runs that a search takes."""
        return max(USUAL_RUNS.get(self.asked.searched, USUAL), 6 * self.asked.seeds)

    def _briefly(self, name: str) -> str:
        """A contender, or what of the best is asked besides, without saying which that is."""
        return name.rpartition(", ")[2] if self.found else name

    def _looks(self, contenders: Mapping[str, Contender]) -> list[tuple[tuple[str, Contender], Mapping[str, object]]]:
        self._stage = Stage(["a first look"])
        found = self._computed([(name, one.first_look()) for name, one in contenders.items()])
        self._looked |= {result.key for result in found}
        looks = zip(contenders.items(), found, strict=True)
        return [(of, result.metrics) for of, result in looks if result.metrics is not None]

    def _question(self, of: Contender) -> Question:
        asked = self.asked
        return question(
            of,
            tolerance=asked.tolerance,
            seeds=asked.seeds,
            most_seeds=asked.most_seeds,
            requests=None if self.places and of.is_nested else asked.requests,  # a sweep may have parts of both kinds
            most_requests=asked.most_requests,
        )

    def _samples(self, contenders: Mapping[str, Contender], batch: Sequence[tuple[str, Trial]]) -> list[Sample | None]:
        searched = {one.searched for one in contenders.values()}
        sizes = dict.fromkeys((name, f"{contenders[name].shown(trial.size):g}") for name, trial in batch)
        named = [
            f"{f'{contenders[name].searched}=' if len(searched) > 1 or i == 0 else ''}{size} ({self._briefly(name)})"
            for i, (name, size) in enumerate(sizes)
        ]
        found = len(self.found) or len(contenders) - len({name for name, _ in batch})
        asked = Counter(name for name, _ in batch)
        to_come = (
            0
            if self.found or self._recorded
            else sum(max(self._usual - len(self._of[name]), n) for name, n in asked.items())
        )
        self._stage = Stage(named, found, 1 + max(trial.seed for _, trial in batch), to_come)
        cells = [(name, contenders[name].cell_of(trial)) for name, trial in batch]
        results = self._computed(cells)
        self._looked -= {result.key for result in results}
        return [
            None if one.metrics is None else contenders[name].sample(one.metrics)
            for (name, _), one in zip(batch, results, strict=True)
        ]

    def _computed(self, cells: Sequence[tuple[str, Cell]]) -> list[Result]:
        found = self._results([cell for _, cell in cells], self.settings.keep_requests)
        for (name, _), result in zip(cells, found, strict=True):
            self._of[name].append(result)
            if result.error is not None:
                self._failed.setdefault(name, _failure(result.error))
        return found

    def _say_plan(self, runs: int, missing: int) -> None:
        if missing:
            done = len({one.key for of in self._of.values() for one in of})
            seeds = (self.asked.seeds, self.asked.most_seeds)
            print(line(self._stage, len(self._at), done, runs, missing, seeds), file=sys.stderr, flush=True)

    def _named(self, contenders: Sequence[Contender]) -> dict[str, Contender]:
        """By what tells them apart; without repetitions. Raises InvalidInput where a sweep's lines are the same."""
        found: dict[str, Contender] = {}
        if self.places:
            for place, one in zip(self.places, contenders, strict=True):
                name = f"{place.variant}: {place.line}"
                if name in found:
                    raise InvalidInput(f"sweep.parts: {name} is there twice; a sweep of plans has one value of a key")
                found[name], self._at[name] = one, {"variant": place.variant, "line": place.line}
            return found
        axes = [axis for axis in self.axes if axis not in (self.asked.searched, "seed")]
        at = contender_names.places([one.cell for one in contenders], axes)
        for name, where, one in zip(contender_names.names(at), at, contenders, strict=True):
            found[name], self._at[name] = one, where
        return found


def _failure(error: Failure) -> PrebleexpError:
    """What it is said to a user as: bad input needs no type."""
    if error.type == InvalidInput.__name__:
        return InvalidInput(error.message)
    return PrebleexpError(f"a run failed: {error.type}: {error.message}")
