"""GPUs with roles whose number changes, that give back what waits, or that have tiers: examples to check on paper.

A token takes 0.1 ms, computed or sent, so a prompt of 1,000 tokens 100 ms, and the 63 blocks of its KV 100.8 ms. To
and from a tier a token takes 0.02 ms.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from prebleexp.autoscalers.by_role import ByRole
from prebleexp.autoscalers.hpa import HPA
from prebleexp.errors import InvalidInput
from prebleexp.faults.base import Event
from prebleexp.faults.timeline import Timeline
from prebleexp.gateway.base import Gateway
from prebleexp.policies.round_robin import RoundRobin
from prebleexp.sim.history import Decision
from prebleexp.sim.pools import NEVER, PULL, PUSH_AT_END, UNCACHED
from prebleexp.sim.tiering import Tier, Tiering
from prebleexp.sim.types import State
from tests.support.by_hand.pools import KV_BYTES, MS, SYNCHRONOUS, serve, split
from tests.support.by_hand.streams import own, stream
from tests.support.policies.looker import Lopsided

pytestmark = pytest.mark.thorough

DOWN = Event(0.30005, 1, "down")
ONE_AT_A_TIME = replace(SYNCHRONOUS, max_num_seqs=1)


def test_as_many_gpus_for_outputs_as_are_wanted() -> None:
    """One request of a GPU is wanted. At 250 ms both wait for KV at GPU 1, and GPU 2 is started; the third comes there
    at 360 ms, and is through by 500 ms, when two for two GPUs are as it should be. The GPU for prompts stays."""
    rule = ByRole(decode=HPA(interval_s=0.25, target=1.0, window_s=0.0))
    three = stream([own(i, 1000) for i in range(3)], [0.0, 0.0, 0.26], [1000, 1000, 100])
    made = serve(three, split(), (1, 3), autoscaler=rule)
    assert made.decode_gpu.tolist() == [1, 1, 2]
    assert made.ttft_s * 1e3 == pytest.approx([301, 301, 200.9])
    assert made.latency_s * 1e3 == pytest.approx([500.8, 500.8, 210.8])
    assert made.gpu_on_s * 1e3 == pytest.approx([500.8, 500.8, 250.8, 0])
    assert made.history.decisions == (Decision(0.25, 2, 1, 0, 0, 1, 0), Decision(0.5, 2, 2, 0, 0, 0, 0))


def test_one_rule_counts_each_role_by_itself() -> None:
    """At 50 ms four prompts are at one GPU, and nobody waits for an output: of the former there is one more. At 400 ms
    all are computed, and it goes at 450."""
    four = stream([own(i, 1000) for i in range(4)], [0.0] * 4, [1] * 4)
    made = serve(four, split(), (3, 3), autoscaler=HPA(interval_s=0.05, target=1.0, window_s=0.0, burst=1))
    assert made.history.decisions[0] == Decision(0.05, 2 + 1, 1 + 1, 0, 0, 1, 0)
    assert made.gpu.tolist() == [0] * 4
    assert made.gpu_on_s[1] * 1e3 == pytest.approx(400)


def test_who_waits_for_kv_on_a_drained_gpu_goes_to_another_and_its_prompt_stays_computed() -> None:
    """The second prompt is computed at 300 ms, when GPU 2 is drained, and waits at GPU 1, where the first runs until
    500.8. GPU 2 is back at 320 ms; GPU 1 is drained at 350, and gives it back: it is read there until 450.8."""
    two = stream([own(0, 1000), own(1, 1000)], [0.0, 0.2], [3000, 1])
    happen = (Event(0.05, 2, "drain"), Event(0.32, 2, "up"), Event(0.35, 1, "drain"))
    for drain, gpu, first_ms, sent in (("requeue", 2, 250.9, [2, 2, 1]), ("finish", 1, 401.7, [2, 2, 0])):
        faults = Timeline(happen=happen, drain=drain)
        made = serve(two, split(), (1, 2), engine=ONE_AT_A_TIME, faults=faults)
        assert made.decode_gpu.tolist() == [1, gpu]
        assert made.ttft_s[1] * 1e3 == pytest.approx(first_ms)
        assert made.latency_s[0] * 1e3 == pytest.approx(500.8)
        assert made.gpu_requests.tolist() == sent
        assert made.prefilled_tokens.tolist() == [1000, 1000]
        assert made.losses.tolist() == [0, 0]


def test_a_prompt_that_waits_on_a_drained_gpu_is_computed_on_another() -> None:
    """The third waits behind the first until GPU 0 is drained at 50 ms, and behind the second from then on."""
    three = stream([own(i, 1000) for i in range(3)], [0.0] * 3, [1] * 3)
    faults = Timeline(happen=(Event(0.05, 0, "drain"),), drain="requeue")
    made = serve(three, split(), (2, 1), engine=ONE_AT_A_TIME, faults=faults)
    assert made.gpu.tolist() == [0, 1, 1]
    assert made.prefill_end_s * 1e3 == pytest.approx([100, 100, 200])


# ---------------------------------------------------------------- tiers
def tier(blocks: int = 1000) -> Tier:
    return Tier(bytes=16 * KV_BYTES * blocks, load_rate=5e7, store_rate=5e7, latency_s=0.0)


def test_host_memory_on_both_sides() -> None:
    """70 blocks a GPU. X, of 1,000 tokens, goes to the GPU for prompts, Z, of 400, does not. W pushes both out, but for
    7 blocks of X at GPU 0 and of Z at GPU 1. Then Z comes from GPU 1's host, 18 blocks in 5.76 ms, and its last token
    is computed again. X comes from GPU 0's, 55 blocks in 17.6 ms; to GPU 1 all of it is sent, since that is asked for
    first."""
    x, z, w = own(0, 1000), own(1, 400), own(2, 1000)
    five = stream([x, z, w, z, x], [0.0, 0.3, 0.4, 0.7, 0.8], [1] * 5)
    pools, little = split(decider=UNCACHED, least_tokens=500), replace(MS, kv_tokens=16 * 71)
    made = serve(five, pools, tiers=Tiering(KV_BYTES, host=tier()), hardware=little)
    assert made.gpu.tolist() == [0, 1, 0, 1, 0]
    assert made.ttft_s * 1e3 == pytest.approx([200.9, 40, 200.9, 5.76 + 0.1, 17.6 + 0.8 + 100.8 + 0.1])
    assert made.hit_tokens.tolist() == [0, 0, 0, 112, 112]
    assert made.host_tokens.tolist() == [0, 0, 0, 288, 880]
    assert made.gpu_host_tokens.tolist() == [880, 288]
    assert made.transferred_tokens.tolist() == [1008, 0, 1008, 0, 1008]
    assert made.prefilled_tokens.tolist() == [1000, 400, 1000, 0, 8]
    none = serve(five, pools, hardware=little)
    assert none.ttft_s * 1e3 == pytest.approx([200.9, 40, 200.9, 28.8, 88.8 + 100.8 + 0.1])


@pytest.mark.uncompiled
def test_host_memory_on_both_sides_and_one_store_for_all() -> None:
    """70 blocks a GPU; from the store a token takes 0.04 ms. GPU 0 computes X, of 1,000 tokens, and GPU 1 the 400 that
    U begins with; W pushes all of that out. The 400 that X begins with come from GPU 1's host, since X was sent there,
    in 8 ms. GPU 0 gets the 400 of U from the store, where GPU 1 has put them, in 16 ms, and computes 600. X comes from
    GPU 0's host, 62 blocks in 19.84 ms; GPU 1 has 7 blocks of it that U left there, and is sent 56."""
    x, u, w = [(10, 400), (11, 600)], [(20, 400), (21, 600)], own(30, 1000)
    six = stream([x, u[:1], w, x[:1], u, x], [0.0, 0.3, 0.4, 0.7, 0.8, 1.1], [1] * 6)
    pools, little = split(decider=UNCACHED, least_tokens=500), replace(MS, kv_tokens=16 * 71)
    store = replace(tier(), load_rate=2.5e7)
    made = serve(six, pools, tiers=Tiering(KV_BYTES, host=tier(), shared=store), hardware=little)
    assert made.gpu.tolist() == [0, 1, 0, 1, 0, 0]
    whole, last = 100 + 100.8 + 0.1, 19.84 + 0.8 + 89.6 + 0.1
    assert made.ttft_s * 1e3 == pytest.approx([whole, 40, whole, 8 + 0.1, 16 + 60 + 100.8 + 0.1, last])
    assert made.host_tokens.tolist() == [0, 0, 0, 400, 0, 992]
    assert made.shared_tokens.tolist() == [0, 0, 0, 0, 400, 0]
    assert made.transferred_tokens.tolist() == [1008, 0, 1008, 0, 1008, 896]
    hosts = serve(six, pools, tiers=Tiering(KV_BYTES, host=tier()), hardware=little)
    assert hosts.ttft_s * 1e3 == pytest.approx([whole, 40, whole, 8 + 0.1, whole, last])
    alone = serve(six, pools, tiers=Tiering(KV_BYTES, shared=store), hardware=little)
    stored = 39.68 + 0.8 + 89.6 + 0.1
    assert alone.ttft_s * 1e3 == pytest.approx([whole, 40, whole, 16 + 0.1, 16 + 60 + 100.8 + 0.1, stored])


