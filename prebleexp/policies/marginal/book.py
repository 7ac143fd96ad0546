"""What the router knows of each GPU: the requests that it sent there, those that wait and those that decode.

It is the router's own book, moved by its decisions and by what it hears of first tokens and ends, so that it is never
old, however rarely GPUs report. Only how many requests others have sent (several gateways, other clients) is learned
from reports: a GPU that has more than this router sent has some of theirs.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from prebleexp.policies.prefix_index import PrefixIndex, prefix_index
from prebleexp.policies.reported import UNREAD, is_news
from prebleexp.sim.compiled import compiled
from prebleexp.sim.records import View
from prebleexp.sim.types import Setup, records

GPU = np.dtype(
    [
        ("waiting", np.int64),  # requests without a first token, …
        ("new", np.int64),  # … their prompt tokens to compute, …
        ("needs", np.int64),  # … those that are in memory for them alone, once they are computed, …
        ("length", np.int64),  # … their prompt tokens, …
        ("ms", np.float64),  # … what each adds to a step, …
        ("waiting_weight", np.float64),  # … and the weights of a second of their latency
        ("running", np.int64),  # requests with one, …
        ("context", np.int64),  # … their prompt tokens, …
        ("limit", np.int64),  # … what they may generate at most, …
        ("running_weight", np.float64),  # … and the weights of a second of their latency
        ("most", np.int64),  # requests of both kinds that there were at most since the GPU's last report
        ("unknown", np.int64),  # requests there that somebody else sent
        ("until_s", np.float64),  # when all that wait are to have their first tokens
        ("computed", np.float64),  # tokens that it was sent to compute in the last `MEMORY_S`, faded
        ("settled", np.float64),  # tokens of prompts that settled there in the last `SETTLED_S`, faded
        ("mixed", np.int64),  # whether its engine computes prompts beside decoding
    ],
    align=True,
)
REQUEST = np.dtype(
    [
        ("state", np.int64),  # AWAY, WAITS or RUNS
        ("new", np.int64),
        ("needs", np.int64),
        ("ms", np.float64),
        ("weight", np.float64),  # of a second of its latency
    ],
    align=True,
)
AWAY, WAITS, RUNS = range(3)
RENT = np.dtype(
    [
        ("paid", np.float64),  # for a copy of the segment …
        ("at", np.float64),  # … when memory had turned over so often
    ],
    align=True,
)
TERMS = (
    "own_wait",
    "own_decode",
    "tail",
    "others_wait",
    "others_decode",
    "coming",
    "copy",
    "memory",
    "settle",
    "rent",
)
"""of a price (see `marginal.price.Price`), …"""
OWN = ("own_wait", "own_decode", "tail")
"""… and those that are the request's own delay"""
DECISION = np.dtype(
    [
        ("asked", np.int64),  # how often: what follows is of the last time
        ("at_s", np.float64),
        ("gpu", np.int64),
        ("next_gpu", np.int64),  # the best of the others; -1: there was no other
        ("chosen", np.float64, (len(TERMS),)),  # `TERMS` of both
        ("next", np.float64, (len(TERMS),)),
    ],
    align=True,
)
MEMORY_S = 10.0
"""how far back arrivals count: their weight falls to 1/e in so long"""
SETTLED_S = 60.0
"""how far back prompts count that settled. Longer, since others follow them"""
LATE = 2.0
"""how many standard deviations above the mean a wait is late: by those few a 99th percentile is made"""
ARRIVALS, TOKENS, FOUND, AT_S, SENT, WAITED, WAITED_2 = range(7)
KEPT, LEFT, STAYED, AT = range(4)


