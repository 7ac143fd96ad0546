"""One run: a workload, a cluster and a policy in, an `Outcome` out."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numba import float64, int64, types

from prebleexp.errors import InvalidInput, PrebleexpError
from prebleexp.sim import addresses, loop, outcome, records, router, world
from prebleexp.sim.changes import NOTHING, Changes
from prebleexp.sim.compiled import INTERPRETED
from prebleexp.sim.handles import Block
from prebleexp.sim.plug import Plug, Signatures, joined
from prebleexp.sim.records import NONE, Rules, World
from prebleexp.sim.routing import Routing
from prebleexp.sim.types import Floats, Ints, Longs, Outcome, Setup, Workload
from prebleexp.sim.world import EXAMPLE

MODES = {"none": records.NO_OVERHEAD, "recorded": records.RECORDED, "serial": records.SERIAL}
PAUSE = 1 << 15
"""events between two looks at signals: some milliseconds"""

WORLD = EXAMPLE.type
_SUBJECT = (int64, float64)
ENGINE: Signatures = {
    "submit": (types.none, (WORLD, *_SUBJECT)),
    "begin": (float64, (WORLD, *_SUBJECT)),
    "end": (types.none, (WORLD, *_SUBJECT)),
    "settle": (types.none, (WORLD, *_SUBJECT)),
    "lacks_room": (int64, (WORLD, *_SUBJECT)),
    "cancel": (int64, (WORLD, *_SUBJECT)),
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
    def own_cache(self, setup: Setup) -> int | None: ...
    @property
    def loses(self) -> bool: ...
    def lose(self, mine: Any, world: Any, g: int, requests: Longs) -> None: ...


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


class Faulty(Protocol):
    """What the simulator asks about what happens to GPUs (see `prebleexp.faults.base.Faults`)."""

    @property
    def retries(self) -> bool: ...
    def timeline(self, gpus: int, duration_s: float, seed: int) -> Any: ...


class Accelerator(Protocol):
    """What the simulator asks of a hardware model (see `prebleexp.hardware.base.Hardware`)."""

    @property
    def kv_tokens(self) -> int: ...
    @property
    def context_length(self) -> int: ...
    @property
    def gpu_name(self) -> str: ...
    @property
    def gpu_memory_gib(self) -> float: ...
    @property
    def frontend_s(self) -> tuple[float, float]: ...
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
    kinds: Sequence[tuple[int, Accelerator]] = (),
    faults: Faulty | None = None,
    check: bool = True,
    on_pause: Callable[[], object] = lambda: None,
    on_event: Callable[[World], object] | None = None,
) -> Outcome:
    """Serve `workload` on `gpus` GPUs; stop at `duration_s` (horizon="stop") or when all is finished ("drain"). Where
    requests come after others, no session starts after `duration_s`; those that have started go on to their end.

    `lengths` says what the policy is told of output lengths, `overhead` what its decisions take, `reports_ms` how often
    it hears of the GPUs' state (0: it sees that as it is), `kinds`, in place of `hardware`, how many GPUs of which
    kind there are, one kind after the other; a request that one of them could not hold is refused; `faults`, what
    happens to GPUs. `seed` is that of policy, lengths and faults; the workload has its own. `check`: plugs that are not
    the package's look at every index. `on_pause` is called at least once a second, and when Python is needed anyway; it
    may end the run by raising. `on_event` is called after every event, which takes a hundred times as long.

    Raises InvalidInput if the engine cannot lose a GPU and must, and PrebleexpError if the policy names a GPU that does
    not exist, or that it knows to be down, or fails: with its name, file and line.
    """
    kinds = tuple(kinds) or ((gpus, hardware),)
    timeline = NOTHING if faults is None else faults.timeline(gpus, duration_s, seed)
    if len(timeline) and not engine.loses:
        raise InvalidInput(f"engine {type(engine).__name__} has no lose, and GPUs have faults")
    changes = (timeline, faults is not None and faults.retries)
    given = Given(
        workload, gpus, policy, kinds, engine, lengths, overhead, duration_s, horizon, seed, reports_ms, check, *changes
    )
    loop_of_its_own = engine.own_loop()
    if loop_of_its_own is not None:
        return loop_of_its_own(given, on_pause, on_event)
    ended = _Run(given, PAUSE if on_event is None else 1).advance(on_pause, on_event)
    return outcome.outcome(ended)


@dataclass(frozen=True)
class Given:
    """What a run is given (see `simulate`)."""

    workload: Workload
    gpus: int
    policy: Router
    kinds: tuple[tuple[int, Accelerator], ...]
    engine: Batcher
    lengths: Forecast
    overhead: DecisionCost
    duration_s: float
    horizon: str
    seed: int
    reports_ms: float
    check: bool
    timeline: Any
    retries: bool

    @property
    def hardware(self) -> Accelerator:
        """Of the first GPU."""
        return self.kinds[0][1]

    def setup(self, of: Accelerator | None = None) -> Setup:
        """With this hardware, or the first."""
        of, workload = of or self.hardware, self.workload
        sizes = (len(workload), of.kv_tokens, of.context_length)
        return Setup(self.gpus, self.seed, *sizes, workload, of.gpu_name, of.gpu_memory_gib)


class _Kind:
    """GPUs of one kind in a run: their engine and what it costs, both told of this kind alone."""

    def __init__(self, given: Given, count: int, hardware: Accelerator) -> None:
        self.count, self.setup, engine = count, given.setup(hardware), given.engine
        kept = engine.start(self.setup)
        self.engine = Plug(engine, engine.kernels(), kept, addresses.ENGINE, ENGINE, ("cancel",), given.check)
        self.cost = Plug(hardware, hardware.kernels(), hardware.start(), addresses.COST, COST, check=given.check)
        self.cost.record.frontend_s, self.cost.record.frontend_token_s = hardware.frontend_s

    def records(self) -> tuple[Any, Any]:
        """Of each of its GPUs: its engine's, and its cost's."""
        return self.engine.repeated(self.count), self.cost.repeated(self.count)


class _Run:
    """Owns everything that compiled code is given the address of."""

    def __init__(self, given: Given, pause: int) -> None:
        policy, engine, lengths, overhead = given.policy, given.engine, given.lengths, given.overhead
        refined = lengths.refined(given.workload, given.seed)
        rules = Rules(
            end_s=float(given.duration_s) if given.horizon == "stop" else math.inf,
            last_start_s=float(given.duration_s) if len(given.workload.after_ids) else math.inf,
            reports_s=given.reports_ms / 1e3,
            pause=pause,
            mean_window_s=float(lengths.window_s),
            mean_per_prefix=bool(lengths.per_prefix),
            follow=bool(policy.reads_lengths and (policy.follows_running or refined is not None)),
            overhead=MODES[overhead.mode],
            prediction_s=float(overhead.prediction_s),
            retry=given.retries,
            submit_s=float(overhead.prediction_s) if overhead.mode == "serial" else 0.0,
            decision_s=float(overhead.decision_s),
            unit_s=np.array(overhead.unit_s),
            watched=pause == 1,
        )
        self.batcher = engine
        self.router = Routing(policy, given.setup(), given.check)
        self.kinds = [_Kind(given, count, hardware) for count, hardware in given.kinds]
        self.kind_of = [kind for kind in self.kinds for _ in range(kind.count)]
        if np.isfinite(given.workload.patience_s).any() and not self.kinds[0].engine.record.cancel:
            raise InvalidInput(f"engine {type(engine).__name__} has no cancel, and requests have patience_s")
        engines, costs = map(joined, zip(*map(_Kind.records, self.kinds), strict=True))
        expected = lengths.expected(given.workload, given.seed)
        refused = np.any([engine.refuses(kind.setup) for kind in self.kinds], axis=0)
        caches = [engine.own_cache(kind.setup) for kind in self.kinds]
        own_cache = None if None in caches else max(size for size in caches if size is not None)
        plugs = (self.router.record, engines, costs)
        kv_tokens = [kind.setup.kv_tokens for kind in self.kind_of]
        made = world.allocate(
            given.setup(), rules, kv_tokens, refused, expected, refined, plugs, own_cache, given.timeline
        )
        self.world = Block(made, WORLD)
        self.changes = Changes(given.gpus)

    def advance(self, on_pause: Callable[[], object], on_event: Callable[[World], object] | None) -> outcome.Ended:
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
                self.changes.end(state)
                return outcome.ended(state)
            on_pause()
            if status == loop.NEEDS_NODES:
                cache = world.with_more_nodes(state.cache, loop.NODES_A_STEP * (int(control.most) + 1))
                self.world.replace(state._replace(cache=cache, news=world.made_news(cache)))
            elif status == loop.NEEDS_ROWS:
                g, control.lacking = int(control.lacking), NONE
                engine = self.kind_of[g].engine
                engine.replace(self.batcher.with_more_room(engine.mine, state, g))
            elif status == router.NEEDS_ROOM:
                self.router.with_more_room(view, int(control.request))
            elif status == router.NEEDS_ROUTE:
                control.answer, control.answered = self.router.ask(view, int(control.request), float(control.now)), 1
            elif status == loop.HAS_NEWS:
                self._tell(view)
            elif status == loop.HAS_CHANGED:
                seen = state.seen._replace(candidates=self.changes.happen(state, self._lose))
                self.world.replace(state._replace(seen=seen))
                view = seen if INTERPRETED else self.world.seen
            elif status == router.BAD_ROUTE:
                raise PrebleexpError(
                    self.router.bad_answer(view, int(control.request), float(control.now), control.answer)
                )

    def _lose(self, g: int, requests: Longs) -> None:
        """Let a GPU's engine lose all that it has."""
        engine = self.kind_of[g].engine
        self.batcher.lose(engine.mine if INTERPRETED else engine.block.mine, self.world.handle, g, requests)

    def _tell(self, view: Any) -> None:
        """Let a plain-Python policy hear what has happened."""
        state: World = self.world.value
        for news in state.news[: state.control.news]:
            router.hear(self.world.handle, int(news.kind), int(news.request))
            heard = (int(news.kind), int(news.request), int(news.gpu), int(news.tokens), float(state.control.now))
            self.router.tell(view, *heard)
            if news.kind == records.LOST:
                router.go_on(self.world.handle, int(news.request))
        state.control.news = 0
