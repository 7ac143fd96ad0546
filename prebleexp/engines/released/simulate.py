"""One run of the released simulator."""

from __future__ import annotations

import math
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np

from prebleexp.engines.released import loop, state
from prebleexp.engines.released.records import Rules, Sim
from prebleexp.errors import InvalidInput, PrebleexpError
from prebleexp.sim import addresses, notices, outcome
from prebleexp.sim.compiled import INTERPRETED
from prebleexp.sim.given import MODES, PAUSE, Given
from prebleexp.sim.handles import Block
from prebleexp.sim.plug import Plug
from prebleexp.sim.routing import Routing
from prebleexp.sim.signatures import COST
from prebleexp.sim.types import Outcome
from prebleexp.sim.world import with_more_nodes


def simulate(given: Given, on_pause: Callable[[], object], on_event: Callable[[Sim], object] | None) -> Outcome:
    """As `prebleexp.sim.simulate.simulate`. Raises InvalidInput if GPUs are to report now and then: here routers see
    them as they are; and if requests come after others or give up: those of the release do not."""
    engine: Any = given.engine
    if given.reports_ms > 0:
        raise InvalidInput(f"reports_ms={given.reports_ms:g} is not valid with engine=released; it must be 0")
    if not given.workload.is_open or np.isfinite(given.workload.patience_s).any():
        raise InvalidInput(
            "engine=released is not valid with requests that come after others, in stages, or that give up; engines "
            "with sessions are vllm, sglang, sglang_2024 and preble"
        )
    setup = given.setup()
    refined = given.lengths.refined(given.workload, given.seed)
    rules = Rules(
        step_cost_s=engine.step_cost_s,
        output_step_cost_s=engine.output_step_cost_s,
        end_s=float(given.duration_s) if given.horizon == "stop" else math.inf,
        stepwise=bool(engine.stepwise),
        mean_window_s=float(given.lengths.window_s),
        mean_per_prefix=bool(given.lengths.per_prefix),
        follow=bool(given.policy.reads_lengths and (given.policy.follows_running or refined is not None)),
        overhead=MODES[given.overhead.mode],
        prediction_s=float(given.overhead.prediction_s),
        decision_s=float(given.overhead.decision_s),
        unit_s=np.array(given.overhead.unit_s),
        pause=PAUSE if on_event is None else 1,
    )
    router = Routing(given.policy, setup, given.check)
    cost = Plug(
        given.hardware, given.hardware.kernels(), given.hardware.start(), addresses.COST, COST, check=given.check
    )
    expected = given.lengths.expected(given.workload, given.seed)
    sim = state.allocate(setup, rules, expected, refined, router.record, cost.repeated(given.gpus))
    state.push_first_steps(sim)
    return _advance(Block(sim), router, on_pause, on_event)


def _finished(request: int) -> SimpleNamespace:
    return SimpleNamespace(kind=notices.FINISHED, request=request, gpu=0, tokens=0)


def _advance(
    block: Block, router: Routing, on_pause: Callable[[], object], on_event: Callable[[Sim], object] | None
) -> Outcome:
    seen = block.value.seen if INTERPRETED else block.seen
    while True:
        sim: Sim = block.value
        control = sim.control
        try:
            status = loop.advance(block.handle)
        except PrebleexpError:
            raise
        except Exception as error:
            news = [_finished(int(one)) for one in sim.scratch.finished[: control.finished]]
            raise router.explained(error, seen, int(control.request), news, float(control.now)) from error
        if on_event is not None:
            on_event(sim)
        request, now = int(control.request), float(control.now)
        if status == loop.DONE:
            sim.totals.peak_kv_tokens = sim.seen.gpus.kv_tokens - sim.gpus.least_kv_free
            sim.totals.on_s = control.clock
            return outcome.outcome(
                outcome.Ended(sim.seen.requests, sim.made, sim.totals, sim.seen.sent, float(control.clock), False)
            )
        on_pause()
        if status == loop.NEEDS_NODES:
            gpu = sim.gpus[control.gpu]
            cache = with_more_nodes(sim.cache, 5 * int(gpu.queued) + 2 * int(gpu.running))
            block.replace(sim._replace(cache=cache))
        elif status == loop.NEEDS_ROWS:
            block.replace(state.with_more_rows(sim))
        elif status == loop.NEEDS_ROOM:
            router.with_more_room(seen, request)
        elif status == loop.NEEDS_ROUTE:
            control.answer = router.ask(seen, request, now)
        elif status == loop.HAS_NEWS:
            for finished in sim.scratch.finished[: control.finished]:
                loop.hear(block.handle, int(control.gpu), int(finished))
                router.tell(seen, notices.FINISHED, int(finished), int(control.gpu), 0, now)
        elif status == loop.BAD_ROUTE:
            raise PrebleexpError(router.bad_answer(seen, request, now, control.answer))
