"""Several routers side by side: by hand, by laws and against the oracle."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from prebleexp.engines.vllm.engine import VLLM
from prebleexp.errors import InvalidInput, PrebleexpError
from prebleexp.gateway.base import Gateway
from prebleexp.launch.configure import cells
from prebleexp.lengths.known import Max
from prebleexp.overhead.model import Overhead
from prebleexp.policies.base import HOLD, Policy
from prebleexp.policies.e2 import E2
from prebleexp.policies.least_work import LeastWork
from prebleexp.policies.lor import LeastOutstanding
from prebleexp.policies.research.dualmap import DualMap
from prebleexp.policies.round_robin import RoundRobin
from prebleexp.sim import replicated
from prebleexp.sim.links import INFINITE
from prebleexp.sim.migration import Migration
from prebleexp.sim.moves import WAITING
from prebleexp.sim.pools import DECODE, PREFILL, Disaggregation
from prebleexp.sim.records import NONE, View
from prebleexp.sim.replicated import BY_SESSION, IN_TURN, RANDOM, Replication
from prebleexp.sim.simulate import simulate
from prebleexp.sim.types import Outcome, Setup, Workload
from tests.support.by_hand.streams import own, stream
from tests.support.costs.linear_cost import LinearCost
from tests.support.interpreted import digest, interpreted
from tests.support.oracle import replicas as oracle_replicas
from tests.support.outcomes import assert_alike, assert_of_oracle
from tests.support.policies.watcher import KEPT
from tests.support.routers import Router, cost_of_a_token
from tests.support.sampled import examples
from tests.support.strategies.clusters import CLUSTERS
from tests.support.strategies.conversations import STREAMS
from tests.support.strategies.gateways import GATEWAYS, of_clients
from tests.support.strategies.replications import REPLICAS
from tests.support.strategies.timelines import timelines

NEVER = math.inf


# ---------------------------------------------------------------- against the oracle
@st.composite
def replicas(draw: st.DrawFn) -> dict[str, Any]:
    cluster = draw(CLUSTERS)
    faults = draw(st.one_of(st.none(), timelines(cluster["gpus"])))
    return cluster | {"replicas": draw(REPLICAS), "faults": faults}


@st.composite
def gated(draw: st.DrawFn) -> dict[str, Any]:
    return draw(replicas()) | {"gateway": draw(st.none() | GATEWAYS | GATEWAYS)}


@pytest.mark.slow
@settings(max_examples=examples(200, found=True), deadline=None)
@given(of_clients(STREAMS), gated(), st.sampled_from([1, 64]))
def test_the_core_gives_the_bytes_of_the_oracle(workload: Workload, cluster: dict[str, Any], notes: int) -> None:
    """And each replica hears and sees the same, the books too. There is room for `notes` changes of them at first."""
    n, usual = len(workload), replicated.NOTES
    workload = replace(workload, session=workload.session if len(workload.after_ids) else np.arange(n) % 4 - 1)
    KEPT.clear()
    try:
        replicated.NOTES = notes
        made = simulate(workload, lengths=Max(), **cluster)
    finally:
        replicated.NOTES = usual
    heard = [one.rows[: one.used[0]] for one in KEPT]
    KEPT.clear()
    expected = oracle_replicas.simulate(workload, **cluster)
    known = [one.rows[: one.used[0]] for one in KEPT][-len(heard) :] if heard else []  # the oracle's begin twice
    for ours, theirs in zip(heard, known, strict=True):
        np.testing.assert_array_equal(ours, theirs, err_msg="what the policy heard", strict=True)
    KEPT.clear()
    assert_of_oracle(made, expected)


# ---------------------------------------------------------------- laws
@settings(max_examples=examples(20, found=True), deadline=None)
@given(of_clients(STREAMS), gated())
def test_one_replica_is_one_router(workload: Workload, cluster: dict[str, Any]) -> None:
    cluster |= {"replicas": replace(cluster["replicas"], count=1)}
    assert_alike(
        simulate(workload, lengths=Max(), **cluster),
        simulate(workload, lengths=Max(), **cluster | {"replicas": None}),
    )
    KEPT.clear()


@settings(max_examples=examples(20, found=True), deadline=None)
@given(STREAMS, replicas())
def test_who_shares_a_book_and_remembers_nothing_is_one_router(workload: Workload, cluster: dict[str, Any]) -> None:
    """Unless decisions take the router's time, of which several have more."""
    cluster |= {"policy": LeastOutstanding(), "replicas": replace(cluster["replicas"], gossip_s=0.0)}
    if cluster["overhead"].mode == "serial":
        cluster |= {"overhead": replace(cluster["overhead"], mode="recorded")}
    one = simulate(workload, lengths=Max(), **cluster | {"replicas": None})
    assert_alike(simulate(workload, lengths=Max(), **cluster), one)


