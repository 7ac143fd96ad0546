"""Replicas of a router in one run, made and kept by Python: see `prebleexp.sim.replicas`."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from types import SimpleNamespace
from typing import Any

import numpy as np

from prebleexp.errors import PrebleexpError
from prebleexp.sim import addresses, replicas
from prebleexp.sim.compiled import INTERPRETED
from prebleexp.sim.handles import Block
from prebleexp.sim.plug import Plug, joined
from prebleexp.sim.records import CANCELLED, FINISHED, FIRST_TOKEN, LOST, NONE, SENT
from prebleexp.sim.routing import FUNCTIONS, OPTIONAL, Routing
from prebleexp.sim.touching import uncounted
from prebleexp.sim.types import Ints, Setup, records

IN_TURN, RANDOM, BY_SESSION = range(3)
OF_REQUESTS = (FIRST_TOKEN, FINISHED, CANCELLED, LOST)
"""of which only the replica hears to which the request came"""
NOTES = 64


@dataclass(frozen=True)
class Replication:
    """What a run with replicas is given."""

    count: int
    spread: int
    """`IN_TURN`, `RANDOM` or `BY_SESSION`"""
    gossip_s: float
    """how old what they know of each other's books is; infinite: they know nothing"""

    def of(self, setup: Setup) -> Ints:
        """(n,) to which replica each request comes; -1 if that shows only when it is asked about."""
        n, session = setup.requests, setup.workload.session
        if self.spread == IN_TURN:
            return np.full(n, NONE, np.int32)
        rng = np.random.default_rng([setup.seed, n, self.count])
        drawn: Ints = rng.integers(self.count, size=n, dtype=np.int32)
        if self.spread == BY_SESSION:
            of_sessions = rng.integers(self.count, size=1 + session.max(initial=-1), dtype=np.int32)
            drawn[session >= 0] = of_sessions[session[session >= 0]]
        return drawn

    def setup(self, setup: Setup, r: int) -> Setup:
        """What a replica's policy begins with: a seed of its own, which the first one has from the run."""
        if r == 0:
            return setup
        word = np.random.SeedSequence([setup.seed, r]).generate_state(1, np.uint64)[0]
        return replace(setup, seed=int(word >> np.uint64(1)), common_seed=setup.seed)


class Replicated:
    """As `prebleexp.sim.routing.Routing`, of several routers that serve one stream."""

    def __init__(self, policy: Any, setup: Setup, given: Replication, check: bool = True) -> None:
        self._routers = [Routing(policy, given.setup(setup, r), check) for r in range(given.count)]
        self._views: list[Block] = []
        shared, first = given.gossip_s == 0, self._routers[0].record
        some = {name for name in OPTIONAL if getattr(first, name) != 0} | {"route", "finished"}
        notes = NOTES if 0 < given.gossip_s < math.inf else 0
        some |= {"lacks_room"} if notes else set()
        mine = replicas.Replicas(
            gossip_s=float(given.gossip_s),
            control=records(1, replicas.CONTROL)[0],
            of=given.of(setup),
            routers=joined([one.repeated() for one in self._routers]),
            views=[None] * given.count if INTERPRETED else np.zeros(given.count, np.int64),
            books=records(0 if shared else given.count * setup.gpus, SENT),
            notes=records(notes, replicas.NOTE),
        )
        source = SimpleNamespace(**{name: getattr(replicas, name) for name in some}) if policy.compiled else None
        functions = FUNCTIONS if policy.compiled else {}
        self._plug = Plug(None, source, mine, addresses.ROUTER, functions, OPTIONAL)
        self.record = self._plug.record
        if policy.compiled:
            self.record.compiled = 1
        else:
            for name in some - {"lacks_room"}:
                setattr(self.record, name, 1)

    @property
    def _mine(self) -> Any:
        """What the functions of `prebleexp.sim.replicas` are given."""
        return self._plug.mine if INTERPRETED else self._plug.block.mine

    def look(self, seen: Any) -> None:
        """What routers see is at other places now, or was not there before."""
        mine: replicas.Replicas = self._plug.mine
        count = len(self._routers)
        gpus = len(mine.books) // count
        for r in range(count):
            view = seen
            if gpus:
                view = seen._replace(sent=mine.books[r * gpus : (r + 1) * gpus], touched=uncounted(gpus))
            if r < len(self._views):
                self._views[r].replace(view)
            else:
                self._views.append(Block(view))
        mine.views[:] = [one.value if INTERPRETED else one.address for one in self._views]

    @property
    def _all(self) -> list[tuple[Routing, Any]]:
        """Each replica, and what it sees."""
        return [(one, view.handle) for one, view in zip(self._routers, self._views, strict=True)]

    def _of(self, request: int) -> tuple[Routing, Any]:
        """The one to which a request comes."""
        return self._all[replicas.replica_of(self._mine, request)]

    # ---------------------------------------------------------------- from Python
    def ask(self, view: Any, request: int, now: float) -> int:
        """What a plain-Python policy answers."""
        if replicas.lacks_notes(self._mine):
            self._with_more_notes()
        replicas.tell_others(self._mine, view, now)
        routing, seen = self._of(request)
        answer = routing.ask(seen, request, now)
        if answer in view.candidates:
            replicas.write(self._mine, view, request, answer, 1, now)
        return answer

    def tell(self, view: Any, kind: int, request: int, gpu: int, tokens: int, now: float) -> None:
        """Let a policy hear of something from Python, whoever listens."""
        replicas.tell_others(self._mine, view, now)
        if kind in (FINISHED, CANCELLED, LOST):
            replicas.write(self._mine, view, request, gpu, -1, now)
        for routing, seen in [self._of(request)] if kind in OF_REQUESTS else self._all:
            routing.tell(seen, kind, request, gpu, tokens, now)

    def with_more_room(self, view: Any, request: int) -> None:
        """There is no room for the next decision: of the changes that are noted, or of its replica's policy."""
        if replicas.lacks_notes(self._mine):
            self._with_more_notes()
        else:
            routing, seen = self._of(request)
            routing.with_more_room(seen, request)

    def _with_more_notes(self) -> None:
        """Twice the room, or more if that does not suffice."""
        mine: replicas.Replicas = self._plug.mine
        kept = np.arange(mine.control.told, mine.control.noted)
        room = max(2 * len(mine.notes), 2 * (len(kept) + int(mine.control.outstanding)))
        notes = records(room, replicas.NOTE)
        notes[kept % room] = mine.notes[kept % len(mine.notes)]
        self._plug.replace(mine._replace(notes=notes))

    # ---------------------------------------------------------------- errors
    def bad_answer(self, view: Any, request: int, now: float, answer: object) -> str:
        return self._routers[0].bad_answer(view, request, now, answer)

    def explained(self, error: Exception, view: Any, request: int, news: Any, now: float) -> PrebleexpError:
        """As `Routing.explained`: by the replica that it happened to."""
        for routing, seen in self._all:
            asked = request if request != NONE and self._of(request)[0] is routing else NONE
            its = [one for one in news if int(one.kind) not in OF_REQUESTS or self._of(int(one.request))[0] is routing]
            same = routing.failing(seen, asked, its, now)
            if same is not None:
                return same
        return self._routers[0].unexplained(error)
