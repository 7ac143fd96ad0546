"""KV that comes from other GPUs, of their caches or their hosts: examples to check on paper, and what holds always.

As in `tests.support.by_hand.tiers` a step takes 100 ms, and 1 GB/s is 0.1 ms a token; prompts of 1,000 tokens are 63
blocks, of which 62, 99.2 ms, can be found. Requests go to the GPUs in turn.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from prebleexp.faults.base import Event
from prebleexp.faults.timeline import Timeline
from prebleexp.gateway.base import Gateway
from prebleexp.policies.research.mooncake import Mooncake
from prebleexp.policies.round_robin import RoundRobin
from prebleexp.sim.links import FAIR, FIFO, INFINITE
from prebleexp.sim.records import DOWN
from prebleexp.sim.tiering import Tier, Tiering
from prebleexp.sim.tiers import CHEAPER, THRESHOLD
from prebleexp.sim.types import Outcome, State, Workload
from tests.support.accounted import accounted
from tests.support.by_hand.streams import own, stream
from tests.support.by_hand.tiers import KV_BYTES, MS, STEP, VLLM_ALONE, host, serve, tier, tokens_ms
from tests.support.outcomes import assert_alike
from tests.support.sampled import examples
from tests.support.strategies.paths import workloads

pytestmark = pytest.mark.uncompiled


def peers(gb_s: float = 1.0, **more: Any) -> Tier:
    return tier(0, gb_s, **more)


def fetch(workload: Workload, gpus: int = 2, tiers: Tiering | None = None, **given: Any) -> Outcome:
    """With `peers` alone, unless other tiers are given."""
    return serve(workload, tiers or Tiering(KV_BYTES, peers=peers()), gpus=gpus, policy=RoundRobin(), **given)


# ---------------------------------------------------------------- by hand
@pytest.mark.thorough
def test_what_another_gpu_has_in_its_cache_comes_from_there() -> None:
    """X is computed by GPU 0 until 100 ms; GPU 1 fetches it at 300, until 399.2, and computes the last 8 tokens."""
    two = stream([own(0, 1000)] * 2, [0.0, 0.3], [1, 1])
    made = fetch(two)
    assert tokens_ms(two, made) == [100, 499.2]
    assert made.peer_tokens.tolist() == [0, 992]
    assert made.prefilled_tokens.tolist() == [1000, 8]
    assert made.gpu_peer_tokens.tolist() == [0, 992]


def test_what_is_being_computed_is_not_there_yet() -> None:
    """GPU 0's step is over at 100 ms; GPU 1 does not wait for it at 50, and finds what it needs at 100."""
    for at, first in ((0.05, 150), (0.1, 299.2)):
        two = stream([own(0, 1000)] * 2, [0.0, at], [1, 1])
        assert tokens_ms(two, fetch(two))[1] == pytest.approx(first)


def test_what_is_lent_is_held_until_it_has_come() -> None:
    """70 blocks: GPU 1 fetches X from 110 ms to 209.2. Y has no room at GPU 0 until then; else it has at 120."""
    three = stream([own(0, 1000), own(0, 1000), own(1, 1000)], [0.0, 0.11, 0.12], [1] * 3)
    hardware = replace(STEP, kv_tokens=16 * 71)
    assert tokens_ms(three, fetch(three, hardware=hardware)) == [100, 309.2, 309.2]
    assert tokens_ms(three, serve(three, None, gpus=2, policy=RoundRobin(), hardware=hardware)) == [100, 210, 220]


def test_what_a_host_has_comes_from_there() -> None:
    """70 blocks: Y pushes X out of GPU 0's cache, but for 7 blocks, not out of its host."""
    four = stream([own(0, 1000), own(2, 20), own(1, 1000), own(0, 1000)], [0.0, 0.0, 0.3, 0.6], [1] * 4)
    hardware = replace(STEP, kv_tokens=16 * 71)
    for tiers, found, ms in (
        (replace(host(500), peers=peers()), 992, 799.2),
        (Tiering(KV_BYTES, peers=peers()), 112, 711.2),
    ):
        made = fetch(four, tiers=tiers, hardware=hardware)
        assert made.peer_tokens.tolist() == [0, 0, 0, found]
        assert tokens_ms(four, made)[3] == ms


