"""NVIDIA Dynamo's KV router (spec: dynamo-llmd-research, section 1)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from prebleexp.checks import flag, is_integer, is_number, positive, require
from prebleexp.policies import below, prefix_index
from prebleexp.policies.base import HOLD, Policy, tuned
from prebleexp.policies.choices import any_least
from prebleexp.policies.dynamo import output_blocks, prompt_sets, routed, tier_credits
from prebleexp.policies.dynamo.output_blocks import OutputBlocks
from prebleexp.policies.dynamo.prompt_sets import BITS, HALF, PromptSets
from prebleexp.policies.dynamo.routed import Routed
from prebleexp.policies.dynamo.tier_credits import Credits
from prebleexp.policies.prefix_index import PrefixIndex
from prebleexp.sim.compiled import compiled
from prebleexp.sim.draws import generator, uniform
from prebleexp.sim.records import GPUS, View
from prebleexp.sim.types import Setup


class Settings(NamedTuple):
    """Of the policy, as it has them."""

    block_size: int
    events: bool
    ttl_s: float
    """of what was routed; 0: it does not count as cached"""
    credit: float
    decay: float
    scale: float
    request_weight: float
    temperature: float
    most_prefill: float
    """P of a GPU that takes more"""
    active_blocks: bool
    prefill_tokens: bool
    output_blocks: bool


class Memory(NamedTuple):
    settings: Settings
    cached: PrefixIndex
    """what the GPUs said they hold"""
    credits: Credits
    """for what the tiers behind them said they hold"""
    routed: Routed
    """what was sent to them lately, and counts as cached"""
    active: PromptSets
    """the prompts of unfinished requests"""
    outputs: OutputBlocks
    booked: Any
    """(requests,) prompt tokens to compute, until the first of its output"""
    prefill: Any
    """(GPUs,) P: sums of that"""
    overlap: Any
    """(GPUs,) leading blocks of the prompt in hand that count as cached"""
    computing: Any
    """(GPUs,) … that unfinished requests have"""
    decode: Any
    """(GPUs,) D': blocks if it got the request in hand"""
    costs: Any
    draws: Any


