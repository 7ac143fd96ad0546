"""What requests pass before the router: by hand, by laws and against the oracle."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from prebleexp.engines.vllm.engine import VLLM
from prebleexp.errors import InvalidInput
from prebleexp.experiment.key import key
from prebleexp.faults.base import Event
from prebleexp.faults.timeline import Timeline
from prebleexp.gateway import retries as retries_module
from prebleexp.gateway.base import ORDERS, Gateway
from prebleexp.launch.configure import cells
from prebleexp.lengths.known import Max
from prebleexp.overhead.model import Overhead
from prebleexp.policies.base import REFUSE, Policy
from prebleexp.policies.lor import LeastOutstanding
from prebleexp.sim.handles import Block
from prebleexp.sim.links import FAIR
from prebleexp.sim.pools import DECODE, PREFILL, Disaggregation
from prebleexp.sim.records import View
from prebleexp.sim.simulate import simulate
from prebleexp.sim.types import Outcome, Setup, State, Workload
from prebleexp.sim.world import EXAMPLE
from tests.support.by_hand.streams import own, stream
from tests.support.costs.linear_cost import LinearCost
from tests.support.oracle import gateway as oracle_gateway
from tests.support.outcomes import assert_alike, assert_of_oracle
from tests.support.policies.watcher import KEPT
from tests.support.sampled import examples
from tests.support.strategies import conversations
from tests.support.strategies.clusters import gated
from tests.support.strategies.gateways import of_clients

STREAMS = of_clients(conversations.STREAMS)


# ---------------------------------------------------------------- against the oracle


def agree(workload: Workload, cluster: dict[str, Any]) -> Outcome:
    KEPT.clear()
    made = simulate(workload, lengths=Max(), **cluster)
    heard = [one.rows[: one.used[0]] for one in KEPT]
    KEPT.clear()
    expected = oracle_gateway.simulate(workload, **cluster)
    for ours, theirs in zip(heard, [one.rows[: one.used[0]] for one in KEPT], strict=True):
        np.testing.assert_array_equal(ours, theirs, err_msg="what the policy heard", strict=True)
    assert_of_oracle(made, expected)
    return made


@pytest.mark.slow
@settings(max_examples=examples(150, found=True), deadline=None)
@given(STREAMS, gated())
def test_the_core_gives_the_bytes_of_the_oracle(workload: Workload, cluster: dict[str, Any]) -> None:
    agree(workload, cluster)


# ---------------------------------------------------------------- laws
@pytest.mark.slow
@settings(max_examples=examples(20, found=True), deadline=None)
@given(STREAMS, gated())
def test_what_does_nothing_changes_nothing(workload: Workload, cluster: dict[str, Any]) -> None:
    """Of one client, or with equal promises and priorities, all orders but that of prefixes are first come, first
    served: that of the router without a gateway, unless it takes its time for a decision."""
    alike = replace(workload, client=None, priority=None, slo_ttft_s=None, prefix_group=np.full(len(workload), -1))
    cluster |= {"overhead": Overhead()}
    plain = simulate(alike, lengths=Max(), **cluster | {"gateway": None})
    for order in sorted({*ORDERS} - {"dlpm"}):
        assert_alike(simulate(alike, lengths=Max(), **cluster | {"gateway": Gateway(order)}), plain)
    KEPT.clear()


@pytest.mark.thorough
@settings(max_examples=examples(60, found=True), deadline=None)
@given(STREAMS, gated())
def test_limits_are_kept(workload: Workload, cluster: dict[str, Any]) -> None:
    gateway: Gateway = cluster["gateway"]
    present, outstanding = [], []

    def look(world: Any) -> None:
        present.append(int(world.control.present))
        outstanding.append(int(world.seen.sent.outstanding.max()))

    made = simulate(workload, lengths=Max(), **cluster, on_event=look)
    assert gateway.limit is None or gateway.retries > 0 or max(present) <= gateway.limit
    assert gateway.max_in_flight is None or max(outstanding) <= gateway.max_in_flight
    assert ((made.refused_by > 0) <= (made.state == State.REFUSED)).all()
    there = (gateway.limit, gateway.queue_limit, gateway.bucket_tokens, gateway.shed or None, gateway.slo_ttft_s)
    for by, one in enumerate(there, 1):
        assert one is not None or not (made.refused_by == by).any()
    expired = made.state == State.EXPIRED
    assert not expired.any() or gateway.ttl_queue_s is not None
    assert (made.gpu[expired] == -1).all()


# ---------------------------------------------------------------- by hand: a token takes 1 ms, one request at a time
ONE = VLLM(max_num_seqs=1, async_scheduling=False, host_s=0.0, enable_prefix_caching=False)
TOKEN = LinearCost(step_s=0.0, token_s=2.0**-10, context_token_s=0.0, kv_tokens=16 * 1001, gpu_memory_gib=48)
ALONE = {"hardware": TOKEN, "engine": ONE, "gpus": 1}


def serve(workload: Workload, gateway: Gateway, **given: Any) -> Outcome:
    usual: dict[str, Any] = {"policy": LeastOutstanding(), "overhead": Overhead(), "lengths": Max(), "seed": 0}
    usual |= {"duration_s": 99.0, "horizon": "drain"} | ALONE
    return simulate(workload, gateway=gateway, **usual | given)


def sent(made: Outcome) -> list[int]:
    """Requests in the order in which they had their first tokens."""
    first_s = made.due_s + made.ttft_s
    served = np.flatnonzero(np.isfinite(first_s))
    return served[np.argsort(first_s[served], kind="stable")].tolist()


def of(sizes: list[tuple[int, int]], client: list[int], arrivals: list[float] | None = None) -> Workload:
    """Requests of so many prompt and answer tokens."""
    workload = stream([own(i, one[0]) for i, one in enumerate(sizes)], arrivals or [0.0] * len(sizes),
                      [one[1] for one in sizes])  # fmt: skip
    return replace(workload, client=np.array(client))


A, B = (100, 100), (50, 25)
"""with weights of 1 and 2: 300 and 100 tokens"""


def behind_another(sizes: list[tuple[int, int]], client: list[int], arrivals: list[float] | None = None) -> Workload:
    """The same, while one token of a client of its own is served: so the first of them are chosen from all."""
    came = [0.0, *(arrivals or [TOKEN.token_s / 2] * len(sizes))]
    return of([(1, 1), *sizes], [9, *client], came)


def test_clients_share_by_tokens() -> None:
    """A and B always have somebody waiting; ties go to A, which is client 0."""
    workload = behind_another([A] * 4 + [B] * 12, [0] * 4 + [1] * 12)
    made = serve(workload, Gateway("vtc", max_in_flight=1))
    assert "".join("AB"[int(workload.client[i])] for i in sent(made)[1:]) == "ABBB" * 4


@pytest.mark.parametrize(("cached_weight", "order"), [(None, "ABABABAB"), (0.0, "ABABAAAA"), (0.5, "ABABABAA")])
def test_what_is_found_in_a_cache_may_count_less(cached_weight: float | None, order: str) -> None:
    """Prompts of 97 tokens: A's are all the same, of which 96 are found from the second on, B's are all others. At 0 A
    pays 97 for the first, then 1 each: 97 97, 98 194, 99, 100 … At a half it pays 49: 97 97, 146 194, 195 291, 244."""
    prompts = [own(99, 1), *[own(0, 97)] * 8, *[own(1 + i, 97) for i in range(8)]]
    workload = stream(prompts, [0.0] + [TOKEN.token_s / 2] * 16, [1] * 17)
    workload = replace(workload, client=np.array([9] + [0] * 8 + [1] * 8))
    gateway = Gateway("vtc", max_in_flight=1, cached_weight=cached_weight, output_weight=0.0)
    made = serve(workload, gateway, engine=replace(ONE, enable_prefix_caching=True))
    assert "".join("AB"[int(workload.client[i])] for i in sent(made)[1:9]) == order


def test_who_was_absent_begins_where_the_least_is() -> None:
    """C comes when A was given 900 and B 1,000, and begins at 900: so it is behind A, by a tie, and before B."""
    sizes, client = [(900, 1)] * 2 + [(1000, 1)] * 2 + [(900, 1)], [0, 0, 1, 1, 2]
    arrivals = [TOKEN.token_s / 2] * 4 + [1000 * TOKEN.token_s]
    workload = behind_another(sizes, client, arrivals)
    made = serve(workload, Gateway("vtc", output_weight=0.0, max_in_flight=1))
    assert "".join("ABC"[int(workload.client[i])] for i in sent(made)[1:]) == "ABACB"


def test_nobody_saves_up_where_nobody_waits() -> None:
    """Client 0 is served four times before client 1 comes for the first time, when nobody waits: it begins where client
    0 is, and does not get all that comes after."""
    sizes, client = [A] * 4 + [A] * 6, [0] * 4 + [1, 1, 1, 0, 0, 0]
    arrivals = [0.0, 0.3, 0.6, 0.9] + [1.0] * 6
    made = serve(of(sizes, client, arrivals), Gateway("vtc", max_in_flight=1))
    assert [client[i] for i in sent(made)][4:] == [1, 0, 1, 0, 1, 0]


@pytest.mark.parametrize(
    ("quantum", "order"),
    [(1.0, "BBABBBABBBABBBAB"), (100.0, "BBABBBABBBABBBAB"), (300.0, "ABBB" * 4), (700.0, "AABBBBBBBAABBBBB")],
)
def test_clients_take_turns_for_as_many_tokens(quantum: float, order: str) -> None:
    """A's cost 300, B's 100. With 100 a turn A may send at each third; with 700 it sends two, has 100 left over, and B
    sends seven."""
    workload = behind_another([A] * 4 + [B] * 12, [0] * 4 + [1] * 12)
    made = serve(workload, Gateway("drr", quantum=quantum, max_in_flight=1))
    assert "".join("AB"[int(workload.client[i])] for i in sent(made)[1:]) == order


def test_who_has_credit_left_is_asked_for_the_longest_prefix() -> None:
    """A's prompts have 96 tokens in common, B's 48, and 16 of their own, which is all they pay from the second on. With
    40 a quantum: A pays 112 and B 64; A has 8, B 40 when both have a second quantum behind their debts, so that A is
    next, then B until it has spent all, and so on, A before B whenever both have credit."""
    prompts = [own(99, 1)]
    prompts += [[(0, 96), (100 + i, 16)] for i in range(8)] + [[(1, 48), (200 + i, 16)] for i in range(16)]
    workload = stream(prompts, [0.0] + [TOKEN.token_s / 2] * 24, [1] * 25)
    workload = replace(workload, client=np.array([9] + [0] * 8 + [1] * 16))
    gateway = Gateway("dlpm", max_in_flight=1, quantum=40.0, output_weight=0.0)
    made = serve(workload, gateway, engine=replace(ONE, enable_prefix_caching=True))
    assert "".join("AB"[int(workload.client[i])] for i in sent(made)[1:17]) == "ABBABBBAABBAAABB"


def test_who_has_nobody_waiting_loses_what_it_left_over() -> None:
    """Client 0 sends 10 of 300 and has nobody waiting: of 301 it cannot send at its next turn at once."""
    sizes, client = [(10, 0), (150, 0), (150, 0), (301, 0)], [0, 1, 1, 0]
    arrivals = [TOKEN.token_s / 2] * 3 + [12 * TOKEN.token_s]
    workload = behind_another([(p, 1) for p, _ in sizes], client, arrivals)
    made = serve(workload, Gateway("drr", output_weight=0.0, quantum=300.0, max_in_flight=1))
    assert sent(made) == [0, 1, 2, 3, 4]


def test_clients_take_turns() -> None:
    sizes, client = [(10, 1)] * 7, [0, 0, 0, 0, 1, 2, 2]
    made = serve(of(sizes, client), Gateway("round_robin", max_in_flight=1))
    assert [client[i] for i in sent(made)] == [0, 1, 2, 0, 2, 0, 0]


def test_who_was_promised_most_is_first() -> None:
    """Deadlines are 5, none, 1.5, 1.25 and 3 s; the first is on the GPU already."""
    workload = of([(1000, 1)] * 5, [0] * 5, [0.0, 0.125, 0.25, 0.5, 0.75])
    slo = np.array([5.0, np.nan, 1.25, 0.75, 2.25], np.float64)
    made = serve(replace(workload, slo_ttft_s=slo), Gateway("edf", max_in_flight=1))
    assert sent(made) == [0, 3, 2, 4, 1]


def test_lowest_priorities_are_first() -> None:
    workload = of([(1000, 1)] * 5, [0] * 5, [0.0, 0.125, 0.25, 0.5, 0.75])
    made = serve(replace(workload, priority=np.array([9, 1, 0, 1, -3])), Gateway("priority", max_in_flight=1))
    assert sent(made) == [0, 4, 2, 1, 3]


def test_who_finds_the_queue_full_is_refused_and_who_waits_too_long_expires() -> None:
    """A request takes a second. The second waits until 1, the third and the fourth too long, the fifth comes too soon
    for one of the two places."""
    workload = of([(1024, 1)] * 6, [0] * 6, [0.0, 0.25, 0.5, 0.625, 1.75, 1.875])
    made = serve(workload, Gateway(max_in_flight=1, queue_limit=2, ttl_queue_s=1.25))
    assert made.state.tolist() == [3, 3, 10, 4, 3, 3]
    assert made.refused_by.tolist() == [0, 0, 0, 2, 0, 0]
    assert made.end_s == 4.0


def test_a_request_is_in_the_system_until_its_end() -> None:
    workload = of([(1024, 1)] * 4, [0] * 4, [0.0, 0.5, 0.75, 1.0])
    made = serve(workload, Gateway(limit=2))
    assert made.refused_by.tolist() == [0, 0, 1, 0]


def test_a_bucket_lets_in_what_it_has_tokens_for() -> None:
    """Of 1,000 tokens 900 are taken. 1/8 s later there are 300, of which 200 are taken; another 1/8 s later there are
    300 again, too few for 301."""
    workload = of([(900, 1), (200, 1), (301, 1), (300, 1)], [0] * 4, [0.0, 0.125, 0.25, 0.25])
    made = serve(workload, Gateway(bucket_tokens=1000, refill_tokens_s=1600.0))
    assert made.refused_by.tolist() == [0, 0, 3, 0]


def test_a_bucket_holds_no_more_than_it_holds() -> None:
    workload = of([(100, 1), (1000, 1), (1, 1)], [0] * 3, [0.0, 9.0, 9.0])
    made = serve(workload, Gateway(bucket_tokens=1000, refill_tokens_s=1000.0))
    assert made.refused_by.tolist() == [0, 0, 3]


def test_what_may_be_shed_is_refused_while_gpus_are_full() -> None:
    """A second each, one at a time, two GPUs: of two that wait on one and none on the other max(2 / 2, …) and 0 have a
    mean of a half; of two on either, 1. Only a priority above 0 is refused."""
    workload = of([(1024, 1)] * 7, [0] * 7, [0.0, 0.0, 0.125, 0.125, 0.25, 0.25, 0.5])
    gateway = Gateway(shed=True, saturated_queue=1.0, saturated_kv=99.0)
    priority = np.array([1, 1, 1, 1, 1, 0, 1])
    made = serve(replace(workload, priority=priority), gateway, gpus=2)
    assert made.refused_by.tolist() == [0, 0, 0, 0, 4, 0, 4]


def test_who_is_predicted_to_wait_too_long_is_refused() -> None:
    """1,024 tokens take a second. The second is predicted 1 s behind the first, which waits: 2 s. If it is refused, the
    third finds nothing that waits; if not, it is 2 s for that one too, and 2 + 1/8 s for the short one behind it."""
    workload = of([(1024, 1)] * 3 + [(128, 1)], [0] * 4, [0.0, 0.0, 0.25, 0.25])
    assert serve(workload, Gateway(slo_ttft_s=1.5)).refused_by.tolist() == [0, 5, 0, 0]
    for most in (None, 1):  # what waits here counts as what waits there
        assert serve(workload, Gateway(slo_ttft_s=2.0, max_in_flight=most)).refused_by.tolist() == [0, 0, 0, 5]


BACKLOGGED = st.lists(st.tuples(st.integers(1, 60), st.integers(1, 60)), min_size=4, max_size=20)


@settings(max_examples=examples(60, found=True), deadline=None)
@given(BACKLOGGED, BACKLOGGED, st.integers(1, 4), st.sampled_from([(1.0, 2.0), (1.0, 0.0), (0.5, 3.0)]))
def test_service_of_two_who_wait_differs_by_no_more_than_the_bound(
    f: list[tuple[int, int]], g: list[tuple[int, int]], batch: int, weights: tuple[float, float]
) -> None:
    """VTC, theorem 4.4: abs(W_f - W_g) <= 2 max(w_p L_max, w_q M), where M is what a batch holds, in any time in which
    both have somebody waiting."""
    workload, (w_p, w_q) = of(f + g, [0] * len(f) + [1] * len(g)), weights
    gateway, ahead, sent_before = Gateway("vtc", input_weight=w_p, output_weight=w_q, max_in_flight=batch), [], [0]
    first = len(f)

    def look(world: Any) -> None:
        """When somebody was sent, so that what was made of answers has been counted."""
        is_sent = world.seen.requests.gpu >= 0
        if is_sent.all() or is_sent.sum() == sent_before[0] or world.control.arrived < len(workload):
            return
        sent_before[0] = is_sent.sum()
        given = np.where(is_sent, w_p * workload.prompt_tokens + w_q * world.jobs.output_seen, 0.0)
        if not is_sent[:first].all() and not is_sent[first:].all():
            ahead.append(given[:first].sum() - given[first:].sum())

    serve(workload, gateway, engine=replace(ONE, max_num_seqs=batch), on_event=look)
    longest, most = max(one[0] for one in f + g), batch * max(sum(one) for one in f + g)
    assert not ahead or max(ahead) - min(ahead) <= 2 * max(w_p * longest, w_q * most)


@settings(max_examples=examples(60, found=True), deadline=None)
@given(BACKLOGGED, BACKLOGGED, st.sampled_from([20.0, 100.0, 1000.0]))
def test_turns_of_two_who_wait_differ_by_no_more_than_the_bound(
    f: list[tuple[int, int]], g: list[tuple[int, int]], quantum: float
) -> None:
    """Deficit round robin, lemma 2: in any time in which both have somebody waiting, what they were given differs by no
    more than twice the dearest request and a quantum."""
    workload, first = of(f + g, [0] * len(f) + [1] * len(g)), len(f)
    order = sent(serve(workload, Gateway("drr", quantum=quantum, max_in_flight=1)))
    cost, ahead = workload.prompt_tokens + 2.0 * workload.max_new_tokens, [0.0]
    for n, i in enumerate(order[1:], 1):  # the first was sent before the others came
        ahead.append(ahead[-1] + (cost[i] if i < first else -cost[i]))
        if len({j < first for j in order[n + 1 :]}) < 2:
            break
    assert max(ahead) - min(ahead) <= 2 * cost.max() + quantum


@settings(max_examples=examples(60, found=True), deadline=None)
@given(BACKLOGGED, BACKLOGGED, st.sampled_from([20.0, 100.0, 1000.0]))
def test_quanta_of_two_who_wait_differ_by_no_more_than_the_bound(
    f: list[tuple[int, int]], g: list[tuple[int, int]], quantum: float
) -> None:
    """DLPM: between two whose credit is at most a quantum, and whose debt is at most the dearest request, what they
    were given while both waited differs by no more than twice both."""
    workload, first = of(f + g, [0] * len(f) + [1] * len(g)), len(f)
    order = sent(serve(workload, Gateway("dlpm", quantum=quantum, max_in_flight=1)))
    cost, ahead = workload.prompt_tokens + 2.0 * workload.max_new_tokens, [0.0]
    for n, i in enumerate(order[1:], 1):  # the first was sent before the others came
        ahead.append(ahead[-1] + (cost[i] if i < first else -cost[i]))
        if len({j < first for j in order[n + 1 :]}) < 2:
            break
    assert max(ahead) - min(ahead) <= 2 * (cost.max() + quantum)


# ---------------------------------------------------------------- configuration
def test_what_changes_nothing_is_no_part_of_the_key() -> None:
    (plain,), (weighed,), (limited,) = cells([]), cells(["gateway.output_weight=3"]), cells(["gateway.limit=9"])
    assert key(weighed) == key(plain) != key(limited)
    assert key(cells(["gateway.order=edf"])[0]) != key(plain)


@pytest.mark.parametrize(
    ("override", "said"),
    [
        ("gateway.order=lifo", "gateway.order=lifo is not valid; it must be one of fcfs, edf, priority,"),
        ("gateway.client=me", "gateway.client=me is not valid; it must be one of client, session, prefix_group"),
        ("gateway.quantum=0", "gateway.quantum=0 is not valid; it must be a number >= 1"),
        ("gateway.limit=0", "gateway.limit=0 is not valid; it must be an integer >= 1, or null: no limit"),
        ("gateway.queue_limit=1.5", "gateway.queue_limit=1.5 is not valid"),
        ("gateway.max_in_flight=-1", "gateway.max_in_flight=-1 is not valid"),
        ("gateway.ttl_queue_s=0", "gateway.ttl_queue_s=0 is not valid; it must be a number of seconds > 0"),
        ("gateway.bucket_tokens=0", "gateway.bucket_tokens=0 is not valid; it must be an integer >= 1, or null:"),
        ("gateway.refill_tokens_s=0", "gateway.refill_tokens_s=0 is not valid; it must be a number > 0"),
        ("gateway.shed=1", "gateway.shed=1 is not valid; it must be true or false"),
        ("gateway.slo_ttft_s=-1", "gateway.slo_ttft_s=-1 is not valid; it must be a number of seconds > 0, or null"),
        ("gateway.retries=-1", "gateway.retries=-1 is not valid; it must be an integer from 0 to 100"),
        ("gateway.retry_max_s=0", "gateway.retry_max_s=0 is not valid; it must be a number > 0"),
        ("gateway.retry_budget=all", "gateway.retry_budget=all is not valid; it must be one of none, ratio"),
        ("gateway.budget_ratio=-1", "gateway.budget_ratio=-1 is not valid; it must be a number >= 0"),
        ("gateway.input_weight=-1", "gateway.input_weight=-1 is not valid; it must be a number >= 0"),
        ("gateway.cached_weight=-1", "gateway.cached_weight=-1 is not valid; it must be a number >= 0, or null"),
        ("gateway.size=3", "unknown key 'gateway.size'"),
    ],
)  # fmt: skip
def test_what_a_gateway_cannot_be_is_said_in_a_line(override: str, said: str) -> None:
    with pytest.raises(InvalidInput) as error:
        cells([override])
    assert said in str(error.value)
    assert "\n" not in str(error.value)


def test_engines_with_loops_of_their_own_have_none() -> None:
    with pytest.raises(InvalidInput, match="engine=released takes no gateway; take another engine, or gateway=open"):
        cells(["engine=released", "hardware=a6000_mistral_7b", "gateway.limit=3"])


@pytest.mark.slow
def test_admission_is_by_gpus_for_prompts() -> None:
    """One GPU for prompts, one for outputs, 1,024 tokens a second: the second is predicted 2 s behind the first, which
    waits; GPUs for outputs, of which none computes prompts, and on which nothing waits, do not count."""
    pools = Disaggregation((PREFILL, DECODE), LeastOutstanding(), 1000.0, FAIR, 1e9, 0.0)
    workload, gateway = of([(1024, 1)] * 3, [0] * 3, [0.0, 0.0, 1.5]), Gateway(slo_ttft_s=1.5)
    kinds = [(1, TOKEN), (1, TOKEN)]
    assert serve(workload, gateway, gpus=2, pools=pools, kinds=kinds).refused_by.tolist() == [0, 5, 0]


# ---------------------------------------------------------------- retries
@dataclass(frozen=True)
class Fails(Policy):
    """Refuses each attempt with a probability."""

    p: float = 0.5

    compiled: ClassVar[bool] = False

    def start(self, setup: Setup) -> Any:
        return np.random.default_rng(1)

    def route(self, mine: Any, view: View, request: int, now: float) -> int:
        return REFUSE if mine.random() < self.p else 0


MANY = 20_000


def failing(p: float, **given: Any) -> Outcome:
    """Requests a hundredth of a second apart, none of which takes long."""
    workload = of([(1, 1)] * MANY, [0] * MANY, (np.arange(MANY) / 100).tolist())
    fast = replace(TOKEN, token_s=1e-6)
    return serve(workload, Gateway(retry_initial_s=0.01, **given), policy=Fails(p), hardware=fast)


@pytest.mark.slow
@pytest.mark.parametrize(("p", "load", "lost"), [(0.5, 1.875, 0.0625), (0.9, 3.439, 0.6561)])
def test_retries_add_to_the_load(p: float, load: float, lost: float) -> None:
    """(1 - p^(R + 1)) / (1 - p) attempts of each, p^(R + 1) lost: 99 % intervals."""
    made = failing(p, retries=3)
    for found, expected in ((1 + made.retries, load), (made.state == State.REFUSED, lost)):
        assert abs(found.mean() - expected) < 2.58 * found.std() / np.sqrt(MANY)


@pytest.mark.slow
def test_a_budget_bounds_what_they_add() -> None:
    """A fifth of the requests of the last 10 s."""
    made = failing(0.9, retries=3, retry_budget="window", budget_least=0.0)
    assert 1.15 < (1 + made.retries).mean() <= 1.2
    few = failing(0.9, retries=3, retry_budget="window", budget_ratio=0.0, budget_least=2.0)
    assert few.retries.sum() == pytest.approx(2.0 * MANY / 100, rel=0.06), "two a second"


@pytest.mark.parametrize(("active", "allowed"), [(40, 8), (10, 3)])
def test_no_more_retries_are_under_way_than_a_share_of_the_requests(active: int, allowed: int) -> None:
    """Envoy: 40 in the system, 8 at once; of 10 not 2 but 3. All others are refused for good."""
    workload = of([(1024, 1)] * (active + 20), [0] * (active + 20), [0.0] * active + [0.125] * 20)
    gateway = Gateway(limit=active, retries=1, retry_initial_s=0.0625, retry_budget="ratio")
    made = serve(workload, gateway)
    assert made.retries[active:].tolist() == [1] * allowed + [0] * (20 - allowed)
    arrivals = [*[0.0] * active, *(np.arange(1, 21) / 32).tolist()]
    apart = serve(replace(workload, arrival_s=np.array(arrivals)), gateway)
    assert apart.retries[active:].all(), "each has failed again when the next one comes"


def test_a_bucket_of_retries_is_filled_by_successes() -> None:
    """gRPC, of 10 at most: each failure takes 1, and its retry needs more than 5 then: of five in a row the last has
    none. Ten successes bring 1."""
    times = [0.0] * 5 + [1.0 + i / 10 for i in range(20)] + [9.0] * 2
    workload = of([(1, 1)] * 27, [0] * 27, times)
    policy = Chosen((*range(5), 25, 26))
    gateway = Gateway(retries=1, retry_budget="tokens", budget_ratio=0.1, retry_initial_s=1e-3)
    made = serve(workload, gateway, policy=policy)
    assert made.retries.tolist() == [1, 1, 1, 1, 0] + [0] * 20 + [1, 1]


@dataclass(frozen=True)
class Chosen(Policy):
    """Refuses the first attempt of some requests."""

    some: tuple[int, ...] = ()

    compiled: ClassVar[bool] = False

    def start(self, setup: Setup) -> Any:
        return set()

    def route(self, mine: Any, view: View, request: int, now: float) -> int:
        refused = request in self.some and request not in mine
        mine.add(request)
        return REFUSE if refused else 0


@pytest.mark.parametrize(("level", "may"), [(5.0, False), (5.1, True)])
def test_more_than_half_of_the_tokens_must_be_left(level: float, may: bool) -> None:
    workload = of([(1, 1)], [0])
    gateway = Gateway(retries=1, retry_budget="tokens", budget_ratio=0.1)
    books = gateway.start(Setup(1, 0, 1, 100, 100, workload))
    books.control.tokens = level
    assert retries_module.lasts(Block(books).handle, EXAMPLE.handle, 0.0) == may


def test_the_clock_of_a_promise_goes_on_over_attempts() -> None:
    """Refused at 0.5 since one is in the system until 1, it comes again within 2 s, as drawn."""
    workload = of([(1024, 1)] * 2, [0] * 2, [0.0, 0.5])
    gateway = Gateway(limit=1, retries=9, retry_initial_s=2.0, retry_max_s=2.0, retry_multiplier=1.0)
    made = serve(workload, gateway)
    waits = 2.0 * np.random.default_rng([0, 2]).random((2, 9))[1]
    came = 0.5 + np.cumsum(waits)
    k = int(np.flatnonzero(came >= 1.0)[0])
    assert made.retries.tolist() == [0, k + 1]
    assert made.ttft_s[1] == pytest.approx(came[k] + 1.0 - 0.5)
    assert made.due_s[1] == 0.5


def test_who_expired_or_was_lost_comes_again() -> None:
    """The second expires at 0.25 twice; the first is lost with its GPU at 0.5, and again without a retry left."""
    workload = of([(1024, 1)] * 2, [0] * 2, [0.0, 0.0])
    gateway = Gateway(max_in_flight=1, ttl_queue_s=0.25, retries=1, retry_initial_s=1e-3)
    events = ((0.5, 0, "down"), (0.5625, 0, "up"), (1.0, 0, "down"), (1.0625, 0, "up"))
    faults = Timeline(0.0, "retry", tuple(Event(*one) for one in events))
    made = serve(workload, gateway, faults=faults)
    assert made.losses.tolist() == [2, 0]
    assert made.retries.tolist() == [1, 1]
    assert made.state.tolist() == [State.LOST, State.EXPIRED]
