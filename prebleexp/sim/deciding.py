"""Whether a prompt is computed on a GPU of its own, or where its output is made (spec: clusters.md, 1.6).

It is asked when the output's GPU is chosen, and before a prompt's is.
"""

from __future__ import annotations

from prebleexp.sim.compiled import compiled
from prebleexp.sim.cost import request_ms, step_s
from prebleexp.sim.links import HANDOFF
from prebleexp.sim.plug import call_float, call_int
from prebleexp.sim.pools import UNCACHED, prefills
from prebleexp.sim.records import World


@compiled
def goes(self: None, mine: None, world: World, request: int, now: float) -> int:
    """Whether a request's prompt goes to a GPU for prompts."""
    seen, g = world.seen.requests[request], int(world.seen.requests[request].gpu)
    engine, prompt = world.engines[g], int(seen.prompt_tokens + world.jobs[request].shown)
    found = call_int(engine.found, engine.own, world, request, now)
    if world.pools.decider == UNCACHED:
        return int(prompt - found >= world.pools.least_tokens)
    here = _waits(world, g, prompt) + _prefill_s(world, g, prompt - found, prompt)
    return int(_elsewhere(world, g, prompt, found, now) < here)


@compiled
def _elsewhere(world: World, target: int, prompt: int, found: int, now: float) -> float:
    """Seconds until a prompt is computed on the GPU that is soonest to do so, with nothing cached, and is here."""
    soonest, link = float("inf"), world.links.calls
    size, place = (prompt - found) * world.pools.kv_bytes, int(world.links.places[HANDOFF])
    for g in world.seen.candidates:
        if prefills(world, g):
            moves = call_float(link.takes, link.own, place + g, place + target, size, now)
            soonest = min(soonest, _waits(world, g, prompt) + _prefill_s(world, g, prompt, prompt) + moves)
    return soonest


@compiled
def _waits(world: World, g: int, prompt: int) -> float:
    """Seconds that the prompts of a GPU take that wait, each token as much as one of this prompt alone."""
    return _prefill_s(world, g, prompt, prompt) / prompt * int(world.seen.gpus[g].waiting_tokens)


@compiled
def _prefill_s(world: World, g: int, new: int, length: int) -> float:
    """Seconds of a step that computes so many tokens of a prompt alone."""
    cost = world.seen.costs[g]
    return max(0.0, step_s(cost, 1, new, length, 0, 0, length, request_ms(cost, new, length)))
