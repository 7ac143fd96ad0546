"""Text and tokens of a mock, which has no tokenizer.

A word `t17` is the token 17, so that who writes such words knows how many tokens a prompt has. Other words are a token
for each 4 characters, which is about what tokenizers make of English. A chat is its messages between marks.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Any
from zlib import crc32

import numpy as np

from prebleexp.sim.types import Ints

VOCABULARY = 1000
"""different tokens of answers"""
LETTERS = 4
"""of a word that is no number, for each token"""
WORDS, MARKS = 1 << 20, 1 << 21
"""other words are tokens from WORDS to MARKS, and what stands between messages is from there on"""
ROLES = ("system", "user", "assistant", "tool", "developer")
END = MARKS + len(ROLES) + 1
_NUMBERED = re.compile(r"t(\d{1,6})")
_KEPT = 1 << 16
"""words whose tokens are remembered"""
_known: dict[str, list[int]] = {}


def encode(text: str) -> list[int]:
    """The tokens of a text; none, of one that is empty."""
    found: list[int] = []
    known = _known
    for word in text.split():
        tokens = known.get(word)
        if tokens is None:
            tokens = _tokens_of(word)
            if len(known) < _KEPT:
                known[word] = tokens
        found += tokens
    return found


def _tokens_of(word: str) -> list[int]:
    numbered = _NUMBERED.fullmatch(word)
    if numbered is not None and int(numbered[1]) < WORDS:
        return [int(numbered[1])]
    pieces = (word[at : at + LETTERS] for at in range(0, len(word), LETTERS))
    return [WORDS + crc32(piece.encode("utf-8", "surrogatepass")) % (MARKS - WORDS) for piece in pieces]


def encode_chat(messages: Iterable[Any]) -> list[int]:
    """With the mark behind which the answer begins. Messages have `role` and `content`, a text or parts with `text`."""
    found: list[int] = []
    for one in messages:
        role = one.get("role")
        content = one.get("content") or ""
        parts = [content] if isinstance(content, str) else [str(part.get("text") or "") for part in content]
        found.append(MARKS + (ROLES.index(role) if role in ROLES else len(ROLES)))
        for part in parts:
            found += encode(part)
        found.append(END)
    return [*found, MARKS + ROLES.index("assistant")]


def decode(token: int) -> str:
    return f"t{token}"


def answer(prompt: Sequence[int] | Ints, tokens: int) -> Ints:
    """So many tokens: the same behind the same prompt, as of a model at temperature 0."""
    tail = np.asarray(prompt[-64:], np.int32).tobytes()
    seed = np.uint64(crc32(tail) << 20 ^ len(prompt))
    with np.errstate(over="ignore"):
        mixed = (np.arange(1, tokens + 1, dtype=np.uint64) + seed) * np.uint64(0x9E3779B97F4A7C15)
        mixed ^= mixed >> np.uint64(29)
    return (mixed % np.uint64(VOCABULARY)).astype(np.int32)
