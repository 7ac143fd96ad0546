"""Texts that begin alike, cut where they part: a system prompt that stands in one text with the question."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

LEAST = 64
"""letters of a piece: about a block of 16 tokens, and less than a block no engine finds again"""
WORD = 32
"""letters in which there is a space, where words are parted by spaces"""
PLAIN = ""
"""the role of a prompt that is a text and no message"""
MORE = "…"
"""ends the role of a piece of a message that goes on: who says all of it did not say this"""
Said = list[tuple[str, str]]
"""roles and texts"""


def cut(said: Sequence[Said]) -> list[Said]:
    """The same, with each text in the pieces that other texts at its place share, as they come after the same ones.

    Pieces end between words, and have at least 64 letters. The whole of a message is no beginning of a longer one, as a
    model sees where it ends; that of a plain prompt is one.
    """
    made: list[Said] = [[] for _ in said]
    above = [0] * len(said)
    """of each row, which texts it had so far"""
    known: dict[tuple[int, str, str], int] = {}
    for depth in range(max(map(len, said), default=0)):
        rows = [row for row, one in enumerate(said) if depth < len(one)]
        alike: dict[tuple[int, str], set[str]] = {}
        for row in rows:
            role, text = said[row][depth]
            alike.setdefault((above[row], role), set()).add(text)
        pieces = {place: _pieces(sorted(texts)) for place, texts in alike.items()}
        for row in rows:
            role, text = said[row][depth]
            *begun, last = pieces[above[row], role][text]
            made[row] += [(role if role == PLAIN else role + MORE, one) for one in begun]
            made[row].append((role, last))
            above[row] = known.setdefault((above[row], role, text), len(known) + 1)
    return made


def _pieces(texts: Sequence[str]) -> dict[str, list[str]]:
    """Of different texts in order. What a text shares with any is what it shares with one of its neighbours, or with
    theirs: so a stack of what is shared is kept from either side."""
    shared = [_shared(one, other) for one, other in pairwise(texts)]
    before, behind = _open(shared), _open(shared[::-1])[::-1]
    made = {}
    for text, left, right in zip(texts, before, behind, strict=True):
        ends = [0]
        for end in sorted({*left, *right}):
            if end - ends[-1] >= LEAST and end < len(text):
                ends.append(end)
        made[text] = [text[start:end] for start, end in pairwise([*ends, len(text)])]
    return made


def _open(shared: Sequence[int]) -> list[list[int]]:
    """Of each text, how much of it those before it share: all minima over the ways to them."""
    stack: list[int] = []
    found: list[list[int]] = [[]]
    for length in shared:
        while stack and stack[-1] > length:
            stack.pop()
        if length and (not stack or stack[-1] < length):
            stack.append(length)
        found.append(stack.copy())
    return found


def _shared(one: str, other: str) -> int:
    """Letters with which both begin, to the end of a word; 0 if these are too few."""
    end = _common(one, other)
    if end < LEAST:
        return 0
    if all(len(text) == end or not (text[end - 1].isalnum() and text[end].isalnum()) for text in (one, other)):
        return end
    space = max(one.rfind(space, end - WORD, end) for space in " \n\t")
    end = space if space >= 0 else end
    return end if end >= LEAST else 0


def _common(one: str, other: str) -> int:
    low, high = 0, min(len(one), len(other))
    while low < high:
        middle = (low + high + 1) // 2
        if one[low:middle] == other[low:middle]:
            low = middle
        else:
            high = middle - 1
    return low
