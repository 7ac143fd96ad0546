"""Asks the policy about requests that Envoy shows, tells it what became of them, and keeps those that it holds."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Sequence
from typing import Any

from prebleexp.live.http.calls import Failed, NotConnected
from prebleexp.live.http.client import Client
from prebleexp.live.http.limits import Budget, Limits
from prebleexp.live.http.places import Origin
from prebleexp.live.picker import messages
from prebleexp.live.picker.stream import Refused, Stream
from prebleexp.live.router import said
from prebleexp.live.router.deciding import Deciding, Ticket, ears
from prebleexp.live.router.prompts import Malformed, read
from prebleexp.live.router.reports import Reports
from prebleexp.live.router.said import Counts
from prebleexp.live.router.upstreams import Health, Stage, Upstream
from prebleexp.sim.answers import HOLD

LOG = logging.getLogger(__name__)


class Picker:
    """Owner of all streams (`stream.Owner`). Times are of `time.monotonic`, from when it was made.

    `on_change` is called when a server came or went.
    """

    def __init__(
        self,
        deciding: Deciding,
        upstreams: Sequence[Upstream],
        client: Client,
        *,
        session_header: str,
        hold_s: float,
        health_s: float,
        health_fails: int,
        limits: Limits,
        kv_events: Sequence[str] = (),
        kv_replay: Sequence[str] = (),
    ) -> None:
        self.deciding, self.upstreams, self.limits = deciding, list(upstreams), limits
        self.budget = Budget(limits.held_bytes)
        self._session_header, self._hold_s, self._health_s = session_header, hold_s, health_s
        self._client = client
        self._tasks = set[asyncio.Task[None]]()
        self._looked_at = set[Upstream]()
        self.counts = Counts()
        self.on_change: Callable[[], None] = lambda: None
        self._held: dict[asyncio.Future[None], None] = {}
        self._began = time.monotonic()
        self._loop = asyncio.get_running_loop()
        reports = Reports(deciding, lambda: self.now)
        self.health = Health(client, self.upstreams, health_s, health_fails, self._changed, self._went, reports.hear)
        self.ears = ears(kv_events, kv_replay, deciding, lambda: self.now)

    async def begin(self) -> None:
        """Look who is there, and go on looking."""
        await self.health.look()
        self.deciding.begin(self._up())
        if self.ears is not None:
            self.ears.begin()
        self.health.begin()

    async def end(self) -> None:
        await self.health.end()
        if self.ears is not None:
            await self.ears.end()
        await asyncio.gather(*self._tasks)

    @property
    def now(self) -> float:
        return time.monotonic() - self._began

    def metrics(self) -> str:
        return said.metrics(self.counts, self.upstreams, self.deciding, len(self._held))

    # ------------------------------------------------------------ where requests go
    def session_of(self, headers: Any) -> str | None:
        named = messages.field(headers, self._session_header)
        return None if named is None else named.decode("latin-1")

    def anybody(self, stream: Stream) -> Upstream:
        """The first server that is up, for what asks no model. Raises Refused."""
        up = self._eligible(stream)
        if not up:
            self.counts.refused["nobody"] += 1
            raise Refused(503, "no server is up")
        return self.upstreams[up[0]]

    async def picks(self, stream: Stream, body: bytes) -> Upstream | None:
        """Where the policy sends it, now or later; None: nobody waits for it any more. Raises Refused."""
        began = time.perf_counter()
        try:
            request = read(body)
        except Malformed as error:
            self.counts.refused["malformed"] += 1
            raise Refused(400, str(error)) from None
        if stream.session is not None:
            request = request._replace(session=stream.session)
        now = self.now
        stream.ticket = self.deciding.arrives(request, now)
        self.deciding.warns(request)
        answer = self._asked(stream, now)
        self.counts.decided(time.perf_counter() - began)
        while answer == HOLD:
            if not await self._released(stream, now + self._hold_s):
                self.counts.left += 1
                return None
            answer = self._asked(stream, self.now)
        if answer < 0:
            self.counts.refused["policy"] += 1
            raise Refused(429, "the policy refuses this request")
        stream.upstream = upstream = self.upstreams[answer]
        upstream.flying.add(stream)
        upstream.sent += 1
        return upstream

    def _asked(self, stream: Stream, now: float) -> int:
        """The policy's answer; `HOLD` where there is nobody to choose from."""
        assert stream.ticket is not None
        if not self.deciding.candidates and stream.subset is None:
            return HOLD
        eligible = self._eligible(stream)
        if not eligible:  # the protocol has it so: what the gateway leaves is not waited for
            self.counts.refused["nobody"] += 1
            raise Refused(503, "none of the servers that the gateway names is up")
        if not self.deciding.is_of_this_lap(stream.ticket):
            stream.ticket = self._anew(stream.ticket, now)
        among = None if len(eligible) == len(self.deciding.candidates) else eligible
        return self.deciding.ask(stream.ticket, now, among)

    def _anew(self, ticket: Ticket, now: float) -> Ticket:
        made = self.deciding.arrives(ticket.request, now)
        made.arrived_s = ticket.arrived_s
        return made

    async def _released(self, stream: Stream, until: float) -> bool:
        """Waits until something has ended, begun to answer or come; False: the client has left. Raises Refused."""
        again: asyncio.Future[None] = self._loop.create_future()
        self._held[again] = None
        ahead = stream.ahead()
        try:
            await asyncio.wait((again, ahead), timeout=until - self.now, return_when=asyncio.FIRST_COMPLETED)
        except asyncio.CancelledError:  # Envoy breaks the stream off, where others only end it
            self.counts.left += 1
            raise
        finally:
            self._held.pop(again, None)
        if again.done():
            return True
        if ahead.done():
            return False
        self.counts.refused["policy" if self.deciding.candidates else "nobody"] += 1
        raise Refused(503, f"no server took this request within {self._hold_s:g} s")

    def _release(self) -> None:
        """Those that wait are asked about once more, in the order in which they came."""
        waiting, self._held = self._held, {}
        for one in waiting:
            if not one.done():
                one.set_result(None)

    # ------------------------------------------------------------ what becomes of them
    def first_token(self, stream: Stream) -> None:
        assert stream.ticket is not None
        self.deciding.first_token(stream.ticket, self.now)
        self._release()

    def finished(self, stream: Stream) -> None:
        upstream, ticket = self._over(stream)
        upstream.finished += 1
        self.counts.answered += 1
        self.deciding.learns_of(ticket, stream.answer.usage)
        self.deciding.finished(ticket, stream.answer.output, self.now)
        self._release()

    def lost(self, stream: Stream) -> None:
        """Its server is gone, or its client."""
        upstream, ticket = self._over(stream)
        upstream.lost += 1
        self.counts.cut += 1
        self.deciding.lost(ticket, self.now)
        self._release()

    def fails(self, stream: Stream) -> None:
        """It was answered with a status of 5xx, Envoy's own where its server takes no connection: is it still there?"""
        upstream = stream.upstream
        self.lost(stream)
        if upstream is not None and upstream not in self._looked_at:
            self._looked_at.add(upstream)
            task = self._loop.create_task(self._look(upstream))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _look(self, upstream: Upstream) -> None:
        if upstream.origin is None:
            return
        try:
            await self._client.fetch(upstream.origin, "/health", within_s=self._health_s)
        except NotConnected:
            self.health.suspect(upstream)
        except Failed:
            pass  # it may be slow: that is judged by health_fails
        finally:
            self._looked_at.discard(upstream)

    def _over(self, stream: Stream) -> tuple[Upstream, Ticket]:
        upstream, ticket, stream.upstream = stream.upstream, stream.ticket, None
        assert upstream is not None
        assert ticket is not None
        upstream.flying.discard(stream)
        return upstream, ticket

    # ------------------------------------------------------------ servers
    def _up(self) -> list[int]:
        return [one.number for one in self.upstreams if one.stage is Stage.UP]

    def _eligible(self, stream: Stream) -> list[int]:
        """Who is up, of those that the gateway leaves."""
        if stream.subset is None:
            return self.deciding.candidates
        left = set(stream.subset)
        return [one for one in self.deciding.candidates if messages.endpoint(self.upstreams[one]) in left]

    def place(self, origins: Sequence[Origin]) -> None:
        """These are the servers from now on. Who goes gets no more; its place is free when nothing is under way
        there."""
        there = {one.origin: one for one in self.upstreams if one.origin is not None}
        for origin, upstream in there.items():
            if origin not in origins:
                upstream.origin, upstream.stage = None, Stage.EMPTY
                self._went(upstream)
        for origin in [one for one in origins if one not in there]:
            empty = next((one for one in self.upstreams if one.stage is Stage.EMPTY and not one.flying), None)
            if empty is None:
                LOG.warning("there is no room for %s: slots=%d", origin, len(self.upstreams))
                return
            empty.origin, empty.stage, empty.fails = origin, Stage.STARTING, 0

    def _went(self, upstream: Upstream) -> None:
        if self.ears is not None:
            self.ears.of[upstream.number].begin_anew()
        self._changed(upstream)

    def _changed(self, upstream: Upstream) -> None:
        LOG.info("gpu %d is %s: %s", upstream.number, upstream.stage.value, upstream.origin)
        self.deciding.changed(upstream.number, self._up(), self.now)
        self.on_change()
        self._release()
