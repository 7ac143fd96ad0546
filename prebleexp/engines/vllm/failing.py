"""A request whose KV does not arrive ends with an error (vllm/v1/core/sched/scheduler.py, `finish_requests` behind
`_handle_invalid_blocks`, with vLLM's default `kv_load_failure_policy=fail`)."""

from __future__ import annotations

from typing import Any

from prebleexp.engines.vllm import giving_up
from prebleexp.engines.vllm.hearing import begin_anew
from prebleexp.engines.vllm.publishing import publish
from prebleexp.engines.vllm.records import Engines
from prebleexp.sim.compiled import compiled
from prebleexp.sim.news import tell
from prebleexp.sim.notices import LOST
from prebleexp.sim.records import World
from prebleexp.sim.states import State

FAILED = int(State.FAILED)


@compiled
def fail(self: Any, mine: Engines, world: World, request: int, now: float) -> None:
    """One that waits gives its blocks back, and routers hear of it as of one that is lost: whoever routes it again
    begins with its prompt, or with what was shown behind that."""
    made, seen = world.jobs[request], world.seen.requests[request]
    g, shown = int(seen.gpu), int(world.rules.resume) * int(mine.jobs[request].known - seen.prompt_tokens)
    giving_up.leave(mine, world, g, request)
    begin_anew(mine, request)
    mine.gpus[g].flush = 1
    made.state, made.shown, seen.output_seen = FAILED, shown, shown
    made.losses += 1
    publish(mine, world, g)
    tell(world, LOST, request, g, 0)
