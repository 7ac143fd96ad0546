"""Room is reserved before prompts are computed, with SGLang's scheduler, and KV is sent while they are: examples to
check on paper, and what holds of every run."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from prebleexp.engines.sglang.engine import SGLang
from prebleexp.policies.lor import LeastOutstanding
from prebleexp.policies.round_robin import RoundRobin
from prebleexp.sim.links import FAIR, FIFO, INFINITE
from prebleexp.sim.pools import BOTH, CHUNKS, DECODE, END, LAYERS, PREFILL, RESERVE_FIRST, Disaggregation
from prebleexp.sim.types import Outcome, State, Workload
from tests.support.by_hand.pools import KV_BYTES, MS, Counted, serve, split
from tests.support.by_hand.streams import own, stream
from tests.support.by_hand.timeline import happens
from tests.support.outcomes import assert_same
from tests.support.sampled import examples
from tests.support.sessions import in_order, linked
from tests.support.strategies.paths import workloads

pytestmark = pytest.mark.thorough

SYNCHRONOUS = SGLang(disable_overlap_schedule=True, host_s=0.0, chunked_prefill_size=4096)
SHARING = (INFINITE, FIFO, FAIR)


def reserving(*roles: int, **given: Any) -> Disaggregation:
    """A token of KV takes 0.1 ms on the link."""
    return split(roles or (PREFILL, DECODE), **{"protocol": RESERVE_FIRST, "send": CHUNKS} | given)


# ---------------------------------------------------------------- when it is sent, by hand
@pytest.mark.slow
@pytest.mark.parametrize("sharing", SHARING)
@pytest.mark.parametrize(
    ("send", "link_ms", "arrived_ms"),
    [(END, 40, 140), (LAYERS, 40, 110), (CHUNKS, 40, 140), (END, 160, 260), (LAYERS, 160, 185), (CHUNKS, 160, 260)],
)
def test_layers_go_while_others_are_computed(send: int, link_ms: float, arrived_ms: float, sharing: int) -> None:
    """A prompt takes 100 ms. Of four layers each is ready after 25 ms: a fast link has the last one left then, a slow
    one is as late as it is with the first. The latency comes once."""
    for latency_s in (0.0, 0.005):
        pools = reserving(send=send, layers=4, rate=1e6 / (link_ms / 1e3), sharing=sharing, latency_s=latency_s)
        made = serve(stream([own(0, 1000)], [0.0], [4]), pools, engine=SYNCHRONOUS)
        assert made.prefill_end_s[0] == 0.1
        assert made.ttft_s[0] == pytest.approx(arrived_ms / 1e3 + latency_s)
        assert made.latency_s[0] == pytest.approx(made.ttft_s[0] + 3 * 0.0001)
        assert made.output_seen.tolist() == [4]
        assert made.transferred_tokens.tolist() == [1000]
        assert made.gpu_forwarded_tokens.tolist() == [1000, 3]


@pytest.mark.parametrize("sharing", SHARING)
@pytest.mark.parametrize(("link_ms", "arrived_ms"), [(40, 106), (160, 190)])
def test_chunks_go_while_others_are_computed(link_ms: float, arrived_ms: float, sharing: int) -> None:
    """Chunks of 300, 300, 300 and 100 tokens are ready at 30, 60, 90 and 100 ms. A fast link takes 12 ms for the third,
    till 102, and 4 for the last; and at 100 ms that waits, till 106. A slow one is busy from 30 ms on: till 190."""
    pools = reserving(rate=1e6 / (link_ms / 1e3), sharing=sharing)
    made = serve(stream([own(0, 1000)], [0.0], [1]), pools, engine=replace(SYNCHRONOUS, chunked_prefill_size=300))
    assert made.prefill_end_s[0] == pytest.approx(0.1)
    assert made.ttft_s[0] == pytest.approx(arrived_ms / 1e3)
    assert made.latency_s[0] == made.ttft_s[0]


def test_what_was_cached_goes_with_the_first_chunk_and_all_of_it_every_time() -> None:
    """A repeat computes one token: 0.1 ms. All 1,000 are sent again, in 100 ms: the second GPU keeps nothing."""
    made = serve(stream([own(0, 1000)] * 2, [0.0, 1.0], [2, 2]), reserving(), engine=SYNCHRONOUS)
    assert made.hit_tokens.tolist() == [0, 999]
    assert made.ttft_s == pytest.approx([0.1 + 0.1, 0.0001 + 0.1])
    assert made.transferred_tokens.tolist() == [1000, 1000]


def test_two_prompts_share_the_link_fairly_while_they_are_computed() -> None:
    """Layers of both are ready at 50 and 100 ms, on two GPUs; to one GPU they take 100 ms for each layer of both
    together: 50 + 200 ms. In turn, the second one's second layer is last."""
    prompts = stream([own(0, 1000), own(1, 1000)], [0.0] * 2, [1, 1])
    for sharing, ms in ((FAIR, [250.0, 250.0]), (FIFO, [200.0, 250.0]), (INFINITE, [150.0, 150.0])):
        made = serve(prompts, reserving(send=LAYERS, layers=2, sharing=sharing), (2, 1), engine=SYNCHRONOUS)
        assert made.ttft_s * 1e3 == pytest.approx(ms)


