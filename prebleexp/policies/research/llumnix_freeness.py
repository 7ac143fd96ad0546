"""Llumnix's dispatch by freeness."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from prebleexp.policies.base import Policy
from prebleexp.policies.candidates import nth
from prebleexp.sim.compiled import compiled
from prebleexp.sim.records import GPUS, View


@dataclass(frozen=True)
class LlumnixFreeness(Policy):
    """The GPU with the most free KV memory for each of its requests, where what waiting requests need counts as taken;
    one without requests is free without bounds. The first of equals.

    Source: Llumnix (OSDI 2024), AlibabaPAI/llumnix 24220fb, dispatch policy load, metric remaining_steps (spec:
    routers, group B, section 7): read, there are no recordings. Migration, which Llumnix is known for, is
    `cluster=migrating`, and off by default there. Memory is counted in tokens: dividing by the block size changes no
    order but for rounding. What only the prefix cache holds is free, as in vLLM. Requests that wait need what they have
    still to compute of their prompts, as the engine reports it; Llumnix counts the whole of those prompts, cached or
    not, and nothing for one that is part-way through its prefill. Requests are those that were sent and are not
    finished."""

    reads_lengths: ClassVar[bool] = False

    def route(self, mine: Any, view: View, request: int, now: float) -> int:
        candidates, sent = view.candidates, view.sent
        view.work[GPUS] += len(candidates)
        best = candidates[0]
        most, of = free(view, best), sent[best].outstanding
        for i in range(len(candidates)):
            g = nth(candidates, len(sent), i)
            requests = sent[g].outstanding
            if requests == 0:
                return g
            if free(view, g) * of > most * requests:  # a request, without the time that dividing takes
                best, most, of = g, free(view, g), requests
        return best


@compiled
def free(view: View, g: int) -> int:
    """Tokens of KV memory."""
    gpu = view.gpus[g]
    return int(gpu.kv_free + gpu.evictable - gpu.waiting_tokens)
