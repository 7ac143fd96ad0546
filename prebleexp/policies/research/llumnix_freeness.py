"""Llumnix's dispatch by freeness."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np

from prebleexp.policies.base import Policy
from prebleexp.policies.candidates import nth
from prebleexp.policies.choices import count_equal, least_of, nth_equal
from prebleexp.policies.looking import news, nth_new
from prebleexp.sim.compiled import compiled
from prebleexp.sim.records import GPUS, View
from prebleexp.sim.types import Setup

FEW = 32
"""GPUs of which all are looked at sooner than it is found out which have changed"""
MOST = (1 << 31) - 1
"""of 32 bits"""


class Freeness(NamedTuple):
    tokens: Any
    """(GPUs,) of KV memory for each request, about, as of the last look; infinite where there is none"""
    ranks: Any
    """(GPUs,) whole numbers, the least of the most of these: eight are compared at a time"""
    looked: Any
    """(1,) when that was (see `prebleexp.policies.looking`)"""


@dataclass(frozen=True)
class LlumnixFreeness(Policy):
    """The GPU with the most free KV memory for each of its requests, where what waiting requests need counts as taken;
    one without requests is free without bounds. The first of equals.

    Source: Llumnix (OSDI 2024), AlibabaPAI/llumnix 24220fb, dispatch policy load, metric remaining_steps (spec:
    routers, group B, section 7): read, there are no recordings. Migration, which Llumnix is known for, is
    `cluster=migrating`, and off by default there. Memory is counted in tokens: dividing by the block size changes no
    order but for rounding. What only the prefix cache holds is free, as in vLLM. Requests that wait need what they have
    still to compute of their prompts, as the engine reports it; Llumnix counts the whole of those prompts, cached or
    not, and nothing for one that is part-way through its prefill. Requests are those that were sent and are not
    finished."""

    reads_lengths: ClassVar[bool] = False

    def start(self, setup: Setup) -> Freeness:
        tokens, ranks = np.zeros(setup.gpus, np.float32), np.zeros(setup.gpus, np.int32)
        return Freeness(tokens, ranks, np.zeros(1, np.int64))

    def route(self, mine: Any, view: View, request: int, now: float) -> int:
        candidates, sent = view.candidates, view.sent
        view.work[GPUS] += len(candidates)
        if len(sent) > FEW and view.touched.times[0] > 0:
            return freest_known(mine, view)
        best = candidates[0]
        most, of = free(view, best), sent[best].outstanding
        for i in range(len(candidates)):
            g = nth(candidates, len(sent), i)
            requests = sent[g].outstanding
            if requests == 0:
                return g
            if free(view, g) * of > most * requests:  # a request, without the time that dividing takes
                best, most, of = g, free(view, g), requests
        return best


# ---------------------------------------------------------------- many GPUs, of which few have changed
@compiled
def look(mine: Freeness, view: View) -> None:
    """At the GPUs that have changed."""
    new, numbers = news(mine.looked, view), mine.tokens.view(np.int32)
    for i in range(new):
        g = nth_new(view, new, i)
        requests = view.sent[g].outstanding
        mine.tokens[g] = free(view, g) / requests if requests > 0 else np.inf
        mine.ranks[g] = ~(numbers[g] ^ ((numbers[g] >> 31) & MOST))


@compiled
def freest_known(mine: Freeness, view: View) -> int:
    look(mine, view)
    candidates, ranks, sent = view.candidates, mine.ranks, view.sent
    first = least_of(ranks, candidates)
    best = nth_equal(ranks, candidates, first, 0)
    if sent[best].outstanding > 0 and count_equal(ranks, candidates, first) > 1:
        for g in candidates:
            if ranks[g] == first and is_freer(view, g, best):
                best = int(g)
    return best


@compiled
def is_freer(view: View, g: int, other: int) -> bool:
    """Of two whose tokens a request are about as many: whether they are more in fact."""
    return free(view, g) * view.sent[other].outstanding > free(view, other) * view.sent[g].outstanding


@compiled
def free(view: View, g: int) -> int:
    """Free tokens of a GPU's KV memory, less those that wait for it."""
    gpu = view.gpus[g]
    return int(gpu.kv_free + gpu.evictable - gpu.waiting_tokens)
