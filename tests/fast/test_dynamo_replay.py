"""Dynamo's replay: worked examples, what holds of every run, and what is not valid."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import prebleexp
from prebleexp.engines.dynamo_replay.engine import BACKENDS, DynamoReplay
from prebleexp.engines.dynamo_replay.records import DECODE_WAITING, DONE, REFUSED, Sim
from prebleexp.errors import InvalidInput
from prebleexp.launch import configure
from prebleexp.sim.records import NONE
from prebleexp.sim.types import State, Workload
from tests.support.interpreted import digest, interpreted
from tests.support.recordings.dynamo import served
from tests.support.recordings.splitwise import stream
from tests.support.sampled import examples

EXAMPLE = DynamoReplay(prefill_workers=1, prefill_ms=100.0, decode_ms=10.0, kv_transfer_bandwidth=1.0)
"""a token's KV takes 0.1 ms"""


def requests(prompts: list[int], outputs: list[int], arrivals: list[float] | None = None) -> Workload:
    sizes = (np.array(prompts, np.int32), np.array(outputs, np.int32))
    return stream(np.array(arrivals or [0.0] * len(prompts)), *sizes)


def sharing(prompts: list[list[tuple[int, int]]], outputs: list[int], arrivals: list[float]) -> Workload:
    """Prompts as segments: (id, tokens)."""
    ids, tokens = (np.array([one[i] for prompt in prompts for one in prompt], np.int32) for i in (0, 1))
    offsets = np.concatenate([[0], np.cumsum([len(prompt) for prompt in prompts])])
    lengths = np.add.reduceat(tokens, offsets[:-1])
    sizes = np.array(outputs, np.int32)
    return Workload(np.array(arrivals), lengths, sizes, sizes, np.full(len(prompts), -1), offsets, ids, tokens)


def milliseconds(sim: Sim, name: str) -> list[float]:
    return [round(float(time), 6) for time in sim.requests[name]]


# ---------------------------------------------------------------- by hand
def test_a_request_alone() -> None:
    """1,000 tokens: held at 100, its KV there at 200, the first token at 210, the fourth at 240."""
    sim = served(requests([1000], [4]), EXAMPLE, 2)
    made = {name: sim.requests[0][name] for name in ("source_held_ms", "destination_activated_ms", "first_token_ms")}
    assert made == {"source_held_ms": 100, "destination_activated_ms": 200, "first_token_ms": 210}
    assert sim.requests.terminal_time_ms[0] == 240
    ttft_s, tpot_s, latency_s = EXAMPLE.alone(requests([1000], [4]))
    assert (ttft_s[0], tpot_s[0], latency_s[0]) == pytest.approx((0.21, 0.01, 0.24))


def test_prompts_wait_at_their_prefill_worker_for_room_where_tokens_are_made() -> None:
    """A decode worker of 63 blocks has room for one of three prompts of 63 blocks."""
    sim = served(requests([1000] * 3, [4] * 3), DynamoReplay(**vars(EXAMPLE) | {"decode_num_gpu_blocks": 63}), 2)
    assert milliseconds(sim, "source_held_ms") == [100, 100, 100]
    assert milliseconds(sim, "destination_reserved_ms") == [100, 240, 380]
    assert milliseconds(sim, "terminal_time_ms") == [240, 380, 520]


def test_with_sglang_a_prompt_is_computed_once_there_is_room() -> None:
    engine = DynamoReplay(**vars(EXAMPLE) | {"decode_num_gpu_blocks": 63, "backend": "sglang"})
    sim = served(requests([1000] * 2, [4] * 2), engine, 2)
    assert milliseconds(sim, "destination_reserved_ms") == [0, 240]
    assert milliseconds(sim, "prefill_admit_ms") == [0, 240]
    assert milliseconds(sim, "terminal_time_ms") == [240, 480]


def test_only_blocks_that_the_target_has_not_are_sent_if_these_take_the_time() -> None:
    """Of 64 + 40 tokens the first four blocks are there already; three are sent, the last of which is not full."""
    workload = sharing([[(0, 64)], [(0, 64), (1, 40)]], [1, 1], [0.0, 1.0])
    engine = DynamoReplay(**vars(EXAMPLE) | {"kv_transfer_timing_mode": "destination_missing"})
    sim = served(workload, engine, 2)
    assert sim.requests.reused_input_tokens.tolist() == [0, 64]
    assert milliseconds(sim, "transfer_ms") == [6.4, 4.8]


