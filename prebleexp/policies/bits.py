"""Sets of GPUs, 64 a word."""

from __future__ import annotations

from typing import Any

import numpy as np

from prebleexp.sim.compiled import compiled

ONE, TWO, FOUR, BYTE = np.uint64(1), np.uint64(2), np.uint64(4), np.uint64(8)
HALF, WORD = np.uint64(16), np.uint64(32)
PAIRS, FOURS, EIGHTS = np.uint64(0x5555555555555555), np.uint64(0x3333333333333333), np.uint64(0x0F0F0F0F0F0F0F0F)
"""the lower bits of each pair, of each four, and of each eight"""


@compiled
def fill(into: Any, candidates: Any, gpus: int) -> None:
    """Write to `into`, (words,), the candidates among so many GPUs."""
    if len(candidates) < gpus:
        into[:] = 0
        for gpu in candidates:
            into[gpu >> 6] |= np.int64(1) << np.int64(gpu & 63)
    else:
        into[:] = -1
        if gpus & 63 != 0:
            into[len(into) - 1] = ~(np.int64(-1) << np.int64(gpus & 63))


@compiled
def size(word: Any) -> int:
    """How many there are in a word."""
    bits = np.uint64(word)
    bits -= bits >> ONE & PAIRS
    bits = (bits & FOURS) + (bits >> TWO & FOURS)
    bits = bits + (bits >> FOUR) & EIGHTS
    bits += bits >> BYTE
    bits += bits >> HALF
    return int(bits + (bits >> WORD)) & 127


@compiled
def nth_of(word: Any, n: int) -> int:
    """The n-th of a word, from 0 on."""
    bits = np.uint64(word)
    for _ in range(n):
        bits &= bits - ONE
    return size((bits ^ (bits & (bits - ONE))) - ONE)
