"""One run: a workload, a cluster and a policy in, an `Outcome` out."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numba import float64, int64, types

from prebleexp.errors import PrebleexpError
from prebleexp.sim import loop, outcome, records, router, world
from prebleexp.sim.compiled import INTERPRETED
from prebleexp.sim.handles import Block
from prebleexp.sim.plug import Plug, Signatures
from prebleexp.sim.records import NONE, Rules, World
from prebleexp.sim.routing import Routing
from prebleexp.sim.types import Floats, Ints, Outcome, Setup, Workload
from prebleexp.sim.world import EXAMPLE

MODES = {"none": records.NO_OVERHEAD, "recorded": records.RECORDED, "serial": records.SERIAL}
PAUSE = 1 << 22
"""events between two looks at signals: about a second"""

WORLD = EXAMPLE.type
_SUBJECT = (int64, float64)
ENGINE: Signatures = {
    "submit": (types.none, (WORLD, *_SUBJECT)),
    "begin": (float64, (WORLD, *_SUBJECT)),
    "end": (types.none, (WORLD, *_SUBJECT)),
    "settle": (types.none, (WORLD, *_SUBJECT)),
    "lacks_room": (int64, (WORLD, *_SUBJECT)),
}
COST: Signatures = {
    "request_ms": (float64, (int64, int64)),
    "step_s": (float64, (int64, int64, int64, int64, int64, int64, float64)),
    "decode_s": (float64, (int64, int64, int64, int64)),
}


class Router(Protocol):
    """What the simulator asks of a policy (see `prebleexp.policies.base.Policy`)."""

    @property
    def compiled(self) -> bool: ...
    @property
    def reads_lengths(self) -> bool: ...
    @property
    def follows_running(self) -> bool: ...
    def start(self, setup: Setup) -> Any: ...


class Batcher(Protocol):
    """What the simulator asks of an engine (see `prebleexp.engines.base.Engine`)."""

    def own_loop(self) -> Callable[..., Outcome] | None: ...
    def kernels(self) -> Any: ...
    def start(self, setup: Setup) -> Any: ...
    def with_more_room(self, mine: Any, world: World, g: int) -> Any: ...
    def refuses(self, setup: Setup) -> Any: ...


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
    def kernels(self) -> Any: ...
    def start(self) -> Any: ...


def simulate(
    workload: Workload,
    *,
    gpus: int,
    policy: Router,
    hardware: Accelerator,
    engine: Batcher,
    lengths: Forecast,
    overhead: DecisionCost,
    duration_s: float,
    horizon: str,
    seed: int,
    reports_ms: float = 0.0,
    check: bool = True,
    on_pause: Callable[[], object] = lambda: None,
    on_event: Callable[[World], object] | None = None,
) -> Outcome:
    """Serve `workload` on `gpus` GPUs; stop at `duration_s` (horizon="stop") or when all is finished ("drain").

    `lengths` says what the policy is told of output lengths, `overhead` what its decisions take, `reports_ms` how often
    it hears of the GPUs' state (0: it sees that as it is). `seed` is that of policy and lengths; the workload has its
    own. `check`: plugs that are not the package's look at every index. `on_pause` is called about once a second of
    work, and when Python is needed anyway; it may end the run by raising. `on_event` is called after every event, which
    takes a hundred times as long.

    Raises PrebleexpError if the policy names a GPU that does not exist, or fails: with its name, file and line.
    """
    given = Given(
        workload, gpus, policy, hardware, engine, lengths, overhead, duration_s, horizon, seed, reports_ms, check
    )
    loop_of_its_own = engine.own_loop()
    if loop_of_its_own is not None:
        return loop_of_its_own(given, on_pause, on_event)
    return _Run(given, PAUSE if on_event is None else 1).advance(on_pause, on_event)


@dataclass(frozen=True)
class Given:
    """What a run is given (see `simulate`)."""

    workload: Workload
    gpus: int
    policy: Router
    hardware: Accelerator
    engine: Batcher
    lengths: Forecast
    overhead: DecisionCost
    duration_s: float
    horizon: str
    seed: int
    reports_ms: float
    check: bool

    def setup(self) -> Setup:
        kv_tokens, context_length = self.hardware.kv_tokens, self.hardware.context_length
        return Setup(self.gpus, self.seed, len(self.workload), kv_tokens, context_length, self.workload)


class _Run:
    """Owns everything that compiled code is given the address of."""

    def __init__(self, given: Given, pause: int) -> None:
        setup, policy, engine, lengths = given.setup(), given.policy, given.engine, given.lengths
        hardware, overhead = given.hardware, given.overhead
        refined = lengths.refined(given.workload, given.seed)
        rules = Rules(
            end_s=float(given.duration_s) if given.horizon == "stop" else math.inf,
            reports_s=given.reports_ms / 1e3,
            pause=pause,
            mean_window_s=float(lengths.window_s),
            mean_per_prefix=bool(lengths.per_prefix),
            follow=bool(policy.reads_lengths and (policy.follows_running or refined is not None)),
            overhead=MODES[overhead.mode],
            prediction_s=float(overhead.prediction_s),
            decision_s=float(overhead.decision_s),
            unit_s=np.array(overhead.unit_s),
        )
        self.batcher = engine
        self.router = Routing(policy, setup, given.check)
        self.engine = Plug(engine, engine.kernels(), engine.start(setup), records.ENGINE, ENGINE, check=given.check)
        self.cost = Plug(hardware, hardware.kernels(), hardware.start(), records.COST, COST, check=given.check)
        plugs = (self.router.record, self.engine.repeated(given.gpus), self.cost.repeated(given.gpus))
        expected = lengths.expected(given.workload, given.seed)
        self.world = Block(world.allocate(setup, rules, engine.refuses(setup), expected, refined, plugs), WORLD)

    def advance(self, on_pause: Callable[[], object], on_event: Callable[[World], object] | None) -> Outcome:
        view = self.world.value.seen if INTERPRETED else self.world.seen
        while True:
            state: World = self.world.value
            control = state.control
            try:
                status = loop.advance(self.world.handle)
            except PrebleexpError:
                raise
            except Exception as error:
                news = state.news[: control.news]
                raise self.router.explained(error, view, int(control.request), news, float(control.now)) from error
            if on_event is not None:
                on_event(state)
            if status == router.DONE:
                return outcome.outcome(state)
            on_pause()
            if status == loop.NEEDS_NODES:
                cache = world.with_more_nodes(state.cache, loop.NODES_A_STEP * (int(control.most) + 1))
                self.world.replace(state._replace(cache=cache, news=world.made_news(cache)))
            elif status == loop.NEEDS_ROWS:
                g, control.lacking = int(control.lacking), NONE
                self.engine.replace(self.batcher.with_more_room(self.engine.mine, state, g))
            elif status == router.NEEDS_ROOM:
                self.router.with_more_room(view, int(control.request))
            elif status == router.NEEDS_ROUTE:
                control.answer, control.answered = self.router.ask(view, int(control.request), float(control.now)), 1
            elif status == loop.HAS_NEWS:
                self._tell(view)
            elif status == router.BAD_ROUTE:
                raise PrebleexpError(
                    self.router.bad_answer(view, int(control.request), float(control.now), control.answer)
                )

    def _tell(self, view: Any) -> None:
        """Let a plain-Python policy hear what has happened."""
        state: World = self.world.value
        for news in state.news[: state.control.news]:
            router.hear(self.world.handle, int(news.kind), int(news.request))
            heard = (int(news.kind), int(news.request), int(news.gpu), int(news.tokens), float(state.control.now))
            self.router.tell(view, *heard)
        state.control.news = 0
