"""Requests under way in a mock, and who hears of them."""

from __future__ import annotations

import math
from typing import Protocol

from prebleexp.live.mock.prompts import Segments
from prebleexp.sim.types import Ints, State


class Heard(Protocol):
    """What hears of an answer's tokens and of its end."""

    def token(self, ticket: Ticket, at_s: float) -> None:
        """Called for each token of the answer."""

    def ended(self, ticket: Ticket, state: State, at_s: float) -> None:
        """Called once, when no more tokens will come."""


class Ticket:
    """A request that is under way on the simulated GPUs."""

    __slots__ = (
        *("answer", "at_s", "first_s", "fits", "gpu", "heard", "last_s", "made", "prompt", "queued_s", "reason", "row"),
        *("scheduled_s", "segments", "stored", "target"),
    )

    def __init__(self, row: int, gpu: int, prompt: Ints, answer: Ints, at_s: float, heard: Heard) -> None:
        self.row, self.gpu, self.prompt, self.answer, self.at_s, self.heard = row, gpu, prompt, answer, at_s, heard
        self.target, self.made = len(answer), 0
        self.segments: Segments
        self.stored = 0
        """of its first blocks, those of which it was told that they are cached"""
        self.reason = "length"
        """why it ends"""
        self.fits = True
        """a GPU could serve it"""
        self.queued_s = self.scheduled_s = self.first_s = self.last_s = math.nan
        """when it joined its GPU's queue, behind the frontend, when it was first scheduled, and when its first and its
        last token came; the first two if somebody watches"""


class Watching(Protocol):
    """Who keeps count of what happens on GPUs."""

    def scheduled(self, ticket: Ticket) -> None: ...
    def stepped(self, gpu: int, tokens: int) -> None: ...
    def ended(self, ticket: Ticket, state: State, at_s: float) -> None: ...
    def token(self, ticket: Ticket, at_s: float) -> None: ...


class Caching(Protocol):
    """Who is told what caches store and drop; blocks are numbers within a context."""

    def stored(self, ticket: Ticket, blocks: int) -> None:
        """So many of its first blocks are cached."""

    def evicted(self, gpu: int, key: int, block: int) -> None:
        """Blocks that end in segment `key`, from this one on."""

    def cleared(self, gpu: int) -> None: ...
    def over(self) -> None:
        """That is all of one moment."""
