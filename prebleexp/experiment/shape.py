"""What becomes of the busy hours of a recording where it is played at another rate than its own."""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np

from prebleexp.busiest import Busiest, busiest
from prebleexp.errors import significant
from prebleexp.experiment.cell import Cell
from prebleexp.workloads import files
from prebleexp.workloads.replayed import Replayed

if TYPE_CHECKING:
    from prebleexp.workloads.chance import Peak

MARKED = 1.2
"""times the average, from where on a busy stretch is one"""
TWICE = 2.0
"""times the recording's rate, from where on chance in it may weigh more than its busy hours"""
LESS = 0.9
"""of what the busiest minute has beyond the average: if independent sessions had less than that, it is said"""
FURTHER_S = 600.0
"""in which copies may start instead, so that most are not in the minutes of others"""
COMMON = 0.5
"""of a recording's sessions: with more of them in a run, seeds have most of them in common"""
OWN = 1.01
"""times the recording's rate, from where on a load is above it"""


def flattened(cells: Iterable[Cell]) -> list[str]:
    """A sentence for each recording with busy hours of which these cells serve windows, which have them rarely, or
    which they lose where copies are laid over it at random: how many GPUs a load takes depends on it."""
    return list(dict.fromkeys(line for cell in cells if (line := _flattened(cell)) is not None))


def _flattened(cell: Cell) -> str | None:
    workload = cell.workload
    if not isinstance(workload, Replayed) or workload.load not in ("window", "poisson") or not workload.recorded_rps:
        return None
    peak = _peak(workload, files.digest(workload.path))
    if peak is None or peak.times < MARKED:
        return None
    if workload.load == "poisson":
        does = "workload.load=poisson begins its sessions at random times, which serves the average"
    elif cell.rps > OWN * workload.recorded_rps:
        does = "rps= with duration_s= lays copies over it at random times, which serves the average"
    else:
        does = "windows of duration_s= are drawn from all of it, and few are as busy"
    without = "it" if workload.load == "poisson" else "duration_s"
    return (
        f"{workload.path}: its busiest {peak.of} is {significant(peak.times)} times its average, and {does}; leave "
        f"{without} out, and rps= scales all of it with its busy hours"
    )


@lru_cache(maxsize=8)
def _peak(workload: Replayed, digest: str) -> Busiest | None:
    """Once for each contents of a file, which many cells play."""
    return busiest(np.sort(workload.whole.start_s) / workload.compress)


def one_recording(cells: Iterable[Cell]) -> list[str]:
    """A sentence for each recording that several seeds draw from: each sees much of the same requests, so that their
    intervals say nothing of other days."""
    shares: dict[str, float] = {}
    for workload, cell in ((one.workload, one) for one in cells):
        if isinstance(workload, Replayed) and "seed" in workload.obeys:
            path = str(workload.path)
            shares[path] = max(shares.get(path, 0.0), _share(workload, cell.rps, cell.duration_s))
    return [
        f"{path}: all seeds draw from this one recording"
        + (f", and a run has up to {share * 100:.0f} % of its sessions" if share > COMMON else "")
        + ": intervals say how much draws of it differ, not how much days do"
        for path, share in shares.items()
    ]


def _share(workload: Replayed, rps: float, duration_s: float) -> float:
    """Of the recording's sessions that a window has at least one copy of, on average; 0 of other loads."""
    if workload.load != "window" or not workload.recorded_rps:
        return 0.0
    copies, part = rps / workload.recorded_rps, min(duration_s / workload.span_s, 1.0)
    return float(1 - (1 - part) ** int(copies) * (1 - part * (copies % 1)))


def repeated(cells: Iterable[Cell]) -> list[Cell]:
    """Of cells that are alike in what they draw from, and at which rate and for how long, the first, where they have
    several seeds."""
    firsts: dict[tuple[object, ...], Cell] = {}
    seeds: dict[tuple[object, ...], set[int]] = {}
    for cell in cells:
        of = (cell.workload, cell.rps, cell.duration_s)
        firsts.setdefault(of, cell)
        seeds.setdefault(of, set()).add(cell.seed)
    return [cell for of, cell in firsts.items() if len(seeds[of]) > 1]


def kept(cell: Cell) -> str | None:
    """How a recording that is scaled keeps its shape; None where it is not."""
    workload = cell.workload
    if not isinstance(workload, Replayed) or workload.load != "scaled":
        return None
    above = workload.recorded_rps is not None and cell.rps > OWN * workload.recorded_rps
    how = f"its sessions come again up to {workload.shift_s:g} s later" if above else "whole sessions are left out"
    return f"its busy hours stay where they were, as {how}"


def by_chance(cells: Iterable[Cell]) -> list[str]:
    """A sentence for each recording that these cells scale far up, and with it what chance made of its minutes."""
    return list(dict.fromkeys(line for cell in cells if (line := _by_chance(cell)) is not None))


def _by_chance(cell: Cell) -> str | None:
    workload = cell.workload
    if not isinstance(workload, Replayed) or workload.load != "scaled" or not workload.recorded_rps:
        return None
    times = cell.rps / workload.recorded_rps
    if times < TWICE:
        return None
    found = _minute(workload, cell.rps, cell.seed, files.digest(workload.path))
    if found is None or found.independent - 1 > LESS * (found.busiest - 1):
        return None
    further = (
        f"; workload.shift_s={FURTHER_S:g} or more lays copies further apart, which evens out chance, and busy times "
        "that are shorter"
        if workload.shift_s < FURTHER_S
        else ""
    )
    return (
        f"{workload.path}: laid over itself {significant(times)} times, its busiest minute has "
        f"{significant(found.busiest)} times the average, and would have about {significant(found.independent)} times "
        "with independent users: what chance made of its minutes is scaled with its busy hours, so this may ask for "
        f"more GPUs than it takes{further}"
    )


@lru_cache(maxsize=8)
def _minute(workload: Replayed, rps: float, seed: int, digest: str) -> Peak | None:
    """Once for each contents of a file, which many cells play."""
    from prebleexp.workloads import chance

    chosen, trace = workload.scaled(rps, seed), workload.whole
    return chance.peak(chosen.start_s, trace.family[chosen.row], chosen.copy)
