"""The arrays of a run: made for a workload, and made larger when a run needs more than was guessed."""

from __future__ import annotations

from copy import copy
from inspect import unwrap
from typing import Any

import numpy as np

from prebleexp.sim import addresses
from prebleexp.sim import records as of
from prebleexp.sim.agenda import made_sessions
from prebleexp.sim.answers import REFUSE
from prebleexp.sim.changes import NOTHING
from prebleexp.sim.children import copy_children, slots
from prebleexp.sim.events import CHANGE, PAIR, REPORT, key
from prebleexp.sim.gaps import nothing as no_gaps
from prebleexp.sim.handles import Block
from prebleexp.sim.links import UnderWay
from prebleexp.sim.moves import Moves
from prebleexp.sim.moves import nothing as no_moves
from prebleexp.sim.pools import DECODE, UNUSED, Pools, nothing
from prebleexp.sim.records import NONE, Cache, Events, Means, Prompts, View, World
from prebleexp.sim.router_records import LIST, OWN, ROUTER
from prebleexp.sim.rules import Rules
from prebleexp.sim.tiers import Tiers
from prebleexp.sim.tiers import nothing as no_tiers
from prebleexp.sim.touching import uncounted
from prebleexp.sim.types import Floats, Ints, Setup, Workload, records


def allocate(
    setup: Setup,
    rules: Rules,
    kv_tokens: Any,
    refused: Any,
    expected_output: Floats | None,
    refined: tuple[Ints, Floats] | None,
    plugs: tuple[Any, Any, Any],
    own_cache: int | None = None,
    timeline: Any = NOTHING,
    split: tuple[Workload, Pools] | None = None,
    gateway: Any = None,
    tiers: Tiers | None = None,
    moves: Moves | None = None,
    links: UnderWay | None = None,
    gaps: Any = None,
    routers: int = 1,
    books: Any = None,
) -> World:
    """The state at time 0. `kv_tokens`: of each GPU; `refused`: (n,) which requests are refused when they arrive;
    `refined`: each request's length class, and what is left by class and tokens produced; `plugs`: the records of
    all policies, and those of every GPU's engine and cost; `own_cache`: if the engine keeps no
    contexts in the tree, what it may tell of its own at once; `timeline`: what happens to GPUs; `split`: if the setup
    has legs, the requests without them, and who does what; `gateway`: its record, if there is one; `tiers`: of KV;
    `moves`: requests that are moved; `links`: over which KV moves; `gaps`: what counts those between tokens; `routers`:
    how many there are, and `books`: the record of what each knows, if there are several."""
    workload, gpus = setup.workload, setup.gpus
    requests, pools = split or (workload, nothing(len(workload), gpus))
    tiers, moves = no_tiers() if tiers is None else tiers, no_moves() if moves is None else moves
    n = len(workload)
    sessions = made_sessions(requests, rules)
    control = records(1, of.CONTROL)[0]
    control.unfinished, control.until = pools.requests, np.inf
    for name in ("kind", "request", "starting", "lacking", "freed"):
        control[name] = NONE
    live = records(gpus, of.REPORT)
    live.kv_tokens = live.kv_free = kv_tokens
    jobs = made_jobs(workload)
    jobs.answer[: pools.requests][refused] = REFUSE
    if refined is not None:
        jobs.length_class = refined[0]
    policies, engines, costs = plugs
    lists = records(OWN + routers, LIST)
    lists.head = NONE
    cache = made_cache(setup, max(gpus, min(gpus + 4 * n, 1 << 16)) if own_cache is None else gpus)
    servers = records(gpus, of.SERVER)
    servers.leaving, servers.speed = NONE, 1.0
    cache.requests.arrival_s = np.nan
    cache.requests.arrival_s[sessions.firsts] = workload.arrival_s[sessions.firsts]
    if own_cache is not None:
        cache.control.free_nodes = of.ENOUGH
    size = n + 2 * gpus + 5 + len(timeline)  # a step that is lost still has its END
    events = Events(np.zeros(size), np.zeros(size, np.int64))
    plain_key = unwrap(key)  # numba is not imported for three numbers
    due = [(0.0, plain_key(REPORT, 0))] * int(rules.reports_s > 0) + [
        *((float(one.at_s), plain_key(CHANGE, 0)) for one in timeline[: min(1, rules.changes)]),
        *((float(one.interval_s), plain_key(PAIR, 0)) for one in moves.rules),
    ]
    control.events = len(due)
    for row, (time, a_key) in enumerate(sorted(due)):
        events.times[row], events.keys[row] = time, a_key
    seen = made_view(cache.requests, cache.prompts, live if rules.reports_s == 0 else live.copy(), costs)
    if links is None:
        seen.touched.times[0] = 1 + len(seen.touched.gpus)  # nobody has looked at any
    return World(
        control=control,
        rules=rules,
        seen=seen._replace(candidates=np.flatnonzero(pools.roles != DECODE)),
        decode_seen=seen._replace(candidates=np.flatnonzero(pools.roles == DECODE)),
        live=live,
        jobs=jobs,
        servers=servers,
        totals=records(gpus, of.TOTALS),
        gaps=no_gaps(len(requests)) if gaps is None else gaps,
        arrivals=cache.requests.arrival_s + rules.submit_s,
        sessions=sessions,
        events=events,
        timeline=timeline,
        cache=told(cache, expected_output),
        means=made_means(workload),
        left=np.zeros((0, 0)) if refined is None else np.ascontiguousarray(refined[1]),
        news=made_news(cache, (own_cache or 0) + len(tiers.copies)),
        pools=pools,
        links=UNUSED if links is None else links,
        gateway=records(1, addresses.GATEWAY)[0] if gateway is None else gateway,
        tiers=tiers,
        moves=moves,
        told=_any(policies),
        routers=records(routers, ROUTER),
        lists=lists,
        policies=policies,
        books=records(1, addresses.BOOKS)[0] if books is None else books,
        engines=engines,
    )


