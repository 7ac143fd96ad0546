"""A pasted line in its parts: what runs the tool, the tool, its flags, and what a shell does when that is over."""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from typing import NamedTuple

DASHES = "–—"
"""what word processors and pages make of hyphens"""
ENDS = re.compile(r"(&|&&|\|\|?|;|\d?>>?.*|&>>?.*|#.*)$")
"""a word with which a command is over: the line goes on in the shell's own words"""
SHELL = re.compile(r"-[a-z]*c$")
"""a shell's flag, behind which a command is one word"""


class Line(NamedTuple):
    command: list[str]
    """to the tool's name"""
    flags: list[str]
    """with their values"""
    behind: tuple[str, ...]
    """what the shell does then, in one text, if there is any"""


def of_the_command(words: Sequence[str]) -> Line:
    """What runs the tool, as docker, may have flags of its own before; of `bash -c '…'` the words within are read."""
    words = [_dashed(one) for one in _unquoted(words)]
    start = next((at for at in range(1, len(words) + 1) if _ends_command(words[:at])), 0)
    first = next((at for at, one in enumerate(words) if at >= start and one.startswith("--")), len(words))
    command, flags, behind = words[:first], words[first:], list[str]()
    for at, one in enumerate(flags):
        if ENDS.match(one) or one.endswith(";"):
            flags, behind = flags[:at], flags[at:]
            if one.rstrip(";") and not ENDS.match(one):
                flags, behind[0] = [*flags, one.rstrip(";")], ";"
            break
    return Line(command, flags, (" ".join(behind),) if behind else ())


def _ends_command(words: Sequence[str]) -> bool:
    return list(words[-2:]) == ["bench", "serve"] or words[-1].endswith(("_serving.py", ".bench_serving"))


def _dashed(word: str) -> str:
    """With the two hyphens that a flag begins with, if it was made to begin with a dash."""
    return f"--{word.lstrip(DASHES + '-')}" if word[0] in DASHES else word


def _unquoted(words: Sequence[str]) -> list[str]:
    """With the words of a line that is one, for a shell or as a whole. A backslash before the end of a line may leave
    one with nothing in it."""
    found = [one for one in words if one.strip()]
    for at, one in enumerate(found):
        if " " in one.strip() and (len(found) == 1 or (at and SHELL.match(found[at - 1]))):
            return [*found[:at], *_words(one)]
    return found


def _words(text: str) -> list[str]:
    try:
        return [one for one in shlex.split(text) if one.strip()]
    except ValueError:  # a quote that nobody closes
        return text.split()
