"""Who is let in: each rule that is set must let a request in."""

from __future__ import annotations

import numpy as np

from prebleexp.gateway.books import BY_BUCKET, BY_FULL_QUEUE, BY_LIMIT, BY_PROMISE, BY_SATURATION, Books
from prebleexp.sim.compiled import compiled
from prebleexp.sim.cost import prefill_s
from prebleexp.sim.pools import decodes
from prebleexp.sim.records import World


@compiled
def refused(mine: Books, world: World, request: int, now: float) -> int:
    """By what, as in `Outcome.refused_by`; 0: it is let in, and has taken its tokens of the bucket. It is among those
    present already."""
    terms = mine.terms
    if 0 < terms.limit < world.control.present - mine.control.away:
        return BY_LIMIT
    if terms.shed and world.seen.requests[request].priority > 0 and saturation(mine, world) >= 1.0:
        return BY_SATURATION
    if terms.slo_ttft_s < np.inf and predicted_ttft_s(mine, world, request) > terms.slo_ttft_s:
        return BY_PROMISE
    if 0 < terms.queue_limit <= mine.control.waiting:
        return BY_FULL_QUEUE
    if terms.bucket_tokens > 0 and not _takes(mine, int(world.seen.requests[request].prompt_tokens), now):
        return BY_BUCKET
    return 0


@compiled
def saturation(mine: Books, world: World) -> float:
    """Mean over the GPUs that are not known to be down, as they told last (llm-d's detector): 1 is full."""
    terms, total, count = mine.terms, 0.0, 0
    for g in range(len(world.servers)):
        if world.servers[g].gone == 0:
            seen = world.seen.gpus[g]
            used = 1.0 - (seen.kv_free + seen.evictable) / seen.kv_tokens
            total += max(seen.queued / terms.saturated_queue, used / terms.saturated_kv)
            count += 1
    return total / max(1, count)


@compiled
def predicted_ttft_s(mine: Books, world: World, request: int) -> float:
    """The least over the GPUs for prompts that are not known to be down: the whole prompt, and at its pace per token
    what waits there, as the GPU told last, and the GPU's share of what waits here."""
    tokens, up = int(world.seen.requests[request].prompt_tokens), 0
    for g in range(len(world.servers)):
        up += int(_computes_prompts(world, g))
    least = np.inf
    for g in range(len(world.servers)):
        if _computes_prompts(world, g):
            ahead = world.seen.gpus[g].waiting_tokens + mine.control.waiting_tokens / up
            alone_s = prefill_s(world.seen.costs[g], tokens, tokens)
            least = min(least, alone_s + alone_s / tokens * ahead)
    return least


@compiled
def _computes_prompts(world: World, g: int) -> bool:
    return bool(world.servers[g].gone == 0) and not decodes(world, g)


@compiled
def _takes(mine: Books, tokens: int, now: float) -> bool:
    """Whether the bucket has so many tokens; then they are taken."""
    gate, terms = mine.control, mine.terms
    gate.level = min(float(terms.bucket_tokens), gate.level + terms.refill_tokens_s * (now - gate.filled_s))
    gate.filled_s = now
    if gate.level < tokens:
        return False
    gate.level -= tokens
    return True
