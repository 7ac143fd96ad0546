"""Least expected work."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from prebleexp.policies import backlog
from prebleexp.policies.base import Policy, memory
from prebleexp.sim.compiled import compiled
from prebleexp.sim.cost import decode_s, linear_s, prefill_s, request_ms
from prebleexp.sim.memory import OUTPUT_UNIT, Memory
from prebleexp.sim.types import Workload

NS = 1e-9


@dataclass(frozen=True)
class LeastWork(Policy):
    """The GPU that would have the least to do, in GPU seconds: prefills of its unfinished requests (as many of them as
    still wait, on average), their output to come at its share of a decode step, and the same of this request; the first
    of several.

    A token that many share a step for is cheap, so long outputs are sent where many run, and short ones find a GPU to
    themselves while there are any."""

    compiled: ClassVar[bool] = True
    follows_running: ClassVar[bool] = True

    def start(self, workload: Workload, gpus: int, seed: int) -> Memory:
        return memory([0] * (2 * gpus), [0.0] * gpus, tree_for=len(workload))

    @staticmethod
    def route(state: Any, gpus: Any, request: Any, prompts: Any, now: float) -> int:
        leaf = backlog.take_up(state, len(gpus), request, prompts)
        best, least, best_prefill = 0, -1.0, 0.0
        for g in range(len(gpus)):
            new, length = backlog.missing(state, request, g), request.prompt_tokens
            prefill = prefill_s(state.cost, 1, new, length, new, request_ms(state.cost, new, length))
            work = _work_s(state, gpus[g], g, len(gpus), request, prefill)
            if least < 0.0 or work < least:
                best, least, best_prefill = g, work, prefill
        backlog.add(state, leaf, request, best, round(best_prefill / NS))
        row = state.tree.routed[request.index]
        state.ints[best] += row.prefill_ns
        state.ints[len(gpus) + best] += row.output
        return best

    @staticmethod
    def finish(
        state: Any, gpus: Any, request: Any, prompts: Any, gpu: int, ttft_s: float, tpot_s: float, now: float
    ) -> None:
        row = state.tree.routed[request.index]
        state.ints[gpu] -= row.prefill_ns
        state.ints[len(gpus) + gpu] -= row.output
        backlog.finish(state, request, gpu)

    @staticmethod
    def evicted(state: Any, gpus: Any, request: Any, prompts: Any, gpu: int, tokens: int, now: float) -> None:
        backlog.evicted(state, request, prompts, gpu, tokens)


@compiled
def _work_s(memory: Memory, gpu: Any, g: int, gpus: int, request: Any, prefill: float) -> float:
    """What GPU g would have to do. An output token costs its share of a step that decodes what runs there and one
    more request, each with a context like this one's."""
    waiting = gpu.queued / gpu.outstanding if gpu.outstanding > 0 else 0.0
    batch = gpu.running + 1
    context = batch * request.prompt_tokens
    token_s = decode_s(memory.cost, batch, context, context, linear_s(memory.cost, batch)) / batch
    to_come = max(0.0, memory.ints[gpus + g] / OUTPUT_UNIT - gpu.generated - gpu.ahead) + request.expected_output
    return memory.ints[g] * NS * waiting + prefill + to_come * token_s
