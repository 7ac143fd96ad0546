"""What clients see of a router: OpenAI's paths, and its own."""

from __future__ import annotations

import asyncio
import json
import logging
import time
from collections.abc import Callable, Sequence
from typing import Any

from prebleexp.gateway.base import OPEN, Gateway
from prebleexp.live.http.calls import Call, Failed, NotConnected, TimedOut
from prebleexp.live.http.client import Client
from prebleexp.live.http.exchange import Exchange
from prebleexp.live.http.server import UNANSWERED
from prebleexp.live.router import said
from prebleexp.live.router.deciding import Deciding, Ticket, ears
from prebleexp.live.router.gate import WORDS, Gate
from prebleexp.live.router.passing import NOT_ASKED, Passage, passed_on
from prebleexp.live.router.prompts import Malformed, Request, read
from prebleexp.live.router.reports import Reports
from prebleexp.live.router.said import Counts
from prebleexp.live.router.upstreams import Health, Stage, Upstream
from prebleexp.live.router.workers import Workers
from prebleexp.sim.answers import HOLD

LOG = logging.getLogger(__name__)
SESSION = b"x-session-id"
LONG = 256 << 10
"""bytes of a body that is read by a thread of its own: others' streams go on meanwhile"""


class Proxy:
    """Answers exchanges (see `http.server.listen`). Times are of `time.monotonic`, from when it was made."""

    def __init__(
        self,
        deciding: Deciding,
        upstreams: Sequence[Upstream],
        client: Client,
        *,
        session_header: bytes = SESSION,
        hold_s: float = 30.0,
        health_s: float = 1.0,
        health_fails: int = 3,
        polls: bool = True,
        host: str = "127.0.0.1",
        administered: bool = True,
        kv_events: Sequence[str] = (),
        kv_replay: Sequence[str] = (),
        gateway: Gateway = OPEN,
    ) -> None:
        self.deciding, self.upstreams, self._client = deciding, list(upstreams), client
        self._session_header, self._hold_s = session_header, hold_s
        self.counts = Counts()
        self.gate, self._ttl_s = Gate(gateway, self.upstreams), gateway.ttl_queue_s
        self._began = time.monotonic()
        self._loop = asyncio.get_running_loop()
        told = Reports(deciding, lambda: self.now).hear if polls else None
        self.health = Health(client, self.upstreams, health_s, health_fails, self._came, self._went, told)
        self._expiring: asyncio.TimerHandle | None = None
        self._tasks = set[asyncio.Task[None]]()
        self.ears = ears(kv_events, kv_replay, deciding, lambda: self.now)
        fixed = self.ears is not None
        self._workers = Workers(self.upstreams, host, administered, fixed, self._changed)

    async def begin(self) -> None:
        """Look who is there, and go on looking."""
        await self.health.look()
        self.deciding.begin(self._candidates())
        if self.ears is not None:
            self.ears.begin()
        self.health.begin()
        self._expire()

    async def end(self) -> None:
        await self.health.end()
        if self.ears is not None:
            await self.ears.end()
        if self._expiring is not None:
            self._expiring.cancel()

    @property
    def now(self) -> float:
        return time.monotonic() - self._began

    # ------------------------------------------------------------ what clients ask
    def __call__(self, exchange: Exchange) -> None:
        path, method = exchange.path, exchange.method
        if path.startswith("/v1/") and method == "POST":
            self._ask(exchange)
        elif path.startswith("/v1/") and method == "GET":
            self._later(exchange, self._fetched)
        elif path == "/health":
            up, recording = len(self._candidates()), self.deciding.recording
            about = {"up": up, "of": len(self.upstreams)}
            if recording is not None:
                about["recording"] = not recording.stopped
            exchange.respond(200 if up else 503, json.dumps(about).encode())
        elif path == "/metrics":
            text = said.metrics(self.counts, self.upstreams, self.deciding, len(self.gate.waiting))
            exchange.respond(200, text.encode(), b"text/plain; version=0.0.4; charset=utf-8")
        elif path == "/workers" or path.startswith("/workers/"):
            self._workers(exchange)
        else:
            exchange.fail(404, f"there is no {method} {path[:80]} here")

    def _ask(self, exchange: Exchange) -> None:
        if len(exchange.body) > LONG:
            self._later(exchange, self._read_apart)
            return
        began = time.perf_counter()
        try:
            request = read(exchange.body)
        except Malformed as error:
            self._refuse(exchange, "malformed", 400, str(error))
        else:
            self._asked(exchange, request, began)

    async def _read_apart(self, exchange: Exchange) -> None:
        """It is as if it had come when it is read."""
        try:
            request = await self._loop.run_in_executor(None, read, exchange.body)
        except Malformed as error:
            self._refuse(exchange, "malformed", 400, str(error))
        else:
            if not exchange.closed:
                self._asked(exchange, request, time.perf_counter())

    def _asked(self, exchange: Exchange, request: Request, began: float) -> None:
        named = exchange.header(self._session_header)
        if named is not None:
            request = request._replace(session=named.decode("latin-1"))
        now = self.now
        why = self.gate.refuses(self.deciding.tokens(request), request.priority, self.deciding.host.view.gpus, now)
        if why is not None:
            self._refuse(exchange, why, 429, WORDS[why])
            return
        ticket = self.deciding.arrives(request, now)
        self.deciding.warns(request)
        passage = Passage(self, exchange, ticket, now)
        self._route(passage, now)
        self.counts.decided(time.perf_counter() - began)

    def _route(self, passage: Passage, now: float) -> None:
        """Ask where it goes, and send it there."""
        room = self.gate.room(self.deciding.candidates)
        if not room:
            self._waits(passage)
            return
        if not self.deciding.is_of_this_lap(passage.ticket):
            passage.ticket = self._anew(passage.ticket, now)
        answer = self.deciding.ask(passage.ticket, now, None if len(room) == len(self.deciding.candidates) else room)
        if answer >= 0:
            passage.go(self.upstreams[answer])
        elif answer == HOLD:
            self._waits(passage)
        else:
            self._refuse(passage.exchange, "policy", 429, "the policy refuses this request")

    def _waits(self, passage: Passage) -> None:
        joins = passage.place is None
        self.gate.joins(passage)
        if joins and self._ttl_s is not None:
            self._loop.call_later(self._ttl_s, self._expires, passage, passage.place)

    def _refuse(self, exchange: Exchange, why: str, status: int, words: str) -> None:
        self.counts.refused[why] += 1
        exchange.fail(status, words)

    def _anew(self, ticket: Ticket, now: float) -> Ticket:
        made = self.deciding.arrives(ticket.request, now)
        made.arrived_s = ticket.arrived_s
        return made

    def _release(self) -> None:
        """Something has ended or begun to answer, or somebody has come: those that wait are asked about once more,
        while there is room."""
        for passage in list(self.gate.waiting):
            if not self.gate.room(self.deciding.candidates):
                break
            if self.gate.leaves(passage):
                self._route(passage, self.now)

    def _expires(self, passage: Passage, place: tuple[int, int] | None) -> None:
        """It has waited in the queue for as long as it may, unless it does no more."""
        if passage.place == place and self.gate.leaves(passage):
            self._refuse(passage.exchange, "expired", 503, f"this request has waited for {self._ttl_s:g} s")

    def _expire(self) -> None:
        """Who has waited for so long is told so."""
        for passage in [one for one in self.gate.waiting if self.now - one.held_since > self._hold_s]:
            self.gate.leaves(passage)
            kind = "policy" if self.deciding.candidates else "nobody"
            self._refuse(passage.exchange, kind, 503, f"no server took this request within {self._hold_s:g} s")
        self._expiring = self._loop.call_later(min(1.0, self._hold_s / 4), self._expire)

    # ------------------------------------------------------------ what becomes of them (passing.Owner)
    def sends(self, passage: Passage) -> Call:
        exchange, upstream = passage.exchange, passage.upstream
        assert upstream is not None
        assert upstream.origin is not None
        fields = passed_on(exchange.headers, NOT_ASKED)
        path = exchange.target.encode("latin-1")
        return self._client.call(upstream.origin, b"POST", path, fields, exchange.body, passage)

    def first_token(self, passage: Passage) -> None:
        self.deciding.first_token(passage.ticket, self.now)
        if self.gate.waiting:
            self._release()

    def finished(self, passage: Passage, output: int, usage: dict[str, Any]) -> None:
        assert passage.upstream is not None
        passage.upstream.finished += 1
        self.counts.answered += 1
        self.deciding.learns_of(passage.ticket, usage)
        self.deciding.finished(passage.ticket, output, self.now)
        if self.gate.waiting:
            self._release()

    def leaves(self, passage: Passage) -> None:
        self.counts.left += 1
        self.gate.leaves(passage)
        self.deciding.lost(passage.ticket, self.now)
        if self.gate.waiting:
            self._release()

    def fails(self, passage: Passage, error: Failed) -> None:
        """A server did not answer to the end. If the client has seen nothing, another one may."""
        upstream, exchange = passage.upstream, passage.exchange
        assert upstream is not None
        upstream.lost += 1
        self.deciding.lost(passage.ticket, self.now)
        if isinstance(error, NotConnected):
            self.health.suspect(upstream)
        if passage.can_go_again and passage.attempts <= 2 * len(self.upstreams):
            self.counts.retried += 1
            self._loop.call_soon(self._again, passage)
        elif not exchange.closed:
            self.counts.cut += 1
            exchange.fail(502, f"the server of this request is gone: {_why(error)}", "UpstreamError")
        if self.gate.waiting:
            self._loop.call_soon(self._release)

    def _again(self, passage: Passage) -> None:
        if not passage.exchange.closed:
            self._route(passage, self.now)

    # ------------------------------------------------------------ servers
    def _candidates(self) -> list[int]:
        return [one.number for one in self.upstreams if one.stage is Stage.UP]

    def _came(self, upstream: Upstream) -> None:
        LOG.info("gpu %d is up: %s", upstream.number, upstream.origin)
        self._changed(upstream)

    def _went(self, upstream: Upstream) -> None:
        LOG.warning("gpu %d is down: %s", upstream.number, upstream.origin)
        for passage in list(upstream.flying):
            passage.cut(TimedOut("it does not answer"))
        if self.ears is not None:
            self.ears.of[upstream.number].begin_anew()
        self._changed(upstream)

    def _changed(self, upstream: Upstream) -> None:
        self.deciding.changed(upstream.number, self._candidates(), self.now)
        if self.gate.waiting:
            self._loop.call_soon(self._release)

    # ------------------------------------------------------------ slow paths
    def _later(self, exchange: Exchange, what: Callable[[Exchange], Any]) -> None:
        task = self._loop.create_task(self._answered(exchange, what))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _answered(self, exchange: Exchange, what: Callable[[Exchange], Any]) -> None:
        try:
            await what(exchange)
        except Exception:
            LOG.exception("a request was not answered")
            exchange.fail(*UNANSWERED)

    async def _fetched(self, exchange: Exchange) -> None:
        """From the first server that is up."""
        for one in self.upstreams:
            if one.stage is Stage.UP and one.origin is not None:
                fields = passed_on(exchange.headers, NOT_ASKED)
                try:
                    reply = await self._client.fetch(one.origin, exchange.target, headers=fields)
                except Failed:
                    continue
                kind = next((value for name, value in reply.headers if name == b"content-type"), b"application/json")
                exchange.respond(reply.status, reply.body, kind)
                return
        exchange.fail(503, "no server is up")


def _why(error: Failed) -> str:
    """Without the server's address, which is no client's business."""
    return {"NotConnected": "it takes no connection", "TimedOut": "it does not answer"}.get(
        type(error).__name__, "it closed the connection"
    )
