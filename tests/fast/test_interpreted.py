"""The kernels as plain Python: numpy raises where compiled code would read past an array's end, and the results
are the same."""

from __future__ import annotations

import pytest

from tests.support.interpreted import SCARCE, digest, interpreted, printed

SCRIPT = """
import sys
from tests.support.recordings.released import COMMITTED, assert_equal, rerun
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
    printed(SCRIPT, case)


def same(*runs: str) -> None:
    assert dict(zip(runs, interpreted(*runs), strict=True)) == {run: digest(*run.split()) for run in runs}


@pytest.mark.slow
def test_engines_do_the_same_interpreted() -> None:
    """Also running means and evictions."""
    engines = ("vllm", "sglang", "released", "preble", "sglang_2024")
    same(*(f"policy=lor lengths=mean engine={engine} {SCARCE}" for engine in engines))


@pytest.mark.slow
def test_clusters_do_the_same_interpreted() -> None:
    """GPUs of two kinds, requests that are moved, prompts and outputs apart, and KV that comes from other GPUs."""
    split = "policy=lor cluster=disaggregated rps=8 duration_s=1"
    lent = "cluster=tiered cluster.host.gb=1 cluster.peers.gb_s=36 cluster.peers.choose=always rps=24 duration_s=1"
    same(
        "policy=lor engine=vllm cluster=two_kinds hardware.kv_tokens=6000 rps=8 duration_s=1",
        f"policy=lor engine=vllm {SCARCE} cluster=migrating cluster.migration.below_freeness=100",
        f"{split} engine=vllm cluster.protocol=push_at_end cluster.decider=predicted",
        f"{split} engine=sglang cluster.link.send=layers",
        f"policy=mooncake policy.balancing_threshold=1.0 engine=vllm {SCARCE} {lent}",
    )


@pytest.mark.slow
def test_policies_that_keep_a_tree_do_the_same_interpreted() -> None:
    """Also running means, a router that takes time, reports now and then, chunked prefills, fair queues and
    evictions."""
    how = f"lengths=mean overhead=serial engine=preble reports_ms=20 {SCARCE}"
    same(*(f"policy={policy} {how}" for policy in ("e2", "e2_released", "lor_tokens", "least_work")))
