"""A client: connections that are kept and used again, answers told as they come, one callback for each piece."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass

from prebleexp.live.http.calls import IGNORED, Call, NotConnected, Receiver, Reply, TimedOut, Whole
from prebleexp.live.http.connection import Connection
from prebleexp.live.http.places import Origin


@dataclass(frozen=True)
class Settings:
    """Time limits of a client, in seconds."""

    connect_s: float = 5.0
    idle_s: float = 4.0
    """how long an idle connection is used again: shorter than the 5 s after which uvicorn closes one"""


class Client:
    """Calls of one event loop's thread. Close it at the end."""

    def __init__(self, settings: Settings | None = None) -> None:
        self._settings = settings or Settings()
        self._loop = asyncio.get_running_loop()
        self._idle = defaultdict[Origin, list[Connection]](list)
        self._open = set[Connection]()
        self._connecting = set[asyncio.Task[None]]()

    def call(
        self,
        origin: Origin,
        method: bytes,
        path: bytes,
        headers: Iterable[tuple[bytes, bytes]],
        body: bytes,
        receiver: Receiver,
    ) -> Call:
        """Send a request, at once where a connection is idle. `host` and `content-length` are added.

        Raises ValueError for a field or path with a line end in it.
        """
        call = Call(_request(origin, method, path, headers, body), receiver)
        connection = self._kept(origin)
        if connection is not None:
            connection.send(call)
        else:
            self._keep(self._loop.create_task(self._connect(origin, call)))
        return call

    async def fetch(
        self,
        origin: Origin,
        path: str,
        method: str = "GET",
        body: bytes = b"",
        headers: Iterable[tuple[bytes, bytes]] = (),
        most: int = 16 << 20,
        within_s: float = 5.0,
    ) -> Reply:
        """A whole answer of at most so many bytes. Raises Failed."""
        whole = Whole(self._loop, most)
        call = self.call(origin, method.encode(), path.encode("latin-1"), headers, body, whole)
        try:
            async with asyncio.timeout(within_s):
                return await whole.future
        except TimeoutError:
            raise TimedOut(f"no answer within {within_s:g} s") from None
        finally:
            if not whole.ended:
                call.cancel()

    async def warm(self, origin: Origin, connections: int) -> None:
        """Open so many ahead. Raises NotConnected."""
        opened = await asyncio.gather(*(self._opened(origin) for _ in range(connections)))
        for one in opened:
            self.release(one)

    def close(self) -> None:
        for task in self._connecting:
            task.cancel()
        for connection in list(self._open):
            connection.abort()

    # ------------------------------------------------------------ connections
    def _kept(self, origin: Origin) -> Connection | None:
        idle, least = self._idle[origin], self._loop.time() - self._settings.idle_s
        while idle:
            connection = idle.pop()
            if connection.idle_since >= least:
                return connection
            for one in (connection, *idle):  # those below are older still
                one.abort()
            idle.clear()
        return None

    async def _connect(self, origin: Origin, call: Call) -> None:
        try:
            connection = await self._opened(origin)
        except NotConnected as error:
            call.receiver.failed(error)
            return
        if call.receiver is IGNORED:
            self.release(connection)
        else:
            connection.send(call)

    async def _opened(self, origin: Origin) -> Connection:
        def made() -> Connection:
            return Connection(self, origin)

        try:
            async with asyncio.timeout(self._settings.connect_s):
                _, connection = await self._loop.create_connection(made, origin.host, origin.port, ssl=origin.ssl())
        except TimeoutError:
            raise NotConnected(f"no connection to {origin} within {self._settings.connect_s:g} s") from None
        except OSError as error:
            raise NotConnected(f"no connection to {origin}: {error.strerror or error}") from error
        return connection

    def _keep(self, task: asyncio.Task[None]) -> None:
        self._connecting.add(task)
        task.add_done_callback(self._connecting.discard)

    def release(self, connection: Connection) -> None:
        """Put a connection back among the idle ones."""
        connection.idle_since = self._loop.time()
        self._idle[connection.origin].append(connection)

    def opened(self, connection: Connection) -> None:
        self._open.add(connection)

    def closed(self, connection: Connection) -> None:
        self._open.discard(connection)
        idle = self._idle[connection.origin]
        if connection in idle:
            idle.remove(connection)


def _request(origin: Origin, method: bytes, path: bytes, headers: Iterable[tuple[bytes, bytes]], body: bytes) -> bytes:
    lines = [b"%b %b%b HTTP/1.1" % (method, origin.base.encode(), path), b"host: " + origin.authority]
    lines += [b"%b: %b" % one for one in headers]
    if body or method not in (b"GET", b"HEAD", b"DELETE"):
        lines.append(b"content-length: %d" % len(body))
    head = b"\r\n".join(lines)
    if head.count(b"\n") >= len(lines) or head.count(b"\r") >= len(lines):
        raise ValueError("a header field with a line end in it")
    return b"%b\r\n\r\n%b" % (head, body)
