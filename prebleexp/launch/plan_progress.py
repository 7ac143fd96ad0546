"""What a plan says while it computes: how far it is and what comes next, in a line that a terminal has room for."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Stage:
    """What is computed at a time."""

    what: Sequence[str]
    """in words: sizes with their contenders, or one thing"""
    found: int = 0
    """contenders whose answers are known"""
    seeds: int = 0
    """request streams that it asks for"""
    to_come: int = 0
    """runs that contenders without an answer usually take from now on; 0 where nobody knows"""


def line(stage: Stage, contenders: int, done: int, runs: int, missing: int, seeds: tuple[int, int]) -> str:
    """ "prebleexp: 1 of 3 found, 48 of about 120 runs done; 8 to compute: rps=38 (lor)". `seeds`: how many there are at
    first, and at most."""
    first, most = seeds
    total = f" of about {done + stage.to_come:,}" if stage.to_come else ""
    far = f"{stage.found:,} of {contenders:,} found, {done:,}{total} runs done; " if done else ""
    more = f", {stage.seeds:,} of {most:,} seeds" if stage.seeds > first else ""
    count = f"{missing:,}" if missing == runs else f"{missing:,} of {runs:,}"
    begin = f"prebleexp: {far}{count} to compute{more}: "
    return begin + _listed(stage.what, shutil.get_terminal_size().columns - len(begin))


def _listed(what: Sequence[str], room: int) -> str:
    """As many as there is room for, and how many more there are; of one that is too long its beginning."""
    for count in range(len(what), 0, -1):
        rest = f" and {len(what) - count:,} more" if count < len(what) else ""
        said = f"{', '.join(what[:count])}{rest}"
        if len(said) <= room:
            return said
    return f"{said[: max(room - 1, 0)]}…"
