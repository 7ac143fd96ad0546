"""What a gateway keeps of a run: who waits in which lane, who is in flight, what clients were given.

A lane is a list of requests in the order in which they are to be sent: all of them (`fcfs`), those of one promise
(`edf`), of one priority, or of one client. One more lane, the last, has who is in flight, where that is kept.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from prebleexp.sim.records import NONE
from prebleexp.sim.types import Floats, Setup, records

FCFS, EDF, PRIORITY, ROUND_ROBIN, VTC, DRR, DLPM = range(7)
BY_LIMIT, BY_FULL_QUEUE, BY_BUCKET, BY_SATURATION, BY_PROMISE = range(1, 6)
"""`Outcome.refused_by`"""
NO_BUDGET, RATIO, WINDOW, TOKENS = range(4)

GATE = np.dtype(
    [
        ("waiting", np.int64),  # requests in its queue
        ("tickets", np.int64),  # how often anybody joined it
        ("rounds", np.int64),  # of questions to the router: in each it is asked about a request at most once
        ("asked", np.int64),  # of those who wait, who were asked about in this round
        ("turn", np.int64),  # lane of whom the router was asked about last
        ("emptied", np.int64),  # lane that was the last to have nobody waiting; -1: none yet
        ("waiting_tokens", np.int64),  # of the prompts in its queue
        ("level", np.float64),  # tokens in the bucket …
        ("filled_s", np.float64),  # … at this time
        ("away", np.int64),  # requests that wait for their next attempt
        ("retrying", np.int64),  # these, and those whose attempt in hand is not their first
        ("tokens", np.float64),  # gRPC's, of the budget of retries
        ("came", np.int64),  # rows of Again.came in use, …
        ("came_before", np.int64),  # … and how many of them are older than the window
        ("tried", np.int64),  # likewise of Again.tried
        ("tried_before", np.int64),
    ],
    align=True,
)

LANE = np.dtype(
    [
        ("head", np.int64),
        ("tail", np.int64),
        ("upcoming", np.int64),  # first of it about whom the router was not asked in this round
        ("length", np.int64),
        ("score", np.float64),  # EDF: the promise, in seconds; VTC, DLPM: what the client was given; DRR: its credit
    ],
    align=True,
)

TICKET = np.dtype(
    [
        ("lane", np.int64),
        ("next", np.int64),
        ("previous", np.int64),
        ("number", np.int64),  # in order of joining
        ("rank", np.float64),  # lower is further ahead in its lane
        ("cost", np.float64),  # DRR: in weighted tokens
        ("waits", np.int64),  # whether it is in the queue
        ("asked", np.int64),  # the round in which a router was asked about it last
        ("offered", np.int64),  # whether it is with a router, which is asked about it, or will be when it is free
        ("charged", np.int64),  # output tokens of this attempt that its client was charged for
        ("rebated", np.int64),  # whether what a cache had of its prompt was looked at
        ("until_s", np.float64),  # when its time in the queue is over, …
        ("rings_s", np.float64),  # … and when its timer rings; NaN: there is none
        ("refused_by", np.int64),
        ("retries", np.int64),  # so far
        ("retrying", np.int64),  # whether the attempt in hand, or that to come, is one of them
        ("away", np.int64),  # whether it waits for its next attempt, …
        ("again_s", np.float64),  # … which is made then; NaN: there is no timer
    ],
    align=True,
)
"""Of a request."""


class Terms(NamedTuple):
    """What stays the same during a run (see `prebleexp.gateway.base.Gateway`)."""

    order: int
    limit: int
    """0: none"""
    queue_limit: int
    """0: none"""
    ttl_s: float
    """infinite: none"""
    input_weight: float
    cached_weight: float
    output_weight: float
    quantum: float
    bucket_tokens: int
    """0: there is no bucket"""
    refill_tokens_s: float
    shed: bool
    saturated_queue: float
    saturated_kv: float
    slo_ttft_s: float
    """infinite: none is looked at"""


class RetryTerms(NamedTuple):
    retries: int
    """of a request at most"""
    initial_s: float
    max_s: float
    multiplier: float
    budget: int
    """`NO_BUDGET`, `RATIO`, `WINDOW` or `TOKENS`"""
    ratio: float
    least: float
    window_s: float
    most_tokens: float


class Again(NamedTuple):
    """What a gateway keeps of retries."""

    terms: RetryTerms
    draws: Any
    """(n, retries) uniform from 0 to 1"""
    came: Any
    """(n,) when requests were due; (0,) where no window is looked at"""
    tried: Any
    """(n · retries,) when retries were allowed; (0,) likewise"""


def made_again(terms: RetryTerms, requests: int, seed: int) -> Again:
    """What a gateway keeps of retries, as it is at time 0."""
    draws, n = np.random.default_rng([seed, requests]).random((requests, terms.retries)), requests
    windowed = int(terms.budget == WINDOW)
    return Again(terms, draws, np.zeros(n * windowed), np.zeros(n * terms.retries * windowed))


class Books(NamedTuple):
    terms: Terms
    again: Again
    control: Any
    """`GATE`"""
    lanes: Any
    """(lanes + 1,) `LANE`"""
    requests: Any
    """(n,) `TICKET`"""
    sent: Any
    """(segment ids,) whether any prompt with it was sent; (0,) where nobody looks"""


def made_books(terms: Terms, again: Again, setup: Setup, client: Any) -> Books:
    """At time 0. `client`: (n,) whose each request is; rows of the workload behind these are legs of them."""
    workload, n = setup.workload, len(client)
    keys: Floats = np.zeros(n)
    if terms.order == EDF:
        keys = np.where(np.isnan(workload.slo_ttft_s), np.inf, workload.slo_ttft_s)[:n]
    elif terms.order == PRIORITY:
        keys = workload.priority[:n].astype(np.float64)
    elif terms.order in (ROUND_ROBIN, VTC, DRR, DLPM):
        keys = client.astype(np.float64)
    values, lane = np.unique(keys, return_inverse=True)
    control, lanes = records(1, GATE)[0], records(len(values) + 1, LANE)
    control.turn, control.emptied = len(values) - 1, NONE
    control.level, control.tokens = terms.bucket_tokens, again.terms.most_tokens
    lanes.head = lanes.tail = lanes.upcoming = NONE
    if terms.order == EDF:
        lanes.score[:-1] = values
    requests = records(n, TICKET)
    requests.lane, requests.asked, requests.rings_s, requests.again_s = lane, NONE, np.nan, np.nan
    ids = 1 + max(setup.segment_ids, int(workload.answer_segment.max(initial=-1)))
    sent = np.zeros(ids if terms.order == DLPM else 0, np.bool_)
    return Books(terms, again, control, lanes, requests, sent)
