"""The records of a run, and the tuples of arrays that hold them.

Records are contiguous: one GPU, one request or one node is one or two cache lines. Fields are 8 bytes wide, but 4 where
there are millions and nobody multiplies them. Compiled code and plain Python read them alike: `view.sent[g].tokens`.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

NONE = -1
NO_OVERHEAD, RECORDED, SERIAL = range(3)

# ---------------------------------------------------------------- what a router sees
REQUEST = np.dtype(
    [
        ("arrival_s", np.float64),  # when it was due; NaN: it waits for others
        ("prompt_tokens", np.int64),
        ("max_new_tokens", np.int64),
        ("expected_output", np.float64),  # tokens it is expected to generate
        ("informed", np.int32),  # 0: that is max_new_tokens, since nothing else is known
        ("prefix_group", np.int32),  # -1: not known
        ("session", np.int32),  # -1: of none
        ("turn", np.int32),  # in its session, from 0
        ("parent_session", np.int32),  # that started its session; -1: none did
        ("priority", np.int32),  # lower is served first, where the engine looks at it
        ("slo_ttft_s", np.float32),  # what was promised; NaN: nothing
        ("slo_tpot_s", np.float32),
        ("first_segment", np.int64),  # its prompt is rows first_segment … first_segment + segments of `Prompts`
        ("segments", np.int32),
        ("answer_segment", np.int32),  # what a next turn's prompt calls the answer; -1: nobody does
        ("gpu", np.int32),  # where it was sent; -1: not yet
        ("output_seen", np.int32),  # output tokens, as of its first and its last
        ("ttft_s", np.float64),  # from when it was due to its first token; NaN before
        ("latency_s", np.float64),  # … to its last; NaN before
    ],
    align=True,
)
"""What a router may know of a request. Its true output length is not here."""

SENT = np.dtype(
    [
        ("outstanding", np.int64),  # requests sent to the GPU of which it has not heard the end
        ("tokens", np.int64),  # their prompt tokens
        ("requests", np.int64),  # requests ever sent
    ],
    align=True,
)
"""The router's own book of a GPU: always fresh."""

REPORT = np.dtype(
    [
        ("queued", np.int64),  # requests that wait on the GPU
        ("running", np.int64),  # requests in its batch
        ("waiting_tokens", np.int64),  # prompt tokens to compute before all have their first token, as far as it knows
        ("kv_tokens", np.int64),  # tokens of KV memory: all of it, …
        ("kv_free", np.int64),  # … what holds nothing, …
        ("evictable", np.int64),  # … and what only the prefix cache holds
        ("window_hit_tokens", np.int64),  # prompt tokens found in the cache, over the prefills of the hit window
        ("window_prompt_tokens", np.int64),  # prompt tokens of these prefills
        ("generated", np.int64),  # output tokens of the requests in the batch
        ("ahead", np.float64),  # of these: how much less they have left than was expected, if that is followed
    ],
    align=True,
)
"""What a GPU tells of itself."""

NODES, SEGMENTS, ENTRIES, GPUS = range(4)
"""what `View.work` counts of a decision: tree nodes visited, segments compared, window entries read, GPUs scored"""


class Prompts(NamedTuple):
    """All prompts as runs of tokens; a request's are rows first_segment … first_segment + segments."""

    ids: Any
    """(s,) int32, a path from the root of a prefix tree over all prompts"""
    ends: Any
    """(s,) int32, tokens from the prompt's beginning to the segment's end"""


class Touched(NamedTuple):
    """GPUs whose `SENT` or `REPORT` may have changed: who keeps what it makes of them looks at these alone."""

    times: Any
    """(1,) how often any did so far; 0: nobody counts"""
    gpus: Any
    """(a power of two, not less than there are GPUs) the last ones: the i-th at i modulo its length"""


class View(NamedTuple):
    """What a router sees. It writes to `work` alone."""

    requests: Any
    """(n,) `REQUEST`"""
    prompts: Prompts
    sent: Any
    """(GPUs,) `SENT`"""
    gpus: Any
    """(GPUs,) `REPORT`, as of the GPUs' last reports"""
    candidates: Any
    """GPUs that may get the request in hand, ascending"""
    costs: Any
    """(GPUs,) what a step costs there (see `prebleexp.sim.cost`)"""
    work: Any
    """(4,) what the decision in hand has cost so far: `NODES` … `GPUS`"""
    reports: Any
    """(1,) how often `gpus` was written so far, at intervals; 0: it is as the GPUs are"""
    touched: Touched


# ---------------------------------------------------------------- prefix caches
ROOT = np.dtype(
    [
        ("evictable", np.int64),  # tokens of unlocked nodes
        ("locked", np.int64),  # tokens of locked ones
        ("lru", np.int64),  # root of the heap of eviction candidates
        ("changes", np.int64),  # of nodes, so far
    ],
    align=True,
)

