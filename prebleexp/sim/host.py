"""What a run is made of: the world, the plugs, and what the loop needs Python for."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from prebleexp.errors import InvalidInput, PrebleexpError
from prebleexp.sim import addresses, deciding, gaps, links, loop, outcome, router, sending, world
from prebleexp.sim.changes import LOOK, Changes, with_spare
from prebleexp.sim.emptied import Emptied
from prebleexp.sim.given import MODES, PAUSE, Given
from prebleexp.sim.handles import Block
from prebleexp.sim.history import History, Move
from prebleexp.sim.kind import Kind
from prebleexp.sim.migration import Pairs
from prebleexp.sim.plug import Plug, joined
from prebleexp.sim.pools import (
    ALWAYS,
    DECODE,
    NEVER,
    RESERVE_FIRST,
    Disaggregation,
    Pools,
    refined_of_legs,
    told_of_legs,
)
from prebleexp.sim.records import NONE, World
from prebleexp.sim.routers import Routers
from prebleexp.sim.rules import Rules
from prebleexp.sim.scaling import Scaling
from prebleexp.sim.signatures import DECIDER, GATEWAY, HANDOFF, LINK, SENDING, WORLD
from prebleexp.sim.warming import Warming

Pausing = Callable[[], object]
Watching = Callable[[World], object]


class Host:
    """Owns everything that compiled code is given the address of, and does what the loop needs Python for.

    It has three drivers: `simulate` lets it go on to the end; `prebleexp.sim.stepped` to a time, with requests that
    come while it runs. `pause`: events after which `go` looks up; `watched`, `shows`: whether engines write down what
    somebody who looks at them after every event wants to know, and who has a token.
    """

    def __init__(self, given: Given, pause: int = PAUSE, watched: bool = False, shows: bool = False) -> None:
        policy, engine, lengths, overhead = given.policy, given.engine, given.lengths, given.overhead
        refined = lengths.refined(given.workload, given.seed)
        expected = lengths.expected(given.workload, given.seed)
        policies = [policy]
        if given.pools is not None:
            policies.append(given.pools.decode_policy)
            refined, expected = refined_of_legs(refined, given.pools.whole), told_of_legs(expected, given.pools.whole)
        follow = any(one.reads_lengths and (one.follows_running or refined is not None) for one in policies)
        rules = Rules(
            end_s=float(given.duration_s) if given.horizon == "stop" else math.inf,
            last_start_s=float(given.duration_s) if len(given.workload.after_ids) else math.inf,
            reports_s=given.reports_ms / 1e3,
            pause=pause,
            mean_window_s=float(lengths.window_s),
            mean_per_prefix=bool(lengths.per_prefix),
            follow=follow,
            overhead=MODES[overhead.mode],
            prediction_s=float(overhead.prediction_s),
            retry=given.retries,
            resume=given.resumes,
            changes=len(given.timeline),
            submit_s=float(overhead.prediction_s) if overhead.mode == "serial" else 0.0,
            decision_s=float(overhead.decision_s),
            unit_s=np.array(overhead.unit_s),
            timers=0 if given.gateway is None else given.gateway.timers,
            max_in_flight=0 if given.gateway is None else given.gateway.most_in_flight,
            singly=given.gateway is not None or follow or watched,
            watched=watched,
        )
        self.batcher = engine
        self.routers = Routers(given)
        self.kinds = [Kind(given, kind) for kind in range(len(given.kinds))]
        self.kind_of = [kind for kind in self.kinds for _ in range(kind.count)]
        if given.impatient and not self.kinds[0].engine.record.cancel:
            raise InvalidInput(f"engine {type(engine).__name__} has no cancel, and requests have patience_s")
        engines, costs = map(joined, zip(*map(Kind.records, self.kinds), strict=True))
        refused = np.any([given.refused(i, kind.setup) for i, kind in enumerate(self.kinds)], axis=0)
        caches = [kind.batcher.own_cache(kind.setup) for kind in self.kinds]
        own_cache = None if None in caches else max(size for size in caches if size is not None)
        plugs = (self.routers.records, engines, costs)
        kv_tokens = [kind.setup.kv_tokens for kind in self.kind_of]
        split = tiers = moves = under_way = None
        owners: dict[int, links.Links] = {}
        if given.pools is not None:
            n, counts = len(given.workload), [kind.count for kind in self.kinds]
            owners[links.HANDOFF] = given.pools.links(n, given.gpus)
            split = (given.workload, self._pools(given.pools, n, counts))
        if given.tiers is not None:
            size = engine.blocks(given.setup())[0]
            blocks = np.max([kind.batcher.blocks(kind.setup)[1] for kind in self.kinds], axis=0)  # wherever it goes
            held = sum(one // size for one in kv_tokens)
            tiers = given.tiers.tiers(given.gpus, size, blocks, held, given.wanders, engine.tables(given.setup()))
            owners[links.OFFLOAD] = given.tiers.links(given.gpus, len(blocks), len(tiers.stores))
        self.pairs: Pairs | None = None
        if given.migration is not None:
            self.pairs = Pairs(
                given.migration, given.gpus, len(given.workload), len(given.rows), engine.blocks(given.setup(0))[0]
            )
            moves = self.pairs.moves
            owners[links.MIGRATION] = given.migration.links(given.gpus)
        if owners:
            under_way = self._under_way(owners)
        self.entrance, gateway = given.gateway, None
        if self.entrance is not None:
            books, kernels = self.entrance.start(given.setup()), self.entrance.kernels()
            self.gateway = Plug(None, kernels, books, addresses.GATEWAY, GATEWAY)
            gateway = self.gateway.record
        terms = given.terms
        spare = not terms.changes_nothing or given.autoscaler is not None
        timeline = with_spare(given.timeline, given.gpus) if spare else given.timeline
        self.workload = given.workload
        counted = gaps.counts(given.workload, given.gaps_of_each, shows)
        books = None if self.routers.books is None else self.routers.books.record
        seams = (timeline, split, gateway, tiers, moves, under_way, counted, self.routers.count, books)
        made = world.allocate(given.setup(), rules, kv_tokens, refused, expected, refined, plugs, own_cache, *seams)
        self.world = Block(made, WORLD)
        self.routers.look(self.world)
        self.changes = Changes(given.gpus, terms, given.autoscaler is not None)
        self.scaling = None
        if given.autoscaler is not None:
            self.scaling = Scaling(given.scaled(), given.gpus, self.changes)
            self.scaling.begin(self.world)
            self._find_candidates(self.world.value)
        self.warming = None if given.before is None else Warming(given, self.world, self.changes, self._find_candidates)

    def _pools(self, of: Disaggregation, requests: int, counts: list[int]) -> Pools:
        from prebleexp.sim import handoff, reserving  # few runs have it: others need not import it

        kernels = reserving if of.protocol == RESERVE_FIRST else handoff
        self.handoff = Plug(None, kernels, None, addresses.HANDOFF, HANDOFF[of.protocol])
        made = of.pools(requests, counts)._replace(handoff=self.handoff.record)
        if of.decider in (ALWAYS, NEVER):  # nobody is asked, or nothing decides
            return made
        self.decider = Plug(None, deciding, None, addresses.DECIDER, DECIDER)
        return made._replace(decides=self.decider.record)

    def _under_way(self, owners: dict[int, links.Links]) -> links.UnderWay:
        made, first, places = links.joined(owners)
        parts = made.sendings is not None
        self.links = Plug(None, sending if parts else links, made, addresses.LINK, SENDING if parts else LINK)
        return links.UnderWay(made.control, self.links.record, first, places)

    def go(self, on_pause: Pausing = lambda: None, on_event: Watching | None = None) -> int:
        """Until the run is over (`router.DONE`), or nothing is left to do before `control.until` (`loop.WAITS`).
        `on_pause`, `on_event`: see `simulate`."""
        while True:
            state: World = self.world.value
            try:
                status = loop.advance(self.world.handle)
            except PrebleexpError:
                raise
            except Exception as error:
                raise self.routers.explained(error, self.world) from error
            if self.pairs is not None:
                self.pairs.take_noted()
            if status == router.DONE and self.warming is not None and self.warming.goes_on():
                continue
            if status == loop.WAITS:
                return status
            if on_event is not None and (self.warming is None or self.warming.is_over):
                on_event(state)
            if status == router.DONE:
                self.changes.end(state)
                return status
            on_pause()
            self._do(status, state)

    def _do(self, status: int, state: World) -> None:
        """What the loop needs Python for."""
        control = state.control
        request, now = int(control.request), float(control.now)
        if status == router.NEEDS_CANDIDATES:  # twice for each request, where GPUs are full
            self._find_candidates(state)
        elif status == loop.NEEDS_NODES:
            cache = world.with_more_nodes(state.cache, loop.NODES_A_STEP * (int(control.most) + 1))
            self.world.replace(state._replace(cache=cache, news=world.made_news(cache)))
        elif status == loop.NEEDS_ROWS:
            g, control.lacking = int(control.lacking), NONE
            kind = self.kind_of[g]
            kind.engine.replace(kind.batcher.with_more_room(kind.engine.mine, state, g))
        elif status == router.NEEDS_ROOM:
            self.routers.with_more_room(self.world, request)
        elif status == router.NEEDS_NOTES:
            self.routers.with_more_notes(int(control.news))
        elif status == router.NEEDS_ROUTE:
            control.answer, control.answered = self.routers.ask(self.world, request, now), 1
        elif status == loop.HAS_NEWS:
            self.routers.tell(self.world)
        elif status == loop.HAS_CHANGED:
            engines = Emptied(self.batcher, [kind.engine for kind in self.kind_of], self.world)
            if self.scaling is not None and state.timeline[control.subject].event == LOOK:
                self.scaling.look(self.world, engines, now)
            else:
                self.changes.happen(self.world, engines)
            self._find_candidates(state)
        elif status == router.BAD_ROUTE:
            raise self.routers.bad_answer(self.world, request)

    def ended(self) -> outcome.Ended:
        """What is left of a run that is over."""
        return outcome.ended(self.world.value, self._known())

    def history(self) -> History:
        """What became of the GPUs, once the run is over."""
        decisions = () if self.scaling is None else self.changes.since_begun(self.scaling.decisions)
        return History(self.changes.gpu_states(), decisions, self._moves())

    def _moves(self) -> tuple[Move, ...]:
        """Of requests of the run itself, which begins when all before it are over."""
        if self.pairs is None:
            return ()
        begun = None if self.warming is None else self.warming.begun
        at_s, first = (0.0, 0) if begun is None else (begun.at_s, begun.requests)
        return tuple(
            one._replace(at_s=one.at_s - at_s, ended_s=one.ended_s - at_s, request=one.request - first)
            for one in self.pairs.over
            if one.request >= first
        )

    def _known(self) -> dict[str, Any]:
        """Columns of the outcome that the gateway knows, and of gaps between tokens."""
        known = {} if self.entrance is None else self.entrance.known(self.gateway.mine)
        return {**known, **gaps.columns(self.workload, self.world.value.gaps)}

    def _find_candidates(self, state: World) -> None:
        """Who is up, as far as routers know, and has room."""
        found, most, split = self.changes.candidate, state.rules.max_in_flight, state.pools.legs > 0
        may_get = found if most == 0 else found & (state.seen.sent["outstanding"] < most)
        if split:
            outputs = state.pools.roles == DECODE
            prompts_first = state.pools.first > 0  # whoever is asked about second has passed the gateway
            for_outputs = (found if prompts_first else may_get) & outputs
            may_get = (may_get if prompts_first else found) & ~outputs
            self.world.put(("decode_seen", "candidates"), np.flatnonzero(for_outputs))
        self.world.put(("seen", "candidates"), np.flatnonzero(may_get))
        if len(state.moves.rules):
            self.world.put(("moves", "candidates"), np.flatnonzero(found))
        self.routers.look(self.world)
