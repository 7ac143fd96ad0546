"""What a prediction costs: milliseconds a prompt and memory, in a process that does nothing else."""

from __future__ import annotations

import multiprocessing
import statistics
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

from prebleexp.experiment.limits import peak_memory_bytes
from prebleexp.predict import predictor
from prebleexp.predict.extra import needed

PROMPTS = 320
BATCHES = (1, 32)


def speed(path: Path, prompts: Sequence[str], threads: int) -> dict[str, float]:
    """`ms_batch_1` and `ms_batch_32`: median milliseconds a prompt, one prompt and 32 prompts at a time, tokenising
    included; `peak_memory_bytes` of the process, libraries included. Raises InvalidInput for a file that is damaged."""
    spawn = multiprocessing.get_context("spawn")  # nothing is inherited, so that the memory is this predictor's own
    with ProcessPoolExecutor(1, mp_context=spawn) as pool:
        return pool.submit(_measured, path, list(prompts[:PROMPTS]), threads).result()


def _measured(path: Path, prompts: Sequence[str], threads: int) -> dict[str, float]:
    model = predictor.load(path).model
    if "torch" in sys.modules:  # else the predictor does without
        needed("torch").set_num_threads(threads)
    found: dict[str, float] = {}
    with needed("threadpoolctl").threadpool_limits(threads):
        for size in BATCHES:
            batches = [prompts[start : start + size] for start in range(0, len(prompts), size)]
            model.probabilities(batches[0])  # what is done once is not counted
            seconds = []
            for batch in batches:
                start = time.perf_counter()
                model.probabilities(batch)
                seconds.append((time.perf_counter() - start) / len(batch))
            found[f"ms_batch_{size}"] = 1e3 * statistics.median(seconds)
    return found | {"peak_memory_bytes": float(peak_memory_bytes())}