class Book(NamedTuple):
    """What the policy remembers of GPUs and requests."""

    held: PrefixIndex
    """prefixes that each GPU has, or was sent"""
    hits: Any
    """(GPUs,) leading tokens of the prompt in hand that each has"""
    gpus: Any
    """(GPUs,) `GPU`"""
    requests: Any
    """(requests,) `REQUEST`"""
    lately: Any
    """(7,) arrivals of the last `MEMORY_S`, their prompt tokens, and those of them that some GPU had, faded; when that
    was; and how many were sent in the last `SETTLED_S`, the seconds until their first tokens as they were expected, and
    these squared, faded"""
    rents: Any
    """(segment ids,) `RENT`"""
    users: Any
    """(segment ids,) requests with each that wait or decode on GPUs whose engine does not mix"""
    turnovers: Any
    """(1,) how often the memory of all GPUs was filled anew"""
    room: Any
    """(4,) the share of what those who decode may generate that engines keep free at most; how many left in the last
    `SETTLED_S`, and the seconds that they were in memory, faded; and when that was"""
    heard: Any
    """(1,) see `prebleexp.policies.reported`"""
    decisions: Any
    """(requests,) `DECISION`, if they are explained; else none"""


def book(setup: Setup, explained: int = 0) -> Book:
    """Nothing was sent yet; so many requests are explained."""
    hits, decisions = np.zeros(setup.gpus, np.int64), records(explained, DECISION)
    gpus, requests = records(setup.gpus, GPU), records(setup.requests, REQUEST)
    gpus.mixed = [one.mixed for one in setup.steps] or 1
    rents, users = records(1 + setup.context_ids, RENT), np.zeros(1 + setup.context_ids, np.int32)
    once = np.zeros(1), np.array([1.0, 0.0, 0.0, 0.0]), np.full(1, UNREAD)
    return Book(prefix_index(setup), hits, gpus, requests, np.zeros(7), rents, users, *once, decisions)


@compiled
def arrive(mine: Book, now: float, tokens: int, found: int) -> None:
    """A request of so many tokens arrives, and some GPU has so many of them."""
    lately, at_s = mine.lately, mine.lately[AT_S]
    fade, slow = np.exp((at_s - now) / MEMORY_S), np.exp((at_s - now) / SETTLED_S)
    lately[ARRIVALS] = lately[ARRIVALS] * fade + 1.0
    lately[TOKENS] = lately[TOKENS] * fade + tokens
    lately[FOUND] = lately[FOUND] * fade + found
    lately[AT_S] = now
    lately[SENT] *= slow
    lately[WAITED] *= slow
    lately[WAITED_2] *= slow
    for g in range(len(mine.gpus)):
        mine.gpus[g].computed *= fade
        mine.gpus[g].settled *= slow


@compiled
def arrival_rate(mine: Book) -> float:
    """Requests that came per second, averaged over the last seconds with weights that decay."""
    seen_s = MEMORY_S * (1.0 - np.exp(-mine.lately[AT_S] / MEMORY_S))
    return float(mine.lately[ARRIVALS] / (seen_s + 0.05 * MEMORY_S))  # half a second more: the first one is no rate


@compiled
def found(mine: Book) -> float:
    """Share of prompts' tokens of late that some GPU had."""
    return float(mine.lately[FOUND] / mine.lately[TOKENS])


@compiled
def late_s(mine: Book) -> float:
    """Seconds until a first token that are many, as waits are of late."""
    lately = mine.lately
    if lately[SENT] == 0.0:
        return 0.0
    mean = lately[WAITED] / lately[SENT]
    return float(mean + LATE * np.sqrt(max(0.0, lately[WAITED_2] / lately[SENT] - mean * mean)))


@compiled
def expect(mine: Book, gpu: int, wait_s: float, now: float) -> None:
    """The request in hand is to have its first token there in so many seconds."""
    mine.gpus[gpu].until_s = now + wait_s
    lately = mine.lately
    lately[SENT] += 1.0
    lately[WAITED] += wait_s
    lately[WAITED_2] += wait_s * wait_s


