"""The running mean, as PREBLE describes it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from prebleexp.checks import positive, require
from prebleexp.lengths.base import Lengths


@dataclass(frozen=True)
class Mean(Lengths):
    """The mean output of the requests that finished in the last `window` seconds; max_new_tokens until one has."""

    draws: ClassVar[bool] = False

    window: float = 180.0
    """seconds"""
    over: str = "all"
    """whose mean: all requests, or those of the same prefix group"""

    def __post_init__(self) -> None:
        positive("lengths.window", self.window, "a finite number > 0")
        require(self.over in ("all", "prefix"), "lengths.over", self.over, "all or prefix")

    @property
    def window_s(self) -> float:
        return self.window

    @property
    def per_prefix(self) -> bool:
        return self.over == "prefix"
