"""One run: a workload, a cluster and a policy in, an `Outcome` out."""

from __future__ import annotations

import functools
import math
from typing import Any, Protocol

import numba
import numpy as np

from prebleexp.errors import PrebleexpError
from prebleexp.sim import loop, state
from prebleexp.sim.engine import Engine
from prebleexp.sim.records import Sim
from prebleexp.sim.types import Outcome, StepCost, Workload

PAUSE = 1 << 22
"""events between two looks at signals: about a second"""


class Router(Protocol):
    """What the simulator asks of a policy (see `prebleexp.policies.base.Policy`)."""

    @property
    def compiled(self) -> bool: ...
    def start(self, workload: Workload, gpus: int, seed: int) -> Any: ...
    def route(self, state: Any, gpus: Any, request: Any, prompts: Any, now: float) -> int: ...
    def finish(
        self, state: Any, gpus: Any, request: Any, prompts: Any, gpu: int, ttft_s: float, tpot_s: float, now: float
    ) -> None: ...


class Accelerator(Protocol):
    """What the simulator asks of a hardware model (see `prebleexp.hardware.model.Hardware`)."""

    @property
    def kv_tokens(self) -> int: ...
    @property
    def context_length(self) -> int: ...
    def step_cost(self) -> StepCost: ...


def simulate(
    workload: Workload,
    *,
    gpus: int,
    policy: Router,
    hardware: Accelerator,
    engine: Engine,
    duration_s: float,
    horizon: str,
    seed: int,
    stepwise: bool = False,
) -> Outcome:
    """Serve `workload` on `gpus` GPUs; stop at `duration_s` (horizon="stop") or when all is finished ("drain").

    `seed` is the policy's; the workload has its own. `stepwise` takes no short cut through idle time or between
    simultaneous events: slower, the same results but for ties that chance never makes.

    Raises PrebleexpError if the policy names a GPU that does not exist.
    """
    sim = state.allocate(workload, gpus, hardware.kv_tokens, hardware.context_length)
    rules = loop.Rules(
        engine.step_cost_s,
        engine.output_step_cost_s,
        float(duration_s) if horizon == "stop" else math.inf,
        bool(policy.compiled),
        bool(stepwise),
        PAUSE,
    )
    sim.control.parking = not stepwise
    memory = policy.start(workload, gpus, seed)
    if policy.compiled:
        kernels, compiled_memory = _compiled(type(policy)), memory
    else:
        kernels, compiled_memory = (loop.no_route, loop.no_finish), state.EXAMPLE_MEMORY
    cost = hardware.step_cost()
    while True:
        status = loop.advance(sim, cost, rules, *kernels, compiled_memory)
        if status == loop.DONE:
            return _outcome(sim, hardware.kv_tokens)
        if status == loop.NEEDS_NODES:
            sim = state.with_more_nodes(sim)
        elif status == loop.NEEDS_ROWS:
            sim = state.with_more_rows(sim)
        elif status == loop.NEEDS_ROUTE:
            sim.control.answer = _ask(policy, memory, sim)
        elif status == loop.HAS_FINISHED:
            _tell(policy, memory, sim)
        elif status == loop.BAD_ROUTE:
            raise PrebleexpError(_bad_route(policy, sim, sim.control.answer))


def _ask(policy: Router, memory: Any, sim: Sim) -> int:
    request = sim.requests[sim.control.request]
    answer = policy.route(memory, sim.gpus, request, sim.prompts, float(sim.control.now))
    try:
        return _integer(answer)
    except TypeError:
        raise PrebleexpError(_bad_route(policy, sim, answer)) from None


def _integer(answer: Any) -> int:
    return answer.__index__()


def _bad_route(policy: Router, sim: Sim, answer: Any) -> str:
    return (
        f"policy {type(policy).__name__} sent request {sim.control.request} at {sim.control.now:g} s to GPU {answer}; "
        f"it must be an integer from 0 to {len(sim.gpus) - 1}"
    )


def _tell(policy: Router, memory: Any, sim: Sim) -> None:
    g, now = int(sim.control.gpu), float(sim.control.now)
    for index in sim.scratch.finished[: sim.control.finished]:
        job = sim.jobs[index]
        sim.gpus[g].outstanding -= 1
        ttft_s, tpot_s = float(job.ttft_s), float((job.latency_s - job.ttft_s) / job.output_seen)
        policy.finish(memory, sim.gpus, sim.requests[index], sim.prompts, g, ttft_s, tpot_s, now)


@functools.cache
def _compiled(policy: type[Any]) -> tuple[Any, Any]:
    """The class's `route` and `finish` as machine code of the loop's signatures, kept on disk by numba."""
    return (
        numba.njit(loop.ROUTE, nogil=True, cache=True)(policy.route),
        numba.njit(loop.FINISH, nogil=True, cache=True)(policy.finish),
    )


def _outcome(sim: Sim, kv_tokens: int) -> Outcome:
    jobs, gpus = sim.jobs, sim.gpus
    return Outcome(
        gpu=jobs.gpu.astype(np.int32),
        state=jobs.state.astype(np.int8),
        ttft_s=jobs.ttft_s.copy(),
        latency_s=jobs.latency_s.copy(),
        finish_s=jobs.finish_s.copy(),
        output_seen=jobs.output_seen.astype(np.int32),
        hit_tokens=jobs.hit_tokens.astype(np.int32),
        prefilled_tokens=jobs.prefilled_tokens.astype(np.int32),
        gpu_hit_tokens=gpus.hit_tokens.copy(),
        gpu_prefilled_tokens=gpus.prefilled_tokens.copy(),
        gpu_forwarded_tokens=gpus.forwarded_tokens.copy(),
        gpu_recomputed_tokens=gpus.recomputed_tokens.copy(),
        gpu_requests=gpus.requests.copy(),
        gpu_evicted_tokens=gpus.evicted_tokens.copy(),
        gpu_retracted=gpus.retracted.copy(),
        gpu_peak_kv_tokens=kv_tokens - gpus.least_kv_free,
        end_s=float(sim.control.clock),
    )
