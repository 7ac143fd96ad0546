"""What a plan says of its best answer besides: what will be seen, how far the model may be off, what a greater load and
the loss of a GPU do."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, TypeVar

from prebleexp.errors import InvalidInput, PrebleexpError
from prebleexp.experiment.cell import Cell
from prebleexp.hardware.domain import farthest
from prebleexp.intervals import mean_interval
from prebleexp.planning.answer import Answer
from prebleexp.planning.contender import GPUS, RPS, USERS, Contender
from prebleexp.planning.load import Search
from prebleexp.planning.loss import Bereft, Lost, bereft, replicas
from prebleexp.planning.planned import Planned
from prebleexp.planning.trials import Question, Trial
from prebleexp.workloads.replayed import Replayed

TIMES = ("ttft", "tpot", "itl", "latency")
KEPT = "slo_attainment"
SEEN = (*(f"{of}_{at}_s" for of in TIMES for at in ("mean", "p50", "p95", "p99")), KEPT)
MORE = 1.2
"""times the load, of which it is said what is kept"""

Mean = tuple[float, float | None]
Metrics = Sequence[Mapping[str, Any]]
Answers = Callable[[Mapping[str, tuple[Contender, Search]]], Mapping[str, Answer]]
Runs = Callable[[str, Sequence[Cell]], Metrics]
Kind = TypeVar("Kind", bound=Contender)


class Grown(NamedTuple):
    """What is kept of a greater load."""

    kept: float
    """the share, mean over the streams"""
    half_width: float | None
    """of the interval of that mean; None of a single stream"""
    ends: tuple[float, float] | None = None
    """of a recording those of its interval, by batches of its requests"""


@dataclass(frozen=True)
class Beside:
    """Of one contender. Means are over seeds, with the half-widths of their intervals."""

    of: Planned
    size: float
    """GPUs, or the load, of which `seen` is"""
    seen: Mapping[str, Mean]
    off: float | None
    """how far step times may be off, as a share; None if nobody says"""
    slower: Answer | None
    """if steps take that much longer"""
    faster: Answer | None
    most: Answer | None
    """the greatest load for the GPUs of the answer"""
    grown: Grown | None
    """what is kept of `MORE` times the load"""
    lost: Lost | None
    """how the promise is kept to the requests due in the minute after a replica is lost"""
    spare: Lost | None
    """likewise, with one replica more than the answer has"""
    enough: Answer | None
    """the fewest GPUs that keep the promise in that minute too; None where none can be lost, or a load was searched"""
    unknown: tuple[str, ...]
    """what could not be said, and why"""
    beyond: str = ""
    """what of the runs at the answer is larger than what step times were measured at; empty: nothing"""
    others: tuple[tuple[Planned, Answer], ...] = ()
    """of other contenders, likewise, the fewest that keep it in that minute too: the answer's may not be the cheapest
    way to survive a loss"""
    more: Answer | None = None
    """the fewest GPUs for `MORE` times the load, not fewer than the answer has"""


def beside(
    of: Planned,
    question: Question,
    at_answer: Metrics,
    size: float,
    answers: Answers,
    runs: Runs,
    others: Sequence[Planned] = (),
) -> Beside:
    """`at_answer` are the metrics of the runs at `size`, next to the answer; `answers` and `runs` compute what is
    asked of them, by name: of a search that fails there is no answer, and of runs that fail a PrebleexpError. Of
    `others` it is known what survives a loss, too."""
    asked = replace(question, most_seeds=question.seeds)
    off, slower, faster, most, more = _searched(of, asked, answers)
    found = strained(of, asked.seeds, runs)
    enough = survivors([of, *others], asked, answers)
    return Beside(
        of=of,
        size=size,
        seen=_seen(at_answer),
        off=off,
        slower=slower,
        faster=faster,
        most=most,
        grown=found.grown,
        lost=found.lost,
        spare=found.spare,
        enough=enough.get(of.name),
        unknown=found.unknown,
        beyond=beyond(of.cell, at_answer),
        more=more,
        others=tuple((one, enough[one.name]) for one in others if one.name in enough),
    )


class Strained(NamedTuple):
    """What the GPUs of an answer do under a greater load, and without a replica; as `Beside` has it."""

    grown: Grown | None
    lost: Lost | None
    spare: Lost | None
    unknown: tuple[str, ...]


def strained(of: Planned, seeds: int, runs: Runs, alike: bool = True) -> Strained:
    """Over the first `seeds` streams; `runs` computes what is asked of it, by name. Unless replicas are `alike`, it is
    not asked what the loss of one does."""
    unknown: list[str] = []

    def known(name: str, make: Callable[[], tuple[Kind, Trial]]) -> tuple[Kind, list[Trial], Metrics] | None:
        try:
            contender, first = make()
            trials = [first._replace(seed=seed) for seed in range(seeds)]
            cells = [contender.cell_of(trial) for trial in trials]
            return contender, trials, runs(f"{of.name}, {name}", cells)
        except PrebleexpError as error:
            unknown.append(f"{name} is not known: {error}")
            return None

    def grown() -> Grown | None:
        found = known(f"what is kept of {MORE:g} times the load", lambda: _grown(of, of.answer.requests))
        if found is None:
            return None
        to_keep, metrics = found[0].to_keep, found[2]
        ends = to_keep.alone(metrics[0]) if of.contender.is_recorded else None
        return Grown(*mean_interval([to_keep.kept(one) for one in metrics]), ends)

    def lost(name: str, spare: int) -> Lost | None:
        found = known(name, lambda: bereft(of, spare))
        if found is None:
            return None
        contender, trials, metrics = found
        minute = contender.lost(trials, metrics)
        is_told_first = spare == 0 or of.is_alone
        return unharmed(contender, trials, minute) if minute is not None and is_told_first else minute

    def unharmed(contender: Bereft, trials: Sequence[Trial], minute: Lost) -> Lost:
        """With what the busiest minute keeps without the loss, where it misses any, and one share is promised."""
        if not minute.busiest or minute.kept >= 1 or contender.to_keep.count > 1:
            return minute
        name = "the busiest minute without a loss"
        try:
            metrics = runs(f"{of.name}, {name}", contender.unharmed(trials))
        except PrebleexpError as error:
            unknown.append(f"{name} is not known: {error}")
            return minute
        return minute._replace(unharmed=contender.kept_unharmed(metrics))

    more = grown()
    alone = lost("the loss of a replica", 0) if alike and not of.is_alone else None
    spare = lost("the loss of one of N + 1", 1) if alike else None
    return Strained(more, alone, spare, tuple(unknown))


def _seen(runs: Metrics) -> dict[str, Mean]:
    found = {}
    for name in SEEN:
        values = [one[name] for one in runs if one[name] is not None]
        if values:
            found[name] = mean_interval(values)
    return found


def beyond(cell: Cell, runs: Metrics) -> str:
    """What of a cell's runs is larger than what was measured; of several kinds of GPU it is not known which had it."""
    if "hardware" in cell.engine.brings or cell.cluster.groups:
        return ""
    return farthest([(cell.hardware.domain.columns(), one) for one in runs])


