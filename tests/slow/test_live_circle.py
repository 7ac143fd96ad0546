"""The three commands of docs/live.md together: a mock, a router before it, and a client, beside the simulation."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from prebleexp.live.measuring import kept
from tests.support.places import ROOT

pytestmark = pytest.mark.slow
GPUS = 3
LOAD = ("workload=instructions", "rps=12", "duration_s=5", f"gpus={GPUS}", "policy=lmetric")


@contextmanager
def serving(folder: Path, *words: str) -> Iterator[subprocess.Popen[str]]:
    """A command that runs until it is told to end, by SIGTERM: then it ends well."""
    command = [sys.executable, "-m", "prebleexp", *words]
    process = subprocess.Popen(
        command,
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
    )
    try:
        yield process
    finally:
        process.terminate()
        _, said = process.communicate()
        assert "Traceback" not in said, said


def address(process: subprocess.Popen[str]) -> str:
    """Where the router listens."""
    assert process.stderr is not None
    for line in process.stderr:
        if found := re.search(r"listening on (http://\S+)", line):
            return found[1]
    raise AssertionError("the router has ended")


def typed(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "prebleexp", *words]
    return subprocess.run(
        command, cwd=folder, capture_output=True, text=True, env=os.environ | {"PYTHONPATH": str(ROOT)}, check=False
    )


def test_a_mock_a_router_and_a_client_close_the_circle(tmp_path: Path) -> None:
    with serving(tmp_path, "mock", f"gpus={GPUS}", "port=0", "output=json") as mock:
        assert mock.stdout is not None
        urls = ",".join(json.loads(mock.stdout.readline())["urls"])
        with serving(tmp_path, "route", "policy=lmetric", "port=0", f"upstream={urls}", "record=told.jsonl") as route:
            to = (f"url={address(route)}", f"metrics={urls}", "name=circle", "late_limit_s=1000")
            live = typed(tmp_path, "live", *to, *LOAD)
    assert live.returncode in (0, 1), live.stderr  # 1: this machine was late
    of = kept.read(tmp_path / "live" / "circle")
    metrics = of.about["runs"][0]["metrics"]
    assert metrics["n_finished"] == metrics["n_requests"] > 40
    assert metrics["hit_ratio"] > 0.5, "requests that share a prefix meet"
    assert of.about["runs"][0]["server"]["means_s"].keys() == {"queue", "prefill", "decode"}
    assert set(of.requests(0)["gpu"].tolist()) <= set(range(GPUS))
    beside = typed(tmp_path, "live", "compare", "live/circle")
    assert beside.returncode == 0, beside.stderr
    assert "requests were sent to the GPU of the simulation" in beside.stderr
    assert (tmp_path / "reports" / "live-circle" / "index.html").is_file()
    again = typed(tmp_path, "route", "check=told.jsonl")
    assert again.returncode == 0, again.stderr