@dataclass(frozen=True)
class PlainLeast(LeastOutstanding):
    compiled: ClassVar[bool] = False


@settings(max_examples=examples(20, found=True), deadline=None)
@given(STREAMS, replicas())
def test_plain_python_does_the_same(workload: Workload, cluster: dict[str, Any]) -> None:
    made = [
        simulate(workload, lengths=Max(), **cluster | {"policy": one}) for one in (LeastOutstanding(), PlainLeast())
    ]
    assert_alike(*made)


# ---------------------------------------------------------------- by hand: a token takes 1 ms
TOKEN = LinearCost(step_s=0.0, token_s=2.0**-10, context_token_s=0.0, kv_tokens=16 * 1001, gpu_memory_gib=48)
R = 4


def serve(workload: Workload, count: int, gossip_s: float, policy: Policy | None = None, **given: Any) -> Outcome:
    usual: dict[str, Any] = {"policy": policy or LeastOutstanding(), "overhead": Overhead(), "lengths": Max()}
    usual |= {"duration_s": 99.0, "horizon": "drain", "hardware": TOKEN, "gpus": R, "seed": 0}
    usual |= {"engine": VLLM(async_scheduling=False, host_s=0.0)}
    return simulate(workload, **usual | {"replicas": Replication(count, IN_TURN, gossip_s)} | given)


def of(arrivals: list[float], tokens: int = 1000) -> Workload:
    n = len(arrivals)
    return stream([own(i, tokens) for i in range(n)], arrivals, [1] * n)


@pytest.mark.parametrize(
    ("gossip_s", "gpus"), [(NEVER, [0] * R), (60.0, [0] * R), (2.0**-20, [0] * R), (0.0, list(range(R)))]
)
def test_of_routers_that_know_nothing_of_each_other_all_take_one_gpu(gossip_s: float, gpus: list[int]) -> None:
    """R replicas, as many requests at once, nothing on the GPUs, fewest requests: R on GPU 0, or one on each."""
    assert serve(of([0.0] * R), R, gossip_s).gpu.tolist() == gpus


@pytest.mark.parametrize(("at_s", "gpu"), [(0.0, 0), (0.24, 0), (0.25, 1), (0.9, 1), (1.22, 1), (1.23, 0)])
def test_what_is_known_of_others_is_of_a_while_ago(at_s: float, gpu: int) -> None:
    """One replica sends a request to GPU 0 at 0, which ends at .9766 s. The other is told of both a quarter of a second
    later: until .25 it takes the GPU for idle, and until 1.2266 for busy."""
    assert serve(of([0.0, at_s]), 2, 0.25).gpu.tolist() == [0, gpu]


@pytest.mark.parametrize(
    ("count", "spread", "sent_s"),
    [
        (1, IN_TURN, [1, 2, 3, 4, 5]),
        (2, IN_TURN, [1, 1, 2, 2, 3]),
        (3, IN_TURN, [1, 1, 1, 2, 2]),
        (9, IN_TURN, [1] * 5),
    ],
)
def test_each_decides_on_one_at_a_time(count: int, spread: int, sent_s: list[int]) -> None:
    """Five requests at once, a decision takes 1 s: who comes to a router that is busy waits for that one."""
    made = serve(of([0.0] * 5, 16), count, NEVER, RoundRobin(), overhead=Overhead("serial", decision_s=1.0))
    first = (made.router_wait_s + made.overhead_s).tolist()
    assert first == sent_s