NODE = np.dtype(
    [
        ("accessed", np.int64),  # when it was last touched: a counter, only its order matters
        ("heap_key", np.int64),  # `accessed` when it was put on the heap of eviction candidates
        ("parent", np.int32),  # -1: a root. In the free list: the next free node
        ("owner", np.int32),  # a request whose context goes through the node
        ("segment", np.int32),  # the node ends behind this many segments of the owner's prompt …
        ("beyond", np.int32),  # … and this many tokens of what its context goes on with there
        ("depth", np.int32),  # tokens from the root to its end
        ("first", np.int32),  # segment id its edge begins with; -1: an anonymous output token
        ("locks", np.int32),  # running requests whose context goes through it
        ("children", np.int32),
        ("heap_left", np.int32),
        ("heap_right", np.int32),
        ("in_heap", np.int32),
        ("unique_stamp", np.int32),  # last prefill that counted its tokens
    ],
    align=True,
)

SHELF = np.dtype(
    [
        ("touches", np.int64),  # of nodes, so far
        ("stamp", np.int64),  # prefills so far
        ("free_node", np.int64),  # head of the list of those that were evicted; -1: none is left of them
        ("made", np.int64),  # how many there ever were: rows behind these are free, and nobody has written there
        ("free_nodes", np.int64),  # of both kinds
        ("evicted", np.int64),  # rows of Cache.evicted_… in use
    ],
    align=True,
)

CHANGE = np.dtype([("parent", np.int64), ("first", np.int64), ("node", np.int64)], align=True)
"""A child of `parent`, whose edge begins with segment `first`, was made, cut or dropped; `node` is gone (-1: none)."""

ENOUGH = 2**62
"""free nodes, where nobody takes any"""

REMEMBERED = 16
"""changes of a root that are remembered; a power of two"""


class Cache(NamedTuple):
    """Prefix caches, each below a root. Nodes 0 … roots − 1 are the roots."""

    control: Any
    roots: Any
    nodes: Any
    slot_keys: Any
    """children by (parent, segment id): see `sim.children`"""
    slot_nodes: Any
    evicted_owner: Any
    """what was evicted and not told yet: a request, …"""
    evicted_beyond: Any
    """… of whose context it was what lies beyond this many tokens"""
    changes: Any
    """(roots · `REMEMBERED`,) the last `CHANGE`s of each"""
    requests: Any
    prompts: Prompts


# ---------------------------------------------------------------- the world
JOB = np.dtype(
    [
        ("state", np.int32),
        ("target", np.int32),  # output tokens after which it is finished
        ("number", np.int32),  # in order of arrival
        ("reached", np.int32),  # whether its GPU has it
        ("length_class", np.int32),  # its row of World.left
        ("losses", np.int32),  # how often the GPU that it was on, or was sent to, was down, or its KV did not arrive
        ("answer", np.int32),  # where the router sends it, while its decision takes time
        ("next", np.int32),  # behind it in the router's queue
        ("output_seen", np.int32),
        ("shown", np.int32),  # of these, what was shown before it was lost, and it goes on behind
        ("hit_tokens", np.int32),
        ("prefilled_tokens", np.int32),
        ("transferred_tokens", np.int32),  # of its prompt, that came over a link
        ("overhead_s", np.float64),  # what routing it took
        ("router_wait_s", np.float64),  # from when it was due until the router took it up
        ("ttft_s", np.float64),
        ("latency_s", np.float64),
        ("finish_s", np.float64),
    ],
    align=True,
)
"""What becomes of a request."""

SERVER = np.dtype(
    [
        ("stage", np.int64),  # IDLE, AWAKE, STEPPING or DOWN
        ("gone", np.int64),  # whether routers know that it is down
        ("speed", np.float64),  # steps take 1 / speed of what they cost
        ("leaving", np.int64),  # first of the requests that leave when the step is over, linked by `next`
        ("begun_s", np.float64),  # the step in hand
        ("ends_s", np.float64),
    ],
    align=True,
)
IDLE, AWAKE, STEPPING, DOWN = range(4)

