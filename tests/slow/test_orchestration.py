"""What a sweep costs besides the simulation. Budgets of the issue; the numbers reached are printed (-s)."""

from __future__ import annotations

import csv
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.recordings import ROOT
from tests.yardstick import slowness

TINY = ("-m", "gpus=1,2", "rps=range(1,26)", "policy=random,round_robin", "duration_s=1", "report=none", "output=csv")
pytestmark = pytest.mark.slow


def sweep(folder: Path, *more: str) -> tuple[float, float, list[dict[str, str]], str]:
    """Wall seconds and CPU seconds of the command, the summary's rows, and what was said."""
    start = time.perf_counter()
    process = subprocess.Popen(
        [sys.executable, "-m", "prebleexp", *TINY, *more],
        cwd=folder,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        stdout=(folder / "out.csv").open("w"),
        stderr=(folder / "err.txt").open("w"),
    )
    _, status, used = os.wait4(process.pid, 0)
    wall = time.perf_counter() - start
    process.returncode = os.waitstatus_to_exitcode(status)
    said = (folder / "err.txt").read_text()
    assert process.returncode == 0, said
    with (folder / "out.csv").open() as file:
        rows = list(csv.DictReader(file))
    return wall, used.ru_utime + used.ru_stime, rows, said


def besides(folder: Path, seeds: str) -> float:
    """Seconds that computing a sweep took besides its simulations."""
    _, _, rows, said = sweep(folder, seeds, "workers=1")
    assert f"{len(rows):,} computed" in said
    return float(said.split()[-2]) - sum(float(row["seconds"]) for row in rows)


@pytest.mark.filterwarnings("ignore::ResourceWarning")
def test_a_thousand_cells(tmp_path: Path) -> None:
    sweep(tmp_path, "seed=range(1000,1001)")  # compiles
    tries = []
    for start in (0, 100, 200):  # the least disturbed of three
        few = besides(tmp_path, f"seed=range({2000 + start},{2001 + start})")
        many = besides(tmp_path, f"seed=range({start},{start + 10})")
        tries.append(1000 * (many - few) / 900)  # without what is paid once, such as loading machine code
    overhead = min(tries)
    rows = sweep(tmp_path, "seed=range(0,10)")[2]
    wall, cpu, again, said = sweep(tmp_path, "seed=range(0,10)")
    assert again == rows
    assert "all from the cache" in said
    print(
        f"1,000 computed: {overhead:.2f} ms a cell besides its simulation; cached: {wall:.1f} s wall, {cpu:.1f} s CPU"
    )
    assert overhead < 2.0 * slowness(), "milliseconds a cell"
    assert wall < 4 * slowness()
    assert cpu < 2.5 * slowness()


@pytest.mark.nightly
@pytest.mark.filterwarnings("ignore::ResourceWarning")
def test_ten_thousand_cached_cells(tmp_path: Path) -> None:
    sweep(tmp_path, "seed=range(0,100)")
    wall, cpu, rows, said = sweep(tmp_path, "seed=range(0,100)")
    assert len(rows) == 10000
    assert "all from the cache" in said
    print(f"10,000 cached: {wall:.1f} s wall, {cpu:.1f} s CPU")
    assert wall < 20 * slowness()
