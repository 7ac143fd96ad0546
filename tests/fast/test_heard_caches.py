"""A router that hears KV events (kv=events) believes what servers hold, and says where it cannot know."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import numpy as np
import pytest
import zmq
import zmq.asyncio
from hypothesis import given, settings
from hypothesis import strategies as st

from prebleexp.__main__ import main
from prebleexp.errors import InvalidInput
from prebleexp.launch import configure
from prebleexp.live.http.client import Client
from prebleexp.live.http.places import origin
from prebleexp.live.http.server import listen
from prebleexp.live.mock.kv_events import Publisher
from prebleexp.live.mock.serving import Mock, Terms
from prebleexp.live.router.hearing import Ear
from prebleexp.live.router.held import Cleared, Event, Held, Notice, Removed, Stored, tokens_on
from prebleexp.live.router.served import How, compile_for, made
from prebleexp.sim.notices import EVICTED, STORED
from tests.support.few_prompts import remember_few
from tests.support.http import run
from tests.support.mocked import MODEL, cluster_of

pytestmark = pytest.mark.thorough

GPUS, SIZE = 2, 16
MODEL_OF_ROUTER = "hardware/model=llama_3_1_8b"


@pytest.fixture(autouse=True)
def _few(monkeypatch: pytest.MonkeyPatch) -> None:
    remember_few(monkeypatch)


# ---------------------------------------------------------------- a mock behind a router
class Asked(NamedTuple):
    """Of a request: what the policy believed cached where it went, what was, and of how many tokens."""

    believed: int
    cached: int
    tokens: int


def conversations(
    kv: str, kv_tokens: int, router_kv_tokens: int, requests: int, record: Path, lap: int = 4096
) -> tuple[list[Asked], str]:
    """Turns of some conversations, one request after another: what was believed of each, and the router's /metrics."""
    settings_of = ["policy=lmetric", MODEL_OF_ROUTER, f"hardware.kv_tokens={router_kv_tokens}"]
    cell = configure.cells(["rps=1", "gpus=1", *settings_of])[0]
    compile_for(cell.policy, cell.hardware)
    cluster = cluster_of(MODEL_OF_ROUTER, f"hardware.kv_tokens={kv_tokens}", listens=True)
    asked: list[Asked] = []
    said: list[str] = []

    async def main() -> None:
        async with AsyncExitStack() as stack:
            mock = await opened(cluster)
            stack.push_async_callback(mock.close)
            events = [one.address for one in mock.kv_events] if kv == "events" else []
            client, theirs = Client(), Client()
            stack.callback(client.close)
            stack.callback(theirs.close)
            urls = [origin("url", one) for one in mock.urls]
            how = How(urls, GPUS, rows=lap, polls=False, kv_events=events, record=record, settings=settings_of)
            proxy, recorded = made(cell.policy, [cell.hardware] * GPUS, 0, how, client)
            await proxy.begin()
            stack.push_async_callback(proxy.end)
            server = await listen(proxy, 0)
            stack.push_async_callback(server.close)
            here = origin("url", f"http://127.0.0.1:{server.port}")
            believed: list[Any] = []
            ask = proxy.deciding.ask

            def asks(ticket: Any, now: float, among: Any = None) -> int:
                answer = ask(ticket, now, among)
                believed.append(proxy.deciding.host.routing.mine.hits.copy())
                return answer

            proxy.deciding.ask = asks  # type: ignore[method-assign]
            rng = np.random.default_rng(5)
            contexts = [rng.integers(0, 1000, 40).tolist() for _ in range(8)]
            if events:
                await heard_first(proxy, mock)
            for _ in range(requests):
                of = int(rng.integers(len(contexts)))
                if len(contexts[of]) > 500:
                    contexts[of] = contexts[of][:40]
                prompt = contexts[of] + rng.integers(0, 1000, int(rng.integers(1, 60))).tolist()
                body = {"prompt": prompt, "max_tokens": int(rng.integers(1, 30)), "ignore_eos": True}
                body |= {"return_token_ids": True}
                reply = await theirs.fetch(here, "/v1/completions", "POST", json.dumps(body).encode(), within_s=30)
                told = json.loads(reply.body)
                gpu = int(dict(reply.headers)[b"x-prebleexp-gpu"])
                contexts[of] = prompt + told["choices"][0]["token_ids"]
                cached = told["usage"]["prompt_tokens_details"]["cached_tokens"]
                whole = (len(prompt) - 1) // SIZE * SIZE
                asked.append(Asked(min(int(believed[-1][gpu]), whole), cached, len(prompt)))
                if events:
                    await all_heard(proxy, mock)
            assert recorded is not None
            stack.callback(recorded.close)
            said.append((await theirs.fetch(here, "/metrics")).body.decode())

    run(main())
    return asked, said[0]


