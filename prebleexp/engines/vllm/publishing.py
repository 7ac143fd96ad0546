"""What a GPU tells of itself."""

from __future__ import annotations

from prebleexp.engines.serving import ahead_of
from prebleexp.engines.vllm.records import Engines
from prebleexp.engines.vllm.steady import known_of
from prebleexp.engines.vllm.tables import tokens_of
from prebleexp.sim.compiled import compiled
from prebleexp.sim.records import World


@compiled
def publish(mine: Engines, world: World, g: int) -> None:
    """As of now. Those that wait for KV which is under way wait like others."""
    gpu, live = mine.gpus[g], world.live[g]
    live.queued, live.running = gpu.queued + gpu.reserved, gpu.running
    live.waiting_tokens = gpu.waiting_tokens
    live.kv_free = live.kv_tokens - tokens_of(mine, mine.settings.blocks - gpu.unkeyed)
    live.evictable = tokens_of(mine, gpu.free - gpu.unkeyed)
    live.generated = gpu.generated
    live.window_hit_tokens, live.window_prompt_tokens = gpu.recent_hits, gpu.recent_prompts
    if world.rules.follow:  # of all running requests: see `ahead_of`
        live.ahead = 0.0
        for row in range(gpu.running):
            request = int(mine.running[g, row])
            output = known_of(mine.jobs[request], gpu.over) - int(world.seen.requests[request].prompt_tokens)
            live.ahead += ahead_of(world, request, output)
