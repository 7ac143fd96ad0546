"""The results of a step that verified drafts (vllm/v1/core/sched/scheduler.py, `update_from_output`).

Most requests of it have been there before, had their last tokens one step ago, and are not over: nothing is called for
these, since a call that is handed all that there is takes longer than what is done for one of them.
"""

from __future__ import annotations

from prebleexp.engines.vllm.drafts import drawn
from prebleexp.engines.vllm.phases import nothing
from prebleexp.engines.vllm.records import Engines
from prebleexp.engines.vllm.results import serve
from prebleexp.engines.vllm.tables import release_late, remember
from prebleexp.sim.compiled import chosen_by, compiled
from prebleexp.sim.gaps import alike
from prebleexp.sim.pools import prefills
from prebleexp.sim.records import NONE, World


@compiled
def _verify(mine: Engines, world: World, g: int, slot: int) -> int:
    """Of the step that is over; rejected drafts are taken back. So many of its requests are left to be served: none."""
    gpu, spec, gaps, now = mine.gpus[g], mine.speculation, world.gaps, world.control.now
    step, chosen, size, together = mine.steps[g, slot], mine.chosen[g, slot], mine.settings.block_size, 0
    before_s, each = spec.ended_s[g], gaps.each or len(gaps.shown) > 0
    spec.ended_s[g] = now
    for row in range(step.chosen if mine.settings.fenced else 0):  # their end came sooner than was known
        if mine.jobs[chosen[row].request].finished != 0:
            release_late(mine, g, int(chosen[row].request))
    for row in range(step.chosen):
        one = chosen[row]
        request = int(one.request)
        job = mine.jobs[request]
        if job.finished != 0:  # it gave up, or its end came sooner than was known
            continue
        stale = job.stale > 0
        job.under_way -= one.tokens
        job.stale -= one.tokens if stale else 0
        if one.samples == 0 or (stale and prefills(world, g)):  # a producer's is dropped
            continue
        drafts, tokens = int(one.samples) - 1, 1
        if drafts > 0 and (one.hits == NONE or spec.takes_padding):
            tokens += min(drafts, drawn(spec.accepts, request, int(spec.verified[request])))
            spec.verified[request] += 1
            world.totals[g].verified_steps += 1
            world.totals[g].accepted_tokens += tokens - 1
        goes_on = job.known + tokens < job.limit
        spec.proposed[request] += int(goes_on)
        if not goes_on or stale or job.running != 1 or each or gaps.last_s[request] != before_s:
            serve(mine, world, g, request, stale, tokens, drafts + 1 - tokens, now)
        else:
            together += 1
            gaps.last_s[request] = now
            job.known += tokens
            job.computed -= drafts + 1 - tokens
            job.expected -= drafts + 1 if job.expected > 0 else 0
            gpu.generated += tokens
            world.jobs[request].latency_s = now - world.seen.requests[request].arrival_s
            full = min(int(job.computed - job.under_way), int(job.known) - mine.settings.key_ahead)
            if full >= (job.keyed + 1) * size:
                remember(mine, world, g, request, full)
        if job.finished != 0:
            mine.finished[g, slot, step.finished] = request
            step.finished += 1
    alike(gaps.classes[0], now - before_s, together)
    return 0


verify = chosen_by("speculation", nothing, _verify)
"""… without drafts all of them"""
