"""Real routers before a mock: sglang-router and smg by their own trees, vllm-router by KV events. They are wheels of
their own:

python3 -m venv routers && routers/bin/pip install sglang-router==0.3.2 vllm-router==0.1.17 smg==1.13.0
PREBLEEXP_ROUTERS=routers python -m pytest -m nightly tests/slow/test_mock_routers.py
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import sys
from collections import Counter
from pathlib import Path

import pytest

from prebleexp.live.http import loops
from prebleexp.live.http.client import Client
from prebleexp.live.http.places import origin
from tests.support.processes import free_ports, free_range, started, until_served

ROUTERS = os.environ.get("PREBLEEXP_ROUTERS")
pytestmark = pytest.mark.slow
GPUS, GROUPS, REQUESTS, BLOCK = 3, 6, 60, 32
SHARED = 8 * BLOCK
"""tokens of a prompt that its group has in common"""


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
            await until_served(client, places[-1], "/health")
            with started(router, folder / f"{Path(router[0]).name}.log"):
                await until_served(client, before, "/health")
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

    with started(mock, folder / "mock.log"):
        return loops.run(main())


@pytest.mark.nightly
@pytest.mark.skipif(ROUTERS is None, reason="PREBLEEXP_ROUTERS names no environment with routers")
@pytest.mark.parametrize("router", ["sglang", "smg", "vllm"])
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
    elif router == "smg":
        command = [str(folder / "smg"), "launch", *at, "--policy", "cache_aware"]
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
