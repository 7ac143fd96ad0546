"""Prompts as segments: a block of tokens behind a path has one id, so equal beginnings are equal ids, and nothing else.

An answer is a segment of its own, known with its request: a prompt that goes on behind it finds it in the cache. The
engine finds what is cached by whole blocks, and so are prompts cut: what is shared of a block that differs is not seen.
"""

from __future__ import annotations

from typing import Generic, NamedTuple, TypeVar

import numpy as np

from prebleexp.sim.types import Ints

IDS = 1 << 30
"""ids of segments; when all were given they begin again: by then nobody remembers the first"""
ROOT = 0
WIDTH = 4
"""bytes of a token"""
K = TypeVar("K")
V = TypeVar("V")


class Known(Generic[K, V]):
    """A dictionary of the keys that were asked for last: at least `most` of them, at most twice as many."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._young: dict[K, V] = {}
        self._old: dict[K, V] = {}

    def get(self, key: K) -> V | None:
        found = self._young.get(key)
        if found is None:
            found = self._old.get(key)
            if found is not None:
                self[key] = found
        return found

    def __setitem__(self, key: K, value: V) -> None:
        if len(self._young) >= self._most:
            self._old, self._young = self._young, {}
        self._young[key] = value

    def __len__(self) -> int:
        return len(self._young) + len(self._old)


class Answered(NamedTuple):
    """An answer behind a path of whole blocks."""

    tail: bytes
    """of the prompt, behind its last whole block"""
    tail_id: int
    answer: bytes
    answer_id: int


class Segments(NamedTuple):
    ids: Ints
    ends: Ints
    parent: int
    """id of the path up to its last whole block, …"""
    tail: bytes
    """… what is behind that, …"""
    tail_id: int
    """… and its id"""


class Prompts:
    """`block` tokens a segment; ids of about the last `most` of them are remembered."""

    def __init__(self, block: int, most: int) -> None:
        self._block, self._given = block, ROOT
        self._blocks: Known[tuple[int, bytes], int] = Known(most)
        self._answers: Known[int, list[Answered]] = Known(most)

    def segments(self, tokens: Ints) -> Segments:
        """Of a prompt of one token at least."""
        text, size = tokens.astype(np.int32).tobytes(), self._block * WIDTH
        at, parent, tail_id = 0, ROOT, ROOT
        ids: list[int] = []
        ends: list[int] = []
        while at < len(text):
            answered = self._answered(parent, text, at)
            if answered is not None:
                if answered.tail:
                    ids.append(answered.tail_id)
                    ends.append((at + len(answered.tail)) // WIDTH)
                at += len(answered.tail) + min(len(answered.answer), len(text) - at - len(answered.tail))
                parent = answered.answer_id
            else:
                piece = text[at : at + size]
                if len(piece) < size:
                    tail_id = self._id(parent, piece)
                    return self._made([*ids, tail_id], [*ends, len(tokens)], parent, piece, tail_id)
                parent, at = self._id(parent, piece), at + size
            ids.append(parent)
            ends.append(at // WIDTH)
        return self._made(ids, ends, parent, b"", parent)

    def answer(self, behind: Segments, tokens: Ints) -> int:
        """The id of an answer to a prompt, by which a later prompt finds it."""
        made = Answered(behind.tail, behind.tail_id, tokens.astype(np.int32).tobytes(), self._new())
        others = self._answers.get(behind.parent) or []
        same = (made.tail, made.answer)
        self._answers[behind.parent] = [*(one for one in others[-3:] if (one.tail, one.answer) != same), made]
        return made.answer_id

    def _answered(self, parent: int, text: bytes, at: int) -> Answered | None:
        """The longest answer of which the prompt goes on with all, or ends within it."""
        found = self._answers.get(parent)
        best = None
        for one in found or ():
            whole = one.tail + one.answer
            rest = text[at : at + len(whole)]
            agrees = rest == whole or (len(rest) > len(one.tail) and whole.startswith(rest))
            if agrees and (best is None or len(one.answer) > len(best.answer)):
                best = one
        return best

    def _id(self, parent: int, piece: bytes) -> int:
        found = self._blocks.get((parent, piece))
        if found is None:
            found = self._blocks[parent, piece] = self._new()
        return found

    def _new(self) -> int:
        self._given = self._given % (IDS - 1) + 1
        return self._given

    def _made(self, ids: list[int], ends: list[int], parent: int, tail: bytes, tail_id: int) -> Segments:
        return Segments(np.array(ids, np.int32), np.array(ends, np.int32), parent, tail, tail_id)
