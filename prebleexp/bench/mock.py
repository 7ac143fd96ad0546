"""`prebleexp bench mock`: simulated GPUs in real time, asked by `prebleexp live`: how late their tokens are written,
and how far from the simulation what the client measures is. That is two processes on this machine; what else it does
is in the numbers."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import IO

from prebleexp.bench.processes import prebleexp, python
from prebleexp.bench.table import LESS, Row, Table
from prebleexp.errors import PrebleexpError

GPUS = ("engine=vllm", "hardware/gpu=h100", "hardware/model=llama_3_1_8b")
LOADS = ((8, 50, 60), (8, 20, 30))
"""GPUs, requests/s, seconds"""
TICKS = os.sysconf("SC_CLK_TCK")


def mock(root: Path) -> list[Row]:
    """A row for each load. Raises PrebleexpError if a command of the checkout fails."""
    with TemporaryDirectory() as folder:
        return [_measured(root, Path(folder), *load) for load in LOADS]


def _measured(root: Path, folder: Path, gpus: int, rps: int, seconds: int) -> Row:
    name = f"{gpus}-{rps}"
    of_gpus = [f"gpus={gpus}", *GPUS]
    with _served(root, folder, of_gpus) as (process, out, urls):
        before = _cpu_s(process.pid)
        load = [f"rps={rps}", f"duration_s={seconds}", "policy=round_robin"]
        words = ["live", f"url={','.join(urls)}", *of_gpus, *load, f"name={name}", "output=json"]
        python(["-c", LENIENT, *words], folder, root)
        cpu_s = _cpu_s(process.pid) - before
        process.send_signal(signal.SIGINT)
        process.wait()
        late = json.loads(out.readlines()[-1])
    found = json.loads(prebleexp(root, ["live", "compare", f"live/{name}", *of_gpus, "output=json"], folder).out)[0]
    (off,) = (one for one in found["requests"] if one["name"] == "ttft")
    return {
        "load": f"{gpus} GPUs, {rps} requests/s, {seconds} s",
        "tokens": late["tokens"],
        "late_p50_ms": 1e3 * late["late_p50_s"],
        "late_p99_ms": 1e3 * late["late_p99_s"],
        "late_max_ms": 1e3 * late["late_max_s"],
        "cpu_us_a_token": 1e6 * cpu_s / late["tokens"],
        "ttft_off_p50_ms": 1e3 * off["p50_s"],
        "ttft_off_p90_ms": 1e3 * off["p90_s"],
        "hit_ratio_measured": found["metrics"]["hit_ratio"]["measured"],
        "hit_ratio_simulated": found["metrics"]["hit_ratio"]["simulated"],
    }


LENIENT = """
import sys
from prebleexp.__main__ import main
code = main(sys.argv[1:])
sys.exit(code if code != 1 else 0)
"""
"""a client that was late is measured, too"""


@contextmanager
def _served(root: Path, folder: Path, words: list[str]) -> Iterator[tuple[subprocess.Popen[str], IO[str], list[str]]]:
    """A mock that answers."""
    command = [sys.executable, "-m", "prebleexp", "mock", *words, "port=0", "output=json"]
    environment = os.environ | {"PYTHONPATH": str(root)}
    process = subprocess.Popen(  # noqa: S603
        command, cwd=folder, env=environment, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    )
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        if not line:
            raise PrebleexpError(f"in {root}: a mock did not start (exit code {process.wait()})")
        time.sleep(0.5)
        yield process, process.stdout, json.loads(line)["urls"]
    finally:
        process.kill()
        process.wait()


def _cpu_s(pid: int) -> float:
    """Seconds of CPU that a process has taken so far."""
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


BETTER = ("late_p50_ms", "late_p99_ms", "late_max_ms", "cpu_us_a_token", "ttft_off_p50_ms", "ttft_off_p90_ms")
TABLE = Table(mock, dict.fromkeys(BETTER, LESS), of_commands=True)
