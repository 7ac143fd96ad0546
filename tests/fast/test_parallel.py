"""Data-parallel ranks in lockstep, experts spread over them, and pipelines: counts, costs and memory by hand, laws, and
the second simulator."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from prebleexp.engines.vllm.engine import VLLM
from prebleexp.errors import InvalidInput
from prebleexp.experiment import runs
from prebleexp.experiment.cell import Cell
from prebleexp.experiment.key import key
from prebleexp.hardware import composed_step, parallel_step
from prebleexp.hardware.composed import Composed
from prebleexp.hardware.experts import Popularity, busiest
from prebleexp.launch import configure
from prebleexp.lengths.known import Max
from prebleexp.overhead.model import Overhead
from prebleexp.policies.lor import LeastOutstanding
from prebleexp.policies.round_robin import RoundRobin
from prebleexp.sim.plug import plain
from prebleexp.sim.simulate import simulate
from prebleexp.sim.steps import Steps
from prebleexp.sim.types import Outcome, Workload
from tests.support.by_hand.streams import stream
from tests.support.costs.linear_cost import LinearCost
from tests.support.costs.wave_cost import WaveCost
from tests.support.oracle import composed
from tests.support.oracle.compared import same
from tests.support.policies.looker import Looker
from tests.support.sampled import examples
from tests.support.strategies.few import few
from tests.support.strategies.vllms import VLLMS, streams

pytestmark = pytest.mark.filterwarnings("ignore::numba.core.errors.NumbaExperimentalFeatureWarning")
"""which numba gives where plain code calls a compiled function with a record, as here alone"""
COST = WaveCost(step_s=2.0**-10, token_s=2.0**-13, context_token_s=2.0**-20, kv_tokens=1, gpu_memory_gib=48)
ALONE = LinearCost(COST.step_s, COST.token_s, COST.context_token_s, kv_tokens=1)
POLICIES = st.sampled_from([LeastOutstanding(), RoundRobin(), Looker()])


SMALL = ("gpus=8", "hardware/model=qwen3_235b", "hardware/gpu=h200", "hardware.precision=fp8", "rps=8", "duration_s=2")
DP8, EP = "hardware.data_parallel_size=8", "hardware.enable_expert_parallel=true"
TP8, TP4, TP2 = (f"hardware.tensor_parallel={size}" for size in (8, 4, 2))


def cell(*overrides: str) -> Cell:
    return configure.cells([*SMALL, *overrides])[0]


def hardware(*overrides: str) -> Composed:
    made = cell(*overrides).hardware
    assert isinstance(made, Composed)
    return made


def decode_s(of: Composed, running: int, context: int) -> float:
    return float(plain(of.kernels().decode_s)(None, of.start(), running, context, context, 1))


# ---------------------------------------------------------------- GPUs, memory, words
@pytest.mark.parametrize(
    ("overrides", "gpus", "replicas"),
    [
        ((DP8, EP), 8, 8),
        ((DP8,), 8, 8),
        (("gpus=16", DP8, EP), 16, 16),
        (("gpus=null", "replicas=8", TP2, "hardware.data_parallel_size=4"), 16, 8),
        ((TP4, "hardware.data_parallel_size=2", EP), 8, 2),
        ((TP4, "hardware.pipeline_parallel_size=2", "engine.async_scheduling=false"), 8, 1),
        (("hardware/model=llama_3_1_8b", DP8), 8, 8),
    ],
)
def test_gpus_are_gpus(overrides: tuple[str, ...], gpus: int, replicas: int) -> None:
    made = cell(*overrides)
    assert (made.gpus, made.replicas) == (gpus, replicas)


@pytest.mark.parametrize(
    ("overrides", "said"),
    [
        (("gpus=12", DP8), "gpus=12 is not valid with hardware.data_parallel_size=8; it must be a multiple of 8"),
        (
            ("gpus=null", "replicas=6", TP2, "hardware.data_parallel_size=4"),
            "replicas=6 is not valid with hardware.tensor_parallel=2 and hardware.data_parallel_size=4; it",
        ),
        (
            (TP8, "hardware.data_parallel_size=2"),
            "hardware.data_parallel_size=2 is not valid; it must be such",
        ),
        (
            ("hardware/model=llama_3_1_8b", EP),
            "hardware.enable_expert_parallel=True is not valid; it must be false",
        ),
        ((DP8, "hardware.expert_imbalance=2"), "hardware.expert_imbalance=2.0 is not valid; it must be 1 without"),
        ((DP8, EP, "hardware.expert_imbalance=9"), "hardware.expert_imbalance=9.0 is not valid; it must be at most 8"),
        (
            (DP8, EP, "hardware.expert_imbalance=.5"),
            "hardware.expert_imbalance=0.5 is not valid; it must be a",
        ),
        ((DP8, EP, "+hardware.expert_imbalance.zip=1"), "hardware.expert_imbalance="),
        (
            (DP8, EP, "hardware.expert_imbalance={loads: [1, 2]}"),
            "hardware.expert_imbalance=2 loads is not valid",
        ),
        (
            (TP2, "hardware.data_parallel_size=2", "hardware.pipeline_parallel_size=2"),
            "hardware.data_parallel_size=2 is not valid; it must be 1 with hardware.pipeline_parallel_size",
        ),
        ((DP8, EP, "engine=sglang"), "hardware.data_parallel_size=… is not valid with engine=sglang; take engine=vllm"),
        ((DP8, EP, "autoscaler=hpa"), "an autoscaler says how many GPUs there are, and ranks step together; only one"),
    ],
)
def test_what_cannot_be_is_said_in_a_line(overrides: tuple[str, ...], said: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        cell(*overrides)
    assert str(refused.value).startswith(said)
    assert "\n" not in str(refused.value)


def test_what_is_off_is_in_no_key_and_on_it_is() -> None:
    known = key(cell(TP8))
    assert known == key(cell(TP8, "hardware.data_parallel_size=1", "hardware.expert_imbalance=1"))
    assert len({known, key(cell(DP8)), key(cell(DP8, EP)), key(cell(DP8, EP, "hardware.expert_imbalance=2"))}) == 4
    assert key(cell(DP8, EP, "hardware.expert_imbalance={zipf: 1.0}")) not in (known, key(cell(DP8, EP)))


def test_kv_fits_beside_what_a_gpu_has_of_the_weights() -> None:
    """By hand: all but experts are on every rank, experts once over all of them; a latent is not divided over GPUs."""
    tp, dp = hardware(TP8, "hardware/model=deepseek_r1"), hardware(DP8, EP, "hardware/model=deepseek_r1")
    model = tp.model
    experts = model.experts * model.expert
    rest = model.linear + 2 * model.embeddings
    each = model.kv_elements
    for made, weights in ((tp, (rest + experts) / 8), (dp, rest + experts / 8)):
        assert made.kv_tokens == math.floor((0.9 * made.gpu.memory_gb * 1e9 - 1.3e9 - weights) / each)
    assert 8 * dp.kv_tokens > 5 * tp.kv_tokens
    staged = hardware(TP4, "hardware.pipeline_parallel_size=2", "engine.async_scheduling=false")
    whole = staged.model.weight_bytes("fp8")
    free = 0.9 * staged.gpu.memory_gb * 1e9 - 1.3e9 - whole / 8
    assert staged.kv_tokens == math.floor(free * 4 * 2 / staged.kv_bytes)


def test_how_well_it_is_known_is_said() -> None:
    assert hardware(DP8, EP).support.startswith(
        "theory only: experts over 8 GPUs, whose exchange is taken as a measured"
    )
    assert "8 ranks, expert parallel" in hardware(DP8, EP).title


# ---------------------------------------------------------------- experts
def test_a_group_with_whole_experts_costs_what_one_with_parts_of_all_does() -> None:
    """Law: with an imbalance of 1, and one rank, it is the same work; the exchange is the all-reduce behind experts."""
    parts, whole = hardware(TP8), hardware(TP8, EP)
    for running in (1, 64, 1000):
        np.testing.assert_allclose(decode_s(whole, running, 900 * running), decode_s(parts, running, 900 * running))


def test_the_split_of_work_by_hand() -> None:
    """Eight ranks with 10 tokens each, experts even, and links that cost nothing: attention and all that is dense as
    one GPU has it for 10 tokens, and of the experts an eighth of what one GPU would have for 80."""
    free = replace(hardware(TP8).gpu, all_reduce=((8, 1e-9, 1e12),))
    ranks = replace(hardware(DP8, EP), gpu=free)
    alone = replace(hardware(DP8, EP), gpu=free, data_parallel_size=1, enable_expert_parallel=False, kv_tokens=10**6)
    dense = composed_step.coefficients(alone, ranks._fitted)
    whole = dense.copy()
    dense.experts = 0
    own = plain(composed_step.decode_s)(None, dense, 10, 9000, 9000, 1)
    touched = 128 * (1 - (1 - 8 / 128) ** 80)
    experts = math.hypot(whole.expert_compute * 80, whole.expert_memory * touched) / 8
    assert decode_s(ranks, 10, 9000) == pytest.approx(own + experts, rel=1e-9)
    twice = replace(ranks, expert_imbalance=2.0)
    experts = math.hypot(whole.expert_compute * 160, whole.expert_memory * min(2 * touched, 128)) / 8
    assert decode_s(twice, 10, 9000) == pytest.approx(own + experts, rel=1e-9)


def test_the_exchange_is_an_all_reduce_of_the_tokens_of_all_ranks() -> None:
    ranks = hardware(DP8, EP)
    us, rate = next((us, rate) for gpus, us, rate in ranks.gpu.all_reduce if gpus == 8)
    made, v, layers = ranks.start(), ranks._fitted.v, ranks.model.layers
    assert made.exchange == pytest.approx(v * layers * us * 1e-6)
    assert made.exchange_token == pytest.approx(v * layers * 4 * 4096 * 7 / 8 / (rate * 1e9))
    assert made.experts == 0
    more = [plain(parallel_step.wave_s)(None, made, tokens) for tokens in (8, 80, 800, 8000)]
    assert sorted(more) == more


def test_how_unevenly_experts_are_asked_for() -> None:
    assert busiest(Popularity(zipf=0.0), 128, 8) == 1.0
    assert busiest(Popularity(loads=(3.0, 1.0, 0.0, 0.0)), 4, 2) == 2.0
    assert busiest(Popularity(loads=(3.0, 1.0, 2.0, 2.0)), 4, 2) == 1.0
    even, steep = (busiest(Popularity(zipf=one), 128, 8) for one in (0.5, 1.0))
    assert 1 < even < steep < 8
    assert hardware(DP8, EP, "hardware.expert_imbalance={zipf: 1.0}").start().busiest == steep


# ---------------------------------------------------------------- the second simulator
@st.composite
def deployments(draw: st.DrawFn) -> dict[str, Any]:
    ranks = draw(st.integers(2, 4))
    engine = replace(draw(VLLMS), host_s=2.0**-11)
    kv_tokens = draw(st.sampled_from([300, 600, 4000]))
    hardware = replace(
        COST, ranks=ranks, kv_tokens=kv_tokens, frontend_s=draw(st.sampled_from([(0.0, 0.0), (0.01, 0.0)]))
    )
    fixed = {"duration_s": 4.0, "seed": 0, "overhead": Overhead(), "engine": engine, "hardware": hardware}
    kinds = draw(st.sampled_from([(), (), ((1, replace(ALONE, kv_tokens=kv_tokens)), (2 * ranks, hardware))]))
    gpus = 1 + 2 * ranks if kinds else ranks * draw(st.integers(1, 2))
    drawn = {
        "policy": draw(POLICIES),
        "horizon": draw(st.sampled_from(["stop", "drain"])),
        "gpus": gpus,
        "kinds": kinds,
    }
    return fixed | drawn | {"reports_ms": draw(st.sampled_from([0.0, 50.0]))}


@pytest.mark.slow
@settings(max_examples=examples(200, found=True), deadline=None)
@given(few() | streams(), deployments())
def test_ranks_in_lockstep_give_the_bytes_of_the_oracle(workload: Workload, cluster: dict[str, Any]) -> None:
    same(workload, cluster, composed.simulate)


@st.composite
def pipelines(draw: st.DrawFn) -> dict[str, Any]:
    engine = replace(draw(VLLMS), async_scheduling=False, host_s=draw(st.sampled_from([0.0, 0.001])))
    kv_tokens, stages = draw(st.sampled_from([300, 600, 4000])), draw(st.integers(2, 4))
    handoff_s = draw(st.sampled_from([(0.0, 0.0), (0.0004, 1e-6)]))
    hardware = replace(ALONE, kv_tokens=kv_tokens, stages=stages, handoff_s=handoff_s)
    fixed = {"duration_s": 4.0, "seed": 0, "overhead": Overhead(), "engine": engine, "hardware": hardware}
    drawn = {
        "policy": draw(POLICIES),
        "gpus": draw(st.integers(1, 3)),
        "horizon": draw(st.sampled_from(["stop", "drain"])),
    }
    return fixed | drawn | {"reports_ms": draw(st.sampled_from([0.0, 50.0]))}


@pytest.mark.slow
@settings(max_examples=examples(200, found=True), deadline=None)
@given(few() | streams(), pipelines())
def test_pipelines_give_the_bytes_of_the_oracle(workload: Workload, cluster: dict[str, Any]) -> None:
    same(workload, cluster, composed.simulate)


def _pipeline(prompts: list[list[tuple[int, int]]], stages: int, **changed: Any) -> Outcome:
    """On one replica whose steps take a second, a budget of 64 tokens, and outputs of four."""
    engine = VLLM(max_num_batched_tokens=64, max_num_seqs=8, host_s=0.0, async_scheduling=False)
    hardware = LinearCost(1.0, 0.0, 0.0, kv_tokens=4000, stages=stages, handoff_s=changed.get("handoff_s", (0.0, 0.0)))
    given = {"gpus": 1, "policy": LeastOutstanding(), "hardware": hardware, "engine": engine, "lengths": Max()}
    rest = {"overhead": Overhead(), "duration_s": 99.0, "horizon": "drain", "seed": 0}
    count = len(prompts)
    return simulate(stream(prompts, [0.0] * count, [4] * count), **given, **rest)  # type: ignore[arg-type]


@pytest.mark.slow
def test_bubbles_by_hand() -> None:
    """One request has one batch under way at a time: of two stages one always waits, of four three. Of three requests
    the first and a part of the second are in one batch, and the rest in another: each stage waits half a second at the
    beginning or at the end."""
    for stages in (2, 4):
        made = _pipeline([[(0, 40)]], stages)
        assert made.finish_s.tolist() == [4.0]
        assert made.gpu_paced_s[0] == 4.0
        assert made.gpu_stalled_s[0] == 4.0 * (stages - 1) / stages
    handed = _pipeline([[(0, 40)]], 2, handoff_s=(0.25, 0.001))
    np.testing.assert_allclose(handed.finish_s, [1 + 0.25 + 0.04 + 3 * (1 + 0.25 + 0.001)])
    three = _pipeline([[(0, 40)], [(2, 40)], [(4, 40)]], 2)
    assert three.ttft_s.tolist() == [1.0, 1.5, 1.5]
    assert three.finish_s.tolist() == [4.0, 4.5, 4.5]
    assert (three.gpu_paced_s[0], three.gpu_stalled_s[0]) == (4.5, 0.5)
    assert _pipeline([[(0, 40)], [(2, 40)], [(4, 40)]], 1).finish_s.tolist() == [4.0, 5.0, 5.0]


@pytest.mark.slow
def test_what_is_measured_of_ranks_and_stages() -> None:
    """A lone request: one rank of eight works, and the others compute empty steps beside it."""
    lone = ("rps=0.5", "duration_s=2", "output_length=constant")
    metrics = runs.run(cell(DP8, EP, *lone)).metrics
    print(metrics["bubble_share"], metrics["empty_step_share"])
    assert metrics["empty_step_share"] > 0.8
    assert 0 < metrics["bubble_share"] < 0.5
    staged = runs.run(cell(TP4, "hardware.pipeline_parallel_size=2", "engine.async_scheduling=false", *lone)).metrics
    assert staged["bubble_share"] > 0.45
    assert staged["empty_step_share"] is None
    plain_run = runs.run(cell(TP8, *lone)).metrics
    assert plain_run["bubble_share"] is None


@pytest.mark.slow
def test_no_two_ranks_are_in_different_steps_and_a_step_is_as_long_as_the_slowest() -> None:
    """By hand: rank 0 reads a prompt of 40 tokens while rank 1 has nothing, and computes one token of nobody. Both then
    go on until they ask each other, after 16 steps."""
    engine = VLLM(max_num_batched_tokens=64, max_num_seqs=8, host_s=0.0, async_scheduling=False)
    deployment = replace(COST, ranks=2, kv_tokens=4000)
    given = {"gpus": 2, "policy": RoundRobin(), "hardware": deployment, "engine": engine, "lengths": Max()}
    rest = {"overhead": Overhead(), "duration_s": 99.0, "horizon": "drain", "seed": 0}
    observed = Steps()
    work = stream([[(0, 40)], [(2, 48)]], [0.0, 1.0], [3, 3])
    made = simulate(work, **given, **rest, on_event=observed)  # type: ignore[arg-type]
    columns = observed.columns()
    first, second = (columns["gpu"] == g for g in (0, 1))
    for name in ("start_s", "end_s"):
        np.testing.assert_array_equal(columns[name][first], columns[name][second])
    took = columns["end_s"][first] - columns["start_s"][first]
    alone = COST.step_s + 40 * COST.token_s + 40 * COST.context_token_s
    assert took[0] == pytest.approx(alone + COST.all_s + 41 * COST.all_token_s)
    empty = COST.step_s + COST.token_s + COST.all_s + 2 * COST.all_token_s
    assert took[3] == pytest.approx(empty)
    assert first.sum() == 16 + 3  # the last request has ended, and nobody looks at what follows
    assert made.gpu_empty_steps.tolist() == [16, 16]
