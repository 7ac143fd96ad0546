"""The kernels as plain Python: numpy raises where compiled code would read past an array's end, and the results
are the same."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from tests.recordings import ROOT

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
