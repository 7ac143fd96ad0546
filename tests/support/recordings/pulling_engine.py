"""vLLM's engine as pairs of recordings are driven: it is said of each request whether its prompt is computed elsewhere,
by its priority, which nobody reads where order is by arrival, and what taking its blocks has cost is written down."""

from __future__ import annotations

from typing import Any

from prebleexp.engines.vllm import stepping
from prebleexp.engines.vllm.failing import fail as fail
from prebleexp.engines.vllm.records import PULLS
from prebleexp.engines.vllm.stepping import arrive as arrive
from prebleexp.engines.vllm.stepping import begin as begin
from prebleexp.engines.vllm.stepping import cancel as cancel
from prebleexp.engines.vllm.stepping import end as end
from prebleexp.engines.vllm.stepping import hear as hear
from prebleexp.engines.vllm.stepping import lacks_room as lacks_room
from prebleexp.engines.vllm.stepping import let_go as let_go
from prebleexp.engines.vllm.stepping import settle as settle
from prebleexp.engines.vllm.stepping import submit as submit
from prebleexp.sim.compiled import compiled


@compiled
def pull(self: Any, mine: Any, world: Any, request: int, now: float) -> int:
    gpu = mine.gpus[world.seen.requests[request].gpu]
    free, asks = gpu.free, mine.jobs[request].filling == PULLS
    answer = stepping.pull(self, mine, world, request, now)
    if asks:
        world.jobs[request].answer = free - gpu.free
    return answer


@compiled
def found(self: Any, mine: Any, world: Any, request: int, now: float) -> int:
    """All of a prompt, if it stays."""
    one = world.seen.requests[request]
    return int(one.prompt_tokens) if one.priority != 0 else 0
