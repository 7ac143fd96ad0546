"""What it costs to send a request to a GPU: seconds of delay, its own and others', each with its weight.

All of a GPU's seconds are asked of its cost model: a step of all that waits there and all that decodes, with this
request and without, and a decode step of all of them. Where an engine does not mix prompts and outputs in a step
(SGLang), the step is of all that waits alone, and who decodes waits for all of it; and who lacks memory waits for it.
"""

from __future__ import annotations

from typing import NamedTuple

from prebleexp.policies.marginal.book import MEMORY_S, Book, usual_tokens
from prebleexp.policies.marginal.room import room_s
from prebleexp.sim.compiled import compiled
from prebleexp.sim.cost import decode_s, request_ms, step_s
from prebleexp.sim.records import View


class Asked(NamedTuple):
    """Of the request in hand, whichever GPU it goes to."""

    length: int
    """tokens of its prompt"""
    limit: int
    """tokens that it may generate at most"""
    output: float
    """tokens that it is expected to generate, at least 1"""
    weight: float
    """of a second of its latency"""
    first: float
    """of a second before its first token, that one included"""
    used: int
    """leading tokens of it that others use"""
    stay_s: float
    """seconds that requests were in memory of late, after their first tokens"""
    most: int
    """tokens of it that the GPU has which has most"""
    settles: float
    """0: some GPU has more than half of it; else the share of prompts that GPUs had of late, which is how much is lost
    with a prefix"""
    coming: float
    """requests a second that each GPU gets of late"""
    ttft_weight: float
    """as the policy has it, …"""
    tail_weight: float
    """… what a second before its first token weighs besides, …"""
    late_s: float
    """… behind so many, and …"""
    others_weight: float
    """… what others' waiting weighs, …"""
    others_decode_weight: float
    """… their decoding, …"""
    copy_weight: float
    """… what is computed although another GPU has it, …"""
    memory_weight: float
    """… what is computed anew since a copy took its place, …"""
    settle_weight: float
    """… what settles where much did, …"""
    rent_weight: float
    """… and what is paid for a copy"""


class Price(NamedTuple):
    """Weighted seconds, which add up to what is compared, and what they were made of."""

    own_wait: float
    """until its first token"""
    own_decode: float
    """from there to its last"""
    tail: float
    """until its first token, behind what is usual"""
    others_wait: float
    """of those that are there, while its prompt is computed"""
    others_decode: float
    """of those that are there, whose steps are longer for as long as it stays"""
    coming: float
    """of those that will come while its prompt is computed"""
    copy: float
    """for what is computed although another GPU has it: it takes memory, and the next who could use either finds one"""
    memory: float
    """for what a copy drives out of the cache, which will be computed anew, as this is, before others as these"""
    settle: float
    """for a prompt that nobody has: others that begin like it follow, and find a GPU on which many settled full"""
    wait_s: float
    """seconds until its first token, …"""
    new: int
    """… tokens to compute, …"""
    ms: float
    """… and what it adds to a step"""


@compiled
def total(price: Price) -> float:
    own, others = price.own_wait + price.own_decode + price.tail, price.others_wait + price.others_decode + price.coming
    return float(own + others + price.copy + price.memory + price.settle)


class There(NamedTuple):
    """What a GPU does with the request and without, however much of it the GPU has."""

    running_weight: float
    """of a second of the latency of those who decode, …"""
    decoding: int
    """… how many of them are in a step beside prompts, …"""
    beside: int
    """… and the tokens of these"""
    decode: float
    """seconds of a decode step of all that are there, 0 if nobody is, …"""
    decode_with: float
    """… of one with the request, …"""
    slower: float
    """… by how much longer than for those that are there, if anybody is, …"""
    before: float
    """… and of a step of all that waits, beside those who decode or alone"""


@compiled
def there_of(mine: Book, view: View, asked: Asked, gpu: int) -> There:
    """So much of a price takes most of the time, and is asked once for all that the GPU might have."""
    at, seen, cost = mine.gpus[gpu], view.gpus[gpu], view.costs[gpu]
    # of those that others sent nothing is known but their number
    running, context = int(at.running + at.unknown), int(at.context + seen.generated)
    if at.unknown > 0:
        context += round(at.unknown * usual_tokens(mine))
    both, both_context = running + int(at.waiting), context + int(at.length)
    decode = decode_s(cost, both, both_context, both_context, 1) if both > 0 else 0.0
    decode_with = decode_s(cost, both + 1, both_context + asked.length, both_context + asked.length, 1)
    slower = max(0.0, decode_with - decode) if both > 0 else 0.0
    decoding, beside = (running, context) if at.mixed else (0, 0)
    before = decode if decoding > 0 else 0.0
    if at.waiting > 0:
        before = step_s(cost, at.waiting, at.new, at.length, decoding, beside, at.new + beside, at.ms)
    running_weight = at.running_weight + at.unknown * asked.weight
    return There(running_weight, decoding, beside, decode, decode_with, slower, before)


@compiled
def price_of(mine: Book, view: View, asked: Asked, gpu: int, there: There, held: int, now: float) -> Price:
    """What it adds to all delays if the GPU gets it now, and has so many leading tokens of its prompt."""
    at, seen, cost = mine.gpus[gpu], view.gpus[gpu], view.costs[gpu]
    new = max(1, asked.length - held)
    ms = request_ms(cost, new, asked.length)
    after = step_s(
        cost,
        at.waiting + 1,
        at.new + new,
        at.length + asked.length,
        there.decoding,
        there.beside,
        at.new + new + there.beside,
        at.ms + ms,
    )
    longer = max(0.0, after - there.before)
    wait = 0.5 * there.decode + after  # half a decode step is left of that in hand
    if at.waiting > 0:
        # what is under way shortens the wait, but where prompts do not share steps, decode steps come between
        wait = (min(max(0.0, at.until_s - now), there.before) if at.mixed else there.before) + longer
    wait += room_s(mine, at, seen, max(new, asked.length - asked.used), asked.limit, asked.stay_s)
    waiting = at.waiting * asked.ttft_weight + at.waiting_weight
    again = asked.first + asked.others_weight * (waiting + there.running_weight)  # of a second of a later prompt
    copied = max(0, asked.most - held) / new
    room = max(float(new), float(seen.kv_free + seen.evictable - at.new))
    missed = at.computed / MEMORY_S * asked.stay_s / room  # share of what is driven out that is asked for again
    return Price(
        asked.first * wait,
        asked.weight * (asked.output - 1.0) * there.decode_with,
        asked.tail_weight * max(0.0, wait - asked.late_s),
        longer * (asked.others_weight * waiting + there.running_weight),
        asked.others_decode_weight * there.slower * asked.output * (at.waiting_weight + there.running_weight),
        asked.others_weight * asked.coming * asked.ttft_weight * longer * (wait - 0.5 * longer),
        asked.copy_weight * asked.first * longer * copied,
        asked.memory_weight * again * longer * copied * missed,
        asked.settle_weight * asked.settles * asked.first * longer * at.settled / max(1, seen.kv_tokens),
        wait,
        new,
        ms,
    )


@compiled
def price_at(mine: Book, view: View, asked: Asked, gpu: int, now: float) -> Price:
    """The price with as much of the prompt as the GPU has."""
    return price_of(mine, view, asked, gpu, there_of(mine, view, asked, gpu), int(mine.hits[gpu]), now)
