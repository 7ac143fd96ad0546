"""Processes that listen, and ports for them."""

from __future__ import annotations

import asyncio
import os
import socket
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from prebleexp.live.http.calls import Failed
from prebleexp.live.http.client import Client
from prebleexp.live.http.places import Origin
from tests.support.places import ROOT


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
def started(command: list[str], log: Path) -> Iterator[subprocess.Popen[str]]:
    """From the repository's root; what it writes goes to the log."""
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    with log.open("w", encoding="utf-8") as file:
        process = subprocess.Popen(command, cwd=ROOT, env=environment, stdout=file, stderr=file, text=True)
        try:
            yield process
        finally:
            process.terminate()
            process.wait()


async def until_served(client: Client, place: Origin, path: str) -> None:
    async with asyncio.timeout(90):
        while True:
            try:
                if (await client.fetch(place, path)).status == 200:
                    return
            except Failed:
                pass
            await asyncio.sleep(0.2)
