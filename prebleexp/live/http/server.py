"""A server: listens, limits what clients may send, and hands whole requests, one at a time for each connection, to a
handler, which answers at once or later (`Exchange`)."""

from __future__ import annotations

import asyncio
import errno
import logging
from collections import deque
from collections.abc import Callable
from typing import cast

import httptools

from prebleexp.errors import InvalidInput
from prebleexp.live.http.exchange import Exchange
from prebleexp.live.http.limits import FULL, Budget, Limits

LOG = logging.getLogger(__name__)
PIECE = 16 << 10
"""bytes fed to the parser at once: between them, limits are looked at"""
PIPELINED = 32
"""whole requests of a connection that wait for their turn: it is not read until there are fewer"""
CHUNKING = 6
"""bytes that bring one of a body, where each is a chunk; more are header, trailer or what else nobody asked for"""
HEADER = (431, "the request's header is too large")
UNANSWERED = (500, "this request was not answered; the log says why")
REFUSED_AT_ONCE = 256
"""connections beyond the limit that are told why; more are cut"""


class Server:
    """A server that gives each request to a handler; see `listen`."""

    def __init__(self, handler: Callable[[Exchange], None], limits: Limits) -> None:
        self.handler, self.limits = handler, limits
        self.connections = set[Connection]()
        self.budget = Budget(limits.held_bytes)
        self.closing = False
        self.loop = asyncio.get_running_loop()
        self._listening: asyncio.Server | None = None
        self._sweeping: asyncio.TimerHandle | None = None
        self._every = min(1.0, limits.request_s / 4, limits.idle_s / 4, limits.stalled_s / 4, limits.linger_s / 4)
        self._sweep()

    @property
    def port(self) -> int:
        assert self._listening is not None
        return int(self._listening.sockets[0].getsockname()[1])

    async def open(self, host: str, port: int) -> None:
        try:
            self._listening = await self.loop.create_server(lambda: Connection(self), host, port, backlog=4096)
        except OSError as error:
            self._end()
            taken = error.errno == errno.EADDRINUSE
            why = "another process listens there" if taken else error.strerror or str(error)
            raise InvalidInput(f"cannot listen on host={host} port={port}: {why}") from error

    async def close(self, within_s: float = 0.0) -> int:
        """Takes no new connections, lets requests be answered for so long, and ends; returns how many were cut off."""
        self.closing = True
        if self._listening is not None:
            self._listening.close()
        for connection in list(self.connections):
            if connection.idle:
                connection.abort()
        end = self.loop.time() + within_s
        while self.connections and self.loop.time() < end:
            await asyncio.sleep(min(0.02, within_s))
        left = list(self.connections)
        cut = sum(not connection.idle for connection in left)
        for connection in left:
            connection.abort()
        self._end()
        await asyncio.sleep(0)
        return cut

    def _sweep(self) -> None:
        now = self.loop.time()
        for connection in list(self.connections):
            connection.look_at_clock(now)
        self._sweeping = self.loop.call_later(self._every, self._sweep)

    def _end(self) -> None:
        if self._sweeping is not None:
            self._sweeping.cancel()


async def listen(
    handler: Callable[[Exchange], None], port: int, host: str = "127.0.0.1", limits: Limits | None = None
) -> Server:
    """Port 0 takes a free one (`Server.port`). Nobody but this machine is served unless `host` says so.

    The handler is called when a request is whole, in the order in which they are. What it raises is answered with 500.
    Raises InvalidInput where it cannot listen.
    """
    server = Server(handler, limits or Limits())
    await server.open(host, port)
    return server


