"""What is written down of every request that is sent. Times are seconds from the start of the run."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from prebleexp.sim.types import Floats, Ints, State

NAN = math.nan


class Sent:
    """What is measured of one request."""

    __slots__ = (
        *("cached", "chunks", "due_s", "ended_s", "error", "first_s", "first_tokens", "gaps_s", "gpu", "last_s"),
        *("output", "prompt", "sent_s", "state", "status"),
    )

    def __init__(self) -> None:
        self.due_s = self.sent_s = self.first_s = self.last_s = self.ended_s = NAN
        self.state = State.NOT_DUE
        self.gpu = -1
        """of the address it was sent to, or of the router's answer"""
        self.status = 0
        """of HTTP; 0: there was none"""
        self.error = ""
        self.chunks = self.first_tokens = 0
        self.output = 0
        """tokens, by the server's count if it has one, else events"""
        self.prompt = -1
        """tokens by the server's count; -1: it says nothing"""
        self.cached = -1
        """of its prompt's tokens those that the server had, likewise"""
        self.gaps_s: Floats = _NO_GAPS


_NO_GAPS: Floats = np.zeros(0)


class Table(NamedTuple):
    """All of them as columns, (n,) each."""

    due_s: Floats
    """when it was due"""
    sent_s: Floats
    """when its first byte was handed to the socket; NaN: it never was"""
    first_s: Floats
    """when its first token came; NaN: none did"""
    last_s: Floats
    """when the last event with something of its answer came"""
    ended_s: Floats
    """when the answer was over, or the connection was closed"""
    state: npt.NDArray[np.int8]
    gpu: Ints
    status: Ints
    chunks: Ints
    """events that had something of the answer: not tokens"""
    first_tokens: Ints
    """in the first of them; 0: the server does not say"""
    output: Ints
    prompt: Ints
    cached: Ints
    error: list[str]
    gaps_s: list[Floats]
    """between the events of each"""

    @property
    def late_s(self) -> Floats:
        """(n,) by how much later than due each was sent"""
        return self.sent_s - self.due_s


KINDS = {"state": np.int8, "gpu": np.int32, "status": np.int32, "chunks": np.int32, "first_tokens": np.int32}
KINDS |= {"output": np.int32, "prompt": np.int32, "cached": np.int32}


def table(requests: Sequence[Sent]) -> Table:
    """The measured requests as columns, in their order."""
    columns = {name: [getattr(one, name) for one in requests] for name in Table._fields}
    lists: dict[str, Any] = {name: columns.pop(name) for name in ("error", "gaps_s")}
    arrays: dict[str, Any] = {name: np.array(one, KINDS.get(name, np.float64)) for name, one in columns.items()}
    return Table(**arrays | lists)