def test_who_waits_for_a_router_that_is_busy_is_passed_by_others() -> None:
    """Sessions 0 and 1 come to router 1, session 2 to router 0: of four requests at once, the last is decided on with
    the first."""
    workload = replace(of([0.0] * 4, 16), session=np.array([0, 0, 1, 2]))
    given = Replication(2, BY_SESSION, NEVER)
    seed = next(s for s in range(99) if given.of(Setup(R, s, 4, 1, 1, workload)).tolist() == [1, 1, 1, 0])
    slow = Overhead("serial", decision_s=1.0)
    made = serve(workload, 2, NEVER, RoundRobin(), overhead=slow, replicas=given, seed=seed)
    assert (made.router_wait_s + made.overhead_s).tolist() == [1, 2, 3, 1]


def test_a_decision_sees_what_the_others_have_not_sent_yet() -> None:
    """Two routers that know all of each other, one request each at once, a decision takes 1 s: both take GPU 0."""
    slow = Overhead("serial", decision_s=1.0)
    assert serve(of([0.0] * 2), 2, 0.0, overhead=slow).gpu.tolist() == [0, 0]
    assert serve(of([0.0] * 2), 1, 0.0, overhead=slow).gpu.tolist() == [0, 1]


def test_a_gateway_lets_no_router_exceed_a_limit() -> None:
    """Three routers that know nothing of each other, two requests a GPU: the third finds GPU 0 full, the ninth all."""
    made = serve(of([0.0] * 9), 3, NEVER, gateway=Gateway(max_in_flight=2))
    assert made.gpu.tolist()[:8] == [0, 0, 1, 1, 2, 2, 3, 3]
    assert made.due_s[8] + made.ttft_s[8] > made.ttft_s[0]


def test_who_decides_last_on_the_last_place_of_a_gpu_is_asked_again() -> None:
    """One GPU, one request at a time, decisions take 1/8 s: both routers decide on it at once, the second answer comes
    too late, and is asked for again when request 0 has ended, of 16 tokens in 1/64 s."""
    given: dict[str, Any] = {
        "gpus": 1,
        "gateway": Gateway(max_in_flight=1),
        "overhead": Overhead("serial", decision_s=0.125),
    }
    made = serve(of([0.0] * 2, 16), 2, 0.0, **given)
    assert made.ttft_s.tolist() == [0.125 + 2.0**-6, 0.125 + 2.0**-6 + 0.125 + 2.0**-6]


SPLIT = Disaggregation((PREFILL, DECODE), LeastOutstanding(), 1.0, INFINITE, 2.0**40, 0.0)


@pytest.mark.parametrize(
    ("gossip_s", "prompts", "outputs", "ends"),
    [
        (0.0, [0, 1, 2], [3, 4, 5], [1000, 1000, 1000]),
        (0.25, [0, 0, 1], [4, 4, 3], [2000, 2000, 1000]),
        (NEVER, [0, 0, 1], [3, 3, 3], [2000, 2000, 1000]),
    ],
)
def test_three_routers_with_stale_books_before_split_pools(
    gossip_s: float, prompts: list[int], outputs: list[int], ends: list[int]
) -> None:
    """GPUs 0 to 2 compute prompts, two at a time at most, 3 to 5 make outputs; three requests of 1,000 tokens at once,
    one for each router, and a token takes 1 ms (2 ** -10 s). With a book in common each has GPUs of its own. Without,
    all take GPU 0 for idle; the gateway knows that it is full, and the third goes to GPU 1, whose prompt is computed
    after 1 s, the others' after 2. It takes GPU 3 for its output. A second later the other two have heard of that, if
    books are told, but not of each other: both take GPU 4; else GPU 3."""
    workload = stream([own(i, 1000) for i in range(3)], [0.0] * 3, [3000] * 3)
    given: dict[str, Any] = {
        "gpus": 6,
        "kinds": [(3, TOKEN), (3, TOKEN)],
        "pools": SPLIT,
        "gateway": Gateway(max_in_flight=2),
    }
    made = serve(workload, 3, gossip_s, **given)
    assert made.gpu.tolist() == prompts
    assert made.decode_gpu.tolist() == outputs
    assert (made.prefill_end_s * 2**10).tolist() == ends
    assert (made.state == 3).all()


