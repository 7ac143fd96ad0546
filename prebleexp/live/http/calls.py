"""A request that was made, and what is told of its answer."""

from __future__ import annotations

import asyncio
from typing import NamedTuple, Protocol

from prebleexp.live.http.exchange import Fields


class Failed(Exception):
    """There is no whole answer. `begun`: some bytes of one came."""

    begun = False


class NotConnected(Failed):
    """No connection: the request was not sent."""


class Broken(Failed):
    """The connection ended before the answer did. `kept`: it was an old one, which the server may have closed before it
    saw the request."""

    kept = False


class NotHttp(Failed):
    """What came is no HTTP answer."""


class TimedOut(Failed):
    """A call that took longer than `Client.fetch` was to wait."""


class Receiver:
    """What is told of a call, in this order; each of `head` and `done` once, or `failed` once instead of what is left.

    Nothing is told of a call that was cancelled.
    """

    def sent(self) -> None:
        """The request's first byte is handed to the socket of an open connection."""

    def head(self, status: int, headers: Fields) -> None:
        """Names in lower case. Interim answers (1xx) are not told."""

    def data(self, piece: bytes) -> None:
        """A piece of the body, without the framing of chunks."""

    def done(self) -> None:
        """Called when the answer is whole."""

    def failed(self, error: Failed) -> None:
        """Called when the answer will never be whole."""


class Wire(Protocol):
    """The connection that a call is on."""

    def abort(self) -> None: ...
    def read(self, on: bool) -> None: ...


class Call:
    """A request that was made: what its caller may do about it."""

    __slots__ = ("paused", "receiver", "request", "whole", "wire")

    def __init__(self, request: bytes, receiver: Receiver) -> None:
        self.request, self.receiver = request, receiver
        self.wire: Wire | None = None
        self.paused = False
        self.whole = False
        """what the receiver is told now is the last of its answer: `done` comes at once"""

    def cancel(self) -> None:
        """Close the connection, which is how servers hear of it. Nothing more is told."""
        self.receiver = IGNORED
        if self.wire is not None:
            self.wire.abort()

    def pause(self) -> None:
        """Read no more for now: the server's writing stops when buffers are full."""
        self.paused = True
        if self.wire is not None:
            self.wire.read(False)

    def resume(self) -> None:
        self.paused = False
        if self.wire is not None:
            self.wire.read(True)


class Reply(NamedTuple):
    """A whole answer to a call."""

    status: int
    headers: Fields
    body: bytes


class Whole(Receiver):
    """A receiver that gathers an answer until it is whole."""

    def __init__(self, loop: asyncio.AbstractEventLoop, most: int) -> None:
        self.future: asyncio.Future[Reply] = loop.create_future()
        self.ended = False
        self._most, self._body = most, bytearray()

    def head(self, status: int, headers: Fields) -> None:
        self._status, self._headers = status, headers

    def data(self, piece: bytes) -> None:
        self._body += piece
        if len(self._body) > self._most:
            self._tell(NotHttp(f"an answer of more than {self._most:,} bytes"))

    def done(self) -> None:
        self.ended = True
        if not self.future.done():
            self.future.set_result(Reply(self._status, self._headers, bytes(self._body)))

    def failed(self, error: Failed) -> None:
        self.ended = True
        self._tell(error)

    def _tell(self, error: Failed) -> None:
        if not self.future.done():
            self.future.set_exception(error)


IGNORED = Receiver()
"""hears of a call that was cancelled"""