@pytest.mark.parametrize(
    ("sharing", "ms"), [(FAIR, [1298.4, 1298.4]), (FIFO, [1199.2, 1298.4]), (INFINITE, [1199.2, 1199.2])]
)
def test_two_fetch_from_one(sharing: int, ms: list[float]) -> None:
    """At 1 s, both from GPU 0, which sends at 1 GB/s."""
    three = stream([own(0, 1000)] * 3, [0.0, 1.0, 1.0], [1] * 3)
    made = fetch(three, 3, Tiering(KV_BYTES, peers=peers(sharing=sharing)))
    assert made.peer_tokens.tolist() == [0, 992, 992]
    assert tokens_ms(three, made) == [100, *ms]


def test_it_comes_from_the_one_that_has_most() -> None:
    """GPU 1 fetches the first 496 tokens from GPU 0, and computes the others; GPU 2 fetches 992 from GPU 1."""
    short, whole = [(0, 496)], [(0, 496), (1, 504)]
    three = stream([short, whole, whole], [0.0, 0.3, 1.0], [1] * 3)
    made = fetch(three, 3)
    assert made.peer_tokens.tolist() == [0, 496, 992]
    assert tokens_ms(three, made) == [100, 449.6, 1199.2]


@pytest.mark.parametrize(("gb_s", "found"), [(1.01, 992), (0.99, 0)])
def test_it_is_cheaper_above_the_break_even_rate(gb_s: float, found: int) -> None:
    """KV bytes a token times tokens a second: 100,000 · 10,000 is 1 GB/s."""
    two = stream([own(0, 1000)] * 2, [0.0, 1.0], [1] * 2)
    made = fetch(two, tiers=Tiering(KV_BYTES, peers=peers(gb_s, choose=CHEAPER)), hardware=replace(MS, kv_tokens=2000))
    assert made.peer_tokens.tolist() == [0, found]


@pytest.mark.parametrize(("least", "found"), [(992, 992), (993, 0)])
def test_a_threshold_is_of_tokens(least: int, found: int) -> None:
    two = stream([own(0, 1000)] * 2, [0.0, 1.0], [1] * 2)
    made = fetch(two, tiers=Tiering(KV_BYTES, peers=peers(choose=THRESHOLD, least_tokens=least)))
    assert made.peer_tokens.tolist() == [0, found]


def test_a_gpu_of_another_kind_lends_as_well() -> None:
    """X is computed by GPU 0 until 100 ms; GPU 1, of half its memory and in half its time a step, fetches it until
    399.2 ms. Of what that has computed GPU 0 fetches Y at 600 ms."""
    prompts = [own(0, 1000), own(0, 1000), own(2, 8), own(1, 500), own(1, 500)]
    five = stream(prompts, [0.0, 0.3, 0.5, 0.5, 0.6], [1] * 5)
    made = fetch(five, kinds=[(1, STEP), (1, replace(STEP, step_s=0.05, kv_tokens=16 * 71))])
    assert made.peer_tokens.tolist() == [0, 992, 0, 0, 496]
    assert made.gpu_peer_tokens.tolist() == [496, 992]
    assert tokens_ms(five, made) == [100, 449.2, 600, 550, 749.6]


def test_its_own_tiers_come_first() -> None:
    """The store has X from 199.2 ms on; GPU 0's cache, which it came from, has it too."""
    two = stream([own(0, 1000)] * 2, [0.0, 0.3], [1, 1])
    made = fetch(two, tiers=Tiering(KV_BYTES, shared=tier(500), peers=peers()))
    assert made.shared_tokens.tolist() == [0, 992]
    assert made.peer_tokens.tolist() == [0, 0]


@pytest.mark.slow
@pytest.mark.parametrize(("threshold", "ms"), [(1.0, [100, 250, 210.72]), (None, [100, 250.8, 250.8])])
def test_mooncake_sends_it_where_it_is_fetched_in_time(threshold: float | None, ms: list[float]) -> None:
    """GPU 0 has X, and 500 tokens of Y before it, 50 ms; GPU 1 fetches 992 tokens in 9.92 ms, and computes 8 in 0.8."""
    three = stream([own(0, 1000), own(1, 500), own(0, 1000)], [0.0, 0.2, 0.2], [1] * 3)
    hardware, tiers = replace(MS, kv_tokens=16 * 200), Tiering(KV_BYTES, peers=peers(10))
    made = serve(three, tiers, gpus=2, policy=Mooncake(balancing_threshold=threshold), hardware=hardware)
    assert tokens_ms(three, made) == ms


