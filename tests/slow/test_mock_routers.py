"""Real routers before a mock: sglang-router by its own tree, vllm-router by KV events. They are wheels of their own:

python3 -m venv routers && routers/bin/pip install sglang-router==0.3.2 vllm-router==0.1.17
PREBLEEXP_ROUTERS=routers python -m pytest -m nightly tests/slow/test_mock_routers.py
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import socket
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from prebleexp.live.http import loops
from prebleexp.live.http.calls import Failed
from prebleexp.live.http.client import Client
from prebleexp.live.http.places import Origin, origin
from tests.support.places import ROOT

ROUTERS = os.environ.get("PREBLEEXP_ROUTERS")
pytestmark = pytest.mark.slow
GPUS, GROUPS, REQUESTS, BLOCK = 3, 6, 60, 32
SHARED = 8 * BLOCK
"""tokens of a prompt that its group has in common"""


def free_ports(count: int) -> list[int]:
    with ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [one.getsockname()[1] for one in sockets]


def free_range(count: int) -> int:
    """The first of so many ports in a row."""
    while True:
        (first,) = free_ports(1)
        with ExitStack() as stack:
            try:
                for port in range(first, first + count):
                    stack.enter_context(socket.socket()).bind(("127.0.0.1", port))
            except (OSError, OverflowError):
                continue
            return first


@contextmanager
def started(command: list[str], folder: Path) -> Iterator[subprocess.Popen[str]]:
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    with (folder / f"{Path(command[0]).name}.log").open("w", encoding="utf-8") as log:
        process = subprocess.Popen(command, cwd=ROOT, env=environment, stdout=log, stderr=log, text=True)
        try:
            yield process
        finally:
            process.terminate()
            process.wait()


async def _until(client: Client, place: Origin, path: str) -> None:
    async with asyncio.timeout(90):
        while True:
            try:
                if (await client.fetch(place, path)).status == 200:
                    return
            except Failed:
                pass
            await asyncio.sleep(0.2)


def _prompt(number: int) -> str:
    begin, own = number % GROUPS * 131, number * 37
    ids = [*range(begin, begin + SHARED), *range(own, own + BLOCK)]
    return " ".join(f"t{one % 900}" for one in ids)


def _served(router: list[str], mock: list[str], urls: list[str], port: int, folder: Path) -> tuple[Counter[int], float]:
    """Statuses, and tokens found in caches."""

    async def main() -> tuple[Counter[int], float]:
        client = Client()
        places = [origin("url", one) for one in urls]
        before = origin("url", f"http://127.0.0.1:{port}")
        limit = asyncio.Semaphore(GROUPS)
        found = Counter[int]()

        async def one(number: int) -> None:
            body = {"model": "tiny", "prompt": _prompt(number), "max_tokens": 10, "ignore_eos": True, "stream": True}
            headers = [(b"content-type", b"application/json")]
            async with limit:
                said = await client.fetch(
                    before, "/v1/completions", "POST", json.dumps(body).encode(), headers, within_s=60
                )
            assert said.body.count(b'"text"') == 10
            assert said.body.rstrip().endswith(b"[DONE]")
            found[said.status] += 1

        try:
            await _until(client, places[-1], "/health")
            with started(router, folder):
                await _until(client, before, "/health")
                await asyncio.sleep(2)  # until it hears of KV events
                for first in range(0, REQUESTS, GROUPS):
                    await asyncio.gather(*(one(number) for number in range(first, first + GROUPS)))
            hits = 0.0
            for place in places:
                said = (await client.fetch(place, "/metrics")).body.decode()
                hits += float(re.findall(r"^vllm:prefix_cache_hits_total\{.*\} (\S+)$", said, re.MULTILINE)[0])
            return found, hits
        finally:
            client.close()

    with started(mock, folder):
        return loops.run(main())


@pytest.mark.nightly
@pytest.mark.skipif(ROUTERS is None, reason="PREBLEEXP_ROUTERS names no environment with routers")
@pytest.mark.parametrize("router", ["sglang", "vllm"])
def test_a_real_router_finds_its_way(router: str, tmp_path: Path) -> None:
    """All are answered, and all but the first of each group find what it shares, where KV events say who has it."""
    port, events = free_range(GPUS), free_range(GPUS)
    front, metrics = free_ports(2)
    urls = [f"http://127.0.0.1:{port + g}" for g in range(GPUS)]
    of_gpus = ["hardware/gpu=h100", "hardware/model=llama_3_1_8b", f"engine.block_size={BLOCK}", "model=tiny"]
    ports = [f"port={port}", f"kv_events_port={events}"]
    mock = [sys.executable, "-m", "prebleexp", "mock", f"gpus={GPUS}", "engine=vllm", *of_gpus, *ports]
    at = ["--host", "127.0.0.1", "--port", str(front), "--prometheus-port", str(metrics), "--worker-urls", *urls]
    folder = Path(str(ROUTERS)).resolve() / "bin"
    if router == "sglang":
        command = [str(folder / "python"), "-m", "sglang_router.launch_router", *at, "--policy", "cache_aware"]
    else:
        sources = [f"--kv-event-source={url}=tcp://127.0.0.1:{events + g}" for g, url in enumerate(urls)]
        about = ["--kv-event-block-size", str(BLOCK), "--kv-event-model", "tiny"]
        command = [str(folder / "vllm-router"), *at, "--policy", "kv_aware", *sources, *about]
    statuses, hits = _served(command, mock, urls, front, tmp_path)
    assert statuses == {200: REQUESTS}
    most = (REQUESTS - GROUPS) * SHARED
    assert hits >= most if router == "vllm" else hits >= most / 2
    said = (tmp_path / "vllm-router.log").read_text(encoding="utf-8") if router == "vllm" else ""
    assert "decode batch" not in said, "it reads all events"
