"""A stream of requests sent by the clock to real endpoints, in an open loop: none is held back for others."""

from __future__ import annotations

import asyncio
import gc
import math
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import msgspec
import numpy as np

from prebleexp.live.http.calls import Call, Failed, Receiver
from prebleexp.live.http.client import Client
from prebleexp.live.http.exchange import Fields
from prebleexp.live.http.places import Origin
from prebleexp.live.measuring.prompts import Prompts, body_of
from prebleexp.live.measuring.schedule import Due, Schedule
from prebleexp.live.measuring.sent import Sent, Table, table
from prebleexp.live.measuring.stream import MOST_SAID, Answer
from prebleexp.live.measuring.timers import Timers
from prebleexp.sim.types import State, Workload

LEAD_S = 0.25
"""from when connections are open until the run begins"""
AHEAD_S = 2.0
"""bodies are made so long before they are sent, …"""
SLICE_S, PAUSE_S = 2e-4, 5e-3
"""… for so long at once, and so often"""
BUSY = (429, 503)
"""statuses by which a server refuses"""
PLACE = b"x-prebleexp-gpu"
MOST_READ = 2048
"""bytes of an error that are looked at"""


@dataclass(frozen=True)
class How:
    """Settings of a live measurement: to whom requests are sent, and in which form."""

    origins: Sequence[Origin]
    """requests go to them in turn"""
    model: str
    prompt: str
    """`ids`, `text` or `chat`"""
    real_answers: bool
    """whether later turns have the answers that came, or made-up ones of the planned length"""
    vocabulary: int
    timeout_s: float
    """of a whole request; infinite: none"""
    connections: int
    """opened ahead, to each origin"""
    key: str | None = None
    """of the API; it is sent, and written nowhere"""


class Came(NamedTuple):
    """What came of a stream that was sent."""

    sent: Table
    end_s: float
    """when the run ended"""
    stopped: bool
    """somebody stopped it before its end (SIGINT, SIGTERM)"""


async def send(
    workload: Workload,
    seed: int,
    stop_s: float,
    last_start_s: float,
    how: How,
    on_done: Callable[[], object] = lambda: None,
) -> Came:
    """At `stop_s`, if that is finite, all is cut off, and so it is when somebody stops the process: what came until
    then is returned. `on_done` is called for each request that has ended.

    Raises `NotConnected` if a server is not there when it begins."""
    client = Client()
    timers = Timers(asyncio.get_running_loop())
    try:
        for origin in how.origins:
            await client.warm(origin, how.connections)
        prompts, schedule = Prompts(workload, seed, how.vocabulary), Schedule(workload, last_start_s)
        run = _Run(workload, prompts, schedule, how, client, timers, on_done)
        gc.freeze()
        gc.disable()  # a collection takes as long as many requests
        with _stops(run.stop):
            await run.to_the_end(stop_s)
        return Came(table(run.requests), run.end_s, run.stopped)
    finally:
        gc.enable()
        gc.unfreeze()
        timers.close()
        client.close()


@contextmanager
def _stops(call: Callable[[], object]) -> Iterator[None]:
    """What stops a process calls this, where the system lets us say so (in a main thread, not on Windows)."""
    loop, caught = asyncio.get_running_loop(), []
    with suppress(NotImplementedError, ValueError, RuntimeError):
        for one in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(one, call)
            caught.append(one)
    try:
        yield
    finally:
        for one in caught:
            loop.remove_signal_handler(one)