def test_a_gpu_for_prompts_is_lost_while_its_kv_is_read() -> None:
    """At 150 ms, when the store for all has the prompt since 119.84: the other GPU for prompts loads 62 blocks in 19.84
    ms, and computes 8 tokens; then all of it is read anew."""
    one, faults = stream([own(0, 1000)], [0.0], [1]), Timeline(detect_ms=0.0, happen=(Event(0.15, 0, "down"),))
    made = serve(one, split(), (2, 1), tiers=Tiering(KV_BYTES, shared=tier()), faults=faults)
    assert made.gpu.tolist() == [1]
    assert made.ttft_s * 1e3 == pytest.approx([150 + 19.84 + 0.8 + 100.8 + 0.1])
    assert made.shared_tokens.tolist() == [992]
    assert made.losses.tolist() == [1]
    none = serve(one, split(), (2, 1), faults=faults)
    assert none.ttft_s * 1e3 == pytest.approx([150 + 100 + 100.8 + 0.1])


def test_gpus_for_prompts_lend_each_other_what_they_have() -> None:
    """The second is computed at GPU 1 of what GPU 0 lends: 62 blocks at 0.1 ms a token, and 8 tokens. GPU 3, to which
    it goes, has nothing."""
    two = stream([own(0, 1000)] * 2, [0.0, 0.3], [1, 1])
    peers = replace(tier(0), load_rate=1e7, store_rate=1e7)
    pools = split(decode_policy=RoundRobin())
    made = serve(two, pools, (2, 2), tiers=Tiering(KV_BYTES, peers=peers), policy=RoundRobin())
    assert made.gpu.tolist() == [0, 1]
    assert made.decode_gpu.tolist() == [2, 3]
    assert made.peer_tokens.tolist() == [0, 992]
    assert made.ttft_s * 1e3 == pytest.approx([200.9, 99.2 + 0.8 + 100.8 + 0.1])


