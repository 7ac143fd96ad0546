"""What windows of a recording lack of its prefix caches: each begins with empty ones, and cuts sessions."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import replace
from functools import lru_cache

from prebleexp.described import reuse
from prebleexp.errors import significant
from prebleexp.experiment.cell import Cell
from prebleexp.workloads import files
from prebleexp.workloads.output_length import OutputLength
from prebleexp.workloads.replayed import Replayed

WINDOWS = 8
"""that are looked at, those of the first seeds"""
LESS = 0.02
"""of the prompts' tokens: from so much less on it is said"""
MOST = 50_000
"""requests of a recording that is looked at: of more it takes minutes"""


def cut(cells: Iterable[Cell]) -> list[str]:
    """A sentence for each recording of which these cells serve windows that find less of their prompts cached than all
    of it would."""
    return list(dict.fromkeys(line for cell in cells if (line := _cut(cell)) is not None))


def _cut(cell: Cell) -> str | None:
    workload = cell.workload
    if not isinstance(workload, Replayed) or workload.load != "window" or not cell.warm.changes_nothing:
        return None
    if not workload.recorded_rps or not cell.duration_s < workload.span_s:
        return None
    begins = f"{workload.path}: a window of {significant(cell.duration_s)} s begins with empty caches and cuts sessions"
    warmer = "a longer duration_s or warm=first has them warmer, and rps= without duration_s takes all of it"
    if len(workload.whole) > MOST:
        return f"{begins}, so it finds less cached than the recording as it came: {warmer}"
    of_windows, of_whole = _shares(workload, cell.duration_s, cell.output_length, files.digest(workload.path))
    if of_whole - of_windows < LESS:
        return None
    found = [f"{share * 100:.0f} %" for share in (of_windows, of_whole)]
    return (
        f"{begins}: an unlimited cache finds {found[0]} of the prompts' tokens in such windows, and {found[1]} in the "
        f"recording as it came; {warmer}"
    )


@lru_cache(maxsize=8)
def _shares(workload: Replayed, duration_s: float, output: OutputLength, digest: str) -> tuple[float, float]:
    """Of the prompts' tokens those that an unlimited cache finds, in windows of the recording and in all of it."""
    rps, block = workload.recorded_rps or 0.0, workload.blocks_of
    found = tokens = 0.0
    for seed in range(WINDOWS):
        drawn = workload.draw(rps=rps, duration_s=duration_s, seed=seed, output_length=output)
        count = float(drawn.prompt_tokens.sum())
        found, tokens = found + count * reuse(drawn, math.inf, block), tokens + count
    whole = replace(workload, load="recorded").draw(rps=rps, duration_s=duration_s, seed=0, output_length=output)
    return found / tokens if tokens else 0.0, reuse(whole, math.inf, block)