# ---------------------------------------------------------------- who gets room, by hand
def test_prompts_are_not_computed_before_there_is_room_for_them() -> None:
    """1,600 tokens hold one prompt of 1,000 and 512 kept. The second is computed when the first is over: 100 ms for the
    prompt, 100 on the link, 4 more tokens in 0.4 ms."""
    prompts = stream([own(0, 1000), own(1, 1000)], [0.0] * 2, [5, 5])
    made = serve(prompts, reserving(), (2, 1), engine=SYNCHRONOUS, hardware=replace(MS, kv_tokens=1600))
    assert made.prefill_end_s == pytest.approx([0.1, 0.2004 + 0.1])
    assert made.latency_s == pytest.approx([0.2004, 2 * 0.2004])


def test_nobody_passes_the_first_that_waits() -> None:
    """2,600 tokens: 1,000 and 512 are taken. The next, of 800 tokens, would need 1,312 of the 1,088 that are left; one
    of 100, which would fit, waits behind it."""
    prompts = stream([own(0, 1000), own(1, 800), own(2, 100)], [0.0] * 3, [5, 1, 1])
    made = serve(prompts, reserving(), (3, 1), engine=SYNCHRONOUS, hardware=replace(MS, kv_tokens=2600))
    assert made.prefill_end_s == pytest.approx([0.1, 0.2004 + 0.08, 0.2004 + 0.01])


def test_what_a_request_may_generate_counts_less_what_others_would_give_back() -> None:
    """5,000 tokens, max_new_tokens 4,096. The first takes 100. The second, of 900 with as many, might need 4,996: more
    than the 5,000 - 100 - 512 that are left while the first is on its way. When that runs, it may need 4,196 itself,
    less the 101 that it has: 4,900 - 4,095 are left, and 1,412 are needed."""
    prompts = replace(stream([own(0, 100), own(1, 900)], [0.0] * 2, [50, 5]), max_new_tokens=[4096, 4096])
    made = serve(prompts, reserving(), (2, 1), engine=SYNCHRONOUS, hardware=replace(MS, kv_tokens=5000))
    first_s = 0.01 + 0.01 + 49 * 0.0001
    assert made.latency_s[0] == pytest.approx(first_s)
    assert made.prefill_end_s[1] == pytest.approx(first_s + 0.09)


def test_who_is_retracted_goes_on_with_its_kv() -> None:
    """Two prompts of 1,000 leave 250 of 2,250 tokens, 125 for each; of those that have as many the later one gives way,
    waits until the other is over, and goes on. No prompt is computed again."""
    prompts = stream([own(0, 1000), own(1, 1000)], [0.0] * 2, [200, 200])
    engine = replace(SYNCHRONOUS, num_reserved_decode_tokens=1)
    made = serve(prompts, reserving(), (2, 1), engine=engine, hardware=replace(MS, kv_tokens=2250))
    assert made.gpu_retracted.tolist() == [0, 0, 1]
    assert made.gpu_recomputed_tokens.sum() == 0
    assert made.gpu_prefilled_tokens.tolist() == [1000, 1000, 0]
    assert made.ttft_s == pytest.approx([0.2, 0.2])
    assert made.output_seen.tolist() == [200, 200]
    # 125 steps of two tokens, 74 of one, then 74 of one
    assert made.latency_s == pytest.approx([0.2 + 0.025 + 0.0074, 0.2 + 0.025 + 2 * 0.0074])


