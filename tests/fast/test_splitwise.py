"""Splitwise's simulator: a worked example, what holds of every run, and what is not valid."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import prebleexp
from prebleexp.engines.splitwise.engine import Splitwise
from prebleexp.engines.splitwise.records import MIXED
from prebleexp.engines.splitwise.schedulers import ON_ONE_MACHINE, SCHEDULERS
from prebleexp.engines.splitwise.tables import KV, MEMORY, WEIGHTS
from prebleexp.errors import InvalidInput
from prebleexp.launch import configure
from prebleexp.sim.types import State, Workload
from tests.support.interpreted import digest, interpreted
from tests.support.recordings.splitwise import columns, served, stream
from tests.support.sampled import examples

ALONE = [name for name, (rule, _) in SCHEDULERS.items() if rule in ON_ONE_MACHINE]
POOLED = [name for name in SCHEDULERS if name not in ALONE]
ORCA = "engine.start_state=orca engine.scheduler=jsq"
TABLE_AT_1_S = 0.02987266007185672 + (0.028266553230323337 - 0.02987266007185672) * (1 - 128) / (256 - 128)
"""the token table of Llama-2-70B on H100: the line through its first two points, at a batch of one"""


def requests(prompts: list[int], outputs: list[int], arrivals: list[float] | None = None) -> Workload:
    sizes = (np.array(prompts, np.int32), np.array(outputs, np.int32))
    return stream(np.array(arrivals or [0.0] * len(prompts)), *sizes)


# ---------------------------------------------------------------- by hand
def test_a_request_alone_takes_what_the_tables_say() -> None:
    """2,048 tokens on H100: the prompt takes 134.423 ms, its 5,368,709,120 bytes 25 ms at 200 GiB/s, a token 31.466."""
    made = columns(served(requests([2048], [11]), Splitwise(), 2))
    assert (made["prompt_instance"][0], made["token_instance"][0]) == (0, 1)
    assert made["prompt_end"][0] == 0.13442320300964639
    assert made["transfer_end"][0] - made["transfer_start"][0] == pytest.approx(0.025, abs=1e-15)
    assert made["token_start"][0] == made["transfer_end"][0]
    assert round(TABLE_AT_1_S * 1e3, 3) == 31.466
    assert made["token_end"][0] - made["token_start"][0] == pytest.approx(10 * TABLE_AT_1_S, abs=1e-12)


def test_on_one_machine_nothing_is_sent_and_prompts_go_before_tokens() -> None:
    """A decodes when B comes: it is cut at the end of its iteration, B's prompt and a token of A take one mixed
    iteration of 1.1 × the prompt's time at 1,025 tokens."""
    engine = Splitwise(start_state="baseline", scheduler="token_jsq")
    made = columns(served(requests([2048, 1024], [100, 2], [0.0, 0.2]), engine, 1))
    at_1025_s = 0.07768386948737316 + (0.13442320300964639 - 0.07768386948737316) * 1 / 1024
    assert np.isnan(made["transfer_start"]).all()
    boundary_s = made["prompt_start"][1]
    assert (boundary_s - made["token_start"][0]) / TABLE_AT_1_S == pytest.approx(3)
    assert made["prompt_end"][1] - boundary_s == pytest.approx(1.1 * at_1025_s, abs=1e-12)


def test_a_transfer_that_finds_no_memory_is_tried_again_a_second_later() -> None:
    """The first request's answer takes nearly all memory of the token machine until it ends."""
    room = (MEMORY - WEIGHTS["llama2-70b"]) // KV["llama2-70b"]
    made = columns(served(requests([1000, 1000], [room - 1500, 2], [0.0, 1.0]), Splitwise(scheduler="kv_jsq"), 2))
    waited = made["transfer_start"][1] - made["prompt_end"][1]
    assert waited == pytest.approx(round(waited), abs=1e-9)
    assert waited > 1
    assert made["transfer_start"][1] - 1 < made["token_end"][0] <= made["transfer_start"][1]


