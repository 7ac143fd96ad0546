"""PREBLE's scheduler as its public code has it, and the fork that knows output lengths (spec: e2-as-released)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from prebleexp.errors import InvalidInput, unknown
from prebleexp.policies.base import Policy
from prebleexp.policies.e2_as_released import rules
from prebleexp.policies.e2_as_released.memory import Memory, Quirks, lacks_room, memory, with_more_room
from prebleexp.sim.records import View
from prebleexp.sim.types import Setup

QUIRKS = Quirks._fields


@dataclass(frozen=True)
class ReleasedE2(Policy):
    """Exploit, hit-rate explore or explore, then rebalance, request by request as the released code does.

    With lengths=max it is PREBLE's, with lengths=oracle the length-aware fork's. Candidates are taken in ascending
    order, as Python's sets have them up to 8 GPUs; beyond 8, sets that collide would be in another. It does not know
    that GPUs are lost: it never sends requests to one while that is, and believes in what it held when it is back.
    """

    quirks: tuple[str, ...] = QUIRKS
    """mistakes of the released code to keep. candidate_position (Q1): of several candidates, the position of the best
    is taken for a GPU. inert_oracle (Q2): a request's own length counts only where its prompt's last node is
    important; without, a node counts the lengths of its unfinished requests. last_decode_length (Q7): a node's output
    length is the last request's; without, the mean of those of its window. no_request_cost (Q6): the load leaves out
    what the request itself would cost"""

    def __post_init__(self) -> None:
        if isinstance(self.quirks, str) or not isinstance(self.quirks, tuple | list):
            raise InvalidInput(f"policy.quirks={self.quirks} is not valid; it must be a list, such as [{QUIRKS[0]}]")
        for name in self.quirks:
            if name not in QUIRKS:
                raise unknown("quirk", str(name), QUIRKS)
        object.__setattr__(self, "quirks", tuple(name for name in QUIRKS if name in self.quirks))

    def start(self, setup: Setup) -> Memory:
        return memory(setup, Quirks(*(name in self.quirks for name in QUIRKS)))

    def lacks_room(self, mine: Any, view: View, request: int) -> int:
        return lacks_room(mine, view, request)

    def with_more_room(self, mine: Any, view: View, request: int) -> Memory:
        return with_more_room(mine, view, request)

    def route(self, mine: Any, view: View, request: int, now: float) -> int:
        return rules.route(mine, view, request, now)

    def finished(self, mine: Any, view: View, request: int, now: float) -> None:
        rules.finish(mine, view, request, now)
