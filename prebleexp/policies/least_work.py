"""Least expected work."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np

from prebleexp.policies import backlog
from prebleexp.policies.alike import find_first_alike
from prebleexp.policies.backlog import Balancing
from prebleexp.policies.candidates import nth
from prebleexp.policies.looking import news, nth_new
from prebleexp.policies.prefix_records import OUTPUT_UNIT, Tree
from prebleexp.policies.prefix_tree import held, insert
from prebleexp.sim.compiled import compiled
from prebleexp.sim.cost import decode_s, prefill_s
from prebleexp.sim.records import GPUS, NONE, View
from prebleexp.sim.types import Setup, records

NS = 1e-9
SLOTS = 64
KNOWN = np.dtype([("request", np.int64), ("of", np.int64), ("seconds", np.float64)], align=True)
"""What the cost model said last of something, for which request, counted from 1."""


class Working(NamedTuple):
    """A `backlog.Backlog`, and what the cost model said last, as the fields below say."""

    tree: Tree
    routed: Any
    prefill: Any
    output: Any
    held: Any
    prefills: Any
    """… (`SLOTS`,) `KNOWN` of prefills of so many tokens, at their remainder, …"""
    tokens: Any
    """… and of output tokens in batches of so many"""
    looked: Any
    """(1,) when GPUs were looked at last (see `prebleexp.policies.looking`)"""
    queued: Any
    """(GPUs,) as of then, GPU seconds of what each has still to prefill, …"""
    left: Any
    """… output tokens that are still to come of its requests, …"""
    batch: Any
    """… and how many run there, with one more"""
    to_come: Any
    """(GPUs,) its share of the steps for what is still to come of outputs, those of the request in hand among them"""
    kinds: Any
    """(GPUs,) the first GPU that is like each; -1: nobody has looked yet"""


@dataclass(frozen=True)
class LeastWork(Balancing):
    """The GPU that would have the least to do, in GPU seconds: prefills of its unfinished requests (as many of them as
    still wait, on average), their output to come at its share of a decode step, and the same of this request; the first
    of several.

    A token that many share a step for is cheap, so long outputs are sent where many run, and short ones find a GPU to
    themselves while there are any."""

    follows_running: ClassVar[bool] = True

    def start(self, setup: Setup) -> Any:
        known = records(SLOTS, KNOWN), records(SLOTS, KNOWN)
        (queued, left, to_come), batch = np.zeros((3, setup.gpus)), np.ones(setup.gpus, np.int64)
        seen = np.zeros(1, np.int64), queued, left, batch, to_come
        return Working(*backlog.backlog(setup), *known, *seen, np.full(setup.gpus, NONE))

    def route(self, mine: Any, view: View, request: int, now: float) -> int:
        if mine.kinds[0] == NONE:
            find_first_alike(view.costs, mine.kinds)
        leaf, _ = insert(mine.tree, view, request)
        look(mine, view)
        best = without_prefill(mine, view, request)
        prefill = own_s(mine, view, leaf, best, request)
        candidates, queued, to_come = view.candidates, mine.queued, mine.to_come
        least = queued[best] + prefill + to_come[best]
        for i in range(len(candidates)):
            g = nth(candidates, len(queued), i)
            if queued[g] + to_come[g] > least or g == best:
                continue  # whatever it holds of the prompt
            own = own_s(mine, view, leaf, g, request)
            work = queued[g] + own + to_come[g]
            if work < least or (work == least and g < best):
                best, least, prefill = g, work, own
        view.work[GPUS] += len(view.candidates)
        backlog.add(mine, view, leaf, request, best, round(prefill / NS))
        return best


@compiled
def look(mine: Working, view: View) -> None:
    """At the GPUs that have changed."""
    new, gpus = news(mine.looked, view), view.gpus
    for i in range(new):
        g = nth_new(view, new, i)
        gpu, outstanding = gpus[g], view.sent[g].outstanding
        waiting = gpu.queued / outstanding if outstanding > 0 else 0.0
        mine.queued[g] = mine.prefill[g] * NS * waiting
        mine.left[g] = max(0.0, mine.output[g] / OUTPUT_UNIT - gpu.generated - gpu.ahead)
        mine.batch[g] = gpu.running + 1


@compiled
def without_prefill(mine: Working, view: View, request: int) -> int:
    """The GPU that would have the least to do if it held all of the prompt. Writes what is to come on each."""
    output, candidates, queued, left = view.requests[request].expected_output, view.candidates, mine.queued, mine.left
    kinds, batch, tokens, to_come = mine.kinds, mine.batch, mine.tokens, mine.to_come
    kind, best, least = kinds[candidates[0]], NONE, 0.0
    for i in range(len(candidates)):
        g = nth(candidates, len(queued), i)
        known = tokens[batch[g] & (SLOTS - 1)]
        if known.request != request + 1 or known.of != batch[g] or kinds[g] != kind:
            to_come[g] = (left[g] + output) * token_s(mine, view, g, request)
        else:
            to_come[g] = (left[g] + output) * known.seconds
        if best == NONE or queued[g] + to_come[g] < least:
            best, least = g, queued[g] + to_come[g]
    return best


# ---------------------------------------------------------------- what the cost model says
# It is asked once a decision for all GPUs that are like the first candidate, hold as much and run as many.


@compiled
def own_s(mine: Any, view: View, leaf: int, g: int, request: int) -> float:
    """The request's prefill on GPU g."""
    length = view.requests[request].prompt_tokens
    missing = max(1, length - held(mine.tree, leaf, g))
    if mine.kinds[g] != mine.kinds[view.candidates[0]]:
        return prefill_s(view.costs[g], missing, length)
    known = mine.prefills[missing & (SLOTS - 1)]
    if known.request != request + 1 or known.of != missing:
        known.request, known.of, known.seconds = request + 1, missing, prefill_s(view.costs[g], missing, length)
    return float(known.seconds)


@compiled
def token_s(mine: Working, view: View, g: int, request: int) -> float:
    """What an output token costs on GPU g: its share of a step that decodes what runs there and one more request, each
    with a context like this one's."""
    batch, length = mine.batch[g], view.requests[request].prompt_tokens
    seconds = decode_s(view.costs[g], batch, batch * length, batch * length, 1) / batch
    if mine.kinds[g] == mine.kinds[view.candidates[0]]:
        known = mine.tokens[batch & (SLOTS - 1)]
        known.request, known.of, known.seconds = request + 1, batch, seconds
    return float(seconds)