@dataclass(frozen=True)
class DynamoKV(Policy):
    """To the GPU with the least cost, in blocks: prompt tokens to compute, of this request and of those before it that
    have no first token, less a credit for what is cached, and the blocks that unfinished requests would use.

    ai-dynamo-runtime 1.6.1 and lib/kv-router (commits 07a6c9ce, 04df1c42, 1968be9a). Verified by recordings of the
    compiled scheduler: costs, loads, draws, both indexes, output blocks as they are told. Read, not recorded:
    credits for tiers, predicted TTL, when a block of output begins, and that it weighs less as its expected end
    comes near. Otherwise than there, hits are looked up anew whenever a request that waits is asked for, bookings
    do not expire after an hour, and what has been generated is inferred (see `output_blocks`). Of engine=released
    it hears no first token and no event. A GPU that is lost, or back, is taken from the index.

    Raises InvalidInput, naming the field.
    """

    use_kv_events: bool = True
    """the GPUs tell what they store and evict; else what was routed to one counts as cached for router_ttl_secs"""
    router_ttl_secs: float = 120.0
    """without events: for so long"""
    router_predicted_ttl_secs: float | None = None
    """with events: what was routed counts as cached for so long as well; None: not"""
    block_size: int = 16
    """tokens; blocks are full ones"""
    overlap_score_credit: float = tuned(1.0, 0.0, 3.0)
    """for a cached block"""
    overlap_score_credit_decay: float = 0.0
    """how fast the credit falls with the prompt tokens that a GPU has to compute beyond the least of all"""
    host_cache_hit_weight: float = 0.75
    """credit for a block that the GPU's host has, and its cache has not: with events, where there are tiers"""
    disk_cache_hit_weight: float = 0.25
    """… that only its disk has"""
    shared_cache_multiplier: float = 0.0
    """… that only the store for all has: 1.6.1's default is not known"""
    prefill_load_scale: float = tuned(1.0, 0.0, 4.0)
    """blocks of decoding that a block of prefill counts as"""
    decode_active_request_weight: float = 0.0
    """blocks that an unfinished request costs besides its own"""
    router_temperature: float = tuned(0.0, 0.0, 1.0)
    """0: the least cost, any of equals; else drawn, by a softmax of costs that are first divided by their range"""
    router_queue_threshold: float | None = None
    """requests wait while every GPU has more than so many times max_num_batched_tokens to compute; None: never"""
    max_num_batched_tokens: int = 8192
    """of the engine"""
    router_track_active_blocks: bool = True
    """whether the cost has the blocks of unfinished requests"""
    router_track_prefill_tokens: bool = True
    """whether it has prompt tokens to compute"""
    router_track_output_blocks: bool = False
    """whether output takes blocks; with expected lengths these, and the prompt's own, weigh less and less"""

    @property
    def reads_lengths(self) -> bool:  # type: ignore[override]  # it depends on a setting
        return self.router_track_output_blocks

    def __post_init__(self) -> None:
        positive("policy.router_ttl_secs", self.router_ttl_secs)
        for name in ("router_predicted_ttl_secs", "router_queue_threshold"):
            if getattr(self, name) is not None:
                positive(f"policy.{name}", getattr(self, name), "a number > 0, or null")
        for name, most in (("block_size", 65_536), ("max_num_batched_tokens", 1 << 30)):
            value = getattr(self, name)
            require(is_integer(value, 1, most), f"policy.{name}", value, f"an integer from 1 to {most}")
        for name in (
            *("overlap_score_credit", "overlap_score_credit_decay", "prefill_load_scale"),
            *("decode_active_request_weight", "router_temperature"),
            *tier_credits.WEIGHTS,
        ):
            value = getattr(self, name)
            require(is_number(value) and value >= 0, f"policy.{name}", value, "a number >= 0")
        for name in ("use_kv_events", *(f"router_track_{what}" for what in TRACKED)):
            flag(f"policy.{name}", getattr(self, name))

    def start(self, setup: Setup) -> Memory:
        ttl_s = (self.router_predicted_ttl_secs or 0.0) if self.use_kv_events else self.router_ttl_secs
        threshold = math.inf if self.router_queue_threshold is None else self.router_queue_threshold
        n, gpus = setup.requests, setup.gpus
        overlap, computing, decode, prefill = np.zeros((4, gpus), np.int64)
        return Memory(
            settings=Settings(
                self.block_size,
                self.use_kv_events,
                float(ttl_s),
                float(self.overlap_score_credit),
                float(self.overlap_score_credit_decay),
                float(self.prefill_load_scale),
                float(self.decode_active_request_weight),
                float(self.router_temperature),
                float(threshold * self.max_num_batched_tokens),
                self.router_track_active_blocks,
                self.router_track_prefill_tokens,
                self.router_track_active_blocks and self.router_track_output_blocks,
            ),
            cached=prefix_index.prefix_index(setup),
            credits=tier_credits.credits_of(
                setup, self.use_kv_events, *(getattr(self, name) for name in tier_credits.WEIGHTS)
            ),
            routed=routed.routed(setup, self.block_size),
            active=prompt_sets.prompt_sets(setup, self.block_size),
            outputs=output_blocks.output_blocks(setup, self.block_size),
            booked=np.zeros(n, np.int64),
            prefill=prefill,
            overlap=overlap,
            computing=computing,
            decode=decode,
            costs=np.zeros(gpus),
            draws=generator(setup.seed),
        )

    def lacks_room(self, mine: Memory, view: View, request: int) -> int:
        return routed.lacks_room(mine.routed, view, request)

    def with_more_room(self, mine: Any, view: View, request: int) -> Memory:
        value: Memory = getattr(mine, "value", mine)
        return value._replace(routed=routed.with_more_room(value.routed, view, request))

    def route(self, mine: Memory, view: View, request: int, now: float) -> int:
        if waits(mine, view):
            return HOLD
        look(mine, view, request, now)
        score(mine, view, request)
        gpu = choose(mine, view)
        book(mine, view, request, gpu, now)
        return gpu

    def first_token(self, mine: Memory, view: View, request: int, now: float) -> None:
        computed(mine, view, request)
        if mine.settings.output_blocks:
            output_blocks.first_token(mine.outputs, mine.active, view, request, now)

    def finished(self, mine: Memory, view: View, request: int, now: float) -> None:
        computed(mine, view, request)
        if mine.settings.output_blocks:
            output_blocks.finished(mine.outputs, mine.active, view, request, now)
        if mine.settings.active_blocks:
            prompt_sets.remove(mine.active, request, view.requests[request].gpu)

    def stored(self, mine: Memory, view: View, request: int, gpu: int, tokens: int, now: float) -> None:
        if mine.settings.events:
            prefix_index.store(mine.cached, view, request, gpu, tokens)

    def evicted(self, mine: Memory, view: View, request: int, gpu: int, tokens: int, now: float) -> None:
        if mine.settings.events:
            prefix_index.forget(mine.cached, view, request, gpu, tokens)

    def copied(self, mine: Memory, view: View, request: int, place: int, tokens: int, now: float) -> None:
        below.copied(mine.credits.tiers, view, request, place, tokens)

    def dropped(self, mine: Memory, view: View, request: int, place: int, tokens: int, now: float) -> None:
        below.dropped(mine.credits.tiers, view, request, place, tokens)

    def changed(self, mine: Memory, view: View, gpu: int, now: float) -> None:
        """The worker is gone, or a new one: its blocks are taken from the index."""
        prefix_index.forget_all(mine.cached, gpu)
        below.forget_host(mine.credits.tiers, gpu)
        routed.forget_all(mine.routed, gpu)
        if mine.settings.output_blocks:
            output_blocks.forget(mine.outputs, view, gpu)


TRACKED = ("active_blocks", "prefill_tokens", "output_blocks")