@pytest.mark.uncompiled
def test_a_router_knows_where_its_own_requests_were_moved() -> None:
    """Two routers that know nothing of each other take GPU 0 for idle; one request at a time runs there, so that
    request 1, of router 1, is moved to GPU 1 at .125 s. At .5 s router 0 has one on GPU 0, and sends the next to GPU 1;
    router 1, which had one there and has it on GPU 1 now, sends to GPU 0, and to GPU 1 if nothing was moved."""
    moves = Migration(0.125, 1.0, INFINITE, 2.0**40, 0.0, below_freeness=1e3, chooses=WAITING)
    one: dict[str, Any] = {"engine": VLLM(async_scheduling=False, host_s=0.0, max_num_seqs=1), "gpus": 2}
    workload = of([0.0, 0.0, 0.5, 0.5])
    made = serve(workload, 2, NEVER, migration=moves, **one)
    assert made.moves[1] == 1
    assert made.gpu_requests.tolist() == [3, 1]
    assert serve(workload, 2, NEVER, **one).gpu_requests.tolist() == [2, 2]


def test_each_remembers_for_itself() -> None:
    """Requests 0, 2, 4 and 6 come to one, and 1, 3, 5 and 7 to the other: each sends its own around in turn."""
    assert serve(of([0.0] * 8), 2, 0.0, RoundRobin()).gpu.tolist() == [0, 0, 1, 1, 2, 2, 3, 3]


def test_a_session_stays_with_its_router() -> None:
    """Each router sends its first request to GPU 0, its second to GPU 1, and so on."""
    session = np.array([0, 0, 1, 1, 2, 2, 3, 3])
    workload = replace(of([0.0] * 8), session=session)
    given = Replication(64, BY_SESSION, NEVER)
    whose = given.of(Setup(R, 0, 8, 1, 1, workload))
    assert (whose[::2] == whose[1::2]).all()
    assert len(set(whose.tolist())) == 4
    assert serve(workload, 1, 0.0, RoundRobin(), replicas=given).gpu.tolist() == [0, 1] * 4
    alone = given.of(Setup(R, 0, 8, 1, 1, replace(workload, session=np.full(8, -1))))
    assert len(set(alone.tolist())) > 4


def test_requests_come_to_any_replica_alike() -> None:
    whose = Replication(4, RANDOM, NEVER).of(Setup(R, 0, 10_000, 1, 1, of([0.0] * 10_000, 1)))
    assert np.abs(np.bincount(whose) - 2500).max() < 4 * math.sqrt(10_000 * 0.25 * 0.75)


def test_replicas_have_seeds_of_their_own_and_hash_alike() -> None:
    given, setup = Replication(3, IN_TURN, NEVER), Setup(R, 7, 1, 1, 1, of([0.0]))
    each = [given.setup(setup, r) for r in range(3)]
    assert each[0] == setup
    assert len({one.seed for one in each}) == 3
    assert {one.agreed_seed for one in each} == {7}
    hashes = [DualMap().start(one).hashes for one in each]
    assert (hashes[0] == hashes[1]).all()


# ---------------------------------------------------------------- policies
@pytest.mark.slow
@pytest.mark.parametrize("name", ["e2", "least_work", "dynamo_kv"])
def test_a_policy_that_runs_compiled_runs_with_replicas(name: str) -> None:
    """And hears of what caches drop of others' requests: the smallest cache there can be drops all the time."""
    policy, tokens = cells([f"policy={name}"])[0].policy, np.random.default_rng(1)
    paths = [[(k, 300), (10 + k, 200), (100 + i, 30)] for i, k in enumerate(tokens.integers(4, size=80).tolist())]
    workload = stream(paths, sorted(tokens.uniform(0, 20, 80).tolist()), [5] * 80)
    small = replace(TOKEN, kv_tokens=16 * 101)
    made = [serve(workload, 3, gossip_s, policy, hardware=small) for gossip_s in (NEVER, 0.25, 0.0)]
    for one in made:
        assert (one.state == 3).all()
        assert one.gpu_evicted_tokens.sum() > 0


