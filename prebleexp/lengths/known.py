"""Lengths that need no estimate: the most there can be, and the truth."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from prebleexp.lengths.base import Lengths, actual
from prebleexp.sim.types import Floats, Workload


@dataclass(frozen=True)
class Max(Lengths):
    """The most tokens that the request asks for (max_new_tokens), as the paper's release assumes."""

    draws: ClassVar[bool] = False


@dataclass(frozen=True)
class Oracle(Lengths):
    """The truth: the request's own output length."""

    draws: ClassVar[bool] = False

    def expected(self, workload: Workload, seed: int) -> Floats:
        return actual(workload)