class _Run:
    def __init__(
        self,
        workload: Workload,
        prompts: Prompts,
        schedule: Schedule,
        how: How,
        client: Client,
        timers: Timers,
        on_done: Callable[[], object],
    ) -> None:
        self.requests = [Sent() for _ in range(len(workload))]
        self.end_s = 0.0
        self.stopped = False
        self._on_done = on_done
        self._workload, self._prompts, self._schedule, self._how = workload, prompts, schedule, how
        self._client, self._timers = client, timers
        self._outputs = np.minimum(workload.output_tokens, workload.max_new_tokens).tolist()
        self._patience_s = workload.patience_s.tolist()
        self._answer_segment = workload.answer_segment.tolist()
        self._answers: dict[int, Sequence[int]] = {}
        self._path, self._body = body_of(how.prompt, how.model)
        self._fields: list[tuple[bytes, bytes]] = [(b"content-type", b"application/json")]
        if how.key is not None:
            self._fields.append((b"authorization", b"Bearer " + how.key.encode()))
        self._session = [f"s{one}".encode() if one >= 0 else None for one in workload.session.tolist()]
        self._under_way: dict[int, _Exchange] = {}
        self._left = len(schedule.firsts)
        """requests that are to come, or under way"""
        self._at = 0
        self._over = asyncio.Event()
        self._start = 0.0
        self._loop = asyncio.get_running_loop()

    def stop(self) -> None:
        """All is cut off, as at its end."""
        self.stopped = True
        self._over.set()

    @property
    def now(self) -> float:
        """Seconds of the monotonic clock since the stream began; negative before."""
        return time.perf_counter() - self._start

    async def to_the_end(self, stop_s: float) -> None:
        self._start = time.perf_counter() + LEAD_S
        if math.isfinite(stop_s):
            self._timers.at(self._start + stop_s, self._over.set)
        if not self._left:
            self._over.set()
        self._ahead()
        await self._over.wait()
        self.end_s = self.now
        for one in list(self._under_way.values()):
            one.cut(State.RUNNING if one.answer.times else State.QUEUED)

    def _ahead(self) -> None:
        """Make ready those that are due soon, few at a time: whoever is due meanwhile waits."""
        firsts, began = self._schedule.firsts, self.now
        while self._at < len(firsts) and not self._over.is_set():
            if firsts[self._at][0] > began + AHEAD_S:
                self._loop.call_later(PAUSE_S, self._ahead)
                return
            self._plan(*firsts[self._at])
            self._at += 1
            if self.now > began + SLICE_S:
                self._loop.call_soon(self._ahead)
                return

    def look(self, now: float) -> None:
        """Send what is due by now."""
        self._timers.look(self._start + now)

    def without_key(self, said: str) -> str:
        """What a server has said, which may repeat what it was sent."""
        return said if self._how.key is None else said.replace(self._how.key, "(the key)")

    def _plan(self, due_s: float, request: int) -> None:
        body = msgspec.json.encode(
            self._body(
                self._prompts.ids(request, self._answers if self._how.real_answers else None), self._outputs[request]
            )
        )
        self._timers.at(self._start + due_s, partial(self._send, request, due_s, body))

    def _send(self, request: int, due_s: float, body: bytes) -> None:
        if self._over.is_set():
            return
        self.requests[request].due_s = due_s
        session = self._session[request]
        fields = [*self._fields, (b"x-session-id", session)] if session else self._fields
        origin = self._how.origins[request % len(self._how.origins)]
        exchange = _Exchange(self, request, request % len(self._how.origins))
        self._under_way[request] = exchange
        exchange.call = self._client.call(origin, b"POST", self._path.encode(), fields, body, exchange)
        patience_s = self._patience_s[request]
        if math.isfinite(patience_s):
            self._timers.at(self._start + due_s + patience_s, exchange.give_up)
        if math.isfinite(self._how.timeout_s):
            self._timers.at(self._start + due_s + self._how.timeout_s, exchange.time_out)

    def over(self, request: int, answer: Answer) -> None:
        """Takes down how a request ended, whether well or not, and schedules those that come after it."""
        del self._under_way[request]
        self._left -= 1
        self._on_done()
        one = self.requests[request]
        due: list[Due] = []
        if one.state == State.FINISHED:
            if answer.ids and self._answer_segment[request] >= 0:
                self._answers[self._answer_segment[request]] = answer.ids
            due = self._schedule.ended(request, one.ended_s)
        else:
            due, gone = self._schedule.failed(request, one.ended_s)
            for never in gone:
                self.requests[never].state = State.CANCELLED
        self._left += len(due)
        for when, following in due:
            self._plan(when, following)
        if self._left == 0:
            self._over.set()


class _Exchange(Receiver):
    """One request under way."""

    def __init__(self, run: _Run, request: int, place: int) -> None:
        self.answer = Answer()
        self.call: Call | None = None
        self._run, self._request, self._one = run, request, run.requests[request]
        self._one.gpu = place
        self._one.state = State.QUEUED
        self._said = b""
        self._ended = False

    def sent(self) -> None:
        self._one.sent_s = self._run.now

    def head(self, status: int, headers: Fields) -> None:
        self._one.status = status
        for name, value in headers:
            if name == PLACE and value.isdigit():
                self._one.gpu = int(value)

    def data(self, piece: bytes) -> None:
        if self._one.status == 200:
            now = self._run.now
            self.answer.feed(piece, now)
            self._run.look(now)
        elif len(self._said) < MOST_READ:
            self._said = (self._said + piece)[:MOST_READ]

    def done(self) -> None:
        status, answer = self._one.status, self.answer
        if status == 200 and answer.whole:
            self._end(
                State.FINISHED if answer.times else State.LOST, "" if answer.times else "an answer without a token"
            )
        elif status == 200:
            self._end(State.LOST, answer.error or "the stream ended before its answer did")
        else:
            said = self._run.without_key(self._said.decode("utf-8", "replace"))[:MOST_SAID]
            self._end(State.REFUSED if status in BUSY else State.LOST, f"status {status}: {said}")

    def failed(self, error: Failed) -> None:
        self._end(State.LOST, str(error))

    def give_up(self) -> None:
        if not self._ended and not self.answer.times:
            self.cut(State.CANCELLED)
            self._run.over(self._request, self.answer)

    def time_out(self) -> None:
        if not self._ended:
            self.cut(State.LOST, f"not over after timeout_s={self._run._how.timeout_s:g}")
            self._run.over(self._request, self.answer)

    def cut(self, state: State, why: str = "") -> None:
        """Close the connection, which is how servers hear of it."""
        if self.call is not None:
            self.call.cancel()
        self._write_down(state, why)

    def _end(self, state: State, why: str) -> None:
        if not self._ended:
            self._write_down(state, why)
            self._run.over(self._request, self.answer)

    def _write_down(self, state: State, why: str) -> None:
        self._ended = True
        one, answer = self._one, self.answer
        one.state, one.error, one.ended_s = state, self._run.without_key(why), self._run.now
        self.call = None  # which knows this one: nobody looks for such cycles while a stream is sent
        if state in (State.REFUSED, State.CANCELLED):
            one.gpu = -1 if state == State.REFUSED else one.gpu
        times, usage = answer.times, answer.usage
        one.chunks, one.first_tokens = len(times), answer.first_tokens
        if times:
            one.first_s, one.last_s, one.gaps_s = times[0], times[-1], np.diff(times)
        said = usage.completion_tokens if usage is not None else None
        one.output = said if said is not None else len(answer.ids) or len(times)
        if usage is not None and usage.prompt_tokens is not None:
            one.prompt = usage.prompt_tokens
            details = usage.prompt_tokens_details
            if details is not None and details.cached_tokens is not None:
                one.cached = details.cached_tokens
