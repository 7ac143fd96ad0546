"""A router as a process: everything compiled before it listens, and an end that cuts nobody off."""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import signal
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from prebleexp.gateway.base import OPEN, Gateway
from prebleexp.live.host import ROWS, Host
from prebleexp.live.http.client import Client
from prebleexp.live.http.limits import Limits
from prebleexp.live.http.places import Origin
from prebleexp.live.http.server import listen
from prebleexp.live.router.deciding import Deciding
from prebleexp.live.router.prompts import BYTES_PER_TOKEN, Interner
from prebleexp.live.router.proxy import Proxy
from prebleexp.live.router.recording import Recording
from prebleexp.live.router.token_ids import token_ids
from prebleexp.live.router.upstreams import Upstream
from prebleexp.policies.base import Policy
from prebleexp.sim import notices
from prebleexp.sim.types import Room


@dataclass(frozen=True)
class How:
    """How it is to be served. Seconds."""

    upstreams: Sequence[Origin]
    slots: int
    host: str = "127.0.0.1"
    port: int = 8000
    session_header: str = "x-session-id"
    hold_s: float = 30.0
    health_s: float = 1.0
    health_fails: int = 3
    drain_s: float = 30.0
    admin: bool = True
    polls: bool = True
    bytes_per_token: float = BYTES_PER_TOKEN
    limits: Limits | None = None
    record: Path | None = None
    settings: Sequence[str] = ()
    """that say of a recording what it is of"""
    rows: int = ROWS
    lengths_window_s: float = 0.0
    """over which lengths of answers are averaged, to be expected of others; 0: max_tokens are"""
    kv_events: Sequence[str] = ()
    """where each server tells what it has cached; none: it is assumed"""
    kv_replay: Sequence[str] = ()
    """and where it tells it again"""
    gateway: Gateway = OPEN
    """what requests pass before the policy"""


def compile_for(policy: Policy, hardware: Any) -> None:
    """Ask it and tell it once, of all that there is, so that no client waits for a compiler."""
    Interner(8, 0).of(b"", "")
    token_ids(b"[0]")
    host = Host(policy, [hardware, hardware], rows=8, room=Room(8, 8, 8))
    taken = host.arrive([0, 1], [16, 20], 8, 0.0)
    gpu = host.decide(taken, 0.0)
    if gpu >= 0:
        for kind, tokens in ((notices.FIRST_TOKEN, 0), (notices.STORED, 16), (notices.EVICTED, 0)):
            host.hear(kind, taken, gpu, 0.1, tokens=tokens, ttft_s=0.1)
        host.hear(notices.FINISHED, taken, gpu, 0.2, ttft_s=0.1, latency_s=0.2, output=2)
        host.changed(1 - gpu, [gpu], 0.3)


def decider(policy: Policy, hardware: Sequence[Any], seed: int, how: How) -> tuple[Deciding, Recording | None]:
    """The policy, ready to be asked, and what records it."""
    recording = None if how.record is None else Recording(how.record, how.settings, len(hardware))
    hash_seed = int.from_bytes(os.urandom(8), "little")
    deciding = Deciding(
        policy,
        hardware,
        seed,
        hash_seed,
        how.rows,
        recording,
        how.bytes_per_token,
        told=bool(how.kv_events),
        lengths_window_s=how.lengths_window_s,
    )
    return deciding, recording


def made(
    policy: Policy, hardware: Sequence[Any], seed: int, how: How, client: Client
) -> tuple[Proxy, Recording | None]:
    """What answers clients, before anybody listens."""
    deciding, recording = decider(policy, hardware, seed, how)
    places = [*how.upstreams, *[None] * (how.slots - len(how.upstreams))]
    proxy = Proxy(
        deciding,
        [Upstream(number, place) for number, place in enumerate(places)],
        client,
        session_header=how.session_header.lower().encode(),
        hold_s=how.hold_s,
        health_s=how.health_s,
        health_fails=how.health_fails,
        polls=how.polls,
        host=how.host,
        administered=how.admin,
        kv_events=how.kv_events,
        kv_replay=how.kv_replay,
        gateway=how.gateway,
    )
    return proxy, recording


def told_to_end() -> asyncio.Event:
    """Set by a signal. What was made so far stays: nobody looks for garbage there."""
    gc.collect()
    gc.freeze()
    ended = asyncio.Event()
    loop = asyncio.get_running_loop()
    for one in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(one, ended.set)
    return ended


async def serve(policy: Policy, hardware: Sequence[Any], seed: int, how: How) -> None:
    """Until a signal ends it."""
    logging.basicConfig(level=logging.INFO, format="prebleexp: %(message)s", stream=sys.stderr)
    client = Client()
    proxy, recording = made(policy, hardware, seed, how, client)
    await proxy.begin()
    server = await listen(proxy, how.port, how.host, how.limits)
    ended = told_to_end()
    up = sum(one.stage.value == "up" for one in proxy.upstreams)
    logging.getLogger(__name__).info(
        "listening on http://%s:%d before %d servers, of which %d are up", how.host, server.port, how.slots, up
    )
    await ended.wait()
    logging.getLogger(__name__).info("letting requests end, for %g s at most", how.drain_s)
    cut = await server.close(how.drain_s)
    await proxy.end()
    client.close()
    if recording is not None:
        recording.close()
    counts = proxy.counts
    logging.getLogger(__name__).info(
        "%d answered, %d refused, %d left, %d cut off", counts.answered, counts.refused.total(), counts.left, cut
    )
