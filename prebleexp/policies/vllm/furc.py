"""vllm-router's hash: MurmurHash64A of the number that mcrouter's furc hash gives a name.

Furc takes bits from a stream, which is the name's hash, that hash's hash and so on, 64 bits each, and makes of them a
number below a bound so that most names keep theirs when the bound grows. Here the bound is always the same.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from prebleexp.policies.hashes import Hashes
from prebleexp.sim.compiled import compiled

LONGEST = 256
"""bytes of a text that comes later"""
BITS = 23
BOUND = (1 << BITS) - 1
TRIES = 32

SEED = np.uint64(4193360111)
FACTOR = np.uint64(0xC6A4A7935BD1E995)
SHIFT = np.uint64(47)
ONE = np.uint64(1)


class Texts(NamedTuple):
    letters: Any
    """(bytes,) of all texts"""
    ends: Any
    """(texts + 1,) where each ends, behind a zero"""


def texts(given: Sequence[str]) -> Texts:
    encoded = [one.encode() for one in given]
    return Texts(np.frombuffer(bytearray(b"".join([*encoded, b"\0"])), np.uint8), np.cumsum([0, *map(len, encoded)]))


def room_for(count: int) -> Texts:
    """For so many texts that come one by one."""
    return Texts(np.zeros(count * LONGEST + 1, np.uint8), np.zeros(count + 1, np.int64))


def put(into: Texts, number: int, text: str) -> None:
    """The next text of `room_for`. What is longer than that has room for is known by its hash."""
    encoded = text.encode()
    if len(encoded) > LONGEST:
        encoded = hashlib.sha256(encoded).hexdigest().encode()
    start = int(into.ends[number])
    into.letters[start : start + len(encoded)] = np.frombuffer(encoded, np.uint8)
    into.ends[number + 1] = start + len(encoded)


def furc(names: Sequence[str]) -> Hashes:
    hashes = np.zeros(len(names), np.uint64)
    with np.errstate(over="ignore"):
        _fill(hashes, texts(names))
    return hashes


@compiled
def _fill(hashes: Any, given: Texts) -> None:
    for one in range(len(hashes)):
        hashes[one] = hash_of(number_of(_murmur(given, one)))


@compiled
def hash_of(number: int) -> Any:
    """Of the number that furc gives a name: what the name hashes to."""
    return end(with_last(begin(4), np.uint64(number)))


@compiled
def number_of(first: Any) -> int:
    """A number below `BOUND`, of the stream of bits that begins with these 64. A one is sought from bit `BITS`
    downwards, and where it lies says how many bits the number has; of these each lies `BITS` behind the one before."""
    first = np.uint64(first)
    word, words = first, 0  # of the stream the word in hand, and its number
    at = size = BITS
    for _ in range(TRIES):
        word, words = _word(word, words, at)
        while _bit(word, at) == 0:
            if size == 0:
                return 0
            size -= 1
            at, word, words = size, first, 0
        number = 1
        for _ in range(size - 1):
            at += BITS
            word, words = _word(word, words, at)
            number = 2 * number + _bit(word, at)
        if number < BOUND:
            return number
        at += BITS
    return 0


@compiled
def _word(word: Any, words: int, at: int) -> tuple[Any, int]:
    """The stream's word that has bit `at`, which is not before the word in hand; and its number."""
    word = np.uint64(word)
    while words < at >> 6:
        word = end(_with(begin(8), word))
        words += 1
    return word, words


@compiled
def _bit(word: Any, at: int) -> int:
    return int((np.uint64(word) >> np.uint64(at & 63)) & ONE)


# ---------------------------------------------------------------- MurmurHash64A
@compiled
def _murmur(given: Texts, one: int) -> Any:
    start = given.ends[one]
    size = given.ends[one + 1] - start
    made, word = begin(size), np.uint64(0)
    for i in range(size):
        word |= np.uint64(given.letters[start + i]) << np.uint64(8 * (i & 7))
        if i & 7 == 7:
            made, word = _with(made, word), np.uint64(0)
    return end(with_last(made, word) if size & 7 != 0 else made)


@compiled
def begin(size: int) -> Any:
    """The hash of nothing yet of so many bytes."""
    return SEED ^ (np.uint64(size) * FACTOR)


@compiled
def _with(made: Any, word: Any) -> Any:
    """The hash with 8 more bytes mixed in."""
    return with_last(made, mixed(word))


@compiled
def mixed(word: Any) -> Any:
    """8 bytes, as they are hashed."""
    word = np.uint64(word) * FACTOR
    return (word ^ (word >> SHIFT)) * FACTOR


@compiled
def with_last(made: Any, word: Any) -> Any:
    """The hash with the word of the last bytes mixed in."""
    return (np.uint64(made) ^ np.uint64(word)) * FACTOR


@compiled
def end(made: Any) -> Any:
    made = np.uint64(made)
    made = (made ^ (made >> SHIFT)) * FACTOR
    return made ^ (made >> SHIFT)
