"""The kernels as plain Python: numpy raises where compiled code would read past an array's end, and the results
are the same."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from tests.recordings import ROOT
from tests.sampled import sampled

SCRIPT = """
import sys
from tests.recordings import COMMITTED, assert_equal, rerun
assert_equal(*rerun(sys.argv[1], folder=COMMITTED))
"""


@pytest.mark.parametrize(
    "case",
    [
        "random_g4_r8_d30_o0.5x1_0.5x300_m301_s2333",
        pytest.param("round_robin_g4_r32_d30_o1x150_kv12000_s2333", marks=pytest.mark.slow),
    ],
)
def test_interpreted_kernels_reproduce_a_recording(case: str) -> None:
    environment = os.environ | {"NUMBA_DISABLE_JIT": "1", "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-W", "error", "-c", SCRIPT, case]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


DIGEST = """
import dataclasses, hashlib, sys
import prebleexp
result = prebleexp.run(**dict(argument.split("=", 1) for argument in sys.argv[1:]), cache_dir=None).computed.outcome
print(hashlib.sha256(b"".join(bytes(memoryview(getattr(result, field.name))) if field.name != "end_s" else b""
                              for field in dataclasses.fields(result))).hexdigest())
"""


def digests(*settings: str) -> set[str]:
    """Of a run interpreted and compiled."""
    found = set()
    for disabled in "01":
        environment = os.environ | {"NUMBA_DISABLE_JIT": disabled, "PYTHONPATH": str(ROOT)}
        command = [sys.executable, "-W", "error", "-c", DIGEST, *settings]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        found.add(done.stdout)
    return found


SCARCE = ("hardware.kv_tokens=6000", "gpus=3", "rps=8", "duration_s=3")


@pytest.mark.parametrize("engine", sampled(["vllm", "sglang", "preble", "released"], 4))
def test_engines_do_the_same_interpreted(engine: str) -> None:
    """Also running means and evictions."""
    assert len(digests("policy=lor", "lengths=mean", f"engine={engine}", *SCARCE)) == 1


@pytest.mark.slow
@pytest.mark.parametrize("policy", ["e2", "e2_released", "lor_tokens", "least_work"])
def test_policies_that_keep_a_tree_do_the_same_interpreted(policy: str) -> None:
    """Also running means, a router that takes time, reports now and then, chunked prefills, fair queues and
    evictions."""
    settings = (f"policy={policy}", "lengths=mean", "overhead=serial", "engine=preble", "reports_ms=20")
    assert len(digests(*settings, *SCARCE)) == 1
