"""Bounds in seconds that hold on any machine: the least of several times, and how much slower this core is now."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable

from prebleexp.commands import bench
from prebleexp.launch import configure

REQUESTS_PER_CPU_SECOND = 1_350_000
"""of lor, on the machine that bounds are for: 1.5 times what the core before (f41406d) did there"""

INTERPRETED_S = 0.018
"""of `_interpreted`, on that machine"""


STARTING_S = 0.34
"""of a process that imports what a command does, on that machine"""


def least(work: Callable[[], object], times: int = 5) -> float:
    """CPU seconds of a piece of work, the least disturbed of several times."""
    found = []
    for _ in range(times):
        start = time.process_time()
        work()
        found.append(time.process_time() - start)
    return min(found)


def slowness() -> float:
    """How many times slower than that machine this one interprets Python just now; 1 at least."""
    return max(1.0, least(_interpreted) / INTERPRETED_S)


def slowness_compiled() -> float:
    """How many times slower it simulates, by `prebleexp bench`; 1 at least."""
    row = bench.measure(configure.cells([*bench.CASE, "policy=lor"])[0])
    return max(1.0, REQUESTS_PER_CPU_SECOND / row["requests_per_cpu_second"])


def slowness_starting() -> float:
    """How many times slower it starts such a process, which reads files and does not stay in a cache; 1 at least."""
    before = os.times()
    subprocess.run([sys.executable, "-c", "import duckdb, hydra, numba, pyarrow"], check=True)
    after = os.times()
    used = after.children_user + after.children_system - before.children_user - before.children_system
    return max(1.0, used / STARTING_S)


def _interpreted() -> None:
    """Calls, dictionaries, text: what Python code does all day."""
    found: dict[str, int] = {}
    for i in range(200_000):
        name = f"{i % 977}"
        found[name] = found.get(name, 0) + len(name)