# ---------------------------------------------------------------- GPUs that are lost
def lost(g: int, at_s: float) -> Timeline:
    return Timeline(detect_ms=0.0, happen=(Event(at_s, g, "down", 1.0), Event(at_s + 0.01, g, "up", 1.0)))


RECOMPUTES = replace(VLLM_ALONE, kv_load_failure_policy="recompute")


@pytest.mark.parametrize(("down_s", "found", "ms"), [(0.35, 0, 450), (0.4, 992, 499.2)])
def test_what_a_lost_gpu_lends_is_computed_instead(down_s: float, found: int, ms: float) -> None:
    """GPU 1 fetches X from GPU 0 from 300 to 399.2 ms; GPU 0 is lost at 350, and GPU 1 computes X until 450."""
    two = stream([own(0, 1000)] * 2, [0.0, 0.3], [1, 1])
    made = fetch(two, faults=lost(0, down_s), engine=RECOMPUTES)
    assert tokens_ms(two, made) == [100, ms]
    assert made.losses.tolist() == [0, 0]
    assert made.peer_tokens.tolist() == [0, found]
    assert made.prefilled_tokens.tolist() == [1000, 1000 - found]
    assert made.gpu_peer_tokens.tolist() == [0, found]


def test_the_part_before_it_is_used() -> None:
    """70 blocks: of the first 496 tokens GPU 1 has 112 in its cache and 384 in its host, which come until 638.4 ms.
    The others were to come from GPU 0, which is lost at 610: GPU 1 computes them from 638.4 on."""
    short, whole, small = [(0, 496)], [(0, 496), (1, 504)], own(2, 20)
    prompts = [whole, short, small, own(3, 1000), small, whole]
    six = stream(prompts, [0.0, 0.0, 0.0, 0.2, 0.2, 0.6], [1] * 6)
    given = {"tiers": replace(host(500), peers=peers()), "hardware": replace(STEP, kv_tokens=16 * 71)}
    made = fetch(six, faults=lost(0, 0.61), engine=RECOMPUTES, **given)
    assert made.gpu.tolist() == [0, 1, 0, 1, 0, 1]
    assert [made.hit_tokens[-1], made.host_tokens[-1], made.peer_tokens[-1]] == [112, 384, 0]
    assert made.prefilled_tokens[-1] == 504
    assert tokens_ms(six, made)[-1] == pytest.approx(738.4)


@pytest.mark.parametrize(
    ("on_loss", "gateway", "state", "ms"),
    [
        ("fail", None, State.FAILED, [float("nan"), 455]),
        ("retry", None, State.FINISHED, [450, 550]),
        ("retry", Gateway(retries=1, retry_initial_s=1e-13, retry_max_s=1e-13), State.FINISHED, [450, 550]),
    ],
)
def test_a_request_whose_kv_does_not_arrive_fails(
    on_loss: str, gateway: Gateway | None, state: State, ms: list[float]
) -> None:
    """As above, and as it is by default: 70 blocks, of which X waits with 62 at GPU 1, which hears at 350 ms that no
    more comes. Y has room there at 355, unless X is routed again."""
    three = stream([own(0, 1000), own(0, 1000), own(1, 1000)], [0.0, 0.3, 0.355], [1] * 3)
    hardware = replace(STEP, kv_tokens=16 * 71)
    made = fetch(three, faults=replace(lost(0, 0.35), on_loss=on_loss), hardware=hardware, gateway=gateway)
    assert made.state.tolist() == [State.FINISHED, state, State.FINISHED]
    np.testing.assert_array_equal(tokens_ms(three, made), [100, *ms])
    assert made.losses.tolist() == [0, 1, 0]
    assert made.retries.tolist() == [0, int(gateway is not None), 0]
    assert made.peer_tokens.tolist() == [0] * 3


def test_a_lost_gpu_gives_back_what_was_lent_to_it() -> None:
    """As above X is lent from 110 ms to 209.2, and Y has no room at GPU 0; at 150 GPU 1 is lost, and Y begins."""
    three = stream([own(0, 1000), own(0, 1000), own(1, 1000)], [0.0, 0.11, 0.12], [1] * 3)
    hardware = replace(STEP, kv_tokens=16 * 71)
    made = fetch(three, hardware=hardware, faults=replace(lost(1, 0.15), on_loss="fail"))
    assert made.state.tolist() == [State.FINISHED, State.LOST, State.FINISHED]
    assert tokens_ms(three, made)[2] == 250


