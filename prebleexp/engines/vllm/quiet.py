"""Quiet steps: everybody decodes steadily, nobody waits, is looked at, or has a first or last token (see
`engines.vllm.steady`). Where the step in hand, the one that begins behind it and the one that is scheduled then are
quiet, little is left to do of `end` and `begin`."""

from __future__ import annotations

from typing import Any

from prebleexp.engines.largest import keep_largest
from prebleexp.engines.vllm.records import STEPS, Engines
from prebleexp.engines.vllm.running import first_due
from prebleexp.engines.vllm.scheduling import empty
from prebleexp.engines.vllm.tables import cross, held, tokens_of
from prebleexp.sim.compiled import compiled
from prebleexp.sim.cost import decode_s
from prebleexp.sim.gaps import alike
from prebleexp.sim.records import NONE, World


@compiled
def decode(self: Any, mine: Engines, world: World, g: int, now: float) -> float:
    """The step in hand is over, and the next one begins: the seconds that it takes. Negative: one of the three is not
    quiet, and nothing is done."""
    gpu, settings, clock = mine.gpus[g], mine.settings, int(mine.gpus[g].scheduled)
    ahead, running, phase = int(settings.async_scheduling), int(gpu.steady), clock % settings.block_size
    over, begins = mine.steps[g, (gpu.begun - 1) % STEPS], mine.steps[g, gpu.begun % STEPS]
    if over.quiet == 0 or over.fresh > 0 or clock - gpu.begun != ahead or (ahead > 0 and begins.quiet == 0):
        return -1.0
    if over.news != NONE or gpu.news != NONE or gpu.queue != NONE or gpu.flush != 0:
        return -1.0
    if running == 0 or running > settings.max_num_batched_tokens:
        return -1.0
    if gpu.quiet_until <= clock:
        gpu.quiet_until = first_due(mine.due[g, : gpu.running])
        if gpu.quiet_until <= clock or settings.one_by_one:
            return -1.0
    crosses = mine.stirred[g, phase] > 0
    lacks_keys = len(mine.blocks.slot_keys) < 2 * (mine.blocks.control.keys + settings.keys_ahead)
    if crosses and (lacks_keys or gpu.free < settings.tables * mine.crossing[g, phase]):
        return -1.0
    total, live = world.totals[g], world.live[g]
    # the step in hand is over
    alike(world.gaps.classes[0], now - gpu.step_ended_s, int(over.steady))
    gpu.over, gpu.step_ended_s = gpu.begun, now
    gpu.generated += over.steady
    # one more is scheduled
    step = mine.steps[g, clock % STEPS]
    if step.quiet == 0:
        empty(step, now)
        step.quiet = step.counts = 1
    step.requests = step.steady = step.computed = running
    step.fresh = step.evicted = 0
    gpu.context += running
    if crosses:
        cross(mine, world, g, NONE)
        used, live.evictable = tokens_of(mine, settings.blocks - gpu.unkeyed), tokens_of(mine, gpu.free - gpu.unkeyed)
        live.kv_free, total.peak_kv_tokens = live.kv_tokens - used, max(total.peak_kv_tokens, used)
    context = int(gpu.context)
    keep_largest(total, running, context)
    seconds = decode_s(world.seen.costs[g], running, context, min(context, held(mine, g)), 1)
    step.seconds = max(0.0, seconds) + settings.host_s
    gpu.scheduled = clock + 1
    # the next begins
    gpu.begun += 1
    total.decode_steps += 1
    total.forwarded_tokens += begins.computed
    if begins.evicted > 0:
        total.evicted_tokens += tokens_of(mine, begins.evicted)
    live.generated = gpu.generated
    return float(begins.seconds)
