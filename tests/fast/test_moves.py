"""Requests that are moved from one GPU to another: examples to check on paper, and what holds of every run."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from prebleexp.engines.continuous import Continuous
from prebleexp.engines.vllm.engine import VLLM
from prebleexp.errors import InvalidInput
from prebleexp.faults.base import Event
from prebleexp.faults.timeline import Timeline
from prebleexp.lengths.known import Max
from prebleexp.overhead.model import Overhead
from prebleexp.policies.base import Policy
from prebleexp.sim.history import GpuState
from prebleexp.sim.links import FAIR, FIFO, INFINITE
from prebleexp.sim.migration import Migration
from prebleexp.sim.moves import WAITING, WAITING_FIRST
from prebleexp.sim.records import NONE, View
from prebleexp.sim.simulate import simulate
from prebleexp.sim.tiering import Tier, Tiering
from prebleexp.sim.types import OF_REQUESTS, Outcome, Setup, State, Workload
from tests.support.accounted import accounted
from tests.support.by_hand.streams import own, stream
from tests.support.costs.linear_cost import LinearCost
from tests.support.outcomes import assert_alike, assert_same
from tests.support.sampled import examples
from tests.support.sessions import in_order, linked
from tests.support.strategies.migrations import MIGRATIONS, long_ones
from tests.support.strategies.paths import workloads
from tests.support.strategies.timelines import timelines

pytestmark = pytest.mark.thorough

MS = 2**-10
"""so that times are exact, a millisecond is so many seconds here"""
COST = LinearCost(step_s=20 * MS, token_s=0.0, context_token_s=0.0, kv_tokens=16 * 1001, gpu_memory_gib=48)
"""A step takes 20 ms; 1,000 blocks can be held."""
ENGINE = VLLM(async_scheduling=False, host_s=0.0, max_num_batched_tokens=2**14)
TICK_S = 10.0
"""GPUs are paired once in what follows, at this time"""
BLOCK = 80
"""bytes"""


@dataclass(frozen=True)
class First(Policy):
    """Sends requests to the first GPU, or the next if that is down; one of them, by its number, to the second."""

    second: int = -1
    reads_lengths: ClassVar[bool] = False

    def route(self, mine: Any, view: View, request: int, now: float) -> int:
        return int(1 if request == self.second else view.candidates[0])


def moving(blocks_a_ms: float = 1.0, **given: Any) -> Migration:
    usual: dict[str, Any] = {"interval_s": TICK_S, "kv_bytes": BLOCK / 16, "sharing": INFINITE, "latency_s": 0.0}
    return Migration(**usual | {"rate": blocks_a_ms * BLOCK / MS, "below_freeness": 800.0} | given)


def serve(workload: Workload, migration: Migration | None, **given: Any) -> Outcome:
    usual: dict[str, Any] = {"policy": First(), "engine": ENGINE, "lengths": Max(), "seed": 0, "gpus": 2}
    usual |= {"overhead": Overhead(), "duration_s": 30.0, "horizon": "drain", "hardware": COST}
    return simulate(workload, migration=migration, **usual | given)


LONG = stream([own(0, 4104)], [TICK_S - 20 * MS], [300])
"""its prompt is computed when GPUs are paired: 256 full blocks, 8 tokens in the next"""


# ---------------------------------------------------------------- by hand
@pytest.mark.slow
@pytest.mark.parametrize("asynchronous", [False, True])
def test_a_request_goes_on_while_its_blocks_are_copied(asynchronous: bool) -> None:
    """The specification's first: 256 blocks take 256 ms, 12 tokens come meanwhile. Two blocks are left: the request
    stops when the step in hand is over, and is away for 2 ms. Where steps are scheduled ahead it is in one more."""
    made = serve(LONG, moving(), engine=replace(ENGINE, async_scheduling=asynchronous))
    assert made.gpu.tolist() == [1]
    assert made.moves.tolist() == [1]
    assert made.moves_aborted.tolist() == [0]
    assert made.stopped_s.tolist() == [2 * MS]
    assert made.latency_s.tolist() == [(300 * 20 + 2) * MS]
    assert made.ttft_s.tolist() == [20 * MS]
    first = 14 + asynchronous  # tokens
    assert made.gpu_forwarded_tokens.tolist() == [4104 + first - 1, 300 - first]
    assert made.gpu_requests.tolist() == [1, 0]
    assert made.prefilled_tokens.tolist() == [4104]


@pytest.mark.parametrize("asynchronous", [False, True])
def test_a_slow_link_takes_a_second_stage(asynchronous: bool) -> None:
    """The specification's second: 256 blocks take 5,120 ms, in which 256 tokens come: 17 blocks are left. 16 of them
    take 320 ms; of the 16 tokens that come two blocks are left, and take 40 ms."""
    engine = replace(ENGINE, async_scheduling=asynchronous)
    made = serve(LONG, moving(0.05), engine=engine)
    assert made.moves.tolist() == [1]
    assert made.stopped_s.tolist() == [40 * MS]
    assert made.latency_s.tolist() == [(300 * 20 + 40) * MS]
    first = 1 + 256 + 16 + asynchronous
    assert made.gpu_forwarded_tokens.tolist() == [4104 + first - 1, 300 - first]
    two = serve(LONG, moving(0.05, max_stages=2), engine=engine)
    assert two.moves.tolist() == [0]
    assert two.moves_aborted.tolist() == [1]
    assert two.stopped_s.tolist() == [0.0]
    assert two.latency_s.tolist() == [300 * 20 * MS]
    assert serve(LONG, moving(0.05, last_stage_blocks=17)).stopped_s.tolist() == [17 * 20 * MS]


def test_it_goes_on_as_fast_as_the_kind_of_gpu_to_which_it_comes() -> None:
    """As above: 14 tokens at 20 ms, 2 ms away, and 286 at 10 ms. When that GPU is lost a second later, and the other
    goes on with what was shown, 87 of these have been."""
    kinds = [(1, COST), (1, replace(COST, step_s=10 * MS, kv_tokens=16 * 601))]
    made = serve(LONG, moving(), kinds=kinds)
    assert made.gpu.tolist() == [1]
    assert made.stopped_s.tolist() == [2 * MS]
    assert made.latency_s.tolist() == [(14 * 20 + 2 + 286 * 10) * MS]
    assert made.gpu_forwarded_tokens.tolist() == [4104 + 13, 286]
    lost_s = TICK_S - 20 * MS + (14 * 20 + 2 + 87 * 10 + 5) * MS
    faults = Timeline(detect_ms=0.0, on_loss="resume", happen=(Event(lost_s, 1, "down"),))
    made = serve(LONG, moving(), kinds=kinds, faults=faults)
    assert made.gpu.tolist() == [0]
    assert made.latency_s.tolist() == [(14 * 20 + 2 + 87 * 10 + 5 + 199 * 20) * MS]


def test_a_request_that_ends_meanwhile_stays() -> None:
    """256 ms behind, when the first stage is over, it has had its 12 tokens, or has its 14th in the step in hand."""
    for tokens in (12, 14):
        two = stream([own(0, 4104), own(1, 16)], [TICK_S - 20 * MS] * 2, [tokens, 300])
        made = serve(two, moving(), policy=First(1))
        assert made.moves_aborted.tolist() == [1, 0]
        assert made.gpu.tolist() == [0, 1]
        assert made.latency_s.tolist() == [tokens * 20 * MS, 300 * 20 * MS]


def test_without_room_where_it_goes_it_stays() -> None:
    """Three contexts of 257 blocks leave 76 for each; the other GPU, with one of 801, has 199, too few for one."""
    prompts = [*(own(i, 4100) for i in range(3)), own(3, 12_801)]
    made = serve(stream(prompts, [TICK_S - 20 * MS] * 4, [9] * 4), moving(below_freeness=100.0), policy=First(3))
    assert made.moves_aborted.tolist() == [1, 0, 0, 0]
    assert made.gpu.tolist() == [0, 0, 0, 1]
    assert (made.latency_s == 9 * 20 * MS).all()


def test_one_that_waits_is_moved_at_once() -> None:
    """One request runs at a time; the second begins where nobody is when GPUs are paired."""
    two = stream([own(0, 4104), own(1, 32)], [TICK_S - 20 * MS] * 2, [300, 2])
    one_at_a_time = replace(ENGINE, max_num_seqs=1)
    for chooses in (WAITING, WAITING_FIRST):
        made = serve(two, moving(chooses=chooses), engine=one_at_a_time)
        assert made.gpu.tolist() == [0, 1]
        assert made.moves.tolist() == [0, 1]
        assert made.stopped_s.tolist() == [0.0, 0.0]
        assert made.ttft_s.tolist() == [20 * MS, 40 * MS]
    alone = stream([own(0, 4104)], [TICK_S - 20 * MS], [300])
    assert serve(alone, moving(chooses=WAITING)).moves.tolist() == [0]
    assert serve(alone, moving(chooses=WAITING_FIRST)).moves.tolist() == [1]


def test_the_shortest_that_runs_is_moved() -> None:
    prompts = stream([own(0, 4104), own(1, 320), own(2, 640)], [TICK_S - 20 * MS] * 3, [300] * 3)
    made = serve(prompts, moving())
    assert made.moves.tolist() == [0, 1, 0]
    assert made.stopped_s[1] > 0


def test_both_gpus_have_its_blocks_in_their_caches() -> None:
    """The prompt again, later, on either: 256 blocks of it are found. It has its answer where it was made."""
    for second, found in ((1, 4096), (2, 4096)):
        again = stream([own(0, 4104), own(0, 4104)], [TICK_S - 20 * MS, 18.0], [300, 1])
        assert serve(again, moving(), policy=First(second)).hit_tokens.tolist() == [0, found]
    turn = stream([[(0, 4104)], [(0, 4104), (1, 300), (2, 50)]], [TICK_S - 20 * MS, 18.0], [300, 1])
    turn = replace(turn, answer_segment=[1, -1])
    there, left = (serve(turn, moving(), policy=First(second)).hit_tokens[1] for second in (1, 2))
    assert there == (4104 + 299) // 16 * 16
    assert left == (4104 + 13) // 16 * 16  # as far as it came before it left


# ---------------------------------------------------------------- who hears what
notes: list[tuple[Any, ...]] = []


class Hears(First):
    compiled: ClassVar[bool] = False

    def start(self, setup: Setup) -> None:
        assert setup.moves
        notes.clear()

    def first_token(self, mine: Any, view: View, request: int, now: float) -> None:
        notes.append(("first_token", request))

    def finished(self, mine: Any, view: View, request: int, now: float) -> None:
        notes.append(("finished", request, int(view.requests[request].gpu), view.sent.outstanding.tolist()))


class Follows(Hears):
    def routed(self, mine: Any, view: View, request: int, now: float) -> None:
        notes.append(("routed", request, int(view.requests[request].gpu), view.sent.outstanding.tolist()))


def test_policies_hear_where_it_goes_or_that_it_is_over() -> None:
    serve(LONG, moving(), policy=Follows())
    moved = [("finished", 0, 0, [0, 0]), ("routed", 0, 1, [0, 1])]
    assert notes == [("first_token", 0), *moved, ("finished", 0, 1, [0, 0])]
    serve(LONG, moving(), policy=Hears())
    assert notes == [("first_token", 0), moved[0]]
    two = stream([own(0, 4104), own(1, 32)], [TICK_S - 20 * MS] * 2, [300, 2])
    serve(two, moving(chooses=WAITING), engine=replace(ENGINE, max_num_seqs=1), policy=Hears())
    assert notes == [("first_token", 0), ("finished", 1, 0, [1, 0]), ("finished", 0, 0, [0, 0])]


# ---------------------------------------------------------------- lost GPUs
def lost(at_ms: float, g: int) -> Timeline:
    """`at_ms` behind the time at which GPUs are paired."""
    return Timeline(0.0, "retry", (Event(TICK_S + at_ms * MS, g, "down"),))


@pytest.mark.parametrize(
    ("at_ms", "stopped_ms"),
    [(100, 0), (5121, 0), (5450, 10)],  # in the first stage, in the second, and in the last, from 5,440 on
)
def test_a_request_stays_when_the_gpu_is_lost_that_it_goes_to(at_ms: int, stopped_ms: int) -> None:
    made = serve(LONG, moving(0.05), faults=lost(at_ms, 1))
    assert made.gpu.tolist() == [0]
    assert made.losses.tolist() == [0]
    assert made.moves_aborted.tolist() == [1]
    assert made.stopped_s.tolist() == [stopped_ms * MS]
    assert made.latency_s.tolist() == [(300 * 20 + stopped_ms) * MS]


@pytest.mark.parametrize("asynchronous", [False, True])
@pytest.mark.parametrize("at_ms", [100, 5121, 5450, 5470])
def test_a_request_is_lost_with_the_gpu_that_it_leaves(at_ms: int, asynchronous: bool) -> None:
    """The blocks that were taken for it are given back: a prompt that needs nearly all is computed there."""
    big = stream([own(0, 4104), own(1, 15_900)], [TICK_S - 20 * MS, TICK_S + 5600 * MS], [300, 1])
    fails = Timeline(0.0, "fail", (Event(TICK_S + at_ms * MS, 0, "down"),))
    engine = replace(ENGINE, async_scheduling=asynchronous)
    made = serve(big, moving(0.05), faults=fails, policy=First(1), engine=engine)
    assert made.state.tolist() == [State.LOST, State.FINISHED]
    assert made.losses.tolist() == [1, 0]
    assert made.moves_aborted.tolist() == [1, 0]
    assert made.ttft_s[1] == 20 * MS


# ---------------------------------------------------------------- laws
class Kept(VLLM):
    """Lets one look at its blocks."""

    def start(self, setup: Setup) -> Any:
        MINES.append(super().start(setup))
        return MINES[-1]


MINES: list[Any] = []


class Counted:
    """Looks at the cluster after every event: each request is in one place, and every block is accounted for."""

    def __init__(self, engine: VLLM) -> None:
        self.engine = engine

    def __call__(self, world: Any) -> None:
        mine, jobs, requests = MINES[-1], world.jobs, world.seen.requests
        ended = np.isin(jobs.state, (State.FINISHED, State.REFUSED, State.CANCELLED, State.LOST))
        targets = np.where(world.moves.gpus.request != NONE, world.moves.gpus.target, NONE)
        untold = world.control.news > 0
        for g in range(len(world.live)):
            here = np.flatnonzero((requests.gpu == g) & ~ended)
            gpu, moving_in = mine.gpus[g], world.moves.gpus.taken[targets == g].sum()
            if not untold:
                assert world.seen.sent[g].outstanding == len(here)
            assert (targets == g).sum() <= 1
            if untold:
                continue
            held = 0
            for request in here:
                job = mine.jobs[request]
                computed = job.computed + (gpu.scheduled - job.steady_from if job.steady_from != NONE else 0)
                steady = -(-int(computed) // self.engine.block_size)
                held += steady if job.steady_from != NONE else int(job.blocks)
            assert gpu.free == mine.settings.blocks - held - moving_in, (g, gpu.free, held, moving_in)
            stopped = (mine.jobs.running[here] == 2).sum()
            assert gpu.held == stopped + (moving_in > 0)


CLUSTERS = st.fixed_dictionaries(
    {
        "async_scheduling": st.booleans(),
        "max_num_seqs": st.sampled_from([3, 64]),
        "watermark": st.sampled_from([0.0, 0.1]),
        "block_size": st.sampled_from([1, 4, 16]),
        "gpus": st.integers(2, 4),
        "kv": st.sampled_from([240, 400, 600]),
        "migration": MIGRATIONS,
        "horizon": st.sampled_from(["stop", "drain"]),
    }
)
STREAMS = st.one_of(long_ones(), workloads(), linked(workloads()))


def run(workload: Workload, cluster: dict[str, Any], caching: bool = True, **given: Any) -> Outcome:
    names = ("async_scheduling", "max_num_seqs", "watermark", "block_size")
    engine = Kept(max_num_batched_tokens=64, enable_prefix_caching=caching, **{name: cluster[name] for name in names})
    hardware = replace(COST, step_s=0.0013, token_s=0.0001, kv_tokens=cluster["kv"])
    usual = {name: cluster[name] for name in ("gpus", "horizon")} | {"hardware": hardware, "duration_s": 2.5}
    usual |= {"engine": engine, "policy": given.pop("policy", First())}
    return serve(workload, given.pop("migration", cluster["migration"]), **usual | given)


@pytest.mark.slow
@settings(max_examples=examples(60, found=True), deadline=None)
@given(STREAMS, CLUSTERS)
def test_every_request_and_block_is_accounted_for_at_every_event(workload: Workload, cluster: dict[str, Any]) -> None:
    engine = VLLM(block_size=cluster["block_size"])
    made = run(workload, cluster, caching=False, on_event=Counted(engine))
    again = run(workload, cluster, caching=False)
    assert_same(made, again)  # watching changes nothing
    in_order(workload, made)
    accounted(workload, made)
    assert (made.stopped_s[made.moves + made.moves_aborted == 0] == 0).all()
    if cluster["horizon"] == "drain":
        ended = (State.FINISHED, State.REFUSED, State.CANCELLED, State.NOT_DUE)
        assert np.isin(made.state, ended).all()


@pytest.mark.slow
@settings(max_examples=examples(40, found=True), deadline=None)
@given(STREAMS, CLUSTERS, st.data())
def test_requests_are_accounted_for_where_gpus_are_lost(workload: Workload, cluster: dict[str, Any], data: Any) -> None:
    faults = data.draw(timelines(cluster["gpus"]))
    made = run(workload, cluster | {"horizon": "drain"}, faults=faults)
    accounted(workload, made, faults.requeues)


@pytest.mark.slow
@settings(max_examples=examples(40, found=True), deadline=None)
@given(STREAMS, CLUSTERS)
def test_where_gpus_are_never_paired_nothing_is_different(workload: Workload, cluster: dict[str, Any]) -> None:
    never = replace(cluster["migration"], below_freeness=-1e9)
    off, on = run(workload, cluster, migration=None), run(workload, cluster, migration=never)
    assert_alike(off, on)


@settings(max_examples=examples(40, found=True), deadline=None)
@given(STREAMS, CLUSTERS)
def test_over_a_free_link_all_sharing_is_the_same_and_nobody_is_away(
    workload: Workload, cluster: dict[str, Any]
) -> None:
    free = replace(cluster["migration"], rate=1e30, latency_s=0.0)
    made = [run(workload, cluster, migration=replace(free, sharing=one)) for one in (INFINITE, FIFO, FAIR)]
    assert (made[0].stopped_s == 0).all()
    for name in OF_REQUESTS:
        for other in made[1:]:
            np.testing.assert_array_equal(getattr(made[0], name), getattr(other, name), err_msg=name)


# ---------------------------------------------------------------- tiers, and as many GPUs as an autoscaler wants
def test_the_host_where_it_goes_stores_all_of_it() -> None:
    """As in the first example: GPU 0's host has the 257 full blocks of 4,117 tokens, GPU 1's the 275 of 4,403."""
    used: list[int] = []
    link = Tier(bytes=BLOCK * 1000.0, load_rate=1e30, store_rate=1e30, latency_s=0.0)
    tiers = Tiering(BLOCK / 16, host=link)
    made = serve(LONG, moving(), tiers=tiers, on_event=lambda world: used.__setitem__(slice(0, 9), _used(world)))
    assert made.moves.tolist() == [1]
    assert made.stopped_s.tolist() == [2 * MS]
    assert used == [257, 275]


def _used(world: Any) -> list[int]:
    return [int(place.used) for place in world.tiers.places[:2]]


def test_what_was_moved_is_loaded_there_when_it_comes_again() -> None:
    """In 300 blocks a GPU another prompt, of 288, has pushed out all but 12 of the 256 that can be found."""
    again = stream([own(0, 4104), own(1, 4600), own(0, 4104)], [TICK_S - 20 * MS, 20.0, 25.0], [300, 1, 1])
    link = Tier(bytes=BLOCK * 1000.0, load_rate=1e30, store_rate=1e30, latency_s=0.0)
    hardware = replace(COST, kv_tokens=16 * 301)
    for second, found in ((None, 0), (Tiering(BLOCK / 16, host=link), 244 * 16)):
        made = serve(again, moving(below_freeness=200.0), tiers=second, policy=ToSecond(), hardware=hardware)
        assert made.gpu.tolist() == [1, 1, 1]
        assert made.moves.tolist() == [1, 0, 0]
        assert made.hit_tokens.tolist() == [0, 0, 12 * 16]
        assert made.host_tokens.tolist() == [0, 0, found]


@dataclass(frozen=True)
class ToSecond(First):
    """All but the first request to the second GPU."""

    def route(self, mine: Any, view: View, request: int, now: float) -> int:
        return int(request > 0)


@dataclass(frozen=True)
class Shrinks:
    """An autoscaler that wants two GPUs, and one from 11 s on."""

    interval_s, least, first, memory_s = 1.0, 1, 2, 0.0

    def of_role(self, role: str | None) -> Any:
        return self

    def start(self, setup: Any) -> None: ...

    def desired(self, mine: None, fleet: Any, now: float) -> int:
        return 1 if now >= 11 else 2


def test_a_gpu_that_is_switched_off_gets_nobody() -> None:
    """The first stage takes until 15.12 s; GPU 1, which has no request, is drained at 11 s and off at 12. The request
    stays, and nothing of it is lost. Over a fast link it is there before, and ends there: GPU 1 is off at 17."""
    made = serve(LONG, moving(0.05), autoscaler=Shrinks())
    assert made.gpu.tolist() == [0]
    assert [made.moves.tolist(), made.moves_aborted.tolist()] == [[0], [1]]
    assert made.latency_s.tolist() == [300 * 20 * MS]
    assert [one.at_s for one in made.history.gpu_states if one.state == GpuState.OFF] == [11.0]
    made = serve(LONG, moving(), autoscaler=Shrinks())
    assert made.gpu.tolist() == [1]
    assert made.moves.tolist() == [1]
    assert made.latency_s.tolist() == [(300 * 20 + 2) * MS]


# ---------------------------------------------------------------- what is not modelled
def test_what_does_not_go_with_moves_is_one_line() -> None:
    with pytest.raises(InvalidInput, match="engine Continuous has no move, copied, stop and abandon, and requests are"):
        serve(LONG, moving(), engine=Continuous())
    with pytest.raises(InvalidInput, match=r"contexts of .* and 8,192 tokens; where requests are moved"):
        serve(LONG, moving(), kinds=[(1, COST), (1, replace(COST, context_length=8192))])
    with pytest.raises(
        InvalidInput, match=r"engine\.scheduling_policy=priority is not valid; it must be fcfs where re"
    ):
        serve(LONG, moving(), engine=replace(ENGINE, scheduling_policy="priority"))
