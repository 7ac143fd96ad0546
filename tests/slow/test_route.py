"""A router under load, its servers killed and back at random: every request is answered once or told why not."""

from __future__ import annotations

import asyncio
import gc
import json
import random
from pathlib import Path

import pytest

from prebleexp.launch import configure
from prebleexp.live.http import loops
from prebleexp.live.http.calls import Failed, Receiver
from prebleexp.live.http.client import Client
from prebleexp.live.http.exchange import Fields
from prebleexp.live.http.places import origin
from prebleexp.live.http.server import listen
from prebleexp.live.router.served import How, compile_for, made
from tests.support.engines import Engine

pytestmark = pytest.mark.slow

CLIENTS, ENGINES = 64, 8


class Answer(Receiver):
    """Of one request: how often its end was told, and as what."""

    def __init__(self) -> None:
        self.status, self.ends, self.body = 0, 0, bytearray()
        self.error: Failed | None = None
        self.over = asyncio.Event()

    def head(self, status: int, headers: Fields) -> None:
        assert self.status == 0
        self.status = status

    def data(self, piece: bytes) -> None:
        self.body += piece

    def done(self) -> None:
        self.ends += 1
        self.over.set()

    def failed(self, error: Failed) -> None:
        self.ends += 1
        self.error = error
        self.over.set()


def kind_of(answer: Answer, stream: bool, tokens: int) -> str:
    """Whole, cut with a reason, or refused with a reason; anything else is wrong."""
    assert answer.ends == 1
    assert answer.error is None, answer.error
    if answer.status != 200:
        assert answer.status in (429, 502, 503)
        assert json.loads(answer.body)["error"]["message"]
        return "refused"
    if not stream:
        assert json.loads(answer.body)["usage"]["completion_tokens"] == tokens
        return "whole"
    events = [one[6:] for one in bytes(answer.body).split(b"\n\n") if one]
    if events[-1] == b"[DONE]":
        texts = [json.loads(one)["choices"][0]["text"] for one in events[:-2]]
        assert texts == [f"t{i} " for i in range(tokens)]  # none twice, and none of another server's
        return "whole"
    assert json.loads(events[-1])["error"]["message"].startswith("the server of this request is gone")
    return "cut"


def resident() -> int:
    gc.collect()
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096


@pytest.mark.parametrize(
    ("policy", "requests"),
    [
        pytest.param("lor", 4_000, id="lor"),
        pytest.param("lmetric", 4_000, id="lmetric"),
        pytest.param("lor", 200_000, id="lor, 200,000", marks=pytest.mark.nightly),
    ],
)
def test_every_request_is_answered_once_while_servers_die(policy: str, requests: int) -> None:
    cell = configure.cells([f"policy={policy}", "rps=1", "gpus=1"])[0]
    compile_for(cell.policy, cell.hardware)
    found: dict[str, int] = {}
    memory: list[int] = []

    async def main() -> None:
        draw = random.Random(1)
        engines = [await Engine(0.001).start() for _ in range(ENGINES)]
        client, theirs = Client(), Client()
        how = How([origin("u", one.url) for one in engines], ENGINES, health_s=0.1, rows=512)
        proxy, _ = made(cell.policy, [cell.hardware] * ENGINES, 0, how, client)
        await proxy.begin()
        server = await listen(proxy, 0)
        here, left = origin("u", f"http://127.0.0.1:{server.port}"), iter(range(requests))

        async def ask() -> None:
            for i in left:
                stream, tokens = i % 4 != 0, 1 + i % 5
                prompt = f"{i % 50} " * 60 + str(i)
                body = {"model": "tiny", "prompt": prompt, "max_tokens": tokens, "stream": stream}
                answer = Answer()
                theirs.call(here, b"POST", b"/v1/completions", [], json.dumps(body).encode(), answer)
                await answer.over.wait()
                kind = kind_of(answer, stream, tokens)
                found[kind] = found.get(kind, 0) + 1
                if i % (requests // 8) == requests // 8 - 1:
                    memory.append(resident())

        async def disturb() -> None:
            while True:
                await asyncio.sleep(draw.uniform(0.05, 0.3))
                engine = draw.choice(engines)
                await engine.kill()
                await asyncio.sleep(draw.uniform(0.05, 0.5))
                await engine.start()

        disturbing = asyncio.create_task(disturb())
        await asyncio.gather(*(ask() for _ in range(CLIENTS)))
        disturbing.cancel()
        assert proxy.deciding.host.view.sent["outstanding"].tolist() == [0] * ENGINES
        assert proxy.deciding.waiting_tokens == [0] * ENGINES
        assert proxy.deciding.host.lap >= requests // 512 - 1
        assert not any(one.flying for one in proxy.upstreams)
        print(f"{policy}: {found}, {proxy.counts.retried} went to another server; MiB {[one >> 20 for one in memory]}")
        await server.close()
        await proxy.end()
        for one in (*engines, client, theirs):
            if isinstance(one, Engine):
                await one.kill()
            else:
                one.close()

    loops.run(main())
    assert sum(found.values()) == requests
    assert found["whole"] > 0.9 * requests
    assert max(memory[4:]) < 1.1 * max(memory[:4])
