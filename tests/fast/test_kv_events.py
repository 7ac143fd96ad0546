"""KV events of a mock tell what its caches hold, in vLLM's frames."""

from __future__ import annotations

from typing import Any

import msgspec
import numpy as np
import zmq

from prebleexp.errors import InvalidInput
from prebleexp.live.mock.cluster import Cluster
from prebleexp.live.mock.kv_events import END, KVEvents, Publisher, hashes_of
from prebleexp.sim.records import NONE
from tests.support.mocked import Client, cluster_of

SMALL = ("hardware.kv_tokens=3000", "hardware/model=llama_3_1_8b")
SIZE = 16


class Recorder:
    """What was published of a GPU: which hashes are held, and the tokens behind each."""

    def __init__(self) -> None:
        self.held: dict[int, tuple[int, ...]] = {}
        self.kinds: list[str] = []

    def publish(self, events: list[Any]) -> None:
        for one in events:
            kind, hashes = one["type"], one.get("block_hashes")
            self.kinds.append(kind)
            if kind == "BlockStored":
                parent, tokens = one["parent_block_hash"], one["token_ids"]
                about = (one["block_size"], one["lora_id"], one["medium"], len(tokens))
                assert about == (SIZE, None, "GPU", SIZE * len(hashes))
                before = () if parent is None else self.held[parent]
                for at, hashed in enumerate(hashes):
                    before = (*before, *tokens[at * SIZE : (at + 1) * SIZE])
                    self.held[hashed] = before
            elif kind == "BlockRemoved":
                assert all(hashed in self.held for hashed in hashes)
                self.held = {hashed: tokens for hashed, tokens in self.held.items() if hashed not in hashes}
            else:
                self.held = {}


def cached(cluster: Cluster, gpu: int) -> int:
    """Blocks that are cached, as the engine's runs say it, held or idle."""
    mine, blocks = cluster.engine.mine, 0
    run = int(mine.gpus[gpu].first)
    while run != NONE:
        record = mine.blocks.runs[run]
        blocks += int(record.high - record.low)
        run = int(record.behind)
    return blocks


def test_who_listens_knows_what_is_cached() -> None:
    """Long conversations in small caches: what was told is what is there, and hashes stand for their tokens."""
    cluster = cluster_of(*SMALL, listens=True)
    recorders: Any = [Recorder(), Recorder()]
    cluster.on_cache = KVEvents(cluster, recorders)
    rng, at_s = np.random.default_rng(3), 0.0
    contexts = [rng.integers(0, 1000, 40).astype(np.int32) for _ in range(6)]
    for number in range(200):
        of = int(rng.integers(0, len(contexts)))
        if len(contexts[of]) > 700:
            contexts[of] = contexts[of][:40]
        prompt = np.concatenate([contexts[of], rng.integers(0, 1000, int(rng.integers(1, 40))).astype(np.int32)])
        answer = rng.integers(0, 1000, int(rng.integers(1, 30))).astype(np.int32)
        contexts[of] = np.concatenate([prompt, answer])
        ticket = cluster.come(number % 2, prompt, answer, 100, at_s, Client())
        at_s += 5.0
        expected, told = 0, recorders[number % 2].held
        for one in hashes_of(prompt[: len(prompt) - 1], SIZE):
            if one not in told:
                break
            expected += SIZE
        cluster.to(at_s)
        assert cluster.hit_tokens(ticket) == expected, "who routes by events predicts the hits"
        for gpu in range(2):
            assert len(recorders[gpu].held) == cached(cluster, gpu)
    for one in recorders:
        assert {"BlockStored", "BlockRemoved"} == {*one.kinds}
        for hashed, tokens in one.held.items():
            assert hashes_of(np.array(tokens, np.int32), SIZE)[-1] == hashed
    assert cluster.clear(0)
    cluster.on_cache.cleared(0)
    assert recorders[0].kinds[-1] == "AllBlocksCleared"


def test_frames_are_vllms_and_are_told_again() -> None:
    publisher, again = _publisher()
    context = zmq.Context()
    subscriber, asking = context.socket(zmq.SUB), context.socket(zmq.DEALER)
    try:
        subscriber.setsockopt(zmq.SUBSCRIBE, b"")
        subscriber.connect(publisher.address)
        asking.connect(f"tcp://127.0.0.1:{again}")
        number = 0
        while not subscriber.poll(20):  # until the subscription has come
            publisher.publish([{"type": "BlockRemoved", "block_hashes": [number], "medium": "GPU"}])
            number += 1
        topic, first, payload = subscriber.recv_multipart()
        at_s, events, rank = msgspec.msgpack.decode(payload)
        known = int.from_bytes(first, "big")
        assert (topic, rank) == (b"", 0)
        assert events == [{"type": "BlockRemoved", "block_hashes": [known], "medium": "GPU"}]
        assert at_s > 1.7e9, "seconds since 1970"
        asking.send_multipart((b"", (0).to_bytes(8, "big")))
        told = []
        while not told or told[-1][1] != END:
            publisher.replay()
            if asking.poll(20):
                told.append(asking.recv_multipart())
        numbers = [int.from_bytes(one, "big") for _, one, _ in told[:-1]]
        assert numbers == [*range(number)]
        assert told[-1][2] == b""
    finally:
        subscriber.close(0)
        asking.close(0)
        publisher.close()
        context.destroy(0)


def _publisher() -> tuple[Publisher, int]:
    """At ports that are free."""
    for port in range(23_100, 23_400, 2):
        try:
            return Publisher("127.0.0.1", port, port + 1), port + 1
        except InvalidInput:
            continue
    raise AssertionError("no port is free")
