"""GPUs that go down, come up, slow down and are drained: by hand, by laws, and against the oracle."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from prebleexp.engines.base import Engine
from prebleexp.engines.continuous import Continuous
from prebleexp.engines.sglang.engine import SGLang
from prebleexp.engines.vllm.engine import VLLM
from prebleexp.errors import InvalidInput, PrebleexpError
from prebleexp.experiment.cell import Cell
from prebleexp.experiment.key import content, key
from prebleexp.experiment.runs import draw, simulate_cell
from prebleexp.faults.base import Event, Faults
from prebleexp.faults.rates import HOUR_S, Rates
from prebleexp.faults.timeline import Timeline
from prebleexp.gateway.base import Gateway
from prebleexp.intervals import mean_interval
from prebleexp.launch import configs, from_cache
from prebleexp.launch.configure import cells
from prebleexp.lengths.known import Max
from prebleexp.overhead.model import Overhead
from prebleexp.policies.base import Policy
from prebleexp.policies.e2 import E2
from prebleexp.policies.e2_released import ReleasedE2
from prebleexp.policies.replay import Replay
from prebleexp.policies.round_robin import RoundRobin
from prebleexp.sim.simulate import simulate
from prebleexp.sim.types import Outcome, Setup, State, Workload
from prebleexp.testing import check_losses
from tests.support.accounted import accounted
from tests.support.by_hand.small_cluster import alike, cluster_of
from tests.support.by_hand.timeline import happens
from tests.support.costs.linear_cost import LinearCost
from tests.support.oracle import faults as oracle_faults
from tests.support.oracle.compared import agree, same
from tests.support.outcomes import assert_same
from tests.support.places import ROOT
from tests.support.plain_python import interpreted
from tests.support.sampled import examples, sampled
from tests.support.sessions import impatient, in_sessions, linked
from tests.support.strategies.clusters import faulty
from tests.support.strategies.conversations import STREAMS, workload_of, workloads
from tests.support.strategies.sglangs import SGLANGS
from tests.support.strategies.timelines import timelines
from tests.support.strategies.vllms import VLLMS, faulty_vllm, with_adapters

pytestmark = pytest.mark.uncompiled

FINISHED, LOST = State.FINISHED, State.LOST


# ---------------------------------------------------------------- against the oracle


@pytest.mark.slow
@settings(max_examples=examples(60, found=True), deadline=None)
@given(STREAMS, faulty())
def test_the_core_gives_the_bytes_of_the_oracle(workload: Workload, cluster: dict[str, Any]) -> None:
    accounted(workload, agree(workload, cluster), cluster["faults"].requeues)


@pytest.mark.nightly
@pytest.mark.slow
@settings(max_examples=1000, deadline=None)
@given(STREAMS, faulty())
def test_the_core_gives_the_bytes_of_the_oracle_on_many(workload: Workload, cluster: dict[str, Any]) -> None:
    accounted(workload, agree(workload, cluster), cluster["faults"].requeues)


REAL = faulty_vllm(VLLMS | SGLANGS)


@pytest.mark.slow
@settings(max_examples=examples(60, found=True), deadline=None)
@given(with_adapters(st.one_of(workloads(), linked(workloads()), impatient(workloads()))), REAL)
def test_real_engines_give_the_bytes_of_the_oracle(workload: Workload, cluster: dict[str, Any]) -> None:
    accounted(workload, same(workload, cluster, oracle_faults.simulate), cluster["faults"].requeues)


@pytest.mark.nightly
@pytest.mark.slow
@settings(max_examples=1000, deadline=None)
@given(with_adapters(st.one_of(workloads(), linked(workloads()), impatient(workloads()))), REAL)
def test_real_engines_give_the_bytes_of_the_oracle_on_many(workload: Workload, cluster: dict[str, Any]) -> None:
    accounted(workload, same(workload, cluster, oracle_faults.simulate), cluster["faults"].requeues)


# ---------------------------------------------------------------- laws


@pytest.mark.parametrize("engine", sampled([Continuous(), VLLM(), VLLM(async_scheduling=False), SGLang()], 3), ids=repr)
def test_whoever_gave_up_in_a_step_that_was_lost_got_nothing(engine: Engine) -> None:
    """Nor from what its GPU does when it is back."""
    workload = replace(alike([0.0, 5.0], 10, 50), patience_s=np.array([0.5, np.nan]))
    slow = LinearCost(step_s=1.0, token_s=0.0, context_token_s=0.0, kv_tokens=1000, gpu_memory_gib=48)
    faults = happens((0.7, 0, "down"), (2.0, 0, "up"))
    made = simulate(
        workload, lengths=Max(), **cluster_of(hardware=slow, engine=engine, policy=RoundRobin()), faults=faults
    )
    assert made.state.tolist() == [State.CANCELLED, FINISHED]
    assert made.output_seen.tolist() == [0, 50]
    assert np.isnan(made.latency_s[0])


@pytest.mark.slow
def test_of_whom_nothing_happens_the_run_is_the_same() -> None:
    workload, cluster = alike([0.0, 0.01, 0.02, 0.4], 30, 20), cluster_of(gpus=2)
    plain = simulate(workload, lengths=Max(), **cluster)
    for faults in (Faults(), Timeline(), Rates(mtbf_h=math.inf), Rates(mtbf_h=1e300)):
        made = simulate(workload, lengths=Max(), **cluster, faults=faults)
        assert_same(made, plain)


def test_it_is_the_same_run_then() -> None:
    (plain,), (never,) = cells([]), cells(["faults=rates", "faults.mtbf_h=null"])
    (timeline,) = cells(["faults=timeline"])
    assert key(never) == key(plain)
    assert key(timeline) != key(plain)
    assert key(cells(["faults=timeline", "faults.on_loss=fail"])[0]) != key(timeline)


HOURS = 1000.0, 10.0
"""up and down, on average"""


def test_machines_are_available_as_renewal_theory_says() -> None:
    up, down = HOURS
    gpus, hours = 64, 20_000.0
    faults, lost = Rates(mtbf_h=up, mttr_h=down), 0.0
    for one in faults.events(gpus, hours * HOUR_S, seed=0):
        until = min(one.at_s, hours * HOUR_S)
        lost += (1 if one.event == "up" else -1) * until
    available = 1 - lost / (gpus * hours * HOUR_S)
    sigma = math.sqrt(2 * (up * down) ** 2 / ((up + down) ** 3 * hours * gpus))
    assert abs(available - 0.990099) < 2.576 * sigma


def test_seven_of_eight_are_up_as_often_as_they_should() -> None:
    faults, at_s, count, enough = Rates(mtbf_h=HOURS[0], mttr_h=HOURS[1]), 100 * HOUR_S, 4000, 0
    for seed in range(count):
        are = dict[int, str]()
        for one in faults.events(8, at_s, seed):
            if one.at_s <= at_s:
                are[one.gpu] = one.event
        enough += list(are.values()).count("down") <= 1
    expected = 0.997362
    assert abs(enough / count - expected) < 2.576 * math.sqrt(expected * (1 - expected) / count)


@pytest.mark.slow
@pytest.mark.parametrize(("crews", "all_up", "mean_down"), [(1, 0.338318, 1.383184), (2, 0.456643, 0.785994)])
def test_few_crews_repair_as_queueing_theory_says(crews: int, all_up: float, mean_down: float) -> None:
    """Machine repair, 8 machines: 100 h up, 10 h a repair."""
    faults, hours = Rates(mtbf_h=100.0, mttr_h=10.0, crews=crews), 20_000.0
    found = []
    for seed in range(30):
        down, since, areas = 0, 0.0, np.zeros(2)
        for one in (*faults.events(8, hours * HOUR_S, seed), Event(hours * HOUR_S, 0, "end")):
            until = min(one.at_s, hours * HOUR_S)
            areas += (until - since) * np.array([down == 0, down])
            down, since = down + {"down": 1, "up": -1}.get(one.event, 0), until
        found.append(areas / (hours * HOUR_S))
    for values, expected in zip(np.transpose(found), (all_up, mean_down), strict=True):
        mean, half = mean_interval(values.tolist(), 0.99)
        assert half is not None
        assert abs(mean - expected) < half < 0.05


def test_who_went_down_first_is_repaired_first() -> None:
    events = list(Rates(mtbf_h=0.01, mttr_h=0.01, crews=1).events(6, 600.0, seed=1))
    times = [one.at_s for one in events]
    assert times == sorted(times)
    orders = [[one.gpu for one in events if one.event == event] for event in ("down", "up")]
    assert orders[0] == orders[1]
    assert len(orders[0]) > 20
    enough, all_of_them = (Rates(mtbf_h=0.01, mttr_h=0.01, crews=crews) for crews in (6, None))
    assert list(enough.events(6, 600.0, seed=1)) == list(all_of_them.events(6, 600.0, seed=1))


def test_the_lives_of_a_gpu_are_its_own() -> None:
    few, many = (list(Rates(mtbf_h=0.01, mttr_h=0.001).events(gpus, 300.0, seed=3)) for gpus in (2, 5))
    assert few == [one for one in many if one.gpu < 2]
    assert [one.at_s for one in many] == sorted(one.at_s for one in many)
    assert max(one.at_s for one in many if one.event == "down") < 300


# ---------------------------------------------------------------- by hand: a step takes an eighth of a second
STEP = LinearCost(step_s=0.125, token_s=0.0, context_token_s=0.0, kv_tokens=16 * 1001, gpu_memory_gib=48)
CHUNKS = VLLM(max_num_batched_tokens=16, max_num_seqs=4, async_scheduling=False, host_s=0.0)


def run(workload: Workload, faults: Faults, gpus: int = 2, **given: Any) -> Outcome:
    shared = {"policy": RoundRobin(), "hardware": STEP, "engine": CHUNKS, "overhead": Overhead(), "lengths": Max()}
    given = shared | {"duration_s": 9.0, "horizon": "drain", "seed": 0} | given
    made = simulate(workload, gpus=gpus, faults=faults, **given)
    accounted(workload, made, faults.requeues)
    return made


def test_a_gpu_that_is_lost_mid_prefill() -> None:
    """A prompt of two steps: one is over when its GPU goes down; noticed at 0.25, the other GPU computes all of it."""
    made = run(alike([0.0], 32, 4), happens((0.1875, 0, "down"), detect_ms=62.5))
    assert made.gpu.tolist() == [1]
    assert made.losses.tolist() == [1]
    assert made.ttft_s.tolist() == [0.25 + 0.25]
    assert made.finish_s.tolist() == [0.25 + 5 * 0.125]
    assert made.gpu_down_s.tolist() == [made.end_s - 0.1875, 0.0]
    np.testing.assert_array_equal(made.gpu_lost_s, [0.1875, np.nan])


def test_whoever_is_on_its_way_anew_is_not_lost_with_its_gpu() -> None:
    """GPU 0 is lost at 0.375. The frontend takes 0.25, in which GPU 1 goes down and comes back."""
    faults = happens((0.375, 0, "down"), (0.4375, 1, "down"), (0.5, 1, "up"))
    made = run(alike([0.0], 32, 4), faults, hardware=replace(STEP, frontend_s=(0.25, 0.0)))
    assert made.losses.tolist() == [1]
    assert made.finish_s.tolist() == [0.375 + 0.25 + 5 * 0.125]


def test_a_gpu_that_is_lost_mid_decode() -> None:
    """Two tokens were shown; of the first the time stays."""
    made = run(alike([0.0], 32, 4), happens((0.4375, 0, "down"), detect_ms=62.5))
    assert made.ttft_s.tolist() == [0.25]
    assert made.finish_s.tolist() == [0.5 + 5 * 0.125]
    assert made.output_seen.tolist() == [4]
    resumed = run(alike([0.0], 32, 4), happens((0.4375, 0, "down"), detect_ms=62.5, on_loss="resume"))
    assert resumed.ttft_s.tolist() == [0.25]
    assert resumed.finish_s.tolist() == [0.5 + 4 * 0.125], "34 tokens take three steps and bring the third token"
    assert resumed.output_seen.tolist() == [4]
    assert resumed.gpu_prefilled_tokens.tolist() == [32, 32]
    assert resumed.gpu_forwarded_tokens.tolist() == [32 + 2, 34 + 1], "one of them in the step that was lost"
    failed = run(alike([0.0], 32, 4), happens((0.4375, 0, "down"), detect_ms=62.5, on_loss="fail"))
    assert failed.state.tolist() == [LOST]
    assert failed.output_seen.tolist() == [2]
    assert [failed.ttft_s[0], failed.latency_s[0], failed.end_s] == [0.25, 0.375, 0.5]


@pytest.mark.slow
@pytest.mark.parametrize("policy", [E2, ReleasedE2])
def test_nothing_is_learned_of_a_request_that_is_lost_part_way(policy: type[Policy]) -> None:
    """It continues after what was shown three times, and ends once: then its time of a token is known."""
    kept = []

    class Plain(policy):  # type: ignore[misc, valid-type]
        compiled = False

        def start(self, setup: Setup) -> Any:
            kept.append(super().start(setup))
            return kept[-1]

    goes_down = [(0.25 + 0.5 * i, i % 2, event) for i in range(3) for event in ("down", "up")]
    made = run(alike([0.0], 16, 20), happens(*goes_down, on_loss="resume"), policy=Plain())
    assert (made.losses.tolist(), made.state.tolist()) == ([3], [FINISHED])
    assert sorted(kept[0].tpots.state["count"]) == [1, 2], "of one GPU a time more than at the beginning"
    assert np.isfinite(kept[0].tpots.ring).all()


def test_a_step_that_would_end_when_its_gpu_goes_down_is_lost() -> None:
    made = run(alike([0.0], 16, 1), happens((0.125, 0, "down"), on_loss="fail"))
    assert made.state.tolist() == [LOST]
    assert np.isnan(made.ttft_s).all()


def test_what_is_sent_before_it_is_noticed_is_lost_too() -> None:
    """The first goes to GPU 0, the second to 1, the third to 0, which is down since 0.375 and known to be at 1."""
    made = run(alike([0.0, 0.25, 0.5, 1.5, 1.75], 16, 1), happens((0.375, 0, "down"), detect_ms=625.0))
    assert made.losses.tolist() == [0, 0, 1, 0, 0]
    assert made.gpu.tolist() == [0, 1, 1, 1, 1]
    assert made.finish_s.tolist() == [0.125, 0.375, 1.125, 1.625, 1.875]


def test_whoever_gives_up_while_nobody_knows_is_cancelled() -> None:
    workload = replace(alike([0.0], 32, 4), patience_s=np.array([0.25]))
    made = run(workload, happens((0.125, 0, "down"), detect_ms=500.0))
    assert made.state.tolist() == [State.CANCELLED]


def test_where_no_gpu_is_up_requests_wait() -> None:
    faults = happens((0.0625, 0, "down"), (1.0, 0, "up"))
    made = run(alike([0.0, 0.5], 16, 1), faults, gpus=1)
    assert made.finish_s.tolist() == [1.125, 1.25]
    assert made.losses.tolist() == [1, 0]
    assert made.gpu_down_s.tolist() == [1.0 - 0.0625]
    again = run(alike([0.0, 0.5], 16, 1), happens((0.0625, 0, "down"), (1.0, 0, "up"), (1.0625, 0, "down")), gpus=1)
    assert again.gpu_lost_s.tolist() == [0.0625], "the first time"


def test_if_none_comes_up_they_wait_to_the_end() -> None:
    made = run(alike([0.0, 0.5], 16, 1), happens((0.0625, 0, "down")), gpus=1)
    assert made.state.tolist() == [State.UNROUTED, State.UNROUTED]


def test_a_gpu_that_is_up_again_is_cold() -> None:
    workload = workload_of([[0], [0], [0]], [32], [0.0, 1.0, 3.0], [1] * 3, [1] * 3, [-1] * 3)
    made = run(workload, happens((1.75, 0, "down"), (2.0, 0, "up")), gpus=1)
    assert made.hit_tokens.tolist() == [0, 16, 0]


def test_steps_that_begin_later_are_slow() -> None:
    slow = Timeline(happen=(Event(0.0625, 0, "slow", 0.5), Event(0.4375, 0, "slow", 1.0)))
    made = run(alike([0.0], 16, 4), slow, gpus=1)
    assert made.ttft_s.tolist() == [0.125]
    assert made.finish_s.tolist() == [0.125 + 0.25 + 0.25 + 0.125]


def test_a_gpu_that_is_drained_finishes_what_it_has() -> None:
    made = run(alike([0.0, 0.25, 0.5, 1.5, 1.75], 16, 3), happens((0.0625, 0, "drain"), (1.0, 0, "up")))
    assert made.gpu.tolist() == [0, 1, 1, 1, 0]
    assert made.losses.sum() == made.gpu_down_s.sum() == 0
    assert made.finish_s[0] == 0.375


@pytest.mark.slow
def test_a_gpu_that_is_drained_gives_back_what_waits() -> None:
    """The third waits behind the first; it is sent to the other GPU, where it is the last."""
    drain = happens((0.0625, 0, "drain"), drain="requeue")
    made = run(alike([0.0] * 4, 16, 1), drain)
    assert made.gpu.tolist() == [0, 1, 1, 1]
    assert made.finish_s.tolist() == [0.125, 0.125, 0.375, 0.25]
    assert made.losses.sum() == made.retries.sum() == made.gpu_down_s.sum() == 0
    assert made.gpu_on_s.tolist() == [0.125, 0.375], "until it is empty"
    kept = run(alike([0.0] * 4, 16, 1), happens((0.0625, 0, "drain")))
    assert kept.gpu.tolist() == [0, 1, 0, 1]
    assert kept.gpu_on_s.tolist() == [0.25, 0.25]
    gated = run(alike([0.0] * 4, 16, 1), replace(drain, on_loss="fail"), gateway=Gateway(retries=1))
    np.testing.assert_array_equal(gated.finish_s, made.finish_s, "nor is it lost, or a retry")
    assert gated.retries.sum() == 0


def test_what_a_drained_gpu_still_has_is_lost_in_the_end() -> None:
    made = run(alike([0.0], 16, 4), happens((0.0625, 0, "drain"), drain_s=0.125))
    assert made.gpu.tolist() == [1]
    assert made.losses.tolist() == [1]
    assert made.ttft_s.tolist() == [0.125]
    assert made.finish_s.tolist() == [0.1875 + 4 * 0.125]
    assert made.gpu_down_s.tolist() == [0.0, 0.0], "it did not fail"
    assert made.gpu_on_s.tolist() == [0.1875, made.end_s]
    empty = run(alike([0.0], 16, 1), happens((0.0625, 0, "drain"), (0.25, 0, "up"), drain_s=0.125))
    assert empty.losses.tolist() == [0]


def test_a_gpu_that_is_back_is_started_first() -> None:
    """It is down from 0.0625 to 0.5, and serves from 0.75 on."""
    made = run(alike([0.0], 16, 1), happens((0.0625, 0, "down"), (0.5, 0, "up"), node_s=0.125, init_s=0.125), gpus=1)
    assert made.finish_s.tolist() == [0.75 + 0.125]
    assert made.gpu_down_s.tolist() == [0.75 - 0.0625]
    assert made.gpu_on_s.tolist() == [0.0625 + made.end_s - 0.5]
    again = happens((0.0625, 0, "down"), (0.5, 0, "up"), (0.625, 0, "down"), (1.0, 0, "up"), init_s=0.25)
    made = run(alike([0.0], 16, 1), again, gpus=1)
    assert made.finish_s.tolist() == [1.25 + 0.125], "what was lost while it was started is started anew"
    assert made.gpu_on_s.tolist() == [0.0625 + 0.125 + made.end_s - 1.0]
    happen = (0.0, 0, "drain"), (0.25, 0, "up"), (0.375, 0, "drain"), (1.0, 0, "up")
    made = run(alike([0.0625], 16, 1), happens(*happen, init_s=0.25), gpus=1)
    assert made.finish_s.tolist() == [1.25 + 0.125], "one that is drained while it is started must be up again"


@pytest.mark.slow
def test_weights_come_from_their_source_over_pcie_at_most() -> None:
    (cell,) = cells(["hardware/model=llama_3_1_70b", "hardware/gpu=h200", "hardware.tensor_parallel=2"])
    hardware: Any = cell.hardware
    size = hardware.model.weight_bytes("bf16")
    assert Timeline(source_gb_s=5.0, init_s=30.0).start_s(hardware) == size / 1e9 / 5.0 + 30.0
    assert Timeline(source_gb_s=1000.0).start_s(hardware) == size / 1e9 / (2 * 64)
    assert Timeline(node_s=1.0, image_s=2.0).start_s(hardware) == 3.0


# ---------------------------------------------------------------- what cannot happen
@pytest.mark.parametrize(
    ("happen", "said"),
    [
        ("[{at_s: 1, gpu: 9, event: down}]", "faults.happen[0]: gpu=9 is not valid; it must be an integer from 0 to 7"),
        ("[{at_s: -1, gpu: 0, event: down}]", "faults.happen[0]: at_s=-1 is not valid"),
        ("[{at_s: .nan, gpu: 0, event: down}]", "faults.happen[0]: at_s=.nan is not valid"),
        ("[{at_s: 1, gpu: 0, event: up}]", "faults.happen[0]: event=up is not valid; GPU 0 is up at 1 s"),
        ("[{at_s: 1, gpu: 0, event: explode}]", "faults.happen[0]: event=explode is not valid"),
        ("[{at_s: 1, gpu: 0, event: slow}]", "it says how slow"),
        ("[{at_s: 1, gpu: 0, event: slow, factor: 0}]", "faults.happen[0]: factor=0 is not valid"),
        ("[{at_s: 1, gpu: 0}]", "it must be an event such as"),
        ("[{at_s: 1, gpu: 0, event: down, at: 2}]", "unknown key in faults.happen[0]: 'at'"),
        ("3", "faults.happen=3 is not valid; it must be a list of events"),
    ],
)
def test_what_cannot_happen_is_said_in_a_line(happen: str, said: str) -> None:
    with pytest.raises(InvalidInput) as error:
        cells(["gpus=8", "faults=timeline", f"faults.happen={happen}"])
    assert said in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("override", "said"),
    [
        ("faults.mtbf_h=-1", "faults.mtbf_h=-1 is not valid; it must be a number of hours > 0, or null: never"),
        ("faults.mttr_h=0", "faults.mttr_h=0 is not valid"),
        ("faults.crews=0", "faults.crews=0 is not valid; it must be an integer >= 1, or null: as many as it takes"),
        ("faults.detect_ms=-1", "faults.detect_ms=-1 is not valid; it must be a number of milliseconds >= 0"),
        ("faults.drain=now", "faults.drain=now is not valid; it must be one of finish, requeue"),
        ("faults.drain_s=0", "faults.drain_s=0 is not valid; it must be a number of seconds > 0, or null"),
        ("faults.init_s=-1", "faults.init_s=-1 is not valid; it must be a number of seconds >= 0"),
        ("faults.source_gb_s=0", "faults.source_gb_s=0 is not valid; it must be a number of GB a second > 0, or null"),
        ("faults.on_loss=cry", "faults.on_loss=cry is not valid; it must be one of retry, resume, fail"),
    ],
)
def test_rates_that_cannot_be(override: str, said: str) -> None:
    with pytest.raises(InvalidInput) as error:
        cells(["faults=rates", override])
    assert said in str(error.value)


def test_an_engine_that_cannot_lose_a_gpu_says_so() -> None:
    with pytest.raises(InvalidInput, match="engine=released takes no faults; take another engine, or faults=none"):
        cells(["engine=released", "faults=timeline"])


def test_an_engine_that_cannot_go_on_behind_what_was_shown_says_so() -> None:
    with pytest.raises(InvalidInput, match=r"on_loss=resume is not valid with engine=preble; take retry or fail"):
        cells(["engine=preble", "faults=timeline", "faults.on_loss=resume"])
    with pytest.raises(InvalidInput, match="engine Continuous has no resumes"):
        run(alike([0.0], 32, 4), happens((1, 0, "down"), on_loss="resume"), engine=Continuous())


# ---------------------------------------------------------------- every router
POLICIES = sorted(path.stem for path in (ROOT / "conf" / "policy").glob("*.yaml") if path.stem != "replay")


BY_SESSION = (
    *("production_stack_session", "sglang_consistent_hashing", "sglang_manual", "vllm_consistent_hash"),
    "vllm_sticky_least_loaded",
)


def of(policy: str, *overrides: str) -> Cell:
    """Of three GPUs first one goes, then two, then all; then they are back, one by one."""
    happen = "[{at_s: 1, gpu: 1, event: down}, {at_s: 2, gpu: 0, event: down}, {at_s: 3, gpu: 2, event: down}, "
    happen += "{at_s: 3.5, gpu: 2, event: up}, {at_s: 4, gpu: 0, event: up}, {at_s: 5, gpu: 1, event: up}]"
    workload = "chats" if policy in BY_SESSION else "react"
    size = ("gpus=3", "rps=12", "duration_s=8", f"workload={workload}")
    return cells([f"policy={policy}", *size, "faults=timeline", f"faults.happen={happen}", *overrides])[0]


class First(RoundRobin):
    """Does not look at who is there."""

    def route(self, mine: Any, view: Any, request: int, now: float) -> int:
        return 0


def test_a_router_that_chooses_a_lost_gpu_is_told_that_it_is_no_candidate() -> None:
    """It was told that it must be an integer from 0 to 1, which 0 is. `check_policy` finds it, too."""
    setup = cluster_of(policy=interpreted(First()), gpus=2)
    lost = r"request 1 at 5 s to GPU 0, which was no candidate then; it must be one of view\.candidates"
    with pytest.raises(PrebleexpError, match=lost):
        simulate(alike([0.0, 5.0], 10, 5), lengths=Max(), **setup, faults=happens((3.0, 0, "down")))
    with pytest.raises(PrebleexpError, match=r"to GPU 0, which was no candidate then"):
        check_losses(interpreted(First()))


@pytest.mark.slow
@pytest.mark.parametrize("policy", POLICIES)
def test_no_router_chooses_a_gpu_that_it_knows_to_be_down(policy: str) -> None:
    """It would be told that it is no candidate."""
    cell = of(policy, "faults.on_loss=fail")
    made = simulate_cell(cell, workload := draw(cell))
    accounted(workload, made)
    assert made.losses.sum() == (made.state == LOST).sum() > 0
    gone = () if policy not in BY_SESSION else (State.CANCELLED, State.NOT_DUE)
    assert np.isin(made.state, (FINISHED, LOST, State.REFUSED, *gone)).all()


@pytest.mark.slow
@pytest.mark.parametrize("policy", sampled(POLICIES, 20))
def test_every_router_routes_again_what_is_lost(policy: str) -> None:
    cell = of(policy, "faults.detect_ms=300")
    made = simulate_cell(cell, workload := draw(cell))
    accounted(workload, made)
    assert made.losses.sum() > 0
    assert (made.state == FINISHED).all()


@pytest.mark.nightly
@pytest.mark.slow
@pytest.mark.parametrize("policy", POLICIES)
@settings(max_examples=50, deadline=None)
@given(workloads() | impatient(workloads()), timelines(3), st.sampled_from([0.02, 0.2]))
def test_whatever_happens_a_router_answers_the_same_compiled_or_not(
    policy: str, workload: Workload, faults: Faults, decision_s: float
) -> None:
    """One decision after the other takes its time, so that some are carried out when their GPU is known to be lost."""
    workload, (cell,) = in_sessions(workload), cells([f"policy={policy}"])
    if policy in BY_SESSION and not (workload.session >= 0).any():
        return
    given = {"gpus": 3, "overhead": Overhead("serial", decision_s), "engine": Continuous()}
    made = run(workload, faults, policy=cell.policy, **given)
    assert_same(made, run(workload, faults, policy=interpreted(cell.policy), **given))


def test_a_recording_waits_for_its_gpu(tmp_path: Path) -> None:
    np.savez(tmp_path / "gpu.npz", gpu=np.array([0, 1, 0]))
    faults = happens((0.0625, 0, "down"), (1.0, 0, "up"))
    made = run(alike([0.0, 0.25, 0.5], 16, 1), faults, policy=Replay(str(tmp_path / "gpu.npz")))
    assert made.gpu.tolist() == [0, 1, 0]
    assert made.finish_s.tolist() == [1.125, 0.375, 1.25]


@pytest.mark.slow
@settings(max_examples=examples(40, found=True), deadline=None)
@given(workloads(), timelines(3))
def test_sums_of_a_window_made_anew_are_those_kept_up_to_date(workload: Workload, faults: Faults) -> None:
    """Of E2, whose GPUs are lost and whose requests have several turns in the window."""
    kept = E2(window_s=2)
    one, other = (run(workload, faults, gpus=3, policy=policy) for policy in (kept, replace(kept, recompute=True)))
    np.testing.assert_array_equal(one.gpu, other.gpu)
    np.testing.assert_array_equal(one.finish_s, other.finish_s)


# ---------------------------------------------------------------- what is believed of a GPU that is back
FORGET = {
    **dict.fromkeys(("blis_weighted", "dynamo_kv", "lbgr", "least_prefill_work", "llmd", "lmetric", "mooncake"), ()),
    **dict.fromkeys(("lor_tokens", "sglang_cache_aware", "vllm_cache_aware"), ()),
    "e2": ("policy.rebalance_threshold=null", "policy.replicate_factor=null"),
    "dynamo_kv by time": ("policy.use_kv_events=false",),
    "blis_weighted by what was sent": ("policy.scorers={prefix-affinity: 2, load-balance: 1, no-hit-lru: 1}",),
}
BELIEVE = dict.fromkeys(("aibrix_prefix_cache", "e2_released", "production_stack_prefixaware"), ())


def known_and_new(groups: int = 8, each: int = 5) -> tuple[Workload, Workload]:
    """Two streams that differ in one thing: whether what comes after 8 s shares its prefixes with what came before."""
    n = groups * each
    arrivals = np.concatenate([np.arange(n) / 60, 8 + np.arange(n) / 60])
    group, own = np.random.default_rng(0).integers(groups, size=2 * n), 100 + np.arange(2 * n)
    made = []
    for later in (0, 50):
        shared = group + later * (np.arange(2 * n) >= n)
        ids, tokens = np.column_stack([shared, own]).ravel(), np.tile([400, 30], 2 * n)
        ones = np.ones(2 * n, np.int32)
        made.append(Workload(arrivals, 430 * ones, 40 * ones, 40 * ones, -ones, 2 * np.arange(2 * n + 1), ids, tokens))
    return made[0], made[1]


def after_all_were_lost(policy: str, *overrides: str) -> list[Any]:
    """Where both go after 8 s, when three GPUs, all idle, have been lost at 6 s and are back."""
    events = [(6, g, "down") for g in range(3)] + [(7, g, "up") for g in range(3)]
    happen = ", ".join(f"{{at_s: {at_s}, gpu: {g}, event: {event}}}" for at_s, g, event in events)
    given = (f"policy={policy.split()[0]}", "gpus=3", "duration_s=12", "engine=vllm", f"faults.happen=[{happen}]")
    (cell,) = cells([*given, "faults=timeline", *overrides])
    return [simulate_cell(cell, workload).gpu[len(workload) // 2 :].tolist() for workload in known_and_new()]


@pytest.mark.slow
@pytest.mark.parametrize(("policy", "overrides"), FORGET.items())
def test_no_prefix_that_is_gone_sends_a_request_to_a_gpu(policy: str, overrides: tuple[str, ...]) -> None:
    known, new = after_all_were_lost(policy, *overrides)
    assert known == new


@pytest.mark.parametrize("policy", sampled(BELIEVE, 3))
def test_but_some_routers_go_on_believing(policy: str) -> None:
    known, new = after_all_were_lost(policy)
    assert known != new


@pytest.mark.slow
@pytest.mark.parametrize("option", ["none", "timeline", "rates"])
def test_a_run_in_the_cache_says_what_happened(option: str) -> None:
    (made,) = cells(["gpus=2", "policy=lor", f"faults={option}"])
    known = content(made)["cell"]
    assert isinstance(known, dict)
    assert from_cache.Options(configs.loader()).columns(known) | made.columns() == made.columns()
    (again,) = cells(from_cache.overrides_of(key(made), known, configs.loader()))
    assert key(again) == key(made)