TOTALS = np.dtype(
    [
        ("hit_tokens", np.int64),
        ("prefilled_tokens", np.int64),
        ("forwarded_tokens", np.int64),
        ("recomputed_tokens", np.int64),
        ("evicted_tokens", np.int64),
        ("retracted", np.int64),
        ("peak_kv_tokens", np.int64),
        ("peak_running", np.int64),
        ("peak_context_tokens", np.int64),
        ("decode_steps", np.int64),
        ("drafted_tokens", np.int64),
        ("accepted_tokens", np.int64),  # of these
        ("verified_steps", np.int64),  # with drafts, of each request
        ("wave_steps", np.int64),  # together with other ranks, …
        ("empty_steps", np.int64),  # … and of these, those for others alone
        ("paced_s", np.float64),  # seconds of steps beside other ranks, or with work in the pipeline, …
        ("stalled_s", np.float64),  # … and of waiting in these for the slowest rank, or of stages for work
        ("downs", np.int64),  # how often it went down, …
        ("lost_s", np.float64),  # … and when first
        ("down_s", np.float64),
        ("on_s", np.float64),
    ],
    align=True,
)
"""A GPU's running totals (see `Outcome`)."""

CONTROL = np.dtype(
    [
        ("now", np.float64),  # time of the event in hand
        ("clock", np.float64),  # when the run ended
        ("until", np.float64),  # nothing that comes later is done, for more may come before it; infinite: all is known
        ("kind", np.int64),  # of the event in hand, …
        ("subject", np.int64),  # … and its GPU or request
        ("events", np.int64),  # in the queue
        ("arrived", np.int64),  # requests so far, …
        ("present", np.int64),  # … and those of them that have not ended
        ("unfinished", np.int64),
        ("most", np.int64),  # requests that were ever outstanding on one GPU
        ("request", np.int64),  # waits for a route, or -1
        ("answer", np.int64),
        ("answered", np.int64),  # whether Python has answered
        ("deciding", np.int64),  # how many routers are busy
        ("freed", np.int64),  # router that is busy no more, of whose own list the first is in the common one; or -1
        ("offering", np.int64),  # whether the gateway may have somebody for the router, …
        ("stale", np.int64),  # … and whether it is to be seen anew which GPUs may get more
        ("starting", np.int64),  # GPU whose step begins now, or -1
        ("lacking", np.int64),  # GPU whose engine lacks room, or -1
        ("news", np.int64),  # rows of World.news in use
        ("mean_first", np.int64),  # first row of Means that is in the window
        ("mean_rows", np.int64),
    ],
    align=True,
)

NEWS = np.dtype([("kind", np.int64), ("request", np.int64), ("gpu", np.int64), ("tokens", np.int64)], align=True)
"""`kind`: of `prebleexp.sim.notices`"""


class Events(NamedTuple):
    """A binary heap of events by (time, kind, subject)."""

    times: Any
    keys: Any


class Means(NamedTuple):
    """Requests in the order in which they finished, and sums over those of a window; by group, 0 is all of them."""

    times: Any
    requests: Any
    tokens: Any
    counts: Any


class World(NamedTuple):
    """All state of a run but what plugs remember."""

    control: Any
    rules: Any
    """`prebleexp.sim.rules.Rules`"""
    seen: View
    decode_seen: View
    """the same, with GPUs for outputs as candidates, where prompts have GPUs of their own"""
    live: Any
    """(GPUs,) `REPORT`, as of now: the array that routers see, if nothing delays reports"""
    jobs: Any
    servers: Any
    totals: Any
    gaps: Any
    """between tokens: `prebleexp.sim.gaps.Counts`"""
    arrivals: Any
    """(n,) when the router hears of each request; NaN: it waits for others"""
    sessions: Any
    """who is due when: `prebleexp.sim.agenda.Sessions`"""
    events: Events
    timeline: Any
    """what happens to GPUs: `prebleexp.sim.changes.TIMELINE`"""
    cache: Cache
    means: Means
    left: Any
    """(length classes, tokens) output still to come of a request that has produced so much; (0, 0): not known"""
    news: Any
    pools: Any
    """who computes prompts and who makes outputs: `prebleexp.sim.pools.Pools`"""
    links: Any
    """KV that is under way: `prebleexp.sim.links.UnderWay`"""
    gateway: Any
    """`prebleexp.sim.addresses.GATEWAY`: where requests wait for the router; all 0: all pass"""
    tiers: Any
    """KV behind the caches: `prebleexp.sim.tiers.Tiers`"""
    moves: Any
    """requests that are moved from one GPU to another: `prebleexp.sim.moves.Moves`"""
    told: Any
    """`prebleexp.sim.addresses.ROUTER`: what any policy `hears` is not 0, `compiled` is whether all are"""
    routers: Any
    """(routers,) `prebleexp.sim.router_records.ROUTER`"""
    lists: Any
    """(2 + routers,) `LIST` of the same: who waits for them"""
    policies: Any
    """(routers,) `prebleexp.sim.addresses.ROUTER`; with pools as many again, for those whose prompts were computed"""
    books: Any
    """`prebleexp.sim.addresses.BOOKS`: what each of several routers knows"""
    engines: Any
    """(GPUs,) `ENGINE`"""
