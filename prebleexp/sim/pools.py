"""Prompts and outputs on GPUs of their own: what a run knows of it.

A request has two legs then, each a row of its own: rows 0 … n − 1 of requests and jobs are the requests, as what makes
their outputs, and rows n … 2n − 1 are what computes their prompts, in the same order. So engines, caches and routers
need no second kind of record. Without pools there are n rows, and nothing of this.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from prebleexp.sim import addresses, links, sending
from prebleexp.sim.compiled import compiled
from prebleexp.sim.records import World
from prebleexp.sim.types import COLUMNS, OPTIONAL, Floats, Ints, Workload, records

PREFILL, DECODE, BOTH = range(3)
NAMES = ("prefill", "decode", "both")
PULL, RESERVE_FIRST, PUSH_AT_END = range(3)
"""by the numbers of `prebleexp.sim.compatibility.PROTOCOLS`"""
END, LAYERS, CHUNKS = range(3)
"""when a prompt's KV is sent (spec: clusters.md, section 2): when all of it is computed; each layer as soon as that is;
each chunk"""

ALWAYS, NEVER, UNCACHED, PREDICTED = range(4)
"""whether prompts go to GPUs for prompts (spec: clusters.md, 1.6). UNCACHED: those of which so many tokens are not
cached where the output is made; PREDICTED: those that would be computed later there"""


class Pools(NamedTuple):
    """Which GPUs compute prompts, make outputs, or do both."""

    requests: int
    """rows of requests; those behind them are what computes their prompts"""
    legs: int
    """the first of those behind; 0 without pools, where each request is its own"""
    roles: Any
    """(GPUs,) `PREFILL`, `DECODE` or `BOTH`; without pools all do both"""
    kv_bytes: float
    """of a token"""
    whole: bool
    """whether some GPUs may serve a request to its end"""
    protocol: int
    """`PULL` …"""
    send: int
    """`END` …"""
    layers: int
    """of the model"""
    decider: int
    """`ALWAYS` …"""
    first: int
    """of the row that routers are asked about first: `legs`, or 0, where the output's GPU is chosen before a decider
    says whether the prompt has another"""
    both_at_arrival: bool
    """whether both are chosen when a request comes"""
    least_tokens: int
    """with `UNCACHED`"""
    handoff: Any
    """`prebleexp.sim.addresses.HANDOFF`; all 0 without pools"""
    decides: Any
    """`prebleexp.sim.addresses.DECIDER`, unless prompts come first"""


@dataclass(frozen=True)
class Disaggregation:
    """What a run with pools is given."""

    roles: tuple[int, ...]
    """of each kind of GPU"""
    decode_policy: Any
    """a router of requests whose KV is held; it has a memory of its own"""
    kv_bytes: float
    """of a token"""
    sharing: int
    """of links (see `prebleexp.sim.links`)"""
    rate: float
    """of each GPU's egress, and of its ingress: bytes a second"""
    latency_s: float
    protocol: int = PULL
    send: int = END
    """with RESERVE_FIRST"""
    layers: int = 1
    """of the model, for LAYERS"""
    decider: int = ALWAYS
    least_tokens: int = 0
    """with UNCACHED"""

    @property
    def prompts_first(self) -> bool:
        """Whether a prompt's GPU is chosen before its output's."""
        return self.decider == ALWAYS

    @property
    def whole(self) -> bool:
        """Whether some GPUs may serve a request to its end. Then routers are told of a prompt's leg what they would be
        told of the request, else that it has one token to generate."""
        return BOTH in self.roles

    def pools(self, requests: int, counts: Sequence[int]) -> Pools:
        """The pools of a run of so many requests. `counts`: GPUs of each of `roles`."""
        return Pools(
            requests=requests,
            legs=requests,
            roles=np.repeat(np.array(self.roles), counts),
            kv_bytes=float(self.kv_bytes),
            whole=self.whole,
            protocol=self.protocol,
            send=self.send,
            layers=self.layers,
            decider=self.decider,
            first=requests if self.prompts_first else 0,
            both_at_arrival=self.protocol != PULL or not self.prompts_first,
            least_tokens=self.least_tokens,
            handoff=records(1, addresses.HANDOFF)[0],
            decides=records(1, addresses.DECIDER)[0],
        )

    def links(self, requests: int, gpus: int) -> links.Links:
        made = links.made_links(requests, gpus, self.sharing, float(self.rate), float(self.latency_s))
        return sending.with_parts(made) if self.protocol == RESERVE_FIRST else made


