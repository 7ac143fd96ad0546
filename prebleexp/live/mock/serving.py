"""The process of a mock: its clock, a port for each GPU, and what it says of itself."""

from __future__ import annotations

import asyncio
import gc
import logging
import math
import time
from collections.abc import Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from prebleexp.live.http.limits import Limits
from prebleexp.live.http.server import Server, listen
from prebleexp.live.mock.alarm import Alarm
from prebleexp.live.mock.cluster import Cluster
from prebleexp.live.mock.endpoint import Endpoint
from prebleexp.live.mock.late import SAID_S, Late
from prebleexp.live.mock.metrics import Metrics
from prebleexp.sim.types import Ints

if TYPE_CHECKING:
    from prebleexp.live.mock.kv_events import Publisher

LOG = logging.getLogger(__name__)
LATE, BEYOND = "prebleexp:late_seconds", "prebleexp:late_tokens_total"
REPLAYED_S = 0.05
BODY_BYTES = 8 << 20
"""of a request: a prompt of the longest context is shorter"""


@dataclass(frozen=True)
class Terms:
    """Settings of a mock server: model's name, address, first port, speed, names of metrics."""

    model: str
    host: str = "127.0.0.1"
    port: int = 9100
    """of the first GPU; 0: any that are free"""
    speed: float = 1.0
    """simulated seconds a real one"""
    metrics: str = "vllm"
    """whose names /metrics has"""
    kv_events_port: int | None = None
    """of the first GPU, where KV events are published; None: they are not"""
    kv_replay_port: int | None = None
    """of the first GPU, where events are told again"""


class Mock:
    """A cluster in real time. Raises InvalidInput where it cannot listen; `close` it."""

    def __init__(self, cluster: Cluster, lengths: Ints, terms: Terms) -> None:
        self.cluster, self.terms, self.late = cluster, terms, Late()
        self._metrics = Metrics(cluster, terms.model)
        cluster.watching = self._metrics
        self._alarm: Alarm | None = None
        self._origin = 0.0
        self._stack = AsyncExitStack()
        self._warning: asyncio.TimerHandle | None = None
        self._replaying: asyncio.TimerHandle | None = None
        self.kv_events: list[Publisher] = []
        self.endpoints = [
            Endpoint(cluster, gpu, terms.model, self, lengths, self._said_of(gpu), terms.host)
            for gpu in range(cluster.gpus)
        ]
        self.servers: list[Server] = []
        self.failed: asyncio.Future[None]
        """done, with what went wrong, when nothing can be served any more"""

    async def open(self) -> None:
        held = max(2 * BODY_BYTES, Limits.held_bytes // self.cluster.gpus)
        terms, limits = self.terms, Limits(body_bytes=BODY_BYTES, held_bytes=held)
        self.failed = asyncio.get_running_loop().create_future()
        self._alarm = Alarm(self._ring)
        self._stack.callback(self._alarm.end)
        for gpu, endpoint in enumerate(self.endpoints):
            server = await listen(endpoint, terms.port + gpu if terms.port else 0, terms.host, limits)
            self._stack.push_async_callback(server.close)
            self.servers.append(server)
        if terms.kv_events_port is not None:
            self._publish(terms.kv_events_port)
        gc.collect()
        gc.freeze()  # what is there from the start is not looked at again
        self._origin = time.perf_counter()
        self._warn()
        self._tell_again()

    def _publish(self, port: int) -> None:
        """KV events of every GPU, at a port of its own."""
        from prebleexp.live.mock.kv_events import KVEvents, Publisher

        replay, host = self.terms.kv_replay_port, self.terms.host
        for gpu, endpoint in enumerate(self.endpoints):
            again = None if replay is None else replay + gpu
            publisher = Publisher(host, port + gpu, again)
            self._stack.callback(publisher.close)
            self.kv_events.append(publisher)
            endpoint.sources = {"kv_event_sources": [publisher.about]}
        events = KVEvents(self.cluster, self.kv_events)
        self.cluster.on_cache = events
        for gpu, endpoint in enumerate(self.endpoints):
            endpoint.on_clear = partial(events.cleared, gpu)

    async def close(self) -> None:
        for endpoint in self.endpoints:
            endpoint.closing = True
        for timer in (self._warning, self._replaying):
            if timer is not None:
                timer.cancel()
        await self._stack.aclose()

    @property
    def urls(self) -> list[str]:
        return [f"http://{self.terms.host}:{server.port}" for server in self.servers]

    # ------------------------------------------------------------ the clock
    def now(self) -> float:
        return (time.perf_counter() - self._origin) * self.terms.speed

    def wrote(self, due_s: float) -> None:
        self.late.add(max(0.0, (self.now() - due_s) / self.terms.speed))

    def changed(self) -> None:
        """What is due happens, and the alarm is set to what comes next."""
        cluster, alarm = self.cluster, self._alarm
        assert alarm is not None
        cluster.to(self.now())
        next_s = cluster.next_s
        alarm.set(math.inf if next_s == math.inf else self._origin + next_s / self.terms.speed)

    def _ring(self) -> None:
        """The alarm rang: nobody who asks hears of what goes wrong here."""
        try:
            self.changed()
        except Exception as error:
            if not self.failed.done():
                self.failed.set_exception(error)

    # ------------------------------------------------------------ what it says
    def _said_of(self, gpu: int) -> Callable[[], bytes]:
        said = getattr(self._metrics, self.terms.metrics)

        def all_of_it() -> bytes:
            self.changed()
            made: bytes = said(gpu) + "\n".join([*self.late.lines(LATE), *self.late.counter(BEYOND), ""]).encode()
            return made

        return all_of_it

    def _tell_again(self) -> None:
        """Who missed KV events and asks for them is answered soon."""
        for one in self.kv_events:
            one.replay()
        if self.kv_events:
            self._replaying = asyncio.get_running_loop().call_later(REPLAYED_S, self._tell_again)

    def _warn(self) -> None:
        said = self.late.warning()
        if said is not None:
            LOG.warning(said)
        self._warning = asyncio.get_running_loop().call_later(SAID_S, self._warn)