# ---------------------------------------------------------------- laws
TENTHS = [at / 10 for at in range(1, 40)]
LINKS = st.builds(
    peers,
    gb_s=st.sampled_from([0.001, 0.1, 1e9]),
    latency_s=st.sampled_from([0.0, 0.02]),
    choose=st.sampled_from([0, CHEAPER]),
    sharing=st.sampled_from([FAIR, FIFO, INFINITE]),
)


@settings(max_examples=examples(40), deadline=None)
@given(workloads(), LINKS, st.sampled_from([240, 400, 1000]), st.integers(2, 3))
def test_all_that_is_lent_is_given_back(workload: Workload, links: Tier, kv: int, gpus: int) -> None:
    last = []
    made = fetch(
        workload,
        gpus,
        Tiering(KV_BYTES, peers=links),
        hardware=replace(MS, kv_tokens=kv),
        on_event=lambda world: last.append([one.kv_free + one.evictable for one in world.live]),
    )
    assert last[-1] == [kv // 16 * 16 + kv % 16] * gpus
    served = made.state == State.FINISHED
    found = made.hit_tokens + made.peer_tokens + made.prefilled_tokens
    np.testing.assert_array_equal(found[served], workload.prompt_tokens[served])


def free_of(world: Any) -> list[int]:
    """KV tokens of the GPUs that are not down: what these told last stands."""
    up = [g for g in range(len(world.live)) if world.servers[g].stage != DOWN]
    return [int(world.live[g].kv_free + world.live[g].evictable) for g in up]


@pytest.mark.parametrize("on_loss", ["retry", "fail"])
def test_who_fails_leaves_nothing_behind(on_loss: str) -> None:
    """Thirty requests with three prefixes, which come over a slow link, while a GPU is lost every 100 ms."""
    lost_so, last = 0, []
    happen = [Event(at + up / 100, i % 2, ("down", "up")[up], 1.0) for i, at in enumerate(TENTHS) for up in (0, 1)]
    for seed in range(4):
        rng = np.random.default_rng(seed)
        prompts = [[(int(rng.integers(3)), 300), (100 + i, 20)] for i in range(30)]
        workload = stream(prompts, np.sort(rng.uniform(0, 3, 30)).tolist(), rng.integers(1, 40, 30).tolist())
        made = fetch(
            workload,
            tiers=Tiering(KV_BYTES, peers=peers(float(rng.choice([0.3, 0.6])))),
            hardware=replace(MS, kv_tokens=1000),
            on_event=lambda world: last.append(free_of(world)),
            faults=Timeline(detect_ms=0.0, on_loss=on_loss, happen=tuple(happen)),
        )
        assert set(last[-1]) == {1000}
        accounted(workload, made)
        lost_so += int((made.state == State.FAILED).sum())
    assert (lost_so > 0) == (on_loss == "fail")


@settings(max_examples=examples(40), deadline=None)
@given(workloads(), st.sampled_from([240, 400]))
def test_on_one_gpu_there_are_none(workload: Workload, kv: int) -> None:
    hardware = replace(MS, kv_tokens=kv)
    made, none = fetch(workload, 1, hardware=hardware), serve(workload, None, hardware=hardware, policy=RoundRobin())
    assert_alike(made, none)


@settings(max_examples=examples(40), deadline=None)
@given(workloads())
def test_a_link_that_costs_nothing_makes_no_request_later_that_is_alone(workload: Workload) -> None:
    """Where there is room for all: else what is fetched, and what is lent, changes what is evicted."""
    apart = replace(workload, arrival_s=[20.0 * i for i in range(len(workload))])
    hardware = replace(MS, kv_tokens=100_000)
    made = fetch(apart, tiers=Tiering(KV_BYTES, peers=peers(1e30)), hardware=hardware)
    none = serve(apart, None, gpus=2, hardware=hardware, policy=RoundRobin())
    assert (made.ttft_s <= none.ttft_s + 1e-9).all()
    assert (made.prefilled_tokens <= none.prefilled_tokens).all()
