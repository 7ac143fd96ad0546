"""One request and its answer, whole or as a stream of pieces."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from functools import cache
from http import HTTPStatus
from typing import Protocol

Fields = list[tuple[bytes, bytes]]
"""header fields, names in lower case, in their order"""
EVENTS = b"text/event-stream; charset=utf-8"
KINDS = {400: "BadRequestError", 404: "NotFoundError", 429: "RateLimitError", 503: "ServiceUnavailableError"}
"""`type` of an error as OpenAI-style servers have it"""


def problem(status: int, message: str, kind: str | None = None) -> bytes:
    """The body of an error as OpenAI-style servers send it."""
    about = {"message": message, "type": kind or KINDS.get(status, "InternalServerError"), "code": status}
    return json.dumps({"error": about}).encode()


def event(data: bytes) -> bytes:
    """A server-sent event of one line, as bytes of a stream."""
    return b"data: %b\n\n" % data


class Sender(Protocol):
    """The connection that an exchange writes to."""

    def write(self, data: bytes) -> bool: ...
    def abort(self) -> None: ...
    def finished(self, keep_alive: bool) -> None: ...


class Exchange:
    """A whole request, and the one answer to it: `respond`, or `start`, `write` as often as you like, and `end`.

    All of it may happen at once or later, on the loop's thread. What is written behind a client's leaving goes nowhere.
    """

    __slots__ = (
        *("body", "closed", "headers", "method", "on_drain", "on_leave", "path", "query", "refused", "size", "started"),
        *("_alive", "_chunked", "_connection", "_ended", "_head_only", "_old"),
    )

    def __init__(
        self,
        connection: Sender,
        method: bytes,
        url: bytes,
        headers: Fields,
        body: bytes,
        alive: bool,
        old: bool,
    ) -> None:
        self._connection, self._alive, self._old = connection, alive, old
        if url.startswith(b"http"):  # to a proxy: http://host/path
            url = b"/" + url.partition(b"://")[2].partition(b"/")[2]
        target, _, self.query = url.partition(b"?")
        self.path = target.decode("latin-1")
        """as it was sent, percent signs and all"""
        self.method, self.headers, self.body = method.decode("latin-1"), headers, body
        self.closed = False
        """the client has left before its answer was whole"""
        self.started = False
        """a status is sent"""
        self.on_leave: Callable[[], None] | None = None
        """called when the client leaves"""
        self.on_drain: Callable[[], None] | None = None
        """called when the client has read, after `write` said False"""
        self.refused: tuple[int, str] | None = None
        self.size = 0
        """bytes that its connection holds for it"""
        self._chunked = self._ended = False
        self._head_only = method == b"HEAD"

    @property
    def target(self) -> str:
        """Path and query, as they were sent."""
        return f"{self.path}?{self.query.decode('latin-1')}" if self.query else self.path

    def header(self, name: bytes) -> bytes | None:
        """`name` in lower case; the first one's value."""
        return next((value for key, value in self.headers if key == name), None)

    def respond(
        self,
        status: int,
        body: bytes = b"",
        content_type: bytes = b"application/json",
        headers: Iterable[tuple[bytes, bytes]] = (),
    ) -> None:
        """Send a whole answer at once."""
        if self._ended or self.started:
            return
        self.started = True
        fields = [(b"content-type", content_type), *headers, (b"content-length", b"%d" % len(body))]
        self._connection.write(self._head(status, fields) + (b"" if self._head_only else body))
        self.end()

    def fail(self, status: int, message: str, kind: str | None = None) -> None:
        """An error as OpenAI-style servers send it; in a stream that has begun, as an event that ends it."""
        body = problem(status, message, kind)
        if self.started:
            self.event(body)
            self.end()
        else:
            self.respond(status, body)

    def start(
        self,
        status: int = 200,
        content_type: bytes = EVENTS,
        headers: Iterable[tuple[bytes, bytes]] = (),
        piece: bytes = b"",
    ) -> bool:
        """Send the head of a streamed answer, and with it a first piece of the stream; returns as `write` does."""
        if self._ended or self.started:
            return True
        self.started = True
        self._chunked = not self._old
        fields = [(b"content-type", content_type), *headers]
        if self._chunked:
            fields.append((b"transfer-encoding", b"chunked"))
        else:
            self._alive = False  # its end is the connection's
        return self._connection.write(self._head(status, fields) + self._framed(piece))

    def write(self, data: bytes) -> bool:
        """A piece of the stream. False: the client does not read; write no more before `on_drain`."""
        if self._ended or self._head_only or not data:
            return True
        return self._connection.write(self._framed(data))

    def event(self, data: bytes) -> bool:
        """A server-sent event of one line; else as `write`."""
        return self.write(event(data))

    def end(self, piece: bytes = b"") -> None:
        """End the answer, which is whole now, with a last piece of its stream."""
        if self._ended:
            return
        self._ended = True
        if self._chunked and not self._head_only:
            self._connection.write(self._framed(piece) + b"0\r\n\r\n")
        elif piece:
            self._connection.write(self._framed(piece))
        self._forget()
        self._connection.finished(self._alive)

    def abort(self) -> None:
        """Cut the connection in the midst of the answer, as a server that dies does."""
        if not self._ended:
            self._ended = True
            self._forget()
            self._connection.abort()

    # ------------------------------------------------------------ the connection's
    def leave(self) -> None:
        if not self._ended:
            self.closed = self._ended = True
            told = self.on_leave
            self._forget()
            if told is not None:
                told()

    def drained(self) -> None:
        if self.on_drain is not None:
            self.on_drain()

    def _framed(self, data: bytes) -> bytes:
        if self._head_only or not data:
            return b""  # of no bytes would be the end
        return b"%x\r\n%b\r\n" % (len(data), data) if self._chunked else data

    def _forget(self) -> None:
        self.on_leave = self.on_drain = None

    def _head(self, status: int, fields: Iterable[tuple[bytes, bytes]]) -> bytes:
        lines = [b"HTTP/1.1 %d %b" % (status, _reason(status)), *(b"%b: %b" % one for one in fields)]
        if not self._alive:
            lines.append(b"connection: close")
        return b"\r\n".join(lines) + b"\r\n\r\n"


@cache
def _reason(status: int) -> bytes:
    try:
        return HTTPStatus(status).phrase.encode()
    except ValueError:
        return b"Unknown"
