"""Random routing."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from prebleexp.checks import is_integer, require
from prebleexp.policies.base import Policy
from prebleexp.sim.records import View
from prebleexp.sim.types import Longs, Setup


@dataclass(frozen=True)
class Random(Policy):
    """Every GPU with the same probability.

    The draws are those of Python's `random.Random(seed).randint(0, gpus − 1)`, one a routed request, as in the
    release (which always seeds with 42). Where not all GPUs are candidates, those beyond their number are passed over;
    requests that are routed again get the first draws once more.
    """

    seed: int | None = None
    """None: the run's seed"""

    reads_lengths: ClassVar[bool] = False

    def __post_init__(self) -> None:
        valid = self.seed is None or is_integer(self.seed, 0)
        require(valid, "policy.seed", self.seed, "an integer >= 0, or null for the run's seed")

    def start(self, setup: Setup) -> Longs:
        draws = python_randints(setup.seed if self.seed is None else self.seed, setup.gpus, setup.requests)
        return np.concatenate([[0], draws])

    def route(self, mine: Any, view: View, request: int, now: float) -> int:
        for _ in range(1, len(mine)):
            mine[0] = mine[0] % (len(mine) - 1) + 1
            if mine[mine[0]] < len(view.candidates):
                return view.candidates[mine[mine[0]]]
        return view.candidates[0]


def python_randints(seed: int, below: int, count: int) -> Longs:
    """The first `count` values of random.Random(seed).randint(0, below − 1), drawn all at once.

    Python takes as many leading bits of a 32-bit Mersenne Twister word as `below` has, and draws again while that
    is too large.
    """
    words: list[int] = []
    key = seed
    while key or not words:
        words.append(key & 0xFFFFFFFF)
        key >>= 32
    twister = np.random.RandomState(words)
    shift = 32 - below.bit_length()
    draws = np.empty(0, np.int64)
    while len(draws) < count:
        bits = twister.randint(0, 1 << 32, size=2 * count + 16, dtype=np.uint32) >> np.uint32(shift)
        draws = np.concatenate([draws, bits[bits < below].astype(np.int64)])
    return draws[:count]
