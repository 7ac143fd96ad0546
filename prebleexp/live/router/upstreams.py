"""The servers behind a router: who is up, what is under way there, and what they tell of themselves."""

from __future__ import annotations

import asyncio
import enum
import logging
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

from prebleexp.live.http.calls import Failed
from prebleexp.live.http.client import Client
from prebleexp.live.http.places import Origin

LOG = logging.getLogger(__name__)


class Stage(enum.Enum):
    """Of a place for a server."""

    EMPTY = "empty"
    STARTING = "starting"
    """nobody has seen it yet"""
    UP = "up"
    DOWN = "down"
    DRAINING = "draining"
    """it gets no more, and goes on with what it has"""


class Upstream:
    """A place for a server: GPU `number` of the policy."""

    def __init__(self, number: int, origin: Origin | None) -> None:
        self.number, self.origin = number, origin
        self.stage = Stage.EMPTY if origin is None else Stage.STARTING
        self.fails = 0
        """GETs of /health in a row that failed"""
        self.flying = set[Any]()
        """`passing.Passage`s"""
        self.sent = self.finished = self.lost = self.errors = 0

    def about(self) -> dict[str, Any]:
        return {
            "gpu": self.number,
            "url": None if self.origin is None else str(self.origin),
            "stage": self.stage.value,
            "outstanding": len(self.flying),
            "sent": self.sent,
            "finished": self.finished,
            "lost": self.lost,
        }


class Health:
    """Looks at all of them, each `every_s` seconds, and calls back when one comes or goes: after so many `fails` in a
    row, or when `suspect` is told that nobody answers there."""

    def __init__(
        self,
        client: Client,
        upstreams: Sequence[Upstream],
        every_s: float,
        fails: int,
        came: Callable[[Upstream], None],
        went: Callable[[Upstream], None],
        told: Callable[[Upstream, str], None] | None,
    ) -> None:
        self._client, self._upstreams, self._every_s, self._fails = client, upstreams, every_s, fails
        self._came, self._went, self._told = came, went, told
        self._task: asyncio.Task[None] | None = None

    async def look(self) -> None:
        """Once, at all that are there."""
        await asyncio.gather(*(self._ask(one) for one in self._upstreams if one.origin is not None))

    def begin(self) -> None:
        self._task = asyncio.get_running_loop().create_task(self._go_on())

    async def end(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    def suspect(self, upstream: Upstream) -> None:
        """A connection was refused: it is down until it answers again."""
        upstream.fails = self._fails
        if upstream.stage in (Stage.UP, Stage.STARTING):
            upstream.stage = Stage.DOWN
            self._went(upstream)

    async def _go_on(self) -> None:
        while True:
            await asyncio.sleep(self._every_s)
            try:
                await self.look()
            except Exception:
                LOG.exception("servers could not be looked at")

    async def _ask(self, upstream: Upstream) -> None:
        origin = upstream.origin
        assert origin is not None
        try:
            well = (await self._client.fetch(origin, "/health", within_s=self._every_s)).status < 400
        except Failed:
            well = False
        if upstream.origin is not origin:
            return
        if well:
            upstream.fails = 0
            if upstream.stage in (Stage.DOWN, Stage.STARTING):
                upstream.stage = Stage.UP
                self._came(upstream)
        else:
            upstream.fails += 1
            if upstream.fails >= self._fails and upstream.stage in (Stage.UP, Stage.STARTING):
                upstream.stage = Stage.DOWN
                self._went(upstream)
        if well and self._told is not None:
            await self._reports(upstream, origin, self._told)

    async def _reports(self, upstream: Upstream, origin: Origin, told: Callable[[Upstream, str], None]) -> None:
        try:
            reply = await self._client.fetch(origin, "/metrics", within_s=self._every_s)
        except Failed:
            return
        if reply.status == 200 and upstream.origin is origin:
            told(upstream, reply.body.decode("utf-8", "replace"))


# ---------------------------------------------------------------- what they tell
GAUGES = {
    "queued": ("vllm:num_requests_waiting", "sglang:num_queue_reqs"),
    "running": ("vllm:num_requests_running", "sglang:num_running_reqs"),
    "usage": ("vllm:kv_cache_usage_perc", "vllm:gpu_cache_usage_perc", "sglang:token_usage"),
    "hits": ("vllm:prefix_cache_hits_total", "vllm:gpu_prefix_cache_hits_total"),
    "queries": ("vllm:prefix_cache_queries_total", "vllm:gpu_prefix_cache_queries_total"),
}
"""names of vLLM and SGLang"""
MOST_TOLD = 2.0**53
"""what is as much is no number of requests or tokens"""


def gauges(text: str) -> dict[str, float]:
    """Of a server's /metrics, what routers want to know; of several engines the sum, of usage the mean."""
    told = {}
    for name, theirs in GAUGES.items():
        values = next((found for one in theirs if (found := _values(text, one))), None)
        if values is not None:
            told[name] = sum(values) / (len(values) if name == "usage" else 1)
    return told


def _values(text: str, name: str) -> list[float]:
    """Of a name's lines. Most of a long text is other names, so that it is not looked at line by line."""
    found, at = list[float](), text.find(name)
    while at >= 0:
        end = text.find("\n", at)
        line = text[at:] if end < 0 else text[at:end]
        if (at == 0 or text[at - 1] == "\n") and line[len(name) : len(name) + 1] in ("{", " "):
            with suppress(ValueError, IndexError):
                found.append(float(line.rpartition("}")[2].split()[0 if "}" in line else 1]))
        at = -1 if end < 0 else text.find(name, end)
    return [one for one in found if 0.0 <= one < MOST_TOLD]
