"""The routers of a run, made and kept by Python: the policy that each asks about requests, with pools the one too that
it asks where their outputs are made, what these remember, and what they see."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from prebleexp.errors import PrebleexpError
from prebleexp.sim import hearing
from prebleexp.sim.compiled import INTERPRETED
from prebleexp.sim.given import Given
from prebleexp.sim.handles import Block
from prebleexp.sim.notices import ROUTED
from prebleexp.sim.plug import joined
from prebleexp.sim.pools import is_routed_again
from prebleexp.sim.records import NONE, World
from prebleexp.sim.replicated import Books
from prebleexp.sim.router_queue import router_of
from prebleexp.sim.routing import Routing
from prebleexp.sim.touching import uncounted


class Routers:
    """Those for prompts first, or for all that is done for a request, then as many for outputs."""

    def __init__(self, given: Given) -> None:
        setup, replicas = given.setup(), given.replicas
        policies = [given.policy, *([] if given.pools is None else [given.pools.decode_policy])]
        self.count = 1 if replicas is None else replicas.count
        setups = [setup if replicas is None else replicas.setup(setup, r) for r in range(self.count)]
        self._policies = [Routing(one, each, given.check) for one in policies for each in setups]
        self.records = joined([one.repeated() for one in self._policies])
        """(policies,) `prebleexp.sim.addresses.ROUTER`"""
        self.books: Books | None = None
        if replicas is not None and self.count > 1:
            requests = replace(setup, requests=len(given.workload), workload=given.workload)
            self.books = Books(replicas, requests)
        self._own: dict[int, Block] = {}
        self._seen: list[Any] = []

    @property
    def mine(self) -> Any:
        """What the first of them remembers."""
        return self._policies[0].mine

    def look(self, world: Block) -> None:
        """What routers see may be at other places now, or was not there before."""
        self._seen = [self._view(world, k) for k in range(len(self._policies))]
        for record, seen in zip(self.records, self._seen, strict=True):
            record.seen = seen if INTERPRETED else seen.address

    def _view(self, world: Block, k: int) -> Any:
        """What a policy sees, as it is handed to it: what the loop knows, or with a router's own book."""
        name = "seen" if k < self.count else "decode_seen"
        sent = None if self.books is None else self.books.of(k % self.count)
        if sent is None:
            return getattr(world.handle, name)
        seen = getattr(world.value, name)._replace(sent=sent, touched=uncounted(len(sent)))
        if k in self._own:
            self._own[k].replace(seen)
        else:
            self._own[k] = Block(seen)
        return self._own[k].handle

    # ---------------------------------------------------------------- from Python
    def _asked(self, world: Block, row: int) -> int:
        """Which policy is asked about a request, or a leg of one."""
        again = is_routed_again(world.handle, row)
        return int(router_of(world.handle, row)) + self.count * int(again)

    def ask(self, world: Block, row: int, now: float) -> int:
        """The GPU that a plain-Python policy chooses for a request at `now`, in seconds."""
        k = self._asked(world, row)
        return self._policies[k].ask(self._seen[k], row, now)

    def with_more_room(self, world: Block, row: int) -> None:
        """There is no room for the next decision of the policy that is asked about it."""
        k = self._asked(world, row)
        self._policies[k].with_more_room(self._seen[k], row)

    def with_more_notes(self, more: int) -> None:
        """There is no room for so many changes of what each of several routers knows."""
        assert self.books is not None
        self.books.with_more_notes(more)

    def tell(self, world: Block) -> None:
        """Let policies hear what has happened, of which one is plain Python."""
        handle, state = world.handle, world.value
        for news in state.news[: state.control.news]:
            kind, request, g = int(news.kind), int(news.request), int(news.gpu)
            hearing.hear(handle, kind, request)
            for k in range(*hearing.hearers(handle, kind, request, g)):
                if not hearing.is_silent(handle, kind, request, int(self.records[k].hears[ROUTED] != 0)):
                    now = float(state.control.now)
                    self._policies[k].tell(self._seen[k], kind, request, g, int(news.tokens), now)
            hearing.go_on(handle, kind, request)
        state.control.news = 0

    # ---------------------------------------------------------------- errors
    def bad_answer(self, world: Block, row: int) -> PrebleexpError:
        """It was answered what there is not."""
        k, control = self._asked(world, row), world.value.control
        return PrebleexpError(self._policies[k].bad_answer(self._seen[k], row, float(control.now), control.answer))

    def explained(self, error: Exception, world: Block) -> PrebleexpError:
        """What went wrong in compiled code, by whoever was asked, or told last."""
        state: World = world.value
        handle, now, request = world.handle, float(state.control.now), int(state.control.request)
        news = [(one, range(*_hearers(handle, one))) for one in state.news[: state.control.news]]
        asked = self._asked(world, request) if request != NONE else news[-1][1][0] if news else 0
        for k, one in enumerate(self._policies):
            heard = [its for its, by in news if k in by]
            same = one.failing(self._seen[k], request if k == asked else NONE, heard, now)
            if same is not None:
                return same
        return self._policies[asked].unexplained(error)


def _hearers(handle: Any, news: Any) -> tuple[int, int]:
    first, behind = hearing.hearers(handle, int(news.kind), int(news.request), int(news.gpu))
    return int(first), int(behind)
