"""KV events as vLLM publishes them (vllm/distributed/kv_events.py): which blocks a GPU's cache stores and drops.

A batch is three frames over a ZMQ PUB socket: topic, a number that grows by one (8 bytes, big-endian) and msgpack:
[seconds since 1970, events, data-parallel rank]. Events are maps with a `type`, as of 0.32; older ones were arrays. Who
missed some asks a ROUTER socket for all from a number on.
"""

from __future__ import annotations

import time
from collections import deque
from hashlib import sha256
from typing import Any

import msgspec
import numpy as np
import zmq

from prebleexp.errors import InvalidInput
from prebleexp.live.mock.cluster import Cluster
from prebleexp.live.mock.tickets import Ticket

TOPIC = b""
REMEMBERED = 10_000
"""batches that are told again: vLLM's buffer_steps"""
UNSENT = 100_000
"""batches that wait for a slow subscriber: vLLM's hwm"""
END = (-1).to_bytes(8, "big", signed=True)
Event = dict[str, Any]
MEDIUM = "GPU"
ROOT = b"prebleexp"


class Publisher:
    """Of one GPU. Raises InvalidInput where the port is taken."""

    def __init__(self, host: str, port: int, replay_port: int | None) -> None:
        self._context: Any = zmq.Context()
        self._sent = deque[tuple[bytes, bytes]](maxlen=REMEMBERED)
        self.published = 0
        """batches so far"""
        self._socket = self._bound(zmq.PUB, host, port)
        self.address = f"tcp://{host}:{port}"
        self.about = {"endpoint": self.address, "topic": TOPIC.decode(), "replay_endpoint": None}
        self._replay: Any = None
        if replay_port is not None:
            self._replay = self._bound(zmq.ROUTER, host, replay_port)
            self.about["replay_endpoint"] = f"tcp://{host}:{replay_port}"

    def _bound(self, kind: int, host: str, port: int) -> Any:
        socket = self._context.socket(kind)
        socket.setsockopt(zmq.SNDHWM, UNSENT)
        socket.setsockopt(zmq.LINGER, 0)
        try:
            socket.bind(f"tcp://{host}:{port}")
        except zmq.ZMQError as error:
            socket.close()
            raise InvalidInput(f"cannot publish KV events on host={host} port={port}: {error}") from error
        return socket

    def publish(self, events: list[Event]) -> None:
        payload = msgspec.msgpack.encode([time.time(), events, 0])
        number = self.published.to_bytes(8, "big")
        self.published += 1
        self._sent.append((number, payload))
        self._socket.send_multipart((TOPIC, number, payload), zmq.NOBLOCK)

    def replay(self) -> None:
        """Answer who asked since the last time."""
        while self._replay is not None and self._replay.poll(0):
            frames = self._replay.recv_multipart()
            if len(frames) != 3 or len(frames[2]) != 8:
                continue
            client, first = frames[0], int.from_bytes(frames[2], "big")
            for number, payload in self._sent:
                if int.from_bytes(number, "big") >= first:
                    self._replay.send_multipart((client, b"", number, payload), zmq.NOBLOCK)
            self._replay.send_multipart((client, b"", END, b""), zmq.NOBLOCK)

    def close(self) -> None:
        for socket in (self._socket, self._replay):
            if socket is not None:
                socket.close()
        self._context.term()


class KVEvents:
    """Makes events of what a cluster tells (`tickets.Caching`), one batch for each GPU and moment."""

    def __init__(self, cluster: Cluster, publishers: list[Publisher]) -> None:
        self._cluster, self._publishers = cluster, publishers
        self._held: list[dict[tuple[int, int], int]] = [{} for _ in publishers]
        """of each GPU, blocks by the segment in which they end and their number, and their hashes"""
        self._events: list[list[Event]] = [[] for _ in publishers]

    def stored(self, ticket: Ticket, blocks: int) -> None:
        size, held = self._cluster.block, self._held[ticket.gpu]
        if blocks <= ticket.stored:
            return
        context = np.concatenate([ticket.prompt, ticket.answer])[: blocks * size]
        hashes = hashes_of(context, size)
        ends = np.append(ticket.segments.ends, 1 << 30)
        at = np.searchsorted(ends, np.arange(1, blocks + 1) * size, side="left").tolist()
        keys = [*ticket.segments.ids.tolist(), self._cluster.answer_id(ticket)]
        fresh, parent = list[int](), None
        for block in range(ticket.stored, blocks):
            known = (keys[at[block]], block)
            if known not in held:
                if not fresh:
                    parent = hashes[block - 1] if block else None
                fresh.append(block)
                held[known] = hashes[block]
            elif fresh:
                self._store(ticket.gpu, fresh, parent, hashes, context)
                fresh = []
        if fresh:
            self._store(ticket.gpu, fresh, parent, hashes, context)
        ticket.stored = blocks

    def _store(self, gpu: int, blocks: list[int], parent: int | None, hashes: list[int], context: Any) -> None:
        size = self._cluster.block
        tokens = context[blocks[0] * size : (blocks[-1] + 1) * size].tolist()
        of = [hashes[block] for block in blocks]
        adapter = {"lora_id": None, "lora_name": None}
        about = {"parent_block_hash": parent, "token_ids": tokens, "block_size": size, "medium": MEDIUM}
        self._events[gpu].append({"type": "BlockStored", "block_hashes": of} | about | adapter)

    def evicted(self, gpu: int, key: int, block: int) -> None:
        held, gone = self._held[gpu], []
        while (found := held.pop((key, block), None)) is not None:
            gone.append(found)
            block += 1
        if gone:
            self._events[gpu].append({"type": "BlockRemoved", "block_hashes": gone, "medium": MEDIUM})

    def cleared(self, gpu: int) -> None:
        self._held[gpu] = {}
        self._events[gpu] = []
        self._publishers[gpu].publish([{"type": "AllBlocksCleared"}])

    def over(self) -> None:
        for gpu, events in enumerate(self._events):
            if events:
                self._publishers[gpu].publish(events)
                self._events[gpu] = []


def hashes_of(tokens: Any, size: int) -> list[int]:
    """Of whole blocks, each with what is before it: 64 bits, as vLLM has them where its hash is one of integers."""
    found, before, text = [], ROOT, tokens.astype("<i4").tobytes()
    for at in range(0, len(text) - 4 * size + 1, 4 * size):
        before = sha256(before + text[at : at + 4 * size]).digest()
        found.append(int.from_bytes(before[:8], "big"))
    return found
