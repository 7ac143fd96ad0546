"""What a run in which requests are moved is given."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from prebleexp.sim import addresses, links, pairing
from prebleexp.sim.history import Move
from prebleexp.sim.moves import MOVE, MOVED, NOTED, ROOM, RULES, RUNNING, Moves
from prebleexp.sim.plug import Plug
from prebleexp.sim.records import NONE
from prebleexp.sim.signatures import PAIRING
from prebleexp.sim.types import records

NOTES = 16
"""times the room that pairs of an instant need, so that Python is seldom asked for it"""


@dataclass(frozen=True)
class Migration:
    """When requests are moved, and over what."""

    interval_s: float
    """between two times at which GPUs are paired"""
    kv_bytes: float
    """of a token"""
    sharing: int
    """of links (see `prebleexp.sim.links`)"""
    rate: float
    """of each GPU's egress, and of its ingress: bytes a second"""
    latency_s: float
    below_freeness: float = 3.0
    """blocks a request: whoever has fewer is to have less to do"""
    chooses: int = RUNNING
    """of `prebleexp.sim.moves`: which request is moved"""
    last_stage_blocks: int = 16
    max_stages: int = 3

    def moves(self, gpus: int, requests: int, block_tokens: int, calls: Any) -> Moves:
        """The moves of a run, none yet, of so many GPUs and requests. `block_tokens`: of a block of KV; `calls`: of
        `prebleexp.sim.addresses.PAIRING`."""
        rules, move = records(1, RULES), records(gpus, MOVE)
        one = rules[0]
        one.interval_s, one.below = self.interval_s, self.below_freeness * block_tokens
        one.chooses, one.last_blocks, one.stages = self.chooses, self.last_stage_blocks, self.max_stages
        one.kv_bytes = self.kv_bytes * block_tokens
        move.request = move.target = NONE
        move.stopped_s = np.nan
        noted = records(NOTES * ROOM * gpus, NOTED)
        return Moves(rules, move, records(requests, MOVED), calls, np.arange(gpus), noted, np.zeros(1, np.int64))

    def links(self, gpus: int) -> links.Links:
        """Subjects are the GPUs that requests leave."""
        return links.made_links(gpus, gpus, self.sharing, float(self.rate), float(self.latency_s))


class Pairs:
    """What pairs GPUs in a run, and the moves that come of it."""

    def __init__(self, given: Migration, gpus: int, requests: int, rows: int, block_tokens: int) -> None:
        """`rows`: of requests and, with roles, of what computes their prompts."""
        self._requests = requests
        self._plug = Plug(None, pairing, None, addresses.PAIRING, PAIRING)
        self.moves = given.moves(gpus, rows, block_tokens, self._plug.record)
        self.over: list[Move] = []
        self._block_tokens = block_tokens

    def take_noted(self) -> None:
        """Take away what is noted of moves that are over."""
        noting = self.moves.noting
        for one in self.moves.noted[: noting[0]]:
            request, source, target, tokens, stages = (
                int(one[name]) for name in ("request", "source", "target", "tokens", "stages")
            )
            copied = self._block_tokens * int(one.copied)
            way = (bool(one.ran), stages, copied, bool(one.made), float(one.ended_s), float(one.stopped_s))
            self.over.append(Move(float(one.began_s), request % self._requests, source, target, tokens, *way))
        noting[0] = 0
