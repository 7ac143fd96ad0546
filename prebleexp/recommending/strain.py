"""What the first candidate does under a greater load, without a replica, and if step times are off."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from prebleexp.errors import PrebleexpError
from prebleexp.experiment.cell import Cell
from prebleexp.experiment.results import Result
from prebleexp.planning.answer import Answer
from prebleexp.planning.beside import Beside, for_more, slowed, strained, survivors
from prebleexp.planning.contender import Contender
from prebleexp.planning.load import Search
from prebleexp.planning.planned import Planned
from prebleexp.planning.prices import Prices
from prebleexp.planning.together import together
from prebleexp.planning.trials import Question, Sample, Trial
from prebleexp.recommending.candidates import Candidate
from prebleexp.recommending.designs import Design

FIRST = "the first"
SPLIT = "what the loss of a replica does is not known of a split, where it matters which role it has"


def strain(
    of: Candidate,
    others: Sequence[Design],
    kinds: Sequence[Candidate],
    question: Question,
    prices: Prices,
    results: Callable[[Sequence[Cell]], Sequence[Result]],
) -> Beside:
    """Over the streams of the last round, and of the first `question.seeds` of them where GPUs are searched. `others`
    have routers that did as well, of which it is asked what survives a loss, too; likewise of the best of other `kinds`
    of GPU, if it costs less than what survives one of the first. `results` computes cells."""
    design, answer = of.design, of.answer.times(of.design.each)
    planned = Planned(FIRST, design.at, design.contender, answer, prices)
    alike = [Planned(str(one.at["policy"]), one.at, one.contender, answer, prices) for one in others]

    def metrics(_: str, cells: Sequence[Cell]) -> Sequence[Mapping[str, Any]]:
        found = results([design.parted(cell, cell.gpus // design.each) for cell in cells])
        for one in found:
            if one.error is not None:
                raise PrebleexpError(f"a run failed: {one.error.type}: {one.error.message}")
        return [one.metrics or {} for one in found]

    def answers(asked: Mapping[str, tuple[Contender, Search]]) -> Mapping[str, Answer]:
        def samples(batch: Sequence[tuple[str, Trial]]) -> list[Sample | None]:
            found = results([asked[name][0].cell_of(trial) for name, trial in batch])
            return [
                None if one.metrics is None else asked[name][0].sample(one.metrics)
                for (name, _), one in zip(batch, found, strict=True)
            ]

        return together({name: search for name, (_, search) in asked.items()}, samples)

    found = strained(planned, answer.seeds, metrics, alike=design.split is None)
    one = Beside(
        of=planned,
        size=of.replicas * design.each,
        seen={},
        off=None,
        slower=None,
        faster=None,
        most=None,
        enough=None,
        **found._asdict(),
    )
    if design.split is not None:
        return replace(one, unknown=(*one.unknown, SPLIT))
    asked = replace(question, requests=answer.requests, most_seeds=question.seeds)
    off, slower, faster = slowed(planned, asked, answers)
    breaks = found.grown is not None and found.grown.kept < answer.target
    more = for_more(planned, asked, answers) if breaks else None
    enough = survivors([planned, *alike], asked, answers)
    own = enough.get(planned.name)
    most = math.inf if own is None or own.size is None else prices.an_hour(planned.at_size(own.size))
    rivals = [_planned(one, prices) for one in kinds if one.price < most]
    enough |= survivors(rivals, asked, answers) if rivals else {}
    return replace(
        one,
        off=off,
        slower=slower,
        faster=faster,
        enough=own,
        more=more,
        others=tuple((other, enough[other.name]) for other in (*rivals, *alike) if other.name in enough),
    )


def _planned(of: Candidate, prices: Prices) -> Planned:
    """Named by router and kind of GPU."""
    design = of.design
    name = f"{design.at['policy']} gpu={design.at['gpu']}"
    return Planned(name, design.at, design.contender, of.answer.times(design.each), prices)
