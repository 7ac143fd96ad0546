"""Work in a process of its own, of which the memory is then known too."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor

from prebleexp.bench.case import size
from prebleexp.bench.cpu import used_s
from prebleexp.bench.table import Row
from prebleexp.experiment import limits, runs
from prebleexp.launch import configure


def alone(work: Callable[..., Row], *arguments: object) -> Row:
    """What `work` returns in a process that does nothing else, with `peak_gib`, the most memory that it had."""
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as pool:
        return pool.submit(_with_peak, work, *arguments).result()


def _with_peak(work: Callable[..., Row], *arguments: object) -> Row:
    return work(*arguments) | {"peak_gib": limits.peak_memory_bytes() / limits.GIB}


def run_alone(*overrides: str) -> Row:
    """A run by itself, its request stream drawn beforehand; compiled in this process, so that only machine code is
    loaded there."""
    runs.run(configure.cells([*overrides, "gpus=2", "rps=2", "duration_s=30"])[0])
    return alone(_run, overrides)


def _run(overrides: tuple[str, ...]) -> Row:
    (cell,) = configure.cells(overrides)
    workload = runs.draw(cell)
    return size(cell, workload) | {"cpu_seconds": used_s(lambda: runs.run(cell, workload))}
