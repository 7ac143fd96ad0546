"""`prebleexp bench engines`: requests simulated per second of CPU, by engine and stream."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product

import numpy as np
import numpy.typing as npt

from prebleexp.bench.case import CASE, speed
from prebleexp.bench.cpu import by_turns_s
from prebleexp.bench.table import LESS, MORE, Row, Table
from prebleexp.experiment import runs
from prebleexp.launch import configure
from prebleexp.sim.types import Workload

ENGINES = ("preble", "vllm", "sglang")
BURSTS = (2000, 8000)
"""requests at once, of 800 tokens each, on 8 GPUs with room for 20,000: 10 and 40 times what fits"""
PASSES = 4
SIZE = ("policy", "stream", "engine", "requests")


def engines(policies: Sequence[str] | None = None) -> list[Row]:
    """The usual stream, long prompts, and ever more requests than fit into memory. Engines take turns, and all is done
    `PASSES` times, so that a machine that is slow for a while is so for all of them, or for one pass."""
    streams: dict[str, tuple[Workload | None, list[str]]] = {"usual": (None, [])}
    streams["4,000 tokens"] = stream(np.arange(2000) / 8, 4000), []
    streams |= {f"{n:,} at once": (stream(np.zeros(n), 500), ["hardware.kv_tokens=20000"]) for n in BURSTS}
    best: dict[tuple[str, str, str, int], float] = {}
    for _, policy, (name, (given, scarce)) in product(range(PASSES), policies or ("lor",), streams.items()):
        overrides = [*CASE, f"policy={policy}", *scarce]
        cells = [configure.cells([*overrides, f"engine={engine}"])[0] for engine in ENGINES]
        workload = given or runs.draw(cells[0])
        for engine, took in zip(ENGINES, by_turns_s(cells, workload), strict=True):
            which = policy, name, engine, len(workload)
            best[which] = min(took, best.get(which, took))
    return [dict(zip(SIZE, which, strict=True)) | speed(which[-1], took) for which, took in best.items()]


def stream(arrival_s: npt.NDArray[np.float64], prompt_tokens: int) -> Workload:
    """Requests that share nothing, with outputs of 300 tokens."""
    n = len(arrival_s)
    size, output = np.full(n, prompt_tokens), np.full(n, 300)
    return Workload(arrival_s, size, output, output, np.full(n, -1), np.arange(n + 1), np.arange(n), size)


TABLE = Table(engines, {"cpu_seconds": LESS, "requests_per_cpu_second": MORE})
