"""Answers of a plan, made up."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from prebleexp.planning.answer import Answer, Verdict


def answer(size: float, **given: Any) -> Answer:
    """Found, at a target of 0.9, with four seeds; but for what is given."""
    made = Answer(
        verdict=Verdict.FOUND,
        size=size,
        low=None,
        high=None,
        likely=None,
        target=0.9,
        bracket=None,
        seeds=4,
        runs=20,
        requests=1000,
        counted=1000,
        precise=True,
        misses=None,
        rise=None,
        grows=None,
        curve=(),
    )
    return replace(made, **given)
