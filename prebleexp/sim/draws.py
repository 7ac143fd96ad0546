"""Random draws for compiled policies: the same numbers compiled or not, on any machine.

Blackman and Vigna's xoshiro128++ ("Scrambled linear pseudorandom number generators", 2021), on words of 32 bits, whose
sums fit into 64. `generator` makes one from a seed.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from prebleexp.sim.compiled import compiled
from prebleexp.sim.types import Longs

WORD = 0xFFFFFFFF


def generator(seed: int) -> Longs:
    """(4,) state of a generator; a policy keeps it among what it remembers."""
    return np.random.SeedSequence(seed).generate_state(4, np.uint32).astype(np.int64)


@compiled
def _turned(word: int, bits: int) -> int:
    return ((word << bits) & WORD) | (word >> (32 - bits))


@compiled
def _next(state: Any) -> int:
    """The generator's next 32 random bits."""
    a, b, c, d = int(state[0]), int(state[1]), int(state[2]), int(state[3])
    c ^= a
    d ^= b
    state[0], state[1], state[2], state[3] = a ^ d, b ^ c, c ^ ((b << 9) & WORD), _turned(d, 11)
    return (_turned((a + (d ^ b)) & WORD, 7) + a) & WORD


@compiled
def uniform(state: Any) -> float:
    """A number between 0 and 1, both excluded."""
    return (_next(state) + 0.5) / 4294967296.0


@compiled
def below(state: Any, count: int) -> int:
    """A whole number from 0 to count − 1, each as likely as the others but for count parts in 2^32."""
    return (_next(state) * count) >> 32
