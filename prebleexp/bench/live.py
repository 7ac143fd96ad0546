"""`prebleexp bench live`: how late a client sends what is due, and what a request costs it."""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from prebleexp.bench.route import engines_of_streams
from prebleexp.bench.table import LESS, Row, Table

RATES = (100, 500, 1000)
SECONDS = 8
TOKENS = 20
PROMPT = 200


def rows() -> list[Row]:
    """A line for each rate: milliseconds from when requests were due until they were sent, by Poisson, 20 events each
    from eight servers of one process; and the client's CPU, that of a run of a tenth of the requests taken off. Where
    there are several cores, servers have one and the client the others."""
    first, *others = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else [0]
    with ExitStack() as stack:
        with _on([first] if others else []):
            ports = stack.enter_context(engines_of_streams())
        stack.enter_context(_on(others))
        urls = ",".join(f"http://127.0.0.1:{port}" for port in ports)
        return [_row(urls, rate) for rate in RATES]


@contextmanager
def _on(cores: Sequence[int]) -> Iterator[None]:
    """What is started meanwhile runs on these cores alone; on any if there are none."""
    if not cores:
        yield
        return
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, cores)
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


def _row(urls: str, rate: int) -> Row:
    few, many = rate * SECONDS // 10, rate * SECONDS
    _, started_s = _sent(urls, rate, few)
    late, used_s = _sent(urls, rate, many)
    return {
        "requests/s": rate,
        "late ms p50": round(1e3 * late["p50_s"], 3),
        "late ms p99": round(1e3 * late["p99_s"], 3),
        "CPU ms a request": round(1e3 * (used_s - started_s) / (many - few), 3),
    }


def _sent(urls: str, rate: int, requests: int) -> tuple[dict[str, Any], float]:
    """How late they were, and the CPU seconds of the whole command."""
    load = ["workload=vllm_bench", f"workload.num_prompts={requests}", f"workload.request_rate={rate}"]
    load += [f"workload.random_input_len={PROMPT}", f"workload.random_output_len={TOKENS}", "gpus=8"]
    with tempfile.TemporaryDirectory() as folder:
        words = ["live", f"url={urls}", "model=m", "name=bench", f"live_dir={folder}", *load]
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run([sys.executable, "-m", "prebleexp", *words], capture_output=True, check=False)  # noqa: S603
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        about = json.loads((Path(folder) / "bench" / "about.json").read_text())
    used = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return about["runs"][0]["lateness"], used


TABLE = Table(rows, dict.fromkeys(("late ms p50", "late ms p99", "CPU ms a request"), LESS))
