"""Least expected work."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from prebleexp.policies import backlog
from prebleexp.policies.backlog import Backlog, Balancing
from prebleexp.policies.prefix_records import OUTPUT_UNIT
from prebleexp.sim.compiled import compiled
from prebleexp.sim.cost import decode_s, prefill_s
from prebleexp.sim.records import View

NS = 1e-9


@dataclass(frozen=True)
class LeastWork(Balancing):
    """The GPU that would have the least to do, in GPU seconds: prefills of its unfinished requests (as many of them as
    still wait, on average), their output to come at its share of a decode step, and the same of this request; the first
    of several.

    A token that many share a step for is cheap, so long outputs are sent where many run, and short ones find a GPU to
    themselves while there are any."""

    follows_running: ClassVar[bool] = True

    def route(self, mine: Any, view: View, request: int, now: float) -> int:
        leaf = backlog.take_up(mine, view, request)
        length = view.requests[request].prompt_tokens
        best, least, best_prefill = view.candidates[0], -1.0, 0.0
        for g in view.candidates:
            prefill = prefill_s(view.costs[g], backlog.missing(mine, view, request, g), length)
            work = work_s(mine, view, g, request, prefill)
            if least < 0.0 or work < least:
                best, least, best_prefill = g, work, prefill
        backlog.add(mine, view, leaf, request, best, round(best_prefill / NS))
        return best


@compiled
def work_s(mine: Backlog, view: View, g: int, request: int, prefill: float) -> float:
    """What GPU g would have to do. An output token costs its share of a step that decodes what runs there and one
    more request, each with a context like this one's."""
    gpu, row, outstanding = view.gpus[g], view.requests[request], view.sent[g].outstanding
    waiting = gpu.queued / outstanding if outstanding > 0 else 0.0
    batch = gpu.running + 1
    context = batch * row.prompt_tokens
    token_s = decode_s(view.costs[g], batch, context, context, 1) / batch
    to_come = max(0.0, mine.output[g] / OUTPUT_UNIT - gpu.generated - gpu.ahead) + row.expected_output
    return mine.prefill[g] * NS * waiting + prefill + to_come * token_s