def _searched(
    of: Planned, question: Question, answers: Answers
) -> tuple[float | None, Answer | None, Answer | None, Answer | None, Answer | None]:
    """How far step times may be off, and the answers with slower and faster ones, the greatest load, and the GPUs for a
    greater one."""
    one, guess = of.contender, _guess(of)
    off, asked = _slowed(of, question)
    names = list(asked)
    if one.searched == GPUS and not one.is_recorded and one.load:
        larger = Contender(of.cell, RPS if one.load_key == RPS else USERS)
        asked["greatest load"] = larger, larger.search_from(question, one.load)
    if (busier := _busier(of)) is not None:
        asked[f"{MORE:g} times the load"] = busier, busier.search_from(question, guess, replicas(of))
    found = answers({f"{of.name}, {name}": search for name, search in asked.items()})
    slower, faster = (found.get(f"{of.name}, {name}") for name in names) if names else (None, None)
    most, more = (found.get(f"{of.name}, {name}") for name in ("greatest load", f"{MORE:g} times the load"))
    return off, slower, faster, most, more


def slowed(of: Planned, question: Question, answers: Answers) -> tuple[float | None, Answer | None, Answer | None]:
    """How far step times may be off, and the answers with slower and faster ones."""
    off, asked = _slowed(of, question)
    found = answers({f"{of.name}, {name}": search for name, search in asked.items()})
    slower, faster = (found.get(f"{of.name}, {name}") for name in asked) if asked else (None, None)
    return off, slower, faster