def test_what_a_single_token_let_go_is_room_for_who_waits() -> None:
    """As where five are made, but of one token each: the first is over as it joins, and no step comes behind. The
    second is computed in 100 ms then, and sent in as many."""
    prompts = stream([own(0, 1000), own(1, 1000)], [0.0] * 2, [1, 1])
    made = serve(prompts, reserving(), (2, 1), engine=SYNCHRONOUS, hardware=replace(MS, kv_tokens=1600))
    assert made.prefill_end_s == pytest.approx([0.1, 0.3])
    assert made.latency_s == pytest.approx([0.2, 0.4])


def test_what_a_single_token_let_go_is_room_for_who_was_retracted() -> None:
    """Of 2,100 tokens the first prompt has 1,000 at 200 ms, and 100 more 10 ms later. The second holds 1,000, and comes
    at 300 ms, in turn on the link: the first is retracted till then, and has 99 more tokens to go."""
    prompts = stream([own(0, 1000), own(1, 1000)], [0.0] * 2, [200, 1])
    engine = replace(SYNCHRONOUS, num_reserved_decode_tokens=1)
    made = serve(prompts, reserving(sharing=FIFO), (2, 1), engine=engine, hardware=replace(MS, kv_tokens=2100))
    assert made.gpu_retracted.tolist() == [0, 0, 1]
    assert made.latency_s == pytest.approx([0.3 + 0.0099, 0.3])


def test_a_request_that_could_never_be_taken_back_is_refused() -> None:
    prompts = stream([own(0, 1000), own(1, 1000)], [0.0] * 2, [100, 50])
    made = serve(prompts, reserving(), engine=SYNCHRONOUS, hardware=replace(MS, kv_tokens=1600))
    assert made.state.tolist() == [State.REFUSED, State.FINISHED]


# ---------------------------------------------------------------- who is lost, or gives up, by hand
def test_both_gpus_are_rid_of_a_request_that_one_of_them_loses() -> None:
    """A prompt is half computed when either of its GPUs goes down, and 25 ms later it is known. If it is that of the
    prompt, the other one begins at 75 ms: 100 ms for the prompt, 100 on the link. If it is that of the output, the
    prompt's GPU ends the step in hand first, at 100 ms. What has room is never both at once: 1,600 tokens hold one."""
    one = stream([own(0, 1000)], [0.0], [5])
    small = replace(MS, kv_tokens=1600)
    for counts, down, shown_s in (((2, 1), 0, 0.275), ((1, 2), 1, 0.3)):
        faults = happens((0.05, down, "down"), detect_ms=25.0)
        made = serve(one, reserving(), counts, engine=SYNCHRONOUS, hardware=small, faults=faults)
        assert made.ttft_s == pytest.approx([shown_s])
        assert made.losses.tolist() == [1]
        assert made.gpu_prefilled_tokens.tolist() == ([1000, 1000, 0] if down == 0 else [2000, 0, 0])
        assert made.gpu_requests.tolist() == ([1, 1, 2] if down == 0 else [2, 1, 1])


def test_kv_that_is_lost_on_its_way_is_computed_again() -> None:
    """Half of it is sent when the output's GPU goes down. The prompt is cached where it was computed: one token is
    computed again, and all of it sent, from 175.1 ms on. By one that resumes nothing had been shown."""
    faults = happens((0.15, 1, "down"), detect_ms=25.0)
    made = serve(stream([own(0, 1000)], [0.0], [5]), reserving(sharing=FIFO), (1, 2), engine=SYNCHRONOUS, faults=faults)
    assert made.ttft_s == pytest.approx([0.175 + 0.0001 + 0.1])
    assert made.gpu_prefilled_tokens.tolist() == [1001, 0, 0]
    assert made.transferred_tokens.tolist() == [1000]