UNUSED = links.nothing()


def nothing(requests: int, gpus: int) -> Pools:
    """What a run without pools has, and writes nothing to: all GPUs do both."""
    alike = Disaggregation((BOTH,), None, 0.0, links.INFINITE, np.inf, 0.0)
    return alike.pools(requests, (gpus,))._replace(legs=0, first=0)


def with_legs(workload: Workload, whole: bool) -> Workload:
    """The same requests, and behind them as many that are what computes their prompts: of one token, which nobody
    sees, unless they are `whole`. When those come says nothing: none is due by itself."""
    n, rows = len(workload), len(workload.segment_ids)
    columns = {name: np.concatenate([getattr(workload, name)] * 2) for name in (*COLUMNS, *OPTIONAL)}
    columns["arrival_s"][n:] = workload.arrival_s.max(initial=0.0)
    columns["segment_offsets"] = np.concatenate([workload.segment_offsets, rows + workload.segment_offsets[1:]])
    if not whole:
        columns["output_tokens"][n:] = columns["max_new_tokens"][n:] = 1
        columns["answer_segment"][n:] = -1
    after = np.concatenate([workload.after_offsets, np.full(n, len(workload.after_ids))])
    return workload.changed(**columns, after_offsets=after, predictions={})


def told_of_legs(expected: Floats | None, whole: bool) -> Floats | None:
    """What routers expect of requests, and of their prompts' legs."""
    if expected is None:
        return None
    return np.concatenate([expected, expected if whole else np.ones(len(expected))])


def refined_of_legs(refined: tuple[Ints, Floats] | None, whole: bool) -> tuple[Ints, Floats] | None:
    """The same of length classes: a prompt's leg that makes one token is of a class of its own."""
    if refined is None:
        return None
    classes, left = refined
    one = np.zeros((1, left.shape[1]))
    one[0, 0] = 1.0
    of_legs = classes if whole else np.full(len(classes), len(left), classes.dtype)
    return np.concatenate([classes, of_legs]), np.concatenate([left, one])


# ---------------------------------------------------------------- rows
@compiled
def prefills(world: World, g: int) -> bool:
    """Whether a GPU computes prompts alone."""
    return bool(world.pools.roles[g] == PREFILL)


@compiled
def decodes(world: World, g: int) -> bool:
    """Whether a GPU makes outputs alone, from KV that others computed."""
    return bool(world.pools.roles[g] == DECODE)


@compiled
def is_routed_again(world: World, row: int) -> bool:
    """Whether a row is a request whose prompt is computed elsewhere, which is asked about a second time."""
    return row < world.pools.legs


@compiled
def asked_first(world: World, request: int) -> int:
    """The row of a request that routers are asked about when it comes."""
    return request + world.pools.first


@compiled
def is_asked_second(world: World, row: int) -> bool:
    """Whether that row's GPU was to be chosen before this one's."""
    return row != asked_first(world, request_of(world, row))


@compiled
def is_part(world: World, row: int) -> bool:
    """Whether a row, which was sent to a GPU, is a part of a request of which both GPUs are chosen at arrival."""
    pools = world.pools
    return pools.both_at_arrival and (row < pools.requests or prefills(world, int(world.seen.requests[row].gpu)))


@compiled
def is_loading(world: World, row: int) -> bool:
    """Whether KV of it is under way from tiers."""
    coming = False
    for fetch in world.tiers.fetches[row : row + 1]:  # none without tiers
        coming = fetch.coming != 0
    return bool(coming)


@compiled
def leg_of(world: World, request: int) -> int:
    """The row of what computes its prompt: itself, without pools."""
    return request + world.pools.legs


@compiled
def request_of(world: World, row: int) -> int:
    """The request, from 0 to n − 1, that a row of requests or of prompts' legs is of."""
    return row - world.pools.requests if row >= world.pools.requests else row
