"""A server and raw clients for tests of `prebleexp.live.http`, all of them in one loop."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any, TypeVar

from prebleexp.live.http import loops
from prebleexp.live.http.exchange import Exchange
from prebleexp.live.http.limits import Limits
from prebleexp.live.http.server import Server, listen

T = TypeVar("T")
PATIENCE_S = 20.0
"""ends what hangs, and judges nothing"""
SMALL = Limits(
    header_bytes=32 << 10,
    body_bytes=1 << 20,
    connections=16,
    request_s=0.4,
    idle_s=0.8,
    stalled_s=0.4,
    unread_bytes=4 << 20,
    linger_s=0.4,
)
PIECE = b"x" * (64 << 10)
PIECES = 1 << 10
"""of /big: 64 MiB"""


def run(main: Coroutine[Any, Any, T]) -> T:
    """To its end, or for so long."""

    async def patient() -> T:
        async with asyncio.timeout(PATIENCE_S):
            return await main

    return loops.run(patient())


class Site:
    """/echo answers the body, /stream 20 events, /never waits, /big heeds whether it is read, /hog does not."""

    def __init__(self) -> None:
        self.served: list[str] = []
        self.left = 0
        self.written = 0

    def __call__(self, exchange: Exchange) -> None:
        self.served.append(exchange.path)
        answers: dict[str, Callable[[Exchange], None]] = {
            "/echo": lambda one: one.respond(200, one.body),
            "/stream": self._stream,
            "/never": self._never,
            "/big": self._big,
            "/hog": self._hog,
            "/raises": self._raises,
            "/cut": self._cut,
        }
        answers.get(exchange.path, lambda one: one.fail(404, f"no {one.path} here"))(exchange)

    def _leaves(self) -> None:
        self.left += 1

    def _stream(self, exchange: Exchange) -> None:
        exchange.start()
        exchange.on_leave = self._leaves

        def step(i: int) -> None:
            if exchange.closed:
                return
            if i == 20:
                exchange.event(b"[DONE]")
                exchange.end()
            else:
                exchange.event(b'{"i":%d}' % i)
                asyncio.get_running_loop().call_soon(step, i + 1)

        step(0)

    def _never(self, exchange: Exchange) -> None:
        exchange.on_leave = self._leaves

    def _big(self, exchange: Exchange) -> None:
        exchange.start(200, b"application/octet-stream")
        exchange.on_leave = self._leaves
        left = PIECES

        def more() -> None:
            nonlocal left
            while left and not exchange.closed:
                left -= 1
                self.written += len(PIECE)
                if not exchange.write(PIECE):
                    return
            exchange.end()

        exchange.on_drain = more
        more()

    def _hog(self, exchange: Exchange) -> None:
        exchange.start(200, b"application/octet-stream")
        exchange.on_leave = self._leaves
        for _ in range(PIECES):
            if not exchange.closed:
                exchange.write(PIECE)
        exchange.end()

    def _raises(self, exchange: Exchange) -> None:
        raise RuntimeError("a handler's bug")

    def _cut(self, exchange: Exchange) -> None:
        exchange.start()
        exchange.event(b"half")
        asyncio.get_running_loop().call_later(0.05, exchange.abort)


@asynccontextmanager
async def serving(site: Callable[[Exchange], None], limits: Limits = SMALL) -> AsyncIterator[Server]:
    server = await listen(site, 0, limits=limits)
    try:
        yield server
    finally:
        await server.close()


async def raw(port: int, *sent: bytes, pause_s: float = 0.0, half_close: bool = False) -> bytes:
    """All that a server answers to these bytes until it closes the connection, or is silent for a while."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    got = bytearray()

    async def read() -> None:
        while piece := await reader.read(1 << 16):
            got.extend(piece)

    reading = asyncio.create_task(read())
    try:
        for piece in sent:
            writer.write(piece)
            await writer.drain()
            await asyncio.sleep(pause_s)
        if half_close:
            writer.write_eof()
        await asyncio.wait_for(reading, 5.0)
    except (ConnectionError, TimeoutError):
        reading.cancel()
    finally:
        writer.transport.abort()
    return bytes(got)


def statuses(answer: bytes) -> list[int]:
    """Of the answers in these bytes."""
    return [int(one) for one in re.findall(rb"HTTP/1\.1 (\d{3}) ", answer)]