def test_one_that_resumes_has_its_prompt_and_what_was_shown_computed_and_sent() -> None:
    """A prompt of 1,000 has come at 200 ms, and 500 tokens are shown in 50 ms when its output's GPU goes down. 25 ms
    later the prompt and these are computed, of which 1,000 are cached where that was done: 50 ms, and 150 on the link.
    That brings the 501st token; the other 99 take 9.9 ms."""
    faults = happens((0.24995, 1, "down"), detect_ms=25.0, on_loss="resume")
    made = serve(stream([own(0, 1000)], [0.0], [600]), reserving(), (1, 2), engine=SYNCHRONOUS, faults=faults)
    assert made.ttft_s == pytest.approx([0.2])
    assert made.finish_s == pytest.approx([0.24995 + 0.025 + 0.05 + 0.15 + 0.0099])
    assert (made.output_seen.tolist(), made.transferred_tokens.tolist()) == ([600], [1500])
    assert made.gpu_forwarded_tokens.tolist() == [1500, 500, 99]
    assert made.gpu_prefilled_tokens.tolist() == [1000, 0, 0]


def test_a_drained_gpu_gives_back_who_waits_for_room() -> None:
    """The second waits for room behind the first when its output's GPU is drained at 50 ms: another one has room, and
    its prompt is computed at once, in 100 ms. Else it waits till the first is over."""
    prompts = stream([own(0, 1000), own(1, 1000)], [0.0] * 2, [5, 5])
    pools, small = reserving(decode_policy=RoundRobin()), replace(MS, kv_tokens=1600)
    for drain, end_s in (("requeue", 0.05 + 0.1), ("finish", 0.2004 + 0.1)):
        faults = happens((0.0, 3, "drain"), (0.04, 3, "up"), (0.05, 2, "drain"), drain=drain)
        made = serve(prompts, pools, (2, 2), engine=SYNCHRONOUS, hardware=small, faults=faults)
        assert made.prefill_end_s == pytest.approx([0.1, end_s])
        assert made.losses.sum() == 0


def test_who_gives_up_while_it_waits_for_room_or_for_its_prompt_lets_others_go_on() -> None:
    """1,600 tokens hold one of three. The first gives up at 50 ms, in the step that ends at 100; the second gets its
    room at once, and is computed from 100 ms to 200. The third gives up before there is room."""
    prompts = replace(stream([own(i, 1000) for i in range(3)], [0.0] * 3, [5] * 3), patience_s=[0.05, np.nan, 0.25])
    made = serve(prompts, reserving(), (1, 1), engine=SYNCHRONOUS, hardware=replace(MS, kv_tokens=1600))
    assert made.state.tolist() == [State.CANCELLED, State.FINISHED, State.CANCELLED]
    assert made.ttft_s[1] == pytest.approx(0.3)
    assert made.gpu_prefilled_tokens.tolist() == [2000, 0]


# ---------------------------------------------------------------- laws
ENGINES = [
    SGLang(chunked_prefill_size=64, max_running_requests=64, num_reserved_decode_tokens=20),
    SGLang(
        chunked_prefill_size=16, max_running_requests=5, disable_overlap_schedule=True, num_reserved_decode_tokens=1
    ),
]
CLUSTERS = st.fixed_dictionaries(
    {
        "engine": st.sampled_from(ENGINES),
        "counts": st.lists(st.integers(1, 2), min_size=3, max_size=3),
        "roles": st.sampled_from([(PREFILL, DECODE, DECODE), (PREFILL, BOTH, DECODE), (BOTH, PREFILL, DECODE)]),
        "kv": st.sampled_from([400, 600, 100_000]),
        "sharing": st.sampled_from(SHARING),
        "send": st.sampled_from([END, LAYERS, CHUNKS]),
        "latency_s": st.sampled_from([0.0, 0.003]),
        "rate": st.sampled_from([1e5, 1e6, 1e9]),
        "policy": st.sampled_from([LeastOutstanding(), RoundRobin()]),
        "horizon": st.sampled_from(["stop", "drain"]),
    }
)


