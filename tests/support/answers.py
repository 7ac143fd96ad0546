"""Answers of a plan, made up."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from prebleexp.planning.answer import Answer, Spot, Verdict
from prebleexp.planning.trials import Bracket


def tried(shares: Mapping[float, Sequence[float]]) -> tuple[Spot, ...]:
    """A curve, of what each seed keeps at each size."""
    return tuple(Spot(size, sum(of) / len(of), None, tuple(of)) for size, of in sorted(shares.items()))


def answer(size: float, bracket: Bracket | None = None, **given: Any) -> Answer:
    """Found, at a target of 0.9, with four seeds; but for what is given. A bracket's ends are what was tried, unless
    `curve` says it."""
    ends = {} if bracket is None else {bracket.low: bracket.at_low, bracket.high: bracket.at_high}
    made = Answer(
        verdict=Verdict.FOUND,
        size=size,
        low=None,
        high=None,
        likely=None,
        target=0.9,
        bracket=bracket,
        seeds=4,
        runs=20,
        requests=1000,
        counted=1000,
        precise=True,
        misses=None,
        rise=None,
        grows=None,
        curve=tried(ends),
    )
    return replace(made, **given)
