"""A router before small servers, in the test's own loop."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from functools import cache
from typing import Any

from prebleexp.experiment.cell import Cell
from prebleexp.launch import configure
from prebleexp.live.http.calls import Reply
from prebleexp.live.http.client import Client
from prebleexp.live.http.places import Origin, origin
from prebleexp.live.http.server import Server, listen
from prebleexp.live.router.proxy import Proxy
from prebleexp.live.router.served import How, compile_for, made
from tests.support.engines import Engine


@cache
def cell(policy: str) -> Cell:
    """With machine code: no test waits for that."""
    made = configure.cells([f"policy={policy}", "rps=1", "gpus=1"])[0]
    compile_for(made.policy, made.hardware)
    return made


class Running:
    """A router before engines."""

    def __init__(self, proxy: Proxy, server: Server, client: Client, engines: Sequence[Engine]) -> None:
        self.proxy, self.server, self.client, self.engines = proxy, server, client, engines

    @property
    def at(self) -> Origin:
        return origin("url", f"http://127.0.0.1:{self.server.port}")

    async def ask(self, path: str = "/v1/completions", session: str | None = None, **body: Any) -> Reply:
        headers = [] if session is None else [(b"x-session-id", session.encode())]
        given = {"model": "tiny", "prompt": "once upon a time", "max_tokens": 3, **body}
        return await self.client.fetch(self.at, path, "POST", json.dumps(given).encode(), headers, within_s=120)

    async def where(self, requests: int) -> set[int]:
        """The GPUs that got so many at once."""
        return {gpu_of(reply) for reply in await asyncio.gather(*(self.ask() for _ in range(requests)))}

    async def metrics(self) -> str:
        return (await self.client.fetch(self.at, "/metrics")).body.decode()


@asynccontextmanager
async def routing(policy: str, count: int, gap_s: float = 0.002, **how: Any) -> AsyncIterator[Running]:
    one = cell(policy)
    engines = [await Engine(gap_s).start() for _ in range(count)]
    client, theirs = Client(), Client()
    places = [origin("url", engine.url) for engine in engines]
    settings = How(
        places, how.pop("slots", count), health_s=how.pop("health_s", 0.1), rows=how.pop("rows", 4096), **how
    )
    proxy, recorded = made(one.policy, [one.hardware] * settings.slots, 0, settings, client)
    await proxy.begin()
    server = await listen(proxy, 0)
    try:
        yield Running(proxy, server, theirs, engines)
    finally:
        await server.close()
        await proxy.end()
        for engine in engines:
            await engine.kill()
        client.close()
        theirs.close()
        if recorded is not None:
            recorded.close()


def gpu_of(reply: Reply) -> int:
    return int(dict(reply.headers)[b"x-prebleexp-gpu"])
