"""What a trace says, whatever its format."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from prebleexp.sim.types import Floats, Ints, Longs
from prebleexp.workloads.blocks import Prompts


class Links(NamedTuple):
    """Which requests wait for others to end, and how many seconds after these they come."""

    later: Longs
    """(links,) ascending: requests, …"""
    before: Longs
    """(links,) … and one that each of them comes after; it stands before it"""
    delay_s: Floats
    """(n,) from the last end of those that a request comes after"""


class Span(NamedTuple):
    """Seconds that each request of a recording took to something."""

    field: str
    """or what is between two of them, in words"""
    mean_s: float
    p95_s: float


class Times(NamedTuple):
    """How fast the requests of a recording were served, by whatever did; None: nobody says."""

    took: Span | None = None
    first: Span | None = None
    """until the first token"""
    thought: Span | None = None
    """from an answer to the next turn"""


UNTIMED = Times()


@dataclass(frozen=True)
class Reading:
    """Which fields of a file stand for what, in words."""

    time: str = "recorded"
    prompt: str = "recorded"
    output: str = "recorded"
    cached: str = ""
    """what the recorder found in its cache; nothing: it does not say"""
    found_share: float = 0.0
    """of the prompts' tokens that it found there"""
    prefix: str = "prompts share nothing"
    sessions: str = "every request is one of its own"
    left_out: tuple[str, ...] = ()
    doubts: tuple[str, ...] = ()
    """what of it was assumed, or is improbable"""
    models: tuple[str, ...] = ()
    """that requests ask for, the one that most ask for first; none: nobody says"""
    adapters: str = ""
    """nothing: none is asked for"""
    block_tokens: int = 1
    """of the blocks of which prompts are made"""
    times: Times = UNTIMED
    cure: str = ""
    """what would let prompts share more, where they share too little; nothing: nobody knows"""


@dataclass(frozen=True)
class Trace:
    """n requests; arrays of shape (n,) unless another is said.

    They are in order of their starts. Where sessions have no common clock each starts at 0, and requests are in order
    of families, which are sessions with all sub-agents.
    """

    start_s: Floats
    """from the beginning of the recording"""
    output_tokens: Longs
    """at least 1"""
    prompts: Prompts
    session: Ints
    """from 0 without gaps; one that belongs to no other request is a session of its own"""
    turn: Ints
    """in its session, from 0"""
    public: npt.NDArray[np.bool_] | None = None
    """(segment ids,) whether it is everybody's, as a system prompt is: copies of a session share it; None: nothing
    is"""
    links: Links | None = None
    """None: it is not known what came after what"""
    parent: Ints | None = None
    """the session that started its session; −1: none did; None: none anywhere"""
    answer: Ints | None = None
    """the segment of its answer in later prompts; −1: in none; None: likewise"""
    reading: Reading = Reading()
    closed: bool = False
    """whether turns after the first have no starts of their own, but `links`"""
    clocked: bool = True
    """whether sessions have a common clock"""
    at_once: bool = False
    """whether it is known that all come at one moment"""
    adapter: Ints | None = None
    """the LoRA adapter that each asks for, from 1 on; 0: none; None: none is asked for"""

    def __len__(self) -> int:
        return len(self.start_s)

    @cached_property
    def span_s(self) -> float:
        """Seconds from the start of its first request to that of its last."""
        return float(self.start_s.max())

    @cached_property
    def family(self) -> Longs:
        """The session at the root of its session, of which it is a sub-agent, or itself."""
        found = self.session.astype(np.int64)
        if self.parent is None:
            return found
        above = np.full(int(found.max()) + 1, -1)
        above[self.session] = self.parent
        while (above[found] >= 0).any():
            found = np.where(above[found] >= 0, above[found], found)
        return found

    @cached_property
    def family_start_s(self) -> Floats:
        """When the family of each request begins."""
        starts = np.full(int(self.family.max()) + 1, np.inf)
        np.minimum.at(starts, self.family, self.start_s)
        found: Floats = starts[self.family]
        return found

    @cached_property
    def prompt_tokens(self) -> Ints:
        return np.add.reduceat(self.prompts.tokens, self.prompts.offsets[:-1])


def alone(n: int) -> tuple[Ints, Ints]:
    """Sessions and turns of requests that belong to no other."""
    return np.arange(n, dtype=np.int32), np.zeros(n, np.int32)


def told(given: Longs) -> tuple[Ints, Ints]:
    """Sessions, and turns in order of the requests, of any numbers that stand for sessions; negative: of none."""
    own = given.max(initial=-1) + 1 + np.arange(len(given))
    session = np.unique(np.where(given < 0, own, given), return_inverse=True)[1].astype(np.int32)
    order = np.argsort(session, kind="stable")
    turn = np.empty(len(given), np.int32)
    turn[order] = np.arange(len(given)) - np.searchsorted(session[order], session[order])
    return session, turn
