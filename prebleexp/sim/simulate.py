"""One run: a workload, a cluster and a policy in, an `Outcome` out."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Any, Protocol

import numba
import numpy as np

from prebleexp.errors import PrebleexpError
from prebleexp.sim import loop, state
from prebleexp.sim.engine import QUEUES, Engine
from prebleexp.sim.memory import Memory
from prebleexp.sim.records import Sim
from prebleexp.sim.room import lacks_room, with_more_room
from prebleexp.sim.types import Floats, Ints, Outcome, StepCost, Workload

MODES = {"none": loop.NO_OVERHEAD, "recorded": loop.RECORDED, "serial": loop.SERIAL}
PAUSE = 1 << 22
"""events between two looks at signals: about a second"""


class Router(Protocol):
    """What the simulator asks of a policy (see `prebleexp.policies.base.Policy`)."""

    @property
    def compiled(self) -> bool: ...
    @property
    def reads_lengths(self) -> bool: ...
    @property
    def follows_running(self) -> bool: ...
    def start(self, workload: Workload, gpus: int, seed: int) -> Any: ...
    def route(self, state: Any, gpus: Any, request: Any, prompts: Any, now: float) -> int: ...
    def finish(
        self, state: Any, gpus: Any, request: Any, prompts: Any, gpu: int, ttft_s: float, tpot_s: float, now: float
    ) -> None: ...
    def evicted(self, state: Any, gpus: Any, request: Any, prompts: Any, gpu: int, tokens: int, now: float) -> None: ...


class Forecast(Protocol):
    """What the simulator asks about output lengths (see `prebleexp.lengths.base.Lengths`)."""

    @property
    def window_s(self) -> float: ...
    @property
    def per_prefix(self) -> bool: ...
    def expected(self, workload: Workload, seed: int) -> Floats | None: ...
    def refined(self, workload: Workload, seed: int) -> tuple[Ints, Floats] | None: ...


class DecisionCost(Protocol):
    """What the simulator asks about the router's own time (see `prebleexp.overhead.model.Overhead`)."""

    @property
    def mode(self) -> str: ...
    @property
    def prediction_s(self) -> float: ...
    @property
    def decision_s(self) -> float: ...
    @property
    def unit_s(self) -> tuple[float, float, float, float]: ...


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
    lengths: Forecast,
    overhead: DecisionCost,
    duration_s: float,
    horizon: str,
    seed: int,
    stepwise: bool = False,
    on_pause: Callable[[], object] = lambda: None,
    on_event: Callable[[Sim], object] | None = None,
) -> Outcome:
    """Serve `workload` on `gpus` GPUs; stop at `duration_s` (horizon="stop") or when all is finished ("drain").

    `lengths` says what the policy is told of output lengths, `overhead` what its decisions take. `seed` is that of
    policy and lengths; the workload has its own. `stepwise` takes no short cut through idle time or between
    simultaneous events: slower, the same results but for ties that chance never makes. `on_pause` is called about once
    a second of work, and when Python is needed anyway; it may end the run by raising. `on_event` is called after every
    event, which takes a hundred times as long.

    Raises PrebleexpError if the policy names a GPU that does not exist.
    """
    mode, prediction_s = MODES[overhead.mode], float(overhead.prediction_s)
    refined = lengths.refined(workload, seed)
    sim = state.allocate(
        workload,
        gpus,
        hardware.kv_tokens,
        hardware.context_length,
        lengths.expected(workload, seed),
        engine.groups,
        engine.block_tokens - 1,
        prediction_s if mode == loop.SERIAL else 0.0,
        refined,
    )
    rules = loop.Rules(
        engine.step_cost_s,
        engine.output_step_cost_s,
        float(duration_s) if horizon == "stop" else math.inf,
        bool(policy.compiled),
        bool(stepwise),
        float(lengths.window_s),
        bool(lengths.per_prefix),
        bool(policy.reads_lengths and (policy.follows_running or refined is not None)),
        mode,
        prediction_s,
        float(overhead.decision_s),
        overhead.unit_s,
        QUEUES.index(engine.queue),
        engine.groups,
        engine.chunk_tokens if engine.prefill == "chunked" else 0,
        engine.block_tokens,
        PAUSE if on_event is None else 1,
    )
    sim.control.parking = not stepwise
    route, finish, evicted = (
        _compiled(type(policy)) if policy.compiled else (loop.no_route, loop.no_finish, loop.no_evicted)
    )
    cost = hardware.step_cost()
    memory = policy.start(workload, gpus, seed)
    if isinstance(memory, Memory):
        memory = memory._replace(cost=cost)
    while True:
        compiled_memory = memory if isinstance(memory, Memory) else state.EXAMPLE_MEMORY
        status = loop.advance(sim, cost, rules, route, finish, evicted, compiled_memory)
        if on_event is not None:
            on_event(sim)
        if status == loop.DONE:
            return _outcome(sim, hardware.kv_tokens)
        on_pause()
        if status == loop.NEEDS_NODES:
            sim = state.with_more_nodes(sim)
        elif status == loop.NEEDS_ROWS:
            sim = state.with_more_rows(sim)
        elif status == loop.NEEDS_ROOM:
            memory = _with_room(memory, sim)
        elif status == loop.NEEDS_ROUTE:
            memory = _with_room(memory, sim)
            sim.control.answer = _ask(policy, memory, sim)
        elif status == loop.HAS_NEWS:
            _tell(policy, memory, sim)
        elif status == loop.BAD_ROUTE:
            raise PrebleexpError(_bad_route(policy, sim, sim.control.answer))