@pytest.mark.uncompiled
def test_what_was_shown_is_stored_behind_the_prompt_where_both_are_computed_anew() -> None:
    """GPU 1 is lost at 300.05 ms, when 993 tokens of the answer have been shown. GPU 0 has 992 of the prompt's 1,000,
    and computes the other 1,001 in 100.1 ms: of 1,993 tokens its host has 124 blocks, where the prompt has 62. They
    are sent in 200 ms, and 1,006 tokens follow: GPU 2's host has the blocks of 2,999 tokens."""
    one, faults = stream([own(0, 1000)], [0.0], [2000]), Timeline(detect_ms=0, on_loss="resume", happen=(DOWN,))
    tiers, copies = Tiering(KV_BYTES, tier(500), prompts_only=False), list[Any]()
    more = {"faults": faults, "policy": RoundRobin(), "on_event": lambda world: copies.append(world.tiers.places.used)}
    made = serve(one, split(protocol=PUSH_AT_END), (1, 2), tiers=tiers, **more)
    assert made.prefill_end_s * 1e3 == pytest.approx([300.05 + 100.1])
    assert made.finish_s * 1e3 == pytest.approx([300.05 + 100.1 + 200 + 100.6])
    assert copies[-1].tolist() == [124, 0, 187, 0, 0, 0, 0]


