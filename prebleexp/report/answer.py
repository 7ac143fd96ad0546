"""The answer at the top of a page: a sentence, and where there is more than one question a table of words."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class Tone(Enum):
    """The colour of a word, which says it as well."""

    GOOD = "good"
    BAD = "bad"
    MIDDLING = "middling"
    NONE = "none"


@dataclass(frozen=True)
class Cell:
    """A word and the numbers behind it."""

    word: str
    tone: Tone
    numbers: str


@dataclass(frozen=True)
class Answer:
    """`rows` are what was asked, with a cell for each of `columns`."""

    sentence: str
    question: str = ""
    columns: tuple[str, ...] = ()
    rows: tuple[tuple[str, tuple[Cell, ...]], ...] = ()