def test_what_can_never_be_sent_ends_the_run_and_not_the_patience() -> None:
    """The first answer never fits beside its own prompt, for which the second prompt cannot be sent, ever."""
    room = (MEMORY - WEIGHTS["llama2-70b"]) // KV["llama2-70b"]
    sim = served(requests([room // 2 + 10] * 2, [room] * 2), Splitwise(scheduler="kv_jsq"), 2)
    assert (sim.control.unfinished, sim.control.retrying) == (2, 1)
    assert np.isfinite(columns(sim)["transfer_end"]).tolist() == [True, False]


# ---------------------------------------------------------------- what holds of every run
@st.composite
def clusters(draw: st.DrawFn) -> tuple[Workload, Splitwise, int]:
    """Small clusters of both kinds of machines; requests of which each fits beside all others of its size."""
    start = draw(st.sampled_from(["splitwise", "baseline", "orca"]))
    machines = draw(st.integers(2, 5))
    fields: dict[str, Any] = {"a100": draw(st.integers(0, machines - 1))}
    if start == "splitwise" and (not fields["a100"] or draw(st.booleans())):
        fields["prompt_machines"] = draw(st.integers(1, machines - 1))
        fields["token_machines"] = draw(st.integers(1, machines - fields["prompt_machines"]))
    engine = Splitwise(
        start_state=start,
        scheduler=draw(st.sampled_from([*ALONE, *POOLED] if start == "splitwise" else ALONE)),
        model=draw(st.sampled_from(list(KV))),
        **fields,
    )
    n = draw(st.integers(1, 30))
    prompts = draw(st.lists(st.integers(1, 3000), min_size=n, max_size=n))
    outputs = draw(st.lists(st.integers(1, 60), min_size=n, max_size=n))
    arrivals = draw(st.lists(st.floats(0, 2) | st.sampled_from([0.0, 0.5]), min_size=n, max_size=n))
    return requests(prompts, outputs, sorted(arrivals)), engine, machines


@settings(max_examples=examples(120), deadline=None)
@given(clusters())
def test_every_request_is_served_once_and_leaves_nothing(cluster: tuple[Workload, Splitwise, int]) -> None:
    workload, engine, machines = cluster
    sim = served(workload, engine, machines)
    made = columns(sim)
    assert sim.control.unfinished == 0
    assert (sim.machines.memory == WEIGHTS[engine.model]).all()
    assert (sim.machines.most_memory <= MEMORY).all()
    assert not any(sim.machines[name].any() for name in ("batch", "waiting", "prompts", "preempted", "requests"))
    assert (made["prompt_start"] >= workload.arrival_s).all()
    assert (made["prompt_end"] > made["prompt_start"]).all()
    assert (made["token_end"] >= made["token_start"]).all()
    moved = made["prompt_instance"] != made["token_instance"]
    assert (np.isfinite(made["transfer_end"]) == moved).all()
    assert (made["transfer_start"][moved] >= made["prompt_end"][moved]).all()
    assert (made["token_start"][moved] >= made["transfer_end"][moved]).all()
    assert (made["token_start"][~moved] >= made["prompt_end"][~moved]).all()
    assert sim.totals.prefilled_tokens.sum() == workload.prompt_tokens.sum()
    if not (workload.output_tokens == 1).any():  # a task of no length may be in a batch of one iteration
        assert sim.totals.forwarded_tokens.sum() == workload.prompt_tokens.sum() + (workload.output_tokens - 1).sum()
    if engine.scheduler == "mixed_pool":
        assert (sim.machines.booked == WEIGHTS[engine.model]).all()
        assert sim.members[MIXED] == 0


@pytest.mark.parametrize("scheduler", POOLED)
def test_at_the_horizon_what_has_not_ended_has_not_happened(scheduler: str) -> None:
    """What is reported until then is what a run that goes on reports of that time."""
    given: dict[str, Any] = {"engine": "splitwise", "replicas": 3, "rps": 12, "duration_s": 4, "cache_dir": None}
    given |= {"engine.scheduler": scheduler, "output_length": "constant", "output_length.lengths": [40]}
    stopped, drained = (prebleexp.run(**given, horizon=horizon).computed.outcome for horizon in ("stop", "drain"))
    finished = drained.finish_s <= 4
    assert 0 < finished.sum() < len(finished)
    assert (stopped.finish_s[finished] == drained.finish_s[finished]).all()
    assert np.isnan(stopped.finish_s[~finished]).all()
    assert (stopped.state[~finished] != State.FINISHED).all()
    assert (stopped.output_seen <= drained.output_seen).all()
    part = (stopped.output_seen > 1) & ~finished
    assert part.any()
    assert (stopped.output_seen[part] < 40).all()
    assert (stopped.due_s + stopped.latency_s)[part].max() <= 4
    assert stopped.end_s == 4


@pytest.mark.slow
def test_compiled_and_interpreted_do_the_same() -> None:
    small = "engine=splitwise rps=12 duration_s=3 output_length=two_point"
    runs = [
        f"{small} replicas=3 engine.a100=1",
        f"{small} replicas=3 engine.scheduler=kv_jsq horizon=stop",
        f"{small} replicas=1 engine.start_state=baseline engine.scheduler=token_jsq",
        f"{small} replicas=2 engine.start_state=orca engine.scheduler=jsq",
    ]
    assert interpreted(*runs) == [digest(*run.split()) for run in runs]


def test_more_requests_than_lists_have_room_for_at_first() -> None:
    workload = requests([500] * 300, [3] * 300)
    sim = served(workload, Splitwise(start_state="baseline", scheduler="jsq"), 1)
    assert sim.control.unfinished == 0
    assert sim.lists.requests.shape[1] >= 300


# ---------------------------------------------------------------- what is not valid, and what is shown
@pytest.mark.parametrize(
    ("given", "message"),
    [
        (
            "replicas=1",
            "replicas=1 is not valid with engine.start_state=splitwise: no machine is left for tokens; there",
        ),
        (
            "engine.prompt_machines=8",
            "replicas=8 is not valid with engine.prompt_machines=8: no machine is left for to",
        ),
        (
            "replicas=4 engine.a100=2 engine.h100_capped=2",
            "replicas=4 is not valid with engine.a100=2, engine.h100_capped=2",
        ),
        (
            "replicas=4 engine.a100=5",
            "engine.a100=5 and engine.h100_capped=0 are not valid with replicas=4; there must be",
        ),
        (
            "replicas=4 engine.prompt_machines=3 engine.token_machines=2",
            "replicas=4 is not valid with engine.prompt_machin",
        ),
        ("engine.scheduler=lor", "engine.scheduler=lor is not valid; it must be one of token_jsq, jsq, kv_round_r"),
        ("engine.model=opt", "engine.model=opt is not valid; it must be one of llama2-70b, bloom-176b"),
        ("engine.start_state=baseline", "engine.scheduler=mixed_pool is not valid; it must be token_jsq or jsq with"),
        (f"{ORCA} engine.prompt_machines=2", "engine.prompt_machines=2 is not valid; it must be null with engine.st"),
        ("policy=e2", "policy=e2 is not valid; it must be lor with engine=splitwise, which has its own"),
        ("hardware=a6000_mistral_7b", "hardware=a6000_mistral_7b is not valid; it must be composed with engine=sp"),
        ("overhead=serial", "overhead=serial is not valid; it must be none with engine=splitwise, which has its own"),
    ],
)
def test_wrong_combinations_get_one_line(given: str, message: str) -> None:
    with pytest.raises(InvalidInput) as error:
        configure.cells(["engine=splitwise", *given.split()])
    assert str(error.value).startswith(message)
    assert "\n" not in str(error.value)


def test_a_run_says_its_own_router_and_machines() -> None:
    (cell,) = configure.cells(["engine=splitwise", "engine.a100=3"])
    row = cell.columns()
    assert row["policy"] == "mixed_pool"
    assert row["hardware"] == "llama2-70b on 3 DGX-A100, others DGX-H100"
    assert "hardware.tensor_parallel" not in row
    assert not {"policy", "hardware"} & cell.identity().keys()


def test_outputs_are_made_where_prompts_are_unless_there_are_pools() -> None:
    small: dict[str, Any] = {"replicas": 4, "rps": 8, "duration_s": 2, "cache_dir": None}
    split, general = (prebleexp.run(engine=engine, **small).computed.outcome for engine in ("splitwise", "vllm"))
    assert set(split.gpu.tolist()) <= {0, 1}
    assert set(split.decode_gpu.tolist()) <= {2, 3}
    assert (general.decode_gpu == general.gpu).all()


def test_slowdowns_are_over_an_a100_machine_alone() -> None:
    """At a point of the tables: 2,048 tokens, prompt 282.710 ms, a token 45.697 ms."""
    workload = requests([2048], [101])
    ttft_s, tpot_s, latency_s = Splitwise().alone(workload)
    assert (ttft_s[0], tpot_s[0]) == (0.2827095299726352, 0.0456972767023267)
    assert latency_s[0] == ttft_s[0] + 100 * tpot_s[0]
