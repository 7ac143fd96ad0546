"""Prompts whose KV is sent by the GPU that computed them, which was known from the start (spec: clusters.md, 1.1).

It is Splitwise's protocol. The prompt's GPU makes the first token, which is shown at once. Room for all that the
request will ever have is taken where its output is made, so that nobody there runs out of it; if there is none, that is
tried again a second later.
"""

from __future__ import annotations

from prebleexp.engines.serving import finished, first_token
from prebleexp.engines.vllm.blocks import take
from prebleexp.engines.vllm.publishing import publish
from prebleexp.engines.vllm.pulling import FIRST, promised
from prebleexp.engines.vllm.records import PULLED, Engines
from prebleexp.engines.vllm.steady import blocks_of
from prebleexp.sim.compiled import compiled
from prebleexp.sim.events import REACHED, key, push
from prebleexp.sim.pulling import let_go, read
from prebleexp.sim.records import World

AGAIN_S = 1.0
"""until room is looked for again"""


@compiled
def receive(mine: Engines, world: World, g: int, request: int, now: float) -> None:
    """A request's prompt is computed elsewhere: its first token is shown, and its KV comes if there is room for it."""
    gpu, job = mine.gpus[g], mine.jobs[request]
    made, seen = world.jobs[request], world.seen.requests[request]
    if job.filling != PULLED:
        job.known, job.filling = seen.prompt_tokens + made.shown + 1, PULLED
        first_token(world, g, request, now)
        made.output_seen = seen.output_seen = job.known - seen.prompt_tokens
        if job.known >= job.limit:
            job.finished = 1
            let_go(world, request)
            finished(world, g, request, int(made.output_seen), now)
            return
    need = blocks_of(mine, int(job.limit) - 1)
    if need + promised(mine, world, g) > gpu.free:
        push(world.events, world.control, now + AGAIN_S, key(REACHED, request))
        return
    gpu.reserved += 1
    gpu.reservations += 1
    job.blocks, job.heap_key = need, FIRST + gpu.reservations
    world.totals[g].evicted_tokens += take(mine, world, g, need) * mine.settings.block_size
    read(world, request, blocks_of(mine, int(job.known) - 1) * mine.settings.block_size)
    publish(mine, world, g)
