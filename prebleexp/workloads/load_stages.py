"""Stages of a load as they are written: [{rate: 10, duration: 30}]."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from prebleexp.checks import is_number, not_valid, require


class LoadStage(NamedTuple):
    """A stage of a load: a rate, held for some seconds."""

    rate: float
    """requests/s over all GPUs"""
    duration: float
    """seconds"""

    @property
    def requests(self) -> int:
        return int(self.rate * self.duration)


Given = Mapping[str, float] | Sequence[float]
"""a `LoadStage` as it is written"""


def stage_of(name: str, given: object, valid: str) -> LoadStage:
    """A mapping, or a pair. Raises InvalidInput, with what is `valid`, for another, and for numbers below 0."""
    pair: Any = given
    if isinstance(given, Mapping):
        pair = [given.get("rate"), given.get("duration")] if len(given) == 2 else None
    if isinstance(pair, list | tuple) and len(pair) == 2 and all(is_number(one) and one >= 0 for one in pair):
        return LoadStage(*map(float, pair))
    raise not_valid(name, given, valid)


def stages_of(name: str, given: object, valid: str) -> tuple[LoadStage, ...]:
    """A list of stages. Raises InvalidInput for what is none."""
    listed = isinstance(given, list | tuple) and len(given) > 0
    require(listed, name, given, "a list of stages, as [{rate: 10, duration: 30}]")
    assert isinstance(given, list | tuple)
    return tuple(stage_of(f"{name}[{i}]", one, valid) for i, one in enumerate(given))