async def opened(cluster: Any) -> Mock:
    """At ports that are free."""
    for port in range(24_100, 24_900, GPUS):
        mock = Mock(cluster, np.array([3], np.int32), Terms(MODEL, port=0, speed=100.0, kv_events_port=port))
        try:
            await mock.open()
        except InvalidInput:
            await mock.close()
        else:
            return mock
    raise AssertionError("no ports are free")


async def heard_first(proxy: Any, mock: Mock) -> None:
    """Until the subscriptions have come."""
    for ear, publisher in zip(proxy.ears.of, mock.kv_events, strict=True):
        while ear.next == 0:
            publisher.publish([])
            await asyncio.sleep(0.01)
    await all_heard(proxy, mock)


async def all_heard(proxy: Any, mock: Mock) -> None:
    while [one.next for one in proxy.ears.of] != [one.published for one in mock.kv_events]:
        await asyncio.sleep(0.001)


def value(text: str, name: str) -> float:
    return float(next(line for line in text.splitlines() if line.startswith(f"prebleexp:{name} ")).split()[-1])


@pytest.mark.parametrize(
    ("kv_tokens", "lap"), [pytest.param(100_000, 4096, marks=pytest.mark.slow), (1_500, 4096), (1_500, 60)]
)
def test_what_a_policy_believes_cached_is_what_is(
    kv_tokens: int, lap: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """With a cache that evicts nothing, one that evicts, and a policy that forgets all every 60 requests. What it heard
    is in the recording."""
    asked, said = conversations("events", kv_tokens, 50_000, 160, tmp_path / "route.jsonl", lap)
    assert len(asked) == 160
    assert [one.believed for one in asked] == [one.cached for one in asked]
    hit = sum(one.cached for one in asked)
    assert hit > 0.3 * sum(one.tokens for one in asked)
    assert value(said, "kv_predicted_tokens_total") == value(said, "kv_cached_tokens_total") == hit
    assert value(said, "laps_total") == 160 // lap
    assert value(said, "kv_unmatched_total") == value(said, "kv_passed_over_total") == 0
    print(f"kv_tokens={kv_tokens}: 160 of 160 predicted, {hit} tokens hit")
    assert main(["route", f"check={tmp_path / 'route.jsonl'}"]) == 0
    assert "160 decisions, 0 differ" in capsys.readouterr().out


def test_what_is_assumed_is_off_where_the_size_is_wrong(tmp_path: Path) -> None:
    asked, _ = conversations("assumed", 1_500, 50_000, 160, tmp_path / "route.jsonl")
    wrong = sum(one.believed != one.cached for one in asked)
    print(f"kv=assumed: {wrong} of 160 are wrong")
    assert wrong > 40


# ---------------------------------------------------------------- what is held, and what of it was told
prompts = st.lists(st.sampled_from("ab"), min_size=1, max_size=4).map(tuple)
"""blocks, each of one letter"""


def ids(blocks: Sequence[str]) -> list[int]:
    return [ord(one) for one in blocks for _ in range(SIZE)]


def text(blocks: Sequence[str]) -> bytes:
    return np.array([*ids(blocks), 1], "<i4").tobytes()


def hash_of(blocks: Sequence[str]) -> bytes:
    return "".join(blocks).encode()


class Believing:
    """What a policy would: of each GPU, prefixes of prompts."""

    def __init__(self) -> None:
        self.rows: list[tuple[str, ...]] = []
        self.held: list[set[tuple[str, ...]]] = [set(), set()]

    def hear(self, notices: Any) -> None:
        for kind, row, gpu, tokens in notices:
            prompt, blocks = self.rows[row], tokens // SIZE
            if kind == STORED:
                self.held[gpu] |= {prompt[:end] for end in range(1, blocks + 1)}
            else:
                assert kind == EVICTED
                self.held[gpu] -= {prompt[:end] for end in range(blocks + 1, len(prompt) + 1)}

    def tokens(self, gpu: int, prompt: tuple[str, ...]) -> int:
        ends = range(1, len(prompt) + 1)
        return SIZE * next((end - 1 for end in ends if prompt[:end] not in self.held[gpu]), len(prompt))


@settings(max_examples=300, deadline=None)
@given(
    st.lists(
        st.tuples(
            st.sampled_from(["comes", "stored", "removed", "forget", "changed", "lap"]), prompts, st.integers(0, 1)
        ),
        max_size=40,
    )
)
def test_who_comes_finds_the_policy_believing_what_is_held(happens: list[tuple[str, Any, int]]) -> None:
    """Whatever is stored or dropped, of whichever prompt, blocks in the middle of others included."""
    held, believing = Held(2, 1 << 10, 7), Believing()
    there: list[set[tuple[str, ...]]] = [set(), set()]
    for what, prompt, gpu in happens:
        match what:
            case "comes":
                believing.rows.append(prompt)
                notices, found = held.comes(len(believing.rows) - 1, text(prompt), "m\0")
                believing.hear(notices)
                for g in range(2):
                    ends = range(1, len(prompt) + 1)
                    real = SIZE * next((end - 1 for end in ends if prompt[:end] not in there[g]), len(prompt))
                    assert believing.tokens(g, prompt) == real
                    assert tokens_on(found, g) == real
            case "stored":
                known = next(end for end in range(len(prompt), -1, -1) if end == 0 or prompt[:end] in there[gpu])
                fresh = [prompt[:end] for end in range(known + 1, len(prompt) + 1)]
                if fresh:
                    parent = hash_of(prompt[:known]) if known else None
                    event = Stored([hash_of(one) for one in fresh], ids(prompt[known:]), SIZE, parent)
                    believing.hear(held.hears(gpu, event))
                    there[gpu] |= {*fresh}
            case "removed":
                believing.hear(held.hears(gpu, Removed([hash_of(prompt)])))
                there[gpu].discard(prompt)
            case "forget":
                believing.hear(held.hears(gpu, Cleared()))
                there[gpu] = set()
            case "changed":
                held.changed(gpu, True)
                believing.held[gpu] = set()
            case "lap":
                held.begin_lap()
                believing = Believing()
        assert held.blocks(gpu) == len(there[gpu])


def test_what_events_cannot_say_is_passed_over() -> None:
    held = Held(1, 100, 7)
    assert held.comes(0, text("ab"), "m\0")[0] == []
    told = [*held.hears(0, Stored([b"a"], ids("a"), SIZE, medium="GPU"))]
    assert told == [Notice(STORED, 0, 0, SIZE)]
    assert [*held.hears(0, Stored([b"a"], ids("a"), SIZE))] == told, "a second copy"
    assert [*held.hears(0, Removed([b"a"]))] == [], "of two, one is left"
    assert [*held.hears(0, Stored([b"b"], ids("b"), SIZE, b"a", medium="CPU"))] == []
    assert held.passed_over == 0
    for event in (
        Stored([b"b"], ids("b"), SIZE, b"nobody's"),
        Stored([b"b"], ids("b")[:8], 8, b"a"),
        Stored([b"b"], ids("b")[:8], SIZE, b"a"),
        Stored([b"b"], ids("b"), SIZE, b"a", extra_keys=[["salt"]]),
    ):
        assert [*held.hears(0, event)] == []
    assert (held.passed_over, held.blocks(0)) == (4, 1)
    adapter = Stored([b"x"], ids("a"), SIZE, lora_name="tuned", lora_id=1, extra_keys=[["tuned"]])
    assert [*held.hears(0, adapter)] == [], "its prompt is another"
    assert tokens_on(held.comes(1, text("ab"), "tuned\0")[1], 0) == SIZE
    assert [*held.hears(0, Removed([b"a"]))] == [Notice(EVICTED, 0, 0, 0)]
    assert tokens_on(held.comes(2, text("ab"), "m\0")[1], 0) == 0
    assert held.comes(3, text("ab"), "tuned\0salted")[1] == []


# ---------------------------------------------------------------- numbers of batches
class Heard:
    def __init__(self) -> None:
        self.told: list[Any] = []

    def __call__(self, gpu: int, event: Event | None) -> None:
        self.told.append(None if event is None else event.block_hashes[0])  # type: ignore[union-attr]


def frames(number: int, payload: bytes | None = None) -> list[bytes]:
    events = [{"type": "BlockRemoved", "block_hashes": [number], "medium": "GPU"}]
    return [b"", number.to_bytes(8, "big"), msgspec.msgpack.encode([1.0, events, 0]) if payload is None else payload]


def test_a_gap_forgets_all_and_is_said(caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        heard = Heard()
        ear = Ear(0, "tcp://127.0.0.1:1", None, heard)
        for number in (0, 1, 4, 5, 0, 1):
            await ear._comes(frames(number), None)
        assert heard.told == [0, 1, None, 4, 5, None, 0, 1]
        await ear._comes(frames(2, b"no msgpack"), None)
        await ear._comes([b"", b"1"], None)
        await ear._comes(frames(3), None)
        assert heard.told[8:] == [None, None, 3]

    with caplog.at_level(logging.WARNING):
        run(main())
    assert [one.split(":")[1] for one in caplog.messages] == [
        " 2 batches of KV events before number 4 are missing, and kv_replay= names no socket to ask for them",
        " its KV events begin anew",
        caplog.messages[2].split(":")[1],
        " it sends frames that are not vLLM's",
    ]
    assert "batch 2 of KV events is not as vLLM 0.32 has it" in caplog.messages[2]


@pytest.mark.parametrize("remembers", [100, 4])
def test_what_was_missed_is_told_again(remembers: int) -> None:
    """All of it, or what the server has not forgotten yet."""

    async def main() -> None:
        publisher, again = _publisher()
        publisher._sent = type(publisher._sent)(maxlen=remembers)
        heard, context = Heard(), zmq.asyncio.Context()
        ear = Ear(0, publisher.address, f"tcp://127.0.0.1:{again}", heard)
        for number in range(10):
            publisher.publish([{"type": "BlockRemoved", "block_hashes": [number], "medium": "GPU"}])
        coming = asyncio.create_task(ear._comes(frames(9), context))
        while not coming.done():
            publisher.replay()
            await asyncio.sleep(0.001)
        await coming
        await ear._comes(frames(10), context)
        assert heard.told == ([*range(11)] if remembers == 100 else [None, *range(6, 11)])
        assert ear.gaps == 1
        publisher.close()
        context.term()

    run(main())


def test_who_comes_late_asks_for_what_is_held() -> None:
    """Before anything new is published; nothing is heard twice."""

    async def main() -> None:
        publisher, again = _publisher()
        heard, context = Heard(), zmq.asyncio.Context()
        ear = Ear(0, publisher.address, f"tcp://127.0.0.1:{again}", heard)
        for number in range(5):
            publisher.publish([{"type": "BlockRemoved", "block_hashes": [number], "medium": "GPU"}])
        listening = asyncio.create_task(ear.listen(context))
        while ear.next < 5:
            publisher.replay()
            await asyncio.sleep(0.001)
        assert heard.told == [*range(5)]
        while ear.next == 5:
            publisher.publish([{"type": "BlockRemoved", "block_hashes": [publisher.published], "medium": "GPU"}])
            publisher.replay()
            await asyncio.sleep(0.001)
        assert heard.told == [*range(ear.next)]
        listening.cancel()
        await asyncio.gather(listening, return_exceptions=True)
        publisher.close()
        context.term()

    run(main())


def _publisher() -> tuple[Publisher, int]:
    for port in range(23_500, 23_900, 2):
        try:
            return Publisher("127.0.0.1", port, port + 1), port + 1
        except InvalidInput:
            continue
    raise AssertionError("no port is free")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["kv=events"], "kv_events="),
        (["kv_events=tcp://127.0.0.1:5557"], "kv=events"),
        (["kv=events", "kv_events=tcp://127.0.0.1:5557,tcp://127.0.0.1:5558"], "has 2 addresses"),
        (["kv=events", "kv_events=127.0.0.1:5557"], "tcp://HOST:PORT"),
        (["kv=events", "kv_events=tcp://*:5557"], "tcp://HOST:PORT"),
        (["kv=events", "kv_events=tcp://127.0.0.1:5557", "slots=2"], "slots=2"),
    ],
)
def test_settings_that_cannot_be_say_so(words: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["route", "policy=lor", "upstream=http://127.0.0.1:1", *words]) == 2
    assert said in capsys.readouterr().err
