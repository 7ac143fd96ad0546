"""Which of some names hashes highest behind another: furc of all of them, step by step and side by side.

A hash alone is a chain of products, each of which waits for the one before. Those of several names do not.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from prebleexp.policies.vllm import furc
from prebleexp.policies.vllm.furc import BITS, Texts, begin, end, hash_of, mixed, number_of, with_last
from prebleexp.sim.compiled import INTERPRETED, compiled

WORDS = 1 + BITS * BITS // 64
"""of a stream of bits, in which the number lies: its last bit is at `BITS` · `BITS` at most"""
TAKEN = 64 * WORDS // BITS
"""bits that lie `BITS` apart in them, wherever they begin"""
PLACES = 64 - 2 * BITS
"""a word has three of them if the first is at one of so many places, else two"""
BOUND = np.uint64(furc.BOUND)
FIRST = (1 << (BITS + 1)) - 1
"""the bits of the stream among which a one is sought"""
APART, LOW, THREE = np.uint64(1 | 1 << BITS | 1 << 2 * BITS), np.uint64(7), np.uint64(3)
FIRST_UP, SECOND_UP, DOWN = np.uint64(2 * BITS + 2), np.uint64(BITS + 1), np.uint64(2 * BITS)
"""three bits that lie apart, and how they come to lie side by side, the first one highest"""
FRACTION, BIAS = 52, 1023
"""of a float: bits of its fraction, and what its exponent is counted from"""
NOTHING = np.uint64(0)


class Tails(NamedTuple):
    """Names that stand behind others, and room for what is made of them; an element of each array, or row, a name."""

    longest: int
    """bytes"""
    sizes: Any
    words: Any
    """(8, words, names) the bytes behind 0 … 7 others, 8 a word, zeros around them; whole words `furc.mixed`, but for
    the first, which is so when the others are known"""
    some: Any
    """which are asked about, …"""
    hashes: Any
    """… the hash, …"""
    word: Any
    """… the word in hand of the stream of bits that begins with it, …"""
    floats: Any
    """… its first bits as a float, …"""
    places: Any
    """… where the first one of these is, …"""
    numbers: Any
    """… and the number that furc makes of them"""


def tails(names: Sequence[str]) -> Tails:
    encoded = [name.encode() for name in names]
    count, longest = len(names), max(map(len, encoded))
    rows = 1 + (7 + longest) // 8
    sizes = np.array([len(one) for one in encoded])
    words = np.zeros((8, rows, count), np.uint64)
    for rest in range(8):
        bytes_ = b"".join((bytes(rest) + one).ljust(8 * rows, b"\0") for one in encoded)
        words[rest] = np.frombuffer(bytes_, "<u8").reshape(count, rows).T
    with np.errstate(over="ignore"):
        _mix(words, sizes)
    some, places = np.zeros((2, count), np.int64)
    hashes, word, numbers = np.zeros((3, count), np.uint64)
    return Tails(longest, sizes, words, some, hashes, word, np.zeros(count), places, numbers)


@compiled
def _mix(words: Any, sizes: Any) -> None:
    """Whole words behind the first."""
    for rest in range(8):
        for name in range(len(sizes)):
            for row in range(1, (rest + sizes[name]) // 8):
                words[rest, row, name] = mixed(words[rest, row, name])


@compiled
def _highest(tails: Tails, count: int, heads: Texts, head: int) -> int:
    """Of the first `count` of `tails.some` the one that hashes highest behind a text; the first of several."""
    _hash(tails, count, heads, head)
    read_numbers(tails, count)
    hashes, numbers, best, most = tails.hashes, tails.numbers, 0, NOTHING
    for one in range(count):
        hashes[one] = hash_of(numbers[one])
        most = max(most, hashes[one])
    while hashes[best] != most:
        best += 1
    return int(tails.some[best])


highest: Any = np.errstate(over="ignore")(_highest) if INTERPRETED else _highest
"""for compiled code and for plain Python, which warns of products that do not fit"""


# ---------------------------------------------------------------- MurmurHash64A
@compiled
def _hash(tails: Tails, count: int, heads: Texts, head: int) -> None:
    """All of the text, and the names behind it."""
    start, size = int(heads.ends[head]), int(heads.ends[head + 1] - heads.ends[head])
    whole, rest = size // 8, size % 8
    hashes, some, lefts = tails.hashes, tails.some, tails.places
    for one in range(count):
        lefts[one] = rest + tails.sizes[np.uint64(some[one])]  # nothing counts from the end, and all goes side by side
        hashes[one] = begin(8 * whole + lefts[one])
    for at in range(whole):
        word = mixed(_word(heads, start + 8 * at, 8))
        for one in range(count):
            hashes[one] = with_last(hashes[one], word)
    words, kept = tails.words[rest, 0], _word(heads, start + 8 * whole, rest)
    for one in range(count):
        word = kept | words[np.uint64(some[one])]
        word = mixed(word) if lefts[one] >= 8 else word
        hashes[one] = with_last(hashes[one], word) if lefts[one] > 0 else hashes[one]
    for row in range(1, (rest + tails.longest + 7) // 8):
        words = tails.words[rest, row]
        for one in range(count):
            word = words[np.uint64(some[one])]
            hashes[one] = with_last(hashes[one], word) if lefts[one] > 8 * row else hashes[one]
    for one in range(count):
        hashes[one] = end(hashes[one])


@compiled
def _word(texts: Texts, start: int, letters: int) -> Any:
    """So many letters, zeros behind them."""
    word = NOTHING
    for one in range(letters):
        word |= np.uint64(texts.letters[start + one]) << np.uint64(8 * one)
    return word


# ---------------------------------------------------------------- furc (see `furc.number_of`)
@compiled
def _find_ones(tails: Tails, count: int) -> None:
    """From bit `BITS` downwards: where it is, is the exponent of the bits as a float."""
    hashes, floats, places = tails.hashes, tails.floats, tails.places
    for one in range(count):
        floats[one] = float(np.int64(hashes[one]) & FIRST)
    exponents = floats.view(np.int64)
    for one in range(count):
        places[one] = max(0, (exponents[one] >> FRACTION) - BIAS)


@compiled
def read_numbers(tails: Tails, count: int) -> None:
    """From the first one on, every bit that lies `BITS` behind the one before; of these, as many as its place says."""
    _find_ones(tails, count)
    hashes, words, places, numbers = tails.hashes, tails.word, tails.places, tails.numbers
    for one in range(count):
        words[one] = hashes[one]
        numbers[one] = _with_bits(NOTHING, words[one], places[one])
    for word in range(1, WORDS):
        begins = -64 * word % BITS
        for one in range(count):
            words[one] = end(with_last(begin(8), mixed(words[one])))
            at = places[one] + begins
            numbers[one] = _with_bits(numbers[one], words[one], at - BITS if at >= BITS else at)
    others = 0
    for one in range(count):
        numbers[one] >>= np.uint64(TAKEN - places[one])
        others |= (places[one] == 0) | (numbers[one] >= BOUND)
    if others:  # nearly never
        for one in range(count):
            numbers[one] = number_of(hashes[one])


@compiled
def _with_bits(number: Any, word: Any, at: int) -> Any:
    """A number, and behind it the bits of a word from one on, the first of which is at `at`."""
    three = (np.uint64(word) >> np.uint64(at)) & APART
    three = (three << FIRST_UP | three << SECOND_UP | three) >> DOWN & LOW
    return (np.uint64(number) << THREE | three) >> np.uint64(at >= PLACES)