class Connection(asyncio.Protocol):
    """One client's. The parser calls the methods that begin with `on_`."""

    def __init__(self, server: Server) -> None:
        self.server, self._limits = server, server.limits
        self._parser = httptools.HttpRequestParser(self)
        self._transport: asyncio.Transport | None = None
        self._rest = b""
        self._queue = deque[Exchange]()
        self._current: Exchange | None = None
        self._refusal: tuple[int, str] | None = None
        """why no more of this connection is parsed"""
        self._serving = self._receiving = self._lingering = False
        self._since = server.loop.time()
        """when it began to receive, to be idle or to linger"""
        self._held = self._ahead = 0
        """bytes of all requests of this connection, and what of them is not parsed yet"""
        self._unread_since: float | None = None
        self._clear()

    # ------------------------------------------------------------ the transport's
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport = cast(asyncio.Transport, transport)  # uvloop's is none by class
        self.server.connections.add(self)
        over = len(self.server.connections) - self._limits.connections
        if over > REFUSED_AT_ONCE:
            transport.abort()
        elif self.server.closing or over > 0:
            self._refuse(503, "too many connections")
            self._serve()

    def data_received(self, data: bytes) -> None:
        if self._refusal is None:
            self._rest = self._rest + data if self._rest else data
            self._feed()
            self._serve()

    def eof_received(self) -> bool:
        return False

    def connection_lost(self, error: Exception | None) -> None:
        self.server.connections.discard(self)
        current, self._current, self._transport = self._current, None, None
        self._queue.clear()
        self._rest = b""
        self._give(self._held)
        if current is not None:
            current.leave()

    def pause_writing(self) -> None:
        self._unread_since = self.server.loop.time()

    def resume_writing(self) -> None:
        self._unread_since = None
        if self._current is not None:
            self._current.drained()

    # ------------------------------------------------------------ the parser's
    def on_message_begin(self) -> None:
        self._since, self._receiving = self.server.loop.time(), True

    def on_url(self, url: bytes) -> None:
        self._url += url

    def on_header(self, name: bytes, value: bytes) -> None:
        self._headers.append((name.lower(), value))
        self._head_bytes += len(name) + len(value) + 4

    def on_headers_complete(self) -> None:
        length = next((value for name, value in self._headers if name == b"content-length"), b"0")
        if self._head_bytes + len(self._url) > self._limits.header_bytes:
            self._refusal = self._refusal or HEADER
        elif int(length) > self._limits.body_bytes:
            self._too_large()
        elif not self._take(self._head_bytes + len(self._url)):
            self._refusal = self._refusal or FULL
        elif (b"expect", b"100-continue") in self._headers and self._current is None and not self._queue:
            self.write(b"HTTP/1.1 100 Continue\r\n\r\n")

    def on_body(self, body: bytes) -> None:
        self._body.append(body)
        self._body_bytes += len(body)
        if self._body_bytes > self._limits.body_bytes:
            self._too_large()
        elif not self._take(len(body)):
            self._body.clear()
            self._refusal = self._refusal or FULL

    def on_message_complete(self) -> None:
        if self._refusal is None:
            body = self._body[0] if len(self._body) == 1 else b"".join(self._body)
            parser = self._parser
            alive = parser.should_keep_alive() and not parser.should_upgrade()
            old = parser.get_http_version() == "1.0"
            exchange = Exchange(self, parser.get_method(), self._url, self._headers, body, alive, old)
            exchange.size = self._size
            self._queue.append(exchange)
        self._receiving = False
        self._clear()

    # ------------------------------------------------------------ requests, in their order
    def _feed(self) -> None:
        if self._ahead:
            self._take(-self._ahead)
            self._ahead = 0
        at, data = 0, memoryview(self._rest)
        while at < len(data) and self._refusal is None and len(self._queue) < PIPELINED:
            piece = data[at : at + PIECE]
            at += len(piece)
            try:
                self._parser.feed_data(piece)
            except httptools.HttpParserUpgrade:
                self._refusal = (400, "no other protocol is spoken here")  # the request itself is served
            except httptools.HttpParserError as error:
                self._refusal = self._refusal or (400, f"this is no HTTP request: {str(error)[:80]}")
            if self._receiving:
                self._fed += len(piece)
                if self._fed - CHUNKING * self._body_bytes > self._limits.header_bytes + PIECE:
                    self._refusal = self._refusal or HEADER
        self._rest = bytes(data[at:]) if at < len(data) and self._refusal is None else b""
        if self._rest and not self._take(len(self._rest)):
            self._refusal = FULL
        if self._refusal is not None:
            self._refuse(*self._refusal)
        elif self._rest and self._transport is not None:
            self._ahead = len(self._rest)
            self._transport.pause_reading()

    def _serve(self) -> None:
        if self._serving:
            return
        self._serving = True
        while self._current is None and self._transport is not None:
            if not self._queue and self._rest:
                self._feed()
                if not self._rest:
                    self._transport.resume_reading()
            if not self._queue:
                break
            self._current = exchange = self._queue.popleft()
            try:
                if exchange.refused is None:
                    self.server.handler(exchange)
                else:
                    self._lingering, self._since = True, self.server.loop.time()
                    exchange.fail(*exchange.refused)
            except Exception:
                LOG.exception("a request was not answered")
                exchange.fail(*UNANSWERED)
        self._serving = False

    def finished(self, keep_alive: bool) -> None:
        """Marks the current request of the connection as answered. Unless `keep_alive`, the connection then closes."""
        if self._current is not None:
            self._give(self._current.size)
        self._current, self._since = None, self.server.loop.time()
        if self._transport is None:
            return
        if self._lingering:
            if self._transport.can_write_eof():
                self._transport.write_eof()
        elif not keep_alive or (self.server.closing and not self._queue):
            self._queue.clear()
            self._rest = b""
            self._transport.close()
        else:
            self._serve()

    def _refuse(self, status: int, message: str) -> None:
        self._refusal = self._refusal or (status, message)
        exchange = Exchange(self, b"", b"", [], b"", False, False)
        exchange.refused = (status, message)
        self._queue.append(exchange)
        self._receiving = False
        self._rest = b""
        self._give(self._size)
        self._clear()

    def _too_large(self) -> None:
        self._body.clear()
        self._refusal = self._refusal or (413, f"a body has at most {self._limits.body_bytes:,} bytes here")

    def _take(self, size: int) -> bool:
        """Whether so many bytes more of the request that comes can be held."""
        fits = self.server.budget.take(size)
        self._held += size * fits
        self._size += size * fits
        return fits

    def _give(self, size: int) -> None:
        self.server.budget.give(size)
        self._held -= size

    def _clear(self) -> None:
        self._url = b""
        self._headers: list[tuple[bytes, bytes]] = []
        self._body: list[bytes] = []
        self._body_bytes = self._head_bytes = self._size = self._fed = 0

    # ------------------------------------------------------------ the exchange's and the server's
    def write(self, data: bytes) -> bool:
        """Whether the client reads: if not, `drained` of the exchange is called when it has."""
        transport = self._transport
        if transport is None:
            return True
        transport.write(data)
        if self._unread_since is None:
            return True
        if transport.get_write_buffer_size() > self._limits.unread_bytes:
            self.abort()
        return False

    def abort(self) -> None:
        """Cut it now: whoever answers hears at once that the client is gone."""
        transport, current = self._transport, self._current
        self._transport = self._current = None
        if transport is not None:
            transport.abort()
        if current is not None:
            current.leave()

    @property
    def idle(self) -> bool:
        """Whether no request of this connection is being read, queued or answered."""
        return self._current is None and not self._queue and not self._receiving

    @property
    def unread(self) -> int:
        """Bytes that wait for the client to read."""
        return 0 if self._transport is None else self._transport.get_write_buffer_size()

    def look_at_clock(self, now: float) -> None:
        limits, transport = self._limits, self._transport
        if transport is None:
            return
        if self._unread_since is not None and now - self._unread_since > limits.stalled_s:
            self.abort()
        elif self._lingering:
            if now - self._since > limits.linger_s:
                transport.abort()
        elif self._receiving:
            if now - self._since > limits.request_s and not self._rest:
                self._refuse(408, f"a request must be whole within {limits.request_s:g} s")
                self._serve()
        elif self._current is None and now - self._since > limits.idle_s:
            transport.close()