# ---------------------------------------------------------------- where it went
def test_who_is_lost_where_its_prompt_was_computed_was_there() -> None:
    """It has never had another GPU; the column said -1."""
    one, faults = stream([own(0, 1000)], [0.0], [9]), Timeline(on_loss="fail", happen=(Event(0.05, 1, "down"),))
    made = serve(one, split(decider=NEVER), faults=faults)
    assert made.state.tolist() == [State.LOST]
    assert made.gpu.tolist() == made.decode_gpu.tolist() == [1]


# ---------------------------------------------------------------- a gateway
def test_a_gateway_counts_who_was_lost_as_in_flight_no_more() -> None:
    """One may be at the GPU for prompts. The first is lost at GPU 1 while it is read at 150 ms, and its attempt has
    failed: it waits behind the second, which is computed from 100 to 200 ms, and then lacks 8 tokens of its own."""
    two = stream([own(0, 1000), own(1, 1000)], [0.0, 0.0], [9, 9])
    faults = Timeline(detect_ms=0.0, happen=(Event(0.15, 1, "down"),))
    for protocol in (PULL, PUSH_AT_END):
        made = serve(two, split(protocol=protocol), (1, 2), faults=faults, gateway=Gateway(max_in_flight=1))
        assert made.prefill_end_s * 1e3 == pytest.approx([200.8, 200])
        assert made.losses.tolist() == [1, 0]
        assert made.decode_gpu.tolist() == [2, 2]
        assert made.state.tolist() == [State.FINISHED] * 2


@pytest.mark.uncompiled
@pytest.mark.parametrize("pools", [{}, {"decider": UNCACHED, "least_tokens": 1}])
def test_who_is_given_back_with_a_computed_prompt_has_passed_the_gateway(pools: dict[str, Any]) -> None:
    """The third prompt is computed at 1,300 ms, and its request waits behind the second at GPU 1. That gives it back at
    1,350 ms, and GPU 2 reads it by 1,450.8; where there is no GPU 2, it gives up at 1,410 ms."""
    three = stream([own(2, 10), own(0, 1000), own(1, 1000)], [0.0, 1.0, 1.2], [1, 3000, 9])
    faults = Timeline(detect_ms=0.0, drain="requeue", happen=(Event(1.35, 1, "drain"),))
    pools |= {"decode_policy": Lopsided()}
    more: dict[str, Any] = {"faults": faults, "gateway": Gateway(), "engine": ONE_AT_A_TIME}
    made = serve(three, split(**pools), (1, 2), **more)
    assert made.decode_gpu.tolist()[1:] == [1, 2]
    assert made.ttft_s[1:] * 1e3 == pytest.approx([200.9, 250.9])
    made = serve(replace(three, patience_s=[np.nan, np.nan, 0.21]), split(**pools), (1, 1), **more)
    assert made.state.tolist()[1:] == [State.FINISHED, State.CANCELLED]


# ---------------------------------------------------------------- what cannot be
def test_rules_by_role_that_cannot_be() -> None:
    rules = ByRole(decode=HPA(), prefill=HPA(least=2))
    assert (rules.of_role("decode"), rules.of_role("both")) == (HPA(), None)
    with pytest.raises(InvalidInput, match=r"interval_s=2\.0, 15\.0 is not valid; it must be the same for all roles"):
        ByRole(decode=HPA(), prefill=HPA(interval_s=2.0))
    with pytest.raises(InvalidInput, match="by_role is not valid, since GPUs have no roles; take autoscaler=hpa"):
        rules.check(4)
    with pytest.raises(InvalidInput, match="wants 2 replicas for prefill at the beginning, and there can be 1"):
        rules.check(1, "prefill")
