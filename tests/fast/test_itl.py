"""Gaps between tokens: the histogram against tokens that are listed one by one, and what is made of it."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from prebleexp.engines.base import Engine
from prebleexp.engines.continuous import Continuous
from prebleexp.engines.sglang.engine import SGLang
from prebleexp.engines.vllm.engine import VLLM
from prebleexp.errors import InvalidInput
from prebleexp.experiment import runs
from prebleexp.launch import configure
from prebleexp.lengths.known import Max
from prebleexp.overhead.model import Overhead
from prebleexp.policies.lor import LeastOutstanding
from prebleexp.sim.histogram import BINS, LEAST_S, edges, percentile
from prebleexp.sim.simulate import simulate
from prebleexp.sim.types import Workload
from tests.support.costs.linear_cost import LinearCost
from tests.support.strategies.paths import workload_of
from tests.support.streams import check, listed

COST = LinearCost(step_s=0.0013, token_s=0.0001, context_token_s=1e-6, kv_tokens=700, gpu_memory_gib=48)
ENGINES: dict[str, tuple[Engine, float]] = {
    "vllm": (VLLM(max_num_batched_tokens=64, max_num_seqs=16), 0.0),
    "vllm, synchronous": (VLLM(max_num_batched_tokens=64, max_num_seqs=16, async_scheduling=False), 0.0),
    "sglang": (SGLang(chunked_prefill_size=64), 0.0),
    "sglang, without overlap": (SGLang(chunked_prefill_size=64, disable_overlap_schedule=True), 0.0),
    "sglang of 2024": (Continuous(), 1e-7),
    "chunks": (Continuous(queue="priority_groups", prefill="chunked", chunk_tokens=48, block_tokens=16), 1e-7),
}
"""and by how much of itself a gap may be beyond an edge: bursts are listed with times that are rounded"""


def stream(seed: int, requests: int = 24) -> Workload:
    """Long answers for so little memory, so that engines preempt."""
    rng = np.random.default_rng(seed)
    prompts = [rng.integers(0, 3, rng.integers(1, 5)).tolist() for _ in range(requests)]
    outputs = rng.integers(1, 120, requests).tolist()
    return workload_of(prompts, np.cumsum(rng.exponential(0.02, requests)).tolist(), outputs, 120)


def cluster(**more: Any) -> dict[str, Any]:
    known = {"gpus": 2, "hardware": COST, "policy": LeastOutstanding(), "overhead": Overhead()}
    return known | {"duration_s": 100.0, "horizon": "drain", "seed": 0} | more


@pytest.mark.parametrize("name", ENGINES)
@pytest.mark.parametrize("seed", range(3))
def test_the_histogram_is_that_of_all_tokens_listed(name: str, seed: int) -> None:
    engine, slack = ENGINES[name]
    workload = stream(seed)
    watched, made, streams = listed(workload, engine, **cluster())
    np.testing.assert_array_equal(watched.gaps_counts, made.gaps_counts)
    check(made, streams.gaps(), slack)
    if not made.gpu_retracted.any() or slack == 0:  # else tokens come again
        assert made.gaps_counts.sum() == (made.output_seen - 1).clip(0).sum()
    assert streams.gaps().sum() == pytest.approx(np.nansum(made.latency_s - made.ttft_s))


@pytest.mark.parametrize("of_each", [False, True])
@pytest.mark.parametrize("name", ENGINES)
def test_answers_of_a_token_or_two_are_counted_and_kept_nowhere(name: str, of_each: bool) -> None:
    """More of them than may run, of half of which engines know when they end; at first no step decodes."""
    engine, slack = ENGINES[name]
    if isinstance(engine, SGLang):
        engine = dataclasses.replace(engine, max_running_requests=4)
    rng = np.random.default_rng(5)
    outputs = np.where(np.arange(48) < 24, 1, rng.integers(1, 5, 48))
    workload = workload_of([[0]] * 48, np.cumsum(rng.exponential(0.004, 48)).tolist(), outputs.tolist(), 9)
    known = np.where(rng.random(48) < 0.5, outputs, 9).astype(workload.max_new_tokens.dtype)
    workload = dataclasses.replace(workload, max_new_tokens=known)
    _, made, streams = listed(workload, engine, gaps_of_each=of_each, **cluster())
    check(made, streams.gaps(), slack)
    assert made.gaps_counts.sum() == (outputs - 1).sum()
    assert made.gaps_sum_s.sum() == pytest.approx(streams.gaps().sum())


@pytest.mark.parametrize("name", ENGINES)
def test_the_longest_gaps_of_each_request_are_those_of_its_list(name: str) -> None:
    engine, slack = ENGINES[name]
    workload = stream(7)
    _, plain, streams = listed(workload, engine, **cluster())
    made = simulate(workload, engine=engine, lengths=Max(), gaps_of_each=True, **cluster())
    check(made, streams.gaps(), slack)
    assert made.gaps_counts.sum() == plain.gaps_counts.sum()
    for request, times in enumerate(streams.times):
        gaps = np.diff(times)
        if not len(gaps):
            assert np.isnan(made.gap_p99_s[request])
        elif len(gaps) == made.output_seen[request] - 1:  # else it began anew, and has more than are kept
            top = np.sort(gaps)[::-1][: -(-len(gaps) // 10)]
            assert made.gap_top10_s[request] == pytest.approx(top.mean())
            assert made.gap_p99_s[request] == pytest.approx(np.quantile(gaps, 0.99))


@pytest.mark.parametrize("name", ENGINES)
def test_classes_add_up(name: str) -> None:
    engine, slack = ENGINES[name]
    workload = stream(3)
    of = np.arange(len(workload), dtype=np.int32) % 3
    if getattr(engine, "scheduling_policy", "") == "priority":
        return
    _, one, streams = listed(workload, engine, **cluster())
    made = simulate(dataclasses.replace(workload, priority=of), engine=engine, lengths=Max(), **cluster())
    assert made.gaps_priority.tolist() == [0, 1, 2]
    check(made, streams.gaps(), slack)
    for row in range(3):
        mine = np.concatenate([np.diff(times) for i, times in enumerate(streams.times) if of[i] == row])
        assert made.gaps_counts[row].sum() == len(mine)
    assert made.gaps_counts.sum() == one.gaps_counts.sum()


@given(st.lists(st.floats(0, 1e6), min_size=1, max_size=50), st.floats(0.001, 1))
def test_a_percentile_is_at_most_a_bin_from_the_true_one(values: list[float], share: float) -> None:
    counts = np.zeros(BINS, np.int64)
    np.add.at(counts, np.searchsorted(edges(), values, side="right") - 1, 1)
    true = float(np.quantile(values, share, method="inverted_cdf"))
    found = percentile(counts, max(values), share)
    assert found is not None
    if LEAST_S <= true < edges()[-2]:
        assert abs(found - true) <= 0.004 * true


def test_edges_are_of_the_bin_above_and_at_most_a_percent_apart() -> None:
    at = edges()
    assert len(at) == BINS + 1
    assert (np.diff(at[1:-1]) / at[1:-2] <= 0.01).all()


def test_mooncake_limits_the_longest_gaps_and_engines_without_them_are_refused() -> None:
    made = runs.run(configure.cells(["gpus=2", "rps=8", "duration_s=5", "slo=mooncake_100"])[0])
    kept = (made.outcome.ttft_s <= 30) & ~(made.outcome.gap_top10_s > 0.1)
    assert made.metrics["slo_attainment"] == kept.mean()
    assert made.metrics["itl_max_s"] >= made.metrics["itl_p99_s"] >= made.metrics["itl_p50_s"] > 0
    released = ["gpus=2", "rps=2", "duration_s=2", "engine=released", "policy=e2_released"]
    assert runs.run(configure.cells(released)[0]).metrics["itl_p99_s"] is None
    with pytest.raises(InvalidInput, match="does not count gaps between tokens"):
        runs.run(configure.cells([*released, "slo=mooncake_100"])[0])