@compiled
def meet(mine: Book, view: View) -> None:
    """Count those on each GPU that somebody else sent. A report is older than the book: of this router's requests there
    were then no more than `most`, so that none of them is taken for another's."""
    if not is_news(mine.heard, view):
        return
    for g in range(len(mine.gpus)):
        at, seen = mine.gpus[g], view.gpus[g]
        sent = at.waiting + at.running
        own = sent if mine.heard[0] == 0 else max(sent, at.most)
        at.unknown, at.most = max(0, seen.queued + seen.running - own), sent


@compiled
def usual_tokens(mine: Book) -> float:
    """Of a prompt, in the mean of late."""
    return float(mine.lately[TOKENS] / mine.lately[ARRIVALS])


@compiled
def most_held(mine: Book, candidates: Any) -> int:
    """Leading tokens of the prompt in hand that the candidate has which has most."""
    most = 0
    for g in candidates:
        most = max(most, int(mine.hits[g]))
    return most


@compiled
def send(mine: Book, view: View, request: int, gpu: int, new: int, needs: int, ms: float, weight: float) -> None:
    """The request waits there, with so many tokens to compute, and to be in memory for it alone."""
    at, row = mine.gpus[gpu], mine.requests[request]
    row.state, row.new, row.needs, row.ms, row.weight = WAITS, new, needs, ms, weight
    if at.mixed == 0:
        _use(mine, view, request, 1)
    at.waiting += 1
    at.new += new
    at.needs += needs
    at.length += view.requests[request].prompt_tokens
    at.ms += ms
    at.waiting_weight += weight
    at.most = max(at.most, at.waiting + at.running)
    at.computed += new
    if 2 * new > view.requests[request].prompt_tokens:
        at.settled += new


@compiled
def begin(mine: Book, view: View, request: int) -> None:
    """It has its first token, and decodes from now on."""
    row = mine.requests[request]
    if row.state != WAITS:
        return
    _count_out(mine, view, request)
    at = mine.gpus[view.requests[request].gpu]
    row.state = RUNS
    at.running += 1
    at.context += view.requests[request].prompt_tokens
    at.limit += view.requests[request].max_new_tokens
    at.running_weight += row.weight


@compiled
def leave(mine: Book, view: View, request: int) -> None:
    """It is not there any more."""
    if mine.requests[request].state != AWAY and mine.gpus[view.requests[request].gpu].mixed == 0:
        _use(mine, view, request, -1)
    _count_out(mine, view, request)


@compiled
def _count_out(mine: Book, view: View, request: int) -> None:
    """It is in none of the sums. Where nobody is left, those of fractions are zero again, not what rounding left."""
    row, at = mine.requests[request], mine.gpus[view.requests[request].gpu]
    if row.state == WAITS:
        at.waiting -= 1
        at.new -= row.new
        at.needs -= row.needs
        at.length -= view.requests[request].prompt_tokens
        at.ms = at.ms - row.ms if at.waiting else 0.0
        at.waiting_weight = at.waiting_weight - row.weight if at.waiting else 0.0
    elif row.state == RUNS:
        at.running -= 1
        at.context -= view.requests[request].prompt_tokens
        at.limit -= view.requests[request].max_new_tokens
        at.running_weight = at.running_weight - row.weight if at.running else 0.0
    row.state = AWAY


@compiled
def _use(mine: Book, view: View, request: int, more: int) -> None:
    """So many more use the prompt's segments."""
    row = view.requests[request]
    for segment in range(row.first_segment, row.first_segment + row.segments):
        mine.users[view.prompts.ids[segment]] += more


@compiled
def in_use(mine: Book, view: View, request: int) -> int:
    """Leading tokens of the prompt that others have in theirs, on whichever GPU."""
    row, tokens = view.requests[request], 0
    for segment in range(row.first_segment, row.first_segment + row.segments):
        if mine.users[view.prompts.ids[segment]] == 0:
            break
        tokens = int(view.prompts.ends[segment])
    return tokens