def run(workload: Workload, cluster: dict[str, Any], **given: Any) -> Outcome:
    link = {name: cluster[name] for name in ("sharing", "send", "latency_s", "rate")}
    hardware = replace(MS, step_s=0.0013, kv_tokens=cluster["kv"])
    rest = {name: cluster[name] for name in ("engine", "policy", "horizon")} | {"duration_s": 2.5}
    pools = reserving(*cluster["roles"], layers=3, **link)
    return serve(workload, pools, cluster["counts"], hardware=hardware, **rest | given)


@pytest.mark.slow
@settings(max_examples=examples(100, found=True), deadline=None)
@given(st.one_of(workloads(), linked(workloads())), CLUSTERS)
def test_every_request_is_accounted_for_at_every_event(workload: Workload, cluster: dict[str, Any]) -> None:
    roles = np.repeat(cluster["roles"], cluster["counts"])
    made = run(workload, cluster, on_event=Counted(RESERVE_FIRST, roles.tolist(), len(workload)))
    again = run(workload, cluster)
    assert_same(made, again)  # watching changes nothing
    in_order(workload, made)
    finished = made.state == State.FINISHED
    if cluster["horizon"] == "drain":
        assert np.isin(made.state, (State.FINISHED, State.REFUSED, State.CANCELLED, State.NOT_DUE)).all()
    assert (made.output_seen[finished] == np.minimum(workload.output_tokens, workload.max_new_tokens)[finished]).all()
    moved = finished & (made.gpu != made.decode_gpu)
    assert (roles[made.gpu[moved]] == PREFILL).all()
    assert (roles[made.decode_gpu[moved]] == DECODE).all()
    assert (made.transferred_tokens[moved] == workload.prompt_tokens[moved]).all()
    assert not made.transferred_tokens[finished & ~moved].any()
    # no sooner than computed, and than its last part has gone over the link
    assert (made.ttft_s[moved] >= made.prefill_end_s[moved] + cluster["latency_s"] - 1e-9).all()
    assert (made.ttft_s[moved] >= workload.prompt_tokens[moved] * KV_BYTES / cluster["rate"] - 1e-9).all()
    assert made.gpu_recomputed_tokens[roles != BOTH].sum() == 0
    if finished.all() and not made.gpu_retracted.any():
        outputs = np.zeros(len(roles), np.int64)
        np.add.at(outputs, made.decode_gpu, made.output_seen - 1)
        exact = (roles == DECODE) & bool(cluster["engine"].disable_overlap_schedule)
        np.testing.assert_array_equal(made.gpu_forwarded_tokens[exact], outputs[exact])


@settings(max_examples=examples(60, found=True), deadline=None)
@given(workloads(), CLUSTERS)
def test_to_send_sooner_is_never_later_where_each_is_alone(workload: Workload, cluster: dict[str, Any]) -> None:
    """Prompts apart by more than anything takes."""
    n = len(workload)
    apart = stream(
        [own(i, int(tokens)) for i, tokens in enumerate(workload.prompt_tokens)], [20.0 * i for i in range(n)], [5] * n
    )
    alone = cluster | {"kv": 100_000, "horizon": "drain"}
    end, layers, chunks = (run(apart, alone | {"send": send}, duration_s=1e4) for send in (END, LAYERS, CHUNKS))
    assert (layers.ttft_s <= chunks.ttft_s + 1e-9).all()
    assert (chunks.ttft_s <= end.ttft_s + 1e-9).all()
    np.testing.assert_array_equal(layers.prefill_end_s, end.prefill_end_s)


@pytest.mark.slow
@settings(max_examples=examples(60, found=True), deadline=None)
@given(workloads(), CLUSTERS)
def test_a_link_that_costs_nothing_makes_all_sharing_and_sending_the_same(
    workload: Workload, cluster: dict[str, Any]
) -> None:
    free = cluster | {"rate": 1e30, "latency_s": 0.0}
    made = [run(workload, free | {"sharing": how, "send": send}) for how in SHARING for send in (END, CHUNKS)]
    for other in made[1:]:
        np.testing.assert_allclose(made[0].ttft_s, other.ttft_s, rtol=1e-12)