def _with_room(memory: Any, sim: Sim) -> Any:
    segments, gpus = int(sim.requests[sim.control.request].segments), len(sim.gpus)
    if isinstance(memory, Memory) and lacks_room(memory, gpus, segments):
        return with_more_room(memory, gpus, segments)
    return memory


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
    for row in range(sim.control.evicted):
        owner, tokens = sim.requests[sim.cache.evicted_owner[row]], int(sim.cache.evicted_beyond[row])
        policy.evicted(memory, sim.gpus, owner, sim.prompts, g, tokens, now)
    for index in sim.scratch.finished[: sim.control.finished]:
        job = sim.jobs[index]
        sim.gpus[g].outstanding -= 1
        ttft_s, tpot_s = float(job.ttft_s), float((job.latency_s - job.ttft_s) / job.output_seen)
        policy.finish(memory, sim.gpus, sim.requests[index], sim.prompts, g, ttft_s, tpot_s, now)


def prepare(policies: Iterable[type[Any]]) -> None:
    """Compile these policies, or load their machine code, before there are threads or processes that all would do so.
    (The rest was compiled when this module was imported.) One that does not compile says so when it is run."""
    for policy in policies:
        with suppress(Exception):
            _compiled(policy)  # type: ignore[arg-type]  # a class is hashable


@functools.cache
def _compiled(policy: type[Any]) -> tuple[Any, ...]:
    """The class's `route`, `finish` and `evicted` as machine code of the loop's signatures, kept on disk by numba."""
    signatures = {"route": loop.ROUTE, "finish": loop.FINISH, "evicted": loop.EVICTED}
    return tuple(
        numba.njit(signature, nogil=True, cache=True)(getattr(policy, name)) for name, signature in signatures.items()
    )


def _outcome(sim: Sim, kv_tokens: int) -> Outcome:
    jobs, gpus = sim.jobs, sim.gpus
    return Outcome(
        gpu=jobs.gpu.astype(np.int32),
        state=jobs.state.astype(np.int8),
        told_output=np.where(jobs.gpu >= 0, sim.requests.expected_output, np.nan),
        overhead_s=jobs.overhead_s.copy(),
        router_wait_s=jobs.router_wait_s.copy(),
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