def test_who_is_preempted_waits_in_front_of_those_whose_kv_is_there() -> None:
    """Eight blocks: two prompts of three fit, their answers do not, and the second is preempted. The third's blocks are
    reserved at 280; it runs at 430, when the first is done and the second has room. So it was in the release."""
    engine = DynamoReplay(**vars(EXAMPLE) | {"decode_num_gpu_blocks": 8, "kv_transfer_bandwidth": 0.0})
    sim = served(requests([48, 48, 48], [33, 33, 2], [0.0, 1e-6, 2e-6]), engine, 2)
    assert milliseconds(sim, "destination_reserved_ms") == [100, 200, 280]
    assert milliseconds(sim, "decode_admit_ms") == [100, 200, 430]
    assert milliseconds(sim, "terminal_time_ms") == [430, 690, 450]
    assert sim.requests.readmission_count.tolist() == [0, 1, 0]
    assert sim.requests.decode_reused_input_tokens.tolist() == [0, 0, 0]


def test_where_the_release_stops_with_an_error_requests_wait_for_ever() -> None:
    """The third takes all blocks when the first is done; the second, in front of it, then never has room."""
    engine = DynamoReplay(**vars(EXAMPLE) | {"decode_num_gpu_blocks": 8, "kv_transfer_bandwidth": 0.0})
    sim = served(requests([48, 48, 120], [33, 33, 2], [0.0, 1e-6, 2e-6]), engine, 2)
    assert sim.requests.stage.tolist() == [DONE, DECODE_WAITING, DECODE_WAITING]


def test_what_no_worker_could_hold_is_refused() -> None:
    engine = DynamoReplay(**vars(EXAMPLE) | {"num_gpu_blocks": 10, "decode_num_gpu_blocks": 11})
    sim = served(requests([161, 160, 160], [1, 17, 18]), engine, 2)
    assert sim.requests.stage.tolist() == [REFUSED, DONE, REFUSED]


# ---------------------------------------------------------------- what holds of every run
@st.composite
def clusters(draw: st.DrawFn) -> tuple[Workload, DynamoReplay, int]:
    """Small clusters with little memory; prompts share beginnings, some of them all of it."""
    n = draw(st.integers(1, 25))
    prompts, fresh = [], 4
    for _ in range(n):
        shared, own = draw(st.integers(0, 4)), draw(st.integers(0, 150))
        prompt = [(shared - 1, 16 * shared + 8)] if shared else []
        if own or not prompt:
            prompt.append((fresh, own + 1))
            fresh += 1
        prompts.append(prompt)
    outputs = draw(st.lists(st.integers(1, 70), min_size=n, max_size=n))
    arrivals = draw(st.lists(st.floats(0, 1) | st.sampled_from([0.0, 0.1]), min_size=n, max_size=n))
    gpus = draw(st.integers(2, 5))
    engine = DynamoReplay(
        backend=draw(st.sampled_from(BACKENDS)),
        prefill_workers=draw(st.integers(1, gpus - 1)),
        num_gpu_blocks=draw(st.integers(16, 60)),
        decode_num_gpu_blocks=draw(st.integers(16, 60)),
        max_num_seqs=draw(st.integers(1, 8)),
        decode_max_num_seqs=draw(st.integers(1, 8)),
        max_num_batched_tokens=draw(st.sampled_from([32, 100, 512])),
        decode_max_num_batched_tokens=draw(st.sampled_from([32, 512])),
        kv_transfer_bandwidth=draw(st.sampled_from([0.0, 0.5, 5.0])),
        kv_transfer_timing_mode=draw(st.sampled_from(["full_prompt", "destination_missing"])),
    )
    return sharing(prompts, outputs, sorted(arrivals)), engine, gpus