@pytest.mark.slow
@pytest.mark.parametrize("policy", [E2(), LeastWork()])
def test_what_a_gpu_drops_of_others_requests_is_not_cached(policy: Policy) -> None:
    """Request 0 leaves 600 tokens on a GPU. Request 1, of the same prompt, was another replica's; the GPU drops its."""
    workload = stream([[(0, 600)], [(0, 600)], [(0, 600)]], [0.0] * 3, [1] * 3)
    one = Router(policy, workload, 1, cost_of_a_token())
    one.route(0)
    one.finish(0, 1)
    one.routed.append(NONE)
    one.evicted(1, 0, 0)
    one.route(2)
    of_gpus = one.memory.gpus if isinstance(policy, E2) else one.memory
    assert int(np.ravel(of_gpus.held)[0]) == 0


@dataclass(frozen=True)
class Fails(Policy):
    """Where it knows of three requests."""

    def start(self, setup: Setup) -> Any:
        return np.zeros(1, np.int64)

    def route(self, mine: Any, view: View, request: int, now: float) -> int:
        mine[0] += 1
        return 0

    def finished(self, mine: Any, view: View, request: int, now: float) -> None:
        mine[0] += 10 // (3 - mine[0])


class FailsPlain(Fails):
    compiled: ClassVar[bool] = False


@pytest.mark.parametrize("policy", [Fails(), FailsPlain()])
def test_the_replica_that_fails_says_where(policy: Policy) -> None:
    with pytest.raises(PrebleexpError, match=r"policy Fails(Plain)?, .*test_replicas.py, line \d+: "):
        serve(of([0.0] * 5), 2, NEVER, policy)


@dataclass(frozen=True)
class Elsewhere(Policy):
    """Names a GPU that there is not; before that it holds."""

    def route(self, mine: Any, view: View, request: int, now: float) -> int:
        return 99 if request == 1 else HOLD if now == 0 else 0


def test_a_wrong_answer_is_named() -> None:
    with pytest.raises(PrebleexpError, match="policy Elsewhere sent request 1 at 0 s to GPU 99"):
        serve(of([0.0] * 2), 2, NEVER, Elsewhere())


# ---------------------------------------------------------------- settings
@pytest.mark.parametrize(
    ("override", "said"),
    [
        ("gateway.replicas=0", "gateway.replicas=0 is not valid; it must be an integer from 1 to 256"),
        ("gateway.spread=hash", "gateway.spread=hash is not valid; it must be one of round_robin, random, session"),
        (
            "gateway.gossip_ms=-1",
            "gateway.gossip_ms=-1 is not valid; it must be a number of milliseconds >= 0, or null",
        ),
        (
            "gateway.replicas=2 engine=released hardware=a6000_mistral_7b",
            "engine=released takes no gateway; take another engine, or gateway=open",
        ),
    ],
)
def test_what_is_not_valid_is_said_in_a_line(override: str, said: str) -> None:
    with pytest.raises(InvalidInput) as error:
        cells(override.split())
    assert said in str(error.value)
    assert "\n" not in str(error.value)


def test_a_cell_has_them() -> None:
    settings = ["policy=lor", "gateway.replicas=3", "gateway.gossip_ms=50", "gateway.spread=session"]
    cell = cells(settings)[0]
    assert cell.gateway.replication == Replication(3, BY_SESSION, 0.05)
    assert not cell.gateway.changes_nothing
    assert cells(["policy=lor"])[0].gateway.replication is None


@pytest.mark.slow
def test_replicas_do_the_same_interpreted() -> None:
    how = "gpus=3 rps=8 duration_s=3 hardware.kv_tokens=6000 gateway.replicas=3"
    runs = [f"policy=lor {how} gateway.gossip_ms=50", f"policy=least_work {how} gateway.spread=random"]
    runs += [f"policy=lor {how} gateway.gossip_ms=0"]
    assert dict(zip(runs, interpreted(*runs), strict=True)) == {run: digest(*run.split()) for run in runs}
