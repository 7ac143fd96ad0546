"""A sweep that is killed at any moment goes on where it was, and nothing that was finished is computed twice."""

from __future__ import annotations

import os
import random
import re
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.support.places import ROOT

SWEEP = ("-m", "gpus=1,2", "rps=2,4,6", "policy=lor,random", "duration_s=5", "replications=20")
RUNS = 240
HEED_INTERRUPTS = """
import os, signal, sys
signal.signal(signal.SIGINT, signal.SIG_DFL)
os.execv(sys.executable, [sys.executable, "-m", "prebleexp", *sys.argv[1:]])
"""
"""A shell's background jobs, and what they start, ignore SIGINT. Not in a `preexec_fn`: a copy of this process restarts
what other tests have of gRPC, whose files are then closed, and aborts."""
pytestmark = pytest.mark.slow


def start(folder: Path, command: Sequence[str] = SWEEP) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", HEED_INTERRUPTS, *command],
        cwd=folder,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE if command is not SWEEP else subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )


def finished(folder: Path) -> dict[str, tuple[int, int]]:
    """Every cache entry, and what would change if it were written again."""
    found = {}
    for path in (folder / "cache").glob("v1/*/*.json"):
        status = path.stat()
        found[path.stem] = (status.st_ino, status.st_mtime_ns)
    return found


def wait_for(process: subprocess.Popen[str], folder: Path, runs: int) -> None:
    """Until so many runs are finished, or the process is."""
    while process.poll() is None and len(finished(folder)) < runs:
        time.sleep(0.002)


@pytest.mark.parametrize("seed", range(2))
def test_a_killed_sweep_goes_on_where_it_was(tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    before: dict[str, tuple[int, int]] = {}
    for target in sorted(chance.randint(0, RUNS) for _ in range(3)):
        process = start(tmp_path)
        wait_for(process, tmp_path, target)
        time.sleep(chance.uniform(0, 0.1))
        process.send_signal(signal.SIGKILL)
        process.communicate()
        after = finished(tmp_path)
        assert before.items() <= after.items(), "a finished run was written again"
        before = after
    process = start(tmp_path)
    _, said = process.communicate()
    assert process.returncode == 0, said
    after = finished(tmp_path)
    assert before.items() <= after.items(), "a finished run was written again"
    assert len(after) == RUNS
    if len(before) == RUNS:
        assert f"{RUNS} runs, all from the cache" in said
    else:
        assert f"{RUNS} runs: {RUNS - len(before)} computed, {len(before)} from the cache; " in said
    assert "aside" not in said
    assert (tmp_path / "reports" / "sweep" / "index.html").exists()
    assert not [path for path in (tmp_path / "cache").rglob("*") if path.parent.name == "bad"]


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_an_interrupted_sweep_says_so_in_one_line_and_keeps_what_is_finished(
    tmp_path: Path, number: signal.Signals, code: int
) -> None:
    process = start(tmp_path)
    wait_for(process, tmp_path, 20)
    process.send_signal(number)
    _, said = process.communicate()
    assert process.returncode == code, said
    last = r"prebleexp: (interrupted|terminated); [\d,]+ of [\d,]+ runs are done, and kept"
    assert re.fullmatch(last, said.splitlines()[-1])
    assert "Traceback" not in said
    before = finished(tmp_path)
    assert len(before) >= 20
    process = start(tmp_path)
    _, said = process.communicate()
    assert process.returncode == 0, said
    assert before.items() <= finished(tmp_path).items()


RECOMMEND = (
    *(
        "recommend",
        "rps=60",
        "slo.ttft_s=0.3",
        "slo.target=0.9",
        "hardware/model=llama_3_1_8b",
        "policy=lor,round_robin",
    ),
    *("price_per_gpu_hour={h100: 2.5, h200: 3.5}", "most_gpus=4", "hardware.tensor_parallel=1,2", "requests=300"),
    *("seeds=2", "most_seeds=2", "tol=0.3", "whole=true", "engine.max_num_seqs=null", "report=none", "output=json"),
)


def test_a_killed_recommendation_goes_on_where_it_was(tmp_path: Path) -> None:
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    for folder in (whole, killed):
        folder.mkdir()
    process = start(killed, RECOMMEND)
    wait_for(process, killed, 7)
    process.kill()
    process.communicate()
    before = finished(killed)
    assert len(before) >= 7
    ends = []
    for folder in (killed, whole):
        out, err = start(folder, RECOMMEND).communicate()
        ends.append(out)
        assert "To keep 90 % of requests" in err
    after = finished(killed)
    assert ends[0] == ends[1], "as if it had never been stopped"
    assert {key: after[key] for key in before} == before, "nothing is written twice"
    assert after.keys() == finished(whole).keys()