# ---------------------------------------------------------------- what is known
@compiled
def computed(mine: Memory, view: View, request: int) -> None:
    """The request's prompt needs no more computing."""
    mine.prefill[view.requests[request].gpu] -= mine.booked[request]
    mine.booked[request] = 0


@compiled
def waits(mine: Memory, view: View) -> bool:
    """Whether every GPU has too much to compute."""
    for gpu in view.candidates:  # noqa: SIM110  # numba has no all()
        if mine.prefill[gpu] <= mine.settings.most_prefill:
            return False
    return True


@compiled
def look(mine: Memory, view: View, request: int, now: float) -> None:
    """Write what each GPU has of the prompt, and D'."""
    settings, overlap, computing = mine.settings, mine.overlap, mine.computing
    size = settings.block_size
    if settings.events:
        prefix_index.matches(mine.cached, view, request, overlap)
        part = 1.0 / size
        for gpu in range(len(overlap)):
            overlap[gpu] = int((overlap[gpu] + 0.5) * part)  # what // gives, in a tenth of its time
    if settings.ttl_s > 0:
        routed.expire(mine.routed, view, settings.ttl_s, now)
        routed.look_up(mine.routed, view, request, computing)
        for gpu in range(len(overlap)):
            overlap[gpu] = max(overlap[gpu], computing[gpu]) if settings.events else computing[gpu]
    if mine.credits.tiers.heard:
        tier_credits.look(mine.credits, view, request, overlap, size)
    if settings.active_blocks:
        if settings.output_blocks:
            output_blocks.catch_up(mine.outputs, mine.active, view, now)
        prompt_sets.find(mine.active, view, request)
        prompt_sets.shared(mine.active, request, computing)
        weights, decode, prompt = mine.active.weights, mine.decode, view.requests[request].prompt_tokens // size
        for gpu in range(len(decode)):
            decode[gpu] = ((weights[gpu] + HALF) >> BITS) + prompt - computing[gpu]


@compiled
def book(mine: Memory, view: View, request: int, gpu: int, now: float) -> None:
    """The request goes to this GPU."""
    settings = mine.settings
    if settings.prefill_tokens:
        mine.booked[request] = view.requests[request].prompt_tokens - mine.overlap[gpu] * settings.block_size
        mine.prefill[gpu] += mine.booked[request]
    if settings.active_blocks:
        prompt_sets.add(mine.active, request, gpu)
    if settings.ttl_s > 0:
        routed.add(mine.routed, request, gpu, now)


# ---------------------------------------------------------------- what is chosen
@compiled
def score(mine: Memory, view: View, request: int) -> None:
    """Write what each GPU would cost."""
    settings, tokens = mine.settings, view.requests[request].prompt_tokens
    prefill, decode, overlap, costs, extra = mine.prefill, mine.decode, mine.overlap, mine.costs, mine.credits.each
    size, full, decay = settings.block_size, settings.credit, settings.decay
    least, needed = _least_prefill(mine, view) if decay > 0 else 0, (tokens + size - 1) // size
    if settings.prefill_tokens:
        for gpu in range(len(costs)):
            credit = full / (1 + decay * (max(0, prefill[gpu] - least) / size / needed)) if decay > 0 else full
            missing = max(0.0, (prefill[gpu] + tokens) / size - credit * overlap[gpu] - extra[gpu])
            costs[gpu] = settings.scale * missing + decode[gpu]
    else:
        for gpu in range(len(costs)):
            costs[gpu] = max(0.0, decode[gpu] - full * overlap[gpu])
    if settings.request_weight > 0:
        for gpu in range(len(costs)):
            costs[gpu] += settings.request_weight * view.sent[gpu].outstanding
    view.work[GPUS] += len(view.candidates)


@compiled
def _least_prefill(mine: Memory, view: View) -> int:
    least = mine.prefill[view.candidates[0]]
    for gpu in view.candidates:
        least = min(least, mine.prefill[gpu])
    return int(least)


@compiled
def choose(mine: Memory, view: View) -> int:
    if mine.settings.temperature > 0:
        return draw(mine, view)
    return any_least(mine.draws, view.candidates, mine.costs)


@compiled
def draw(mine: Memory, view: View) -> int:
    """Any candidate, the cheaper the likelier."""
    temperature, least, most = mine.settings.temperature, mine.costs[view.candidates[0]], mine.costs[view.candidates[0]]
    for gpu in view.candidates:
        least, most = min(least, mine.costs[gpu]), max(most, mine.costs[gpu])
    total = 0.0
    for gpu in view.candidates:
        total += _chance(mine.costs[gpu], least, most, temperature)
    left = uniform(mine.draws) * total
    for gpu in view.candidates:
        left -= _chance(mine.costs[gpu], least, most, temperature)
        if left < 0.0:
            return int(gpu)
    return int(view.candidates[-1])


@compiled
def _chance(cost: float, least: float, most: float, temperature: float) -> float:
    return math.exp(-(cost - least) / ((most - least) * temperature)) if most > least else 1.0
