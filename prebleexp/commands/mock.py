"""`python -m prebleexp mock …`: simulated GPUs that answer as OpenAI-style servers do. It needs
`pip install 'prebleexp[live]'`."""

from __future__ import annotations

import asyncio
import json
import logging
import signal
import sys
from typing import TYPE_CHECKING, Any

from prebleexp.checks import positive
from prebleexp.commands.arguments import Command, Commands, Given, choice, integer, number, text
from prebleexp.errors import InvalidInput
from prebleexp.live import extra

if TYPE_CHECKING:
    from prebleexp.experiment.cell import Cell
    from prebleexp.live.mock.serving import Mock

PORT = 9100
LOOPBACK = ("127.0.0.1", "localhost", "::1")


def _mock(given: Given) -> int:
    """Serve until it is interrupted; 0."""
    extra.check()
    from prebleexp.launch import configure
    from prebleexp.live.http import loops

    speed = float(positive("speed", given["speed"]))
    cells = configure.job_of_command(given.others).cells
    if len(cells) > 1:
        raise InvalidInput("several cells are asked for; a mock is of one")
    port, events = given["port"], given["kv_events_port"]
    for name, first in (("port", port), ("kv_events_port", events), ("kv_replay_port", given["kv_replay_port"])):
        if first is not None and first + cells[0].replicas > 1 << 16:
            raise InvalidInput(f"{name}={first} is not valid: there is no port for the last of the GPUs behind it")
    logging.basicConfig(format="prebleexp: %(message)s", level=logging.WARNING)
    return loops.run(_serve(given, cells[0], speed))


async def _serve(given: Given, cell: Cell, speed: float) -> int:
    from prebleexp.live.mock.ready import made, served_name
    from prebleexp.live.mock.serving import Terms

    print("prebleexp: compiling what serves", file=sys.stderr, flush=True)
    terms = Terms(
        model=given["model"] or served_name(cell),
        host=given["host"],
        port=given["port"],
        speed=speed,
        metrics=cell.engine.project if given["metrics"] == "own" else given["metrics"],
        kv_events_port=given["kv_events_port"],
        kv_replay_port=given["kv_replay_port"],
    )
    mock = made(cell, terms)
    await mock.open()
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for one in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(one, stop.set)
    try:
        _say(given, cell, mock)
        mock.failed.add_done_callback(lambda _: stop.set())
        await stop.wait()
        if mock.failed.done():
            mock.failed.result()
    finally:
        await mock.close()
    late = mock.late
    if given["output"] == "json":
        said = {"late_p50_s": late.quantile(0.5), "late_p99_s": late.quantile(0.99), "late_max_s": late.most_s}
        print(json.dumps({"tokens": sum(late.counts), **said}))
    elif sum(late.counts):
        print(
            f"prebleexp: {sum(late.counts):,} tokens written, late by {1e3 * late.quantile(0.5):.2f} ms (p50), "
            f"{1e3 * late.quantile(0.99):.2f} ms (p99), {1e3 * late.most_s:.1f} ms at most",
            file=sys.stderr,
        )
    return 0


def _say(given: Given, cell: Cell, mock: Mock) -> None:
    about: dict[str, Any] = {"model": mock.terms.model, "urls": mock.urls}
    if mock.kv_events:
        about["kv_events"] = [one.address for one in mock.kv_events]
    if given["output"] == "json":
        print(json.dumps(about), flush=True)
    else:
        print(*mock.urls, sep="\n", flush=True)
    unit = "GPU" if cell.replicas == 1 else "GPUs"
    print(
        f"prebleexp: {cell.replicas} {unit}, model {mock.terms.model}, {mock.terms.speed:g} simulated seconds a "
        "second; Ctrl-C ends it",
        file=sys.stderr,
        flush=True,
    )
    if mock.terms.host not in LOOPBACK:
        print(
            f"prebleexp: host={mock.terms.host}: anyone who reaches this machine may ask", file=sys.stderr, flush=True
        )


COMMANDS: Commands = {
    "": Command(
        "simulated GPUs in real time, each an OpenAI-style server at a port of its own: to try routers, clients and "
        "dashboards without a GPU (docs/live.md)",
        _mock,
        "python -m prebleexp mock gpus=4 engine=vllm port=9100",
        settings=(
            integer("port", "of the first GPU; the others follow. 0: any that are free", PORT, 0, 65535),
            text("host", "address to listen at; others than this machine are served if it says so", "127.0.0.1"),
            number("speed", "simulated seconds a real one", 1.0),
            text("model", "name under which it is served, if not the hardware's"),
            choice(
                "metrics", "whose names /metrics has: of the engine's own project, or these", "own", "vllm", "sglang"
            ),
            integer("kv_events_port", "publish KV events as vLLM does, over ZMQ: of the first GPU", None, 1, 65535),
            integer("kv_replay_port", "answer who missed some of these, likewise", None, 1, 65535),
            choice("output", "how addresses are printed", "table", "json"),
        ),
        others="the GPUs, as those of a run are set (prebleexp --help): gpus=, engine=, hardware=, faults=, gateway=, "
        "and output_length= for answers whose length is not given",
    ),
}