def _slowed(of: Planned, question: Question) -> tuple[float | None, dict[str, tuple[Contender, Search]]]:
    one, cell = of.contender, of.contender.cell
    asked: dict[str, tuple[Contender, Search]] = {}
    off = None if cell.cluster.groups or "hardware" in cell.engine.brings else cell.hardware.off
    if off is not None:
        for name, factor in (("slower", 1 + off), ("faster", 1 / (1 + off))):
            other = replace(one, cell=replace(cell, hardware=cell.hardware.slowed(factor)))
            asked[f"steps {off:.0%} {name}".replace("%", " %")] = other, other.search_from(question, _guess(of))
    return off, asked


def _guess(of: Planned) -> float:
    """Where a search like that of the answer begins."""
    assert of.answer.size is not None
    return of.answer.size / (of.contender.each if of.contender.searched == GPUS else 1)


def for_more(of: Planned, question: Question, answers: Answers) -> Answer | None:
    """The fewest GPUs for `MORE` times the load, not fewer than the answer has; None where there is no such load."""
    busier, name = _busier(of), f"{of.name}, {MORE:g} times the load"
    if busier is None:
        return None
    return answers({name: (busier, busier.search_from(question, _guess(of), replicas(of)))}).get(name)


def _busier(of: Planned) -> Contender | None:
    """The same under a greater load, for which GPUs are searched; None where there is none, or a load was searched."""
    one, cell = of.contender, of.contender.cell
    if one.searched != GPUS or cell.cluster.groups:
        return None
    try:
        larger, trial = _grown(of, of.answer.requests)
    except InvalidInput:
        return None
    if one.is_recorded:
        return larger
    if one.load_key == RPS:
        return replace(one, cell=replace(cell, rps=trial.size))
    return replace(one, cell=replace(cell, workload=cell.workload.with_users(int(trial.size))))


def survivors(found: Sequence[Planned], question: Question, answers: Answers) -> dict[str, Answer]:
    """Of each, by name, the fewest GPUs of those that keep the promise that keep it in the minute after one is lost,
    too."""
    asked: dict[str, tuple[Contender, Search]] = {}
    for of in found:
        if of.contender.searched != GPUS:
            continue
        try:
            contender, first = bereft(of, 1)
        except InvalidInput:
            continue  # which is said of the loss itself
        # runs are not made longer: the minute after a loss is no longer in them
        to_keep, requests = contender.to_keep, first.requests
        mine = replace(question, target=to_keep.target, strictest=to_keep.strictest)
        mine = replace(mine, requests=requests, most_requests=requests)
        asked[of.name] = contender, contender.search_from(mine, first.size, replicas(of))
    known = answers({f"{name}, N + 1": search for name, search in asked.items()})
    return {name: known[to] for name in asked if (to := f"{name}, N + 1") in known}


def _grown(of: Planned, requests: int) -> tuple[Contender, Trial]:
    """The same GPUs under more load."""
    one, cell = of.contender, of.cell
    if one.is_recorded and RPS in cell.workload.obeys:
        return replace(one, cell=replace(cell, rps=float(f"{cell.rps * MORE:.4g}"))), Trial(replicas(of), 0, requests)
    if one.is_recorded:
        if not isinstance(cell.workload, Replayed):
            raise InvalidInput("the recording has no rate that could be another")
        quicker = replace(cell.workload, compress=cell.workload.compress * MORE)
        return replace(one, cell=replace(cell, workload=quicker)), Trial(replicas(of), 0, requests)
    load = of.load or math.nan
    larger = Contender(cell, RPS if one.load_key == RPS else USERS)
    return larger, Trial(float(f"{load * MORE:.4g}") if one.load_key == RPS else math.ceil(load * MORE), 0, requests)
