"""DualMap: two GPUs for each prefix."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from prebleexp.checks import is_integer, positive, require
from prebleexp.policies.base import tuned
from prebleexp.policies.prefix_index import PrefixIndex
from prebleexp.policies.research.prefills import NS, Prefilling, book, look_up, prefill_ns, prefills
from prebleexp.sim.compiled import compiled
from prebleexp.sim.records import SEGMENTS, View
from prebleexp.sim.types import Setup


class Mapped(NamedTuple):
    """What DualMap remembers: caches and queues as in `prefills.Prefills`, and the GPUs that prefixes hash to."""

    caches: PrefixIndex
    hits: Any
    queued: Any
    booked: Any
    hashes: Any
    """(segment ids, 2) … two hashes of the path to a segment's end"""


@dataclass(frozen=True)
class DualMap(Prefilling):
    """Two hashes of a prompt's prefix name two GPUs. The request goes to the one that holds more of the prompt, unless
    it is predicted to miss its SLO for the first token there; then to the one that is predicted to be faster.

    Source: Yuan et al., ICLR 2026 (arXiv 2602.06502; spec: routers, group B, section 8). Unverified beyond its
    abstract: no code and no recordings were found. Guesses of ours: the fixed length of the prefix, where the paper's
    adapts; that the two GPUs always differ; the prediction, which is `mooncake`'s; that of equals the first hash's GPU
    is taken; and the SLO of requests that were promised none. Left out: moving waiting requests between their two GPUs,
    and the rings, which matter when GPUs come and go.

    Raises InvalidInput for prefixes without tokens and an SLO that is no number of seconds above 0."""

    prefix_tokens: int = tuned(256, 16, 16384, log=True)
    """that are hashed; of a shorter prompt all"""
    slo_ttft_s: float = tuned(5.0, 0.1, 60.0, log=True)
    """to the first token, for requests that were promised nothing"""

    def __post_init__(self) -> None:
        valid = is_integer(self.prefix_tokens, 1)
        require(valid, "policy.prefix_tokens", self.prefix_tokens, "an integer >= 1")
        positive("policy.slo_ttft_s", self.slo_ttft_s, "a number of seconds > 0")

    def start(self, setup: Setup) -> Mapped:
        hashes = np.random.default_rng(setup.agreed_seed).integers(1 << 31, size=(setup.segment_ids, 2))
        return Mapped(*prefills(setup), hashes)

    def route(self, mine: Any, view: View, request: int, now: float) -> int:
        look_up(mine, view, request)
        candidates, hashes = view.candidates, mine.hashes[prefix(view, request, self.prefix_tokens)]
        place = hashes[0] % len(candidates)
        keep = candidates[place]
        prediction = prefill_ns(mine, view, request, keep)
        if len(candidates) > 1:
            other = candidates[(place + 1 + hashes[1] % (len(candidates) - 1)) % len(candidates)]
            others = prefill_ns(mine, view, request, other)
            if mine.hits[other] > mine.hits[keep]:
                keep, other, prediction, others = other, keep, others, prediction
            late = (mine.queued[keep] + prediction) * NS > slo_s(view, request, self.slo_ttft_s)
            if late and mine.queued[other] + others < mine.queued[keep] + prediction:
                keep, prediction = other, others
        book(mine, request, keep, prediction)
        return keep


@compiled
def slo_s(view: View, request: int, otherwise: float) -> float:
    """What the request was promised, if anything."""
    promised = view.requests[request].slo_ttft_s
    return otherwise if math.isnan(promised) else float(promised)


@compiled
def prefix(view: View, request: int, tokens: int) -> int:
    """The segment in which so many tokens of the prompt end: its id stands for all that lies before."""
    row, prompts = view.requests[request], view.prompts
    segment, last = row.first_segment, row.first_segment + row.segments - 1
    while segment < last and prompts.ends[segment] < tokens:
        view.work[SEGMENTS] += 1
        segment += 1
    return int(prompts.ids[segment])
