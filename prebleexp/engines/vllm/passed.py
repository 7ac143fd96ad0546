"""Who was passed over in a scheduling and waits since then, for `prefill_schedule_interval` (vLLM's
`deferred_waiting`): such requests do not count as left waiting by a step that could have prompts."""

from __future__ import annotations

from prebleexp.engines.vllm.phases import nothing
from prebleexp.engines.vllm.records import Engines
from prebleexp.sim.compiled import chosen_by, compiled
from prebleexp.sim.records import World


@compiled
def _pass_over(mine: Engines, world: World, g: int, request: int) -> int:
    of = mine.cadence
    of.passed[g] += 1 - of.was_passed[request]
    of.was_passed[request] = 1
    return 0


@compiled
def _waits_no_more(mine: Engines, world: World, g: int, request: int) -> int:
    of = mine.cadence
    of.passed[g] -= of.was_passed[request]
    of.was_passed[request] = 0
    return 0


pass_over = chosen_by("cadence", nothing, _pass_over)
waits_no_more = chosen_by("cadence", nothing, _waits_no_more)