@settings(max_examples=examples(120), deadline=None)
@given(clusters())
def test_every_request_is_served_once_and_leaves_nothing(cluster: tuple[Workload, DynamoReplay, int]) -> None:
    workload, engine, gpus = cluster
    sim = served(workload, engine, gpus)
    made, prefills = sim.requests, sim.rules.prefills
    assert made.readmission_count.sum() <= sim.totals.retracted.sum()
    done = made.stage == DONE
    assert (made.generated[done] == workload.output_tokens[done]).all()
    order = ["prefill_admit_ms", "source_held_ms", "destination_activated_ms", "decode_admit_ms", "first_token_ms"]
    for before, after in zip(order, [*order[1:], "terminal_time_ms"], strict=True):
        assert (made[before][done] <= made[after][done]).all(), (before, after)
    assert (made.prefill_admit_ms[done] >= made.arrival_ms[done]).all()
    assert (made.source_released_ms[done] >= made.destination_activated_ms[done]).all()
    assert (made.prefill_worker[done] < prefills).all()
    assert (made.decode_worker[done] >= prefills).all()
    if (done | (made.stage == REFUSED)).all():  # else a decode worker is full of requests that none of them can leave
        assert not sim.workers.used[prefills:].any()
        for name in ("waiting", "held", "arrived"):
            assert (sim.workers[name] == NONE).all(), name
        assert not sim.live.queued.any()
        assert sim.control.unfinished == 0
    blocks = sim.pool.blocks
    assert sim.workers.used.sum() == (blocks.holders > 0).sum()
    if not sim.totals.retracted.any():
        prefilled = (workload.prompt_tokens - made.reused_input_tokens)[done].sum()
        assert sim.totals.prefilled_tokens.sum() == prefilled or not done.all()


def test_at_the_horizon_what_has_not_ended_has_not_happened() -> None:
    """What is reported until then is what a run that goes on reports of that time."""
    given: dict[str, Any] = {"engine": "dynamo_replay", "gpus": 3, "rps": 12, "duration_s": 4, "cache_dir": None}
    stopped, drained = (prebleexp.run(**given, horizon=horizon).computed.outcome for horizon in ("stop", "drain"))
    finished = drained.finish_s <= 4
    assert 0 < finished.sum() < len(finished)
    assert (stopped.finish_s[finished] == drained.finish_s[finished]).all()
    assert np.isnan(stopped.finish_s[~finished]).all()
    assert (stopped.state[~finished] != State.FINISHED).all()
    assert (stopped.output_seen <= drained.output_seen).all()
    part = (stopped.output_seen > 1) & ~finished
    assert part.any()
    assert (stopped.due_s + stopped.latency_s)[part].max() <= 4
    assert stopped.end_s == 4
    assert (drained.gpu == np.arange(len(drained)) % 1).all()
    assert set(drained.decode_gpu.tolist()) == {1, 2}


@pytest.mark.slow
def test_compiled_and_interpreted_do_the_same() -> None:
    small = "engine=dynamo_replay rps=12 duration_s=3 output_length=two_point gpus=3"
    scarce = "engine.num_gpu_blocks=260 engine.decode_num_gpu_blocks=330"
    runs = [small, f"{small} {scarce} horizon=stop", f"{small} engine.backend=sglang engine.max_num_seqs=2"]
    assert interpreted(*runs) == [digest(*run.split()) for run in runs]


# ---------------------------------------------------------------- what is not valid, and what is shown
@pytest.mark.parametrize(
    ("given", "message"),
    [
        (
            "gpus=1",
            "gpus=1 is not valid with engine=dynamo_replay: no worker is left for decode; it must be 2 at least",
        ),
        ("gpus=4 engine.prefill_workers=4", "gpus=4 is not valid with engine.prefill_workers=4: no worker is left for"),
        ("engine.prefill_workers=0", "engine.prefill_workers=0 is not valid; it must be"),
        ("engine.backend=llama", "engine.backend=llama is not valid; it must be one of vllm, sglang, trtllm"),
        ("engine.kv_transfer_bandwidth=-1", "engine.kv_transfer_bandwidth=-1 is not valid; it must be a finite number"),
        ("engine.decode_ms=0", "engine.decode_ms=0 is not valid; it must be a finite number > 0"),
        ("engine.decode_num_gpu_blocks=0", "engine.decode_num_gpu_blocks=0 is not valid; it must be"),
        ("policy=e2", "policy=e2 is not valid; it must be lor with engine=dynamo_replay, which has its own"),
        ("cluster=two_kinds", "engine=dynamo_replay takes no groups of GPUs; take another engine, or cluster=one_kind"),
    ],
)
def test_wrong_combinations_get_one_line(given: str, message: str) -> None:
    with pytest.raises(InvalidInput) as error:
        configure.cells(["engine=dynamo_replay", *given.split()])
    assert str(error.value).startswith(message)
    assert "\n" not in str(error.value)


def test_a_run_says_its_own_router_and_step_times() -> None:
    (cell,) = configure.cells(["engine=dynamo_replay", "engine.prefill_ms=25"])
    row = cell.columns()
    assert row["policy"] == "round_robin"
    assert row["hardware"] == "25 ms a prefill step, 10 ms a decode step"
