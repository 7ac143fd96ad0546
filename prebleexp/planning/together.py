"""Several searches at once: what they ask for at a time is computed at a time."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

from prebleexp.planning.answer import Answer
from prebleexp.planning.load import Search
from prebleexp.planning.trials import Sample, Trial

Name = TypeVar("Name")


def together(
    searches: Mapping[Name, Search], evaluate: Callable[[Sequence[tuple[Name, Trial]]], Sequence[Sample | None]]
) -> dict[Name, Answer]:
    """The answer of each search. `evaluate` says what runs say, in order; None is a run that failed, with which its
    search ends without an answer. What it raises ends all."""
    asked: dict[Name, list[Trial]] = {}
    answers: dict[Name, Answer] = {}

    def go_on(name: Name, samples: list[Sample] | None) -> None:
        try:
            asked[name] = next(searches[name]) if samples is None else searches[name].send(samples)
        except StopIteration as over:
            answers[name] = over.value

    for name in searches:
        go_on(name, None)
    while asked:
        batch = [(name, trial) for name, trials in asked.items() for trial in trials]
        found = iter(evaluate(batch))
        before, asked = asked, {}
        for name, trials in before.items():
            samples = [next(found) for _ in trials]
            known = [one for one in samples if one is not None]
            if len(known) == len(samples):
                go_on(name, known)
    return {name: answers[name] for name in searches if name in answers}
