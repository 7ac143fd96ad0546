"""Listens to the KV events of servers (kv=events), as vLLM publishes them over ZMQ.

A batch is three frames: topic, a number that grows by one (8 bytes, big-endian), and msgpack [seconds since 1970,
events, data-parallel rank]. Events are maps with a `type`. Where numbers are missing, the server is asked for them at
its replay socket. If there is none, or it has forgotten them, all that was known of that GPU is forgotten, and said.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

import msgspec
import zmq
import zmq.asyncio

from prebleexp.live.router.held import Event

LOG = logging.getLogger(__name__)
UNREAD = 100_000
"""batches that may wait here: vLLM's hwm"""
LONGEST = 64 << 20
"""bytes of a frame"""
REPLAY_S = 5.0
"""for which a replay socket may be silent"""
END = (-1).to_bytes(8, "big", signed=True)


class _Batch(msgspec.Struct, array_like=True):
    at_s: float
    events: list[Event]
    rank: int | None = None


_DECODER = msgspec.msgpack.Decoder(_Batch)
Tell = Callable[[int, Event | None], None]
"""an event of a GPU; None: what it holds is unknown"""


class Ear:
    """At one GPU's server. Beside gaps, a number that is not beyond the last one means that it began anew."""

    def __init__(self, gpu: int, address: str, replay: str | None, tell: Tell) -> None:
        self.gpu, self.next = gpu, 0
        """number of the batch that comes next"""
        self.gaps = 0
        self._address, self._replay, self._tell = address, replay, tell
        self._last = -1
        """number of the last batch that came of itself"""

    def begin_anew(self) -> None:
        """What comes next is of a server that may have been started again."""
        self.next, self._last = 0, -1

    async def listen(self, context: Any) -> None:
        """Until it is cancelled."""
        with context.socket(zmq.SUB) as socket:
            socket.setsockopt(zmq.RCVHWM, UNREAD)
            socket.setsockopt(zmq.MAXMSGSIZE, LONGEST)
            socket.setsockopt(zmq.LINGER, 0)
            socket.setsockopt(zmq.SUBSCRIBE, b"")
            socket.connect(self._address)
            if self._replay is not None:  # what it holds already
                with suppress(TimeoutError):  # it is not there yet: its first batch will show what is missing
                    await self._ask_again(context)
            while True:
                await self._comes(await socket.recv_multipart(), context)
                await asyncio.sleep(0)  # of a flood, requests get their share

    async def _comes(self, frames: Sequence[bytes], context: Any) -> None:
        if len(frames) != 3 or len(frames[1]) != 8:
            self._lose("it sends frames that are not vLLM's")
            return
        number = int.from_bytes(frames[1], "big")
        if number <= self._last:
            self._lose("its KV events begin anew")
            self.begin_anew()
        self._last = number
        if number > self.next:
            await self._catch_up(number, context)
        if number >= self.next:  # else it came by replay
            self._read(number, frames[2])

    async def _catch_up(self, number: int, context: Any) -> None:
        """Batches before this one are missing."""
        self.gaps += 1
        missing = f"{number - self.next:,} batches of KV events before number {number:,} are missing"
        if self._replay is None:
            self._lose(f"{missing}, and kv_replay= names no socket to ask for them")
            self.next = number
            return
        try:
            await self._ask_again(context)
        except TimeoutError:
            self._lose(f"{missing}, and {self._replay} does not answer")
            self.next = number
        if self.next < number:
            self._lose(f"{missing}, and {self._replay} no longer has them")
            self.next = number

    async def _ask_again(self, context: Any) -> None:
        with context.socket(zmq.DEALER) as socket:
            socket.setsockopt(zmq.RCVHWM, 0)
            socket.setsockopt(zmq.MAXMSGSIZE, LONGEST)
            socket.setsockopt(zmq.LINGER, 0)
            socket.connect(self._replay)
            await socket.send_multipart((b"", self.next.to_bytes(8, "big")))
            while True:
                frames = await asyncio.wait_for(socket.recv_multipart(), REPLAY_S)
                if len(frames) != 3 or frames[1] == END or len(frames[1]) != 8:
                    return
                told = int.from_bytes(frames[1], "big")
                if told > self.next:
                    self._lose(f"batches of KV events from {self.next:,} to {told - 1:,} are not to be had any more")
                    self.next = told
                if told == self.next:
                    self._read(told, frames[2])

    def _read(self, number: int, payload: bytes) -> None:
        self.next = number + 1
        try:
            batch = _DECODER.decode(payload)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            self._lose(f"batch {number:,} of KV events is not as vLLM 0.32 has it ({str(error)[:120]})")
            return
        try:
            for event in batch.events:
                self._tell(self.gpu, event)
        except OverflowError as error:
            self._lose(f"batch {number:,} of KV events has no tokens ({str(error)[:120]})")

    def _lose(self, why: str) -> None:
        LOG.warning("gpu %d: %s: what it has cached is forgotten; its next events say more", self.gpu, why)
        self._tell(self.gpu, None)


class Ears:
    """At all servers. `addresses`, `replays`: of GPU 0, 1, …; of replays there may be none."""

    def __init__(self, addresses: Sequence[str], replays: Sequence[str], tell: Tell) -> None:
        again: Sequence[str | None] = replays or [None] * len(addresses)
        self.of = [Ear(gpu, *both, tell) for gpu, both in enumerate(zip(addresses, again, strict=True))]
        self._context: Any = zmq.asyncio.Context()
        self._tasks: list[asyncio.Task[None]] = []

    def begin(self) -> None:
        loop = asyncio.get_running_loop()
        self._tasks = [loop.create_task(one.listen(self._context)) for one in self.of]
        for task in self._tasks:
            task.add_done_callback(_ended)

    async def end(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._context.term()


def _ended(task: asyncio.Task[None]) -> None:
    if not task.cancelled() and (error := task.exception()) is not None:
        LOG.error("KV events are heard no more: %r", error)