def _any(policies: Any) -> Any:
    """A policy's record of what at least one of them wants to be told; `compiled`: whether all are."""
    told = copy(policies[0])
    for one in policies:
        told.hears = [ours or theirs for ours, theirs in zip(told.hears, one.hears, strict=True)]
        told.compiled = min(told.compiled, one.compiled)
    return told


# ---------------------------------------------------------------- parts that the loop of the release has too
def made_view(requests: Any, prompts: Prompts, seen: Any, costs: Any) -> View:
    gpus = len(seen)
    candidates = np.arange(gpus)
    work, reports = np.zeros(4, np.int64), np.zeros(1, np.int64)
    return View(requests, prompts, records(gpus, of.SENT), seen, candidates, costs, work, reports, uncounted(gpus))


def made_cache(setup: Setup, rows: int) -> Cache:
    """An empty one for every GPU, and the requests whose contexts it may hold."""
    roots, nodes = records(setup.gpus, of.ROOT), records(rows, of.NODE)
    nodes.parent[: setup.gpus] = nodes.owner[: setup.gpus] = roots.lru[:] = NONE
    nodes.locks[: setup.gpus] = 1
    control = records(1, of.SHELF)[0]
    control.free_node, control.made, control.free_nodes = NONE, setup.gpus, rows - setup.gpus
    changes = records(setup.gpus * of.REMEMBERED, of.CHANGE)
    requests, prompts = _requests(setup.workload), _prompts(setup.workload)
    return Cache(control, roots, nodes, *slots(rows), *_evictions(rows), changes, requests, prompts)


def made_news(cache: Cache, own: int = 0) -> Any:
    """Room for what one event may bring: all that is cached dropped, all requests' first and last tokens."""
    return records(len(cache.nodes) + own + 4 * len(cache.requests) + 4, of.NEWS)


def told(cache: Cache, expected_output: Floats | None) -> Cache:
    """The same, its requests with what is expected of their outputs."""
    cache.requests.informed = expected_output is not None
    cache.requests.expected_output = cache.requests.max_new_tokens if expected_output is None else expected_output
    return cache


def made_jobs(workload: Workload) -> Any:
    jobs = records(len(workload), of.JOB)
    jobs.target = np.minimum(workload.output_tokens, workload.max_new_tokens)
    jobs.next = NONE
    jobs.ttft_s = jobs.latency_s = jobs.finish_s = jobs.overhead_s = jobs.router_wait_s = np.nan
    return jobs


def made_means(workload: Workload) -> Means:
    n, groups = len(workload), 2 + int(workload.prefix_group.max(initial=-1))
    return Means(np.zeros(n), np.zeros(n, np.int32), np.zeros(groups, np.int64), np.zeros(groups, np.int64))


def _requests(workload: Workload) -> Any:
    requests = records(len(workload), of.REQUEST)
    requests.first_segment = workload.segment_offsets[:-1]
    requests.segments = np.diff(workload.segment_offsets)
    requests.gpu, requests.ttft_s, requests.latency_s = NONE, np.nan, np.nan
    for name in (
        *("arrival_s", "prompt_tokens", "max_new_tokens", "prefix_group", "session", "turn", "parent_session"),
        *("priority", "slo_ttft_s", "slo_tpot_s", "answer_segment"),
    ):
        requests[name] = getattr(workload, name)
    return requests


def _prompts(workload: Workload) -> Prompts:
    ends = np.cumsum(workload.segment_tokens, dtype=np.int64)
    first = workload.segment_offsets[:-1]
    ends -= np.repeat(ends[first] - workload.segment_tokens[first], np.diff(workload.segment_offsets))
    return Prompts(workload.segment_ids, ends.astype(np.int32))


def _evictions(nodes: int) -> tuple[Any, Any]:
    return np.zeros(nodes, np.int32), np.zeros(nodes, np.int32)


def with_more_nodes(cache: Cache, wanted: int) -> Cache:
    """Twice the nodes, or more if so many are wanted."""
    old = len(cache.nodes)
    nodes = records(max(2 * old, old + wanted), of.NODE)
    nodes[:old] = cache.nodes
    cache.control.free_nodes += len(nodes) - old
    slot_keys, slot_nodes = slots(len(nodes))
    owners, beyond = _evictions(len(nodes))
    larger = cache._replace(
        nodes=nodes, slot_keys=slot_keys, slot_nodes=slot_nodes, evicted_owner=owners, evicted_beyond=beyond
    )
    copy_children(Block(larger).handle, Block(cache).handle)
    return larger


def _example() -> Block:
    one = np.ones(1, np.int32)
    workload = Workload(np.zeros(1), one, one, one, one, np.array([0, 1]), one, one)
    setup = Setup(gpus=1, seed=0, requests=1, kv_tokens=8, context_length=8, workload=workload)
    lengths, losses = (0.0, False, False), (False, False, 0)
    rules = Rules(1.0, 1.0, 0.0, 1, *lengths, 0, 0.0, *losses, 0.0, 0.0, np.zeros(4), 0, 0, False, False)
    plugs = (records(1, addresses.ROUTER), records(1, addresses.ENGINE), records(1, addresses.COST))
    return Block(allocate(setup, rules, setup.kv_tokens, np.zeros(1, np.bool_), None, None, plugs))


EXAMPLE = _example()
"""its type is that of every run's world"""
