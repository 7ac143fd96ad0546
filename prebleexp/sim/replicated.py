"""How many routers there are, and to which of them a request comes: see `prebleexp.sim.replicas`."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from prebleexp.sim import addresses, replicas
from prebleexp.sim.plug import Plug
from prebleexp.sim.records import NONE, SENT
from prebleexp.sim.signatures import BOOKS
from prebleexp.sim.types import Ints, Setup, records

IN_TURN, RANDOM, BY_SESSION = range(3)
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


class Books:
    """What each of several routers knows in a run, made and kept by Python."""

    def __init__(self, given: Replication, setup: Setup) -> None:
        """`setup`: of requests, without legs."""
        self._gpus, self._in_turn = setup.gpus, given.spread == IN_TURN
        noted = 0 < given.gossip_s < math.inf
        mine = replicas.Replicas(
            gossip_s=float(given.gossip_s),
            control=records(1, replicas.CONTROL)[0],
            of=given.of(setup),
            books=records(0 if given.gossip_s == 0 else given.count * setup.gpus, SENT),
            notes=records(NOTES if noted else 0, replicas.NOTE),
        )
        self._plug = Plug(None, replicas, mine, addresses.BOOKS, BOOKS)
        self.record = self._plug.record

    def of(self, r: int) -> Any:
        """(GPUs,) a router's own; None if it is common to all."""
        books = self._plug.mine.books
        return books[r * self._gpus : (r + 1) * self._gpus] if len(books) else None

    def forget(self, row: int) -> None:
        """It is another request's from now on, which comes to any router where requests come in turn."""
        if self._in_turn:
            self._plug.mine.of[row] = NONE

    def with_more_notes(self, more: int) -> None:
        """There is no room for so many changes: twice as much, or more if that does not suffice."""
        mine: replicas.Replicas = self._plug.mine
        kept = np.arange(mine.control.told, mine.control.noted)
        room = 2 * (max(len(mine.notes), len(kept)) + more + 1)
        notes = records(room, replicas.NOTE)
        notes[kept % room] = mine.notes[kept % len(mine.notes)]
        self._plug.replace(mine._replace(notes=notes))
