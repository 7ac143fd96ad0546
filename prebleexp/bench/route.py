"""`prebleexp bench route`: what a router that runs takes, by itself and as a process before servers of streams."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from prebleexp.bench.table import LESS, MORE, Row, Table
from prebleexp.launch import configure

if TYPE_CHECKING:
    from prebleexp.live.http.exchange import Exchange

POLICIES = ("lor", "lmetric", "e2")
GPUS = 64
ASKED = 20_000
"""decisions of a process"""
BODY_BYTES, SHARED_BYTES = 8192, 6144
SERVERS, CLIENTS, SENT, CHUNKS = 8, 64, 4000, 20
CHUNK = (
    b'data: {"id": "cmpl-1", "object": "text_completion", "created": 1, "choices": [{"index": 0, "text": " t343"}]}\n\n'
)
USAGE = b'data: {"choices": [], "usage": {"prompt_tokens": 200, "completion_tokens": 20}}\n\ndata: [DONE]\n\n'
GAP_S = 0.005
AT_ONCE, PAIRS = "at-once", 1000
"""a query for an answer without gaps; requests with and without the router, by turns"""


def rows(policies: Sequence[str] | None = None) -> list[Row]:
    """A line for each policy: microseconds of a decision among 64 servers, and from a body of 8 kB to a server; and
    requests of 20 chunks that a core passes on, before 8 servers."""
    return [{"policy": one} | _by_itself(one) | _through(one) for one in policies or POLICIES]


def _by_itself(policy: str) -> Row:
    from prebleexp.live.router.deciding import Deciding
    from prebleexp.live.router.prompts import read
    from prebleexp.live.router.served import compile_for

    (cell,) = configure.cells([f"policy={policy}", f"gpus={GPUS}", "rps=1"])
    compile_for(cell.policy, cell.hardware)
    deciding = Deciding(cell.policy, [cell.hardware] * GPUS, 0, 1)
    deciding.begin(range(GPUS))
    draw, flying = np.random.default_rng(0), list[Any]()
    shared = [f"{i} ".ljust(SHARED_BYTES, "x") for i in range(200)]
    asked_us, whole_us = np.zeros((2, ASKED))
    for i in range(ASKED):
        text = shared[int(draw.integers(200))] + f"{i} ".ljust(BODY_BYTES - SHARED_BYTES, "y")
        body, now = json.dumps({"model": "m", "prompt": text, "max_tokens": 64}).encode(), i / 500
        began = time.perf_counter()
        ticket = deciding.arrives(read(body), now)
        before = time.perf_counter()
        deciding.ask(ticket, now)
        ended = time.perf_counter()
        asked_us[i], whole_us[i] = 1e6 * (ended - before), 1e6 * (ended - began)
        flying.append(ticket)
        if len(flying) > 4 * GPUS:
            deciding.finished(flying.pop(0), 64, now)
    quantiles = {"decision µs p50": (asked_us, 0.5), "p99": (asked_us, 0.99)}
    quantiles |= {"body to server µs p50": (whole_us, 0.5), "p99 of that": (whole_us, 0.99)}
    return {name: round(float(np.quantile(values, at)), 1) for name, (values, at) in quantiles.items()}


def _through(policy: str) -> Row:
    """By the processor's clock of the router's process."""
    with engines_of_streams() as ports:
        return _before(policy, ports)


@contextmanager
def engines_of_streams() -> Iterator[list[int]]:
    """Ports of servers in a process of their own."""
    engines = _child("from prebleexp.bench import route; route.engines()")
    assert engines.stdout is not None
    try:
        yield json.loads(engines.stdout.readline())
    finally:
        engines.kill()
        engines.wait()


def _before(policy: str, ports: Sequence[int]) -> Row:
    upstream = ",".join(f"http://127.0.0.1:{port}" for port in ports)
    words = ["route", f"policy={policy}", "port=0", f"upstream={upstream}"]
    router = _child(f"from prebleexp.__main__ import main; main({words!r})", stderr=subprocess.PIPE)
    try:
        assert router.stderr is not None
        said = next(line for line in router.stderr if "listening" in line)
        port = int(said.split("http://127.0.0.1:")[1].split()[0])
        _ask(port, SENT // 4)
        before = _cpu_s(router.pid)
        _ask(port, SENT)
        used = _cpu_s(router.pid) - before
        added_s = _added(ports[0], port)
    finally:
        router.kill()
        router.wait()
    return {
        "requests/s of a core": round(SENT / used),
        "added ms p50": round(1e3 * added_s, 3),
    }


def _child(code: str, stderr: int = subprocess.DEVNULL) -> subprocess.Popen[str]:
    return subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=stderr, text=True)  # noqa: S603


def _cpu_s(process: int) -> float:
    """Of a process so far."""
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def engines() -> None:
    """Servers that stream 20 chunks, 5 ms apart; their ports on standard output. Until they are killed."""
    from prebleexp.live.http import loops
    from prebleexp.live.http.server import listen

    async def main() -> None:
        servers = [await listen(_answer, 0) for _ in range(SERVERS)]
        print(json.dumps([one.port for one in servers]), flush=True)
        await asyncio.Event().wait()

    loops.run(main())


def _answer(exchange: Exchange) -> None:
    if exchange.method == "GET":
        exchange.respond(200)
        return
    exchange.start()
    if exchange.query == AT_ONCE.encode():
        exchange.write(CHUNK * CHUNKS + USAGE)
        exchange.end()
        return
    loop = asyncio.get_running_loop()

    def step(left: int) -> None:
        if left:
            exchange.write(CHUNK)
            loop.call_later(GAP_S, step, left - 1)
        else:
            exchange.write(USAGE)
            exchange.end()

    step(CHUNKS)


def _ask(port: int, requests: int) -> None:
    """So many clients ask so often, one request after the other each."""
    from prebleexp.live.http import loops
    from prebleexp.live.http.client import Client
    from prebleexp.live.http.places import origin

    async def main() -> None:
        client, here, left = Client(), origin("url", f"http://127.0.0.1:{port}"), iter(range(requests))

        async def ask() -> None:
            for i in left:
                prompt = f"{i % 50} " * 40 + str(i)
                body = json.dumps({"model": "m", "prompt": prompt, "max_tokens": 20, "stream": True}).encode()
                reply = await client.fetch(here, "/v1/completions", "POST", body, within_s=60)
                assert reply.status == 200

        await asyncio.gather(*(ask() for _ in range(CLIENTS)))
        client.close()

    loops.run(main())


def _added(direct: int, through: int) -> float:
    """Seconds that a request takes longer through the router, if its answer comes at once: the median of pairs."""
    from prebleexp.live.http import loops
    from prebleexp.live.http.client import Client
    from prebleexp.live.http.places import origin

    async def main() -> float:
        client, longer = Client(), np.zeros(PAIRS)
        body = json.dumps({"model": "m", "prompt": "x " * 400, "max_tokens": 20, "stream": True}).encode()
        for i in range(PAIRS):
            took = []
            for port in (direct, through):
                began = time.perf_counter()
                await client.fetch(
                    origin("url", f"http://127.0.0.1:{port}"), f"/v1/completions?{AT_ONCE}", "POST", body
                )
                took.append(time.perf_counter() - began)
            longer[i] = took[1] - took[0]
        client.close()
        return float(np.median(longer))

    return loops.run(main())


BETTER = dict.fromkeys(("decision µs p50", "p99", "body to server µs p50", "p99 of that", "added ms p50"), LESS)
TABLE = Table(rows, BETTER | {"requests/s of a core": MORE})
