"""An endpoint picker as a process: gRPC's server for Envoy, its health, and Prometheus's /metrics beside it."""

from __future__ import annotations

import asyncio
import logging
import sys
from collections.abc import Sequence
from typing import Any

import grpc
from envoy.service.ext_proc.v3 import external_processor_pb2_grpc
from grpc_health.v1 import health, health_pb2, health_pb2_grpc

from prebleexp.errors import InvalidInput
from prebleexp.live.http import server as http
from prebleexp.live.http.client import Client
from prebleexp.live.http.exchange import Exchange
from prebleexp.live.http.limits import Limits
from prebleexp.live.http.places import Origin
from prebleexp.live.picker.picker import Picker
from prebleexp.live.picker.pool import Pool, Unknown
from prebleexp.live.picker.stream import Misconfigured, Stream
from prebleexp.live.router.recording import Recording
from prebleexp.live.router.served import How, decider, told_to_end
from prebleexp.live.router.upstreams import Stage, Upstream
from prebleexp.policies.base import Policy

LOG = logging.getLogger(__name__)
READY = ("", "readiness", "envoy.service.ext_proc.v3.ExternalProcessor")
"""what Envoy and kubelets ask about, by the picker protocol; `liveness` is served always"""
MESSAGE_BYTES = 64 << 10
"""of a message beside its body: headers, attributes"""


class Processor(external_processor_pb2_grpc.ExternalProcessorServicer):  # type: ignore[misc]
    """A stream of messages for each request."""

    def __init__(self, picker: Picker) -> None:
        self._picker = picker
        self._said = False

    async def Process(self, _: Any, context: Any) -> None:
        async def following() -> Any:
            message = await context.read()
            return None if message is grpc.aio.EOF else message

        try:
            await Stream(self._picker, following, context.write).run()
        except Misconfigured as error:
            if not self._said:
                self._said = True
                LOG.error("%s", error)
            await context.abort(grpc.StatusCode.FAILED_PRECONDITION, str(error))


class Served:
    """A running endpoint picker: its gRPC server with health checks, and the port it listens on."""

    def __init__(self, picker: Picker, server: Any, port: int) -> None:
        self.picker, self.port, self._server = picker, port, server
        self._health = health.aio.HealthServicer()
        health_pb2_grpc.add_HealthServicer_to_server(self._health, server)
        self._tasks = set[asyncio.Task[None]]()

    async def begin(self) -> None:
        await self._says()
        await self._health.set("liveness", health_pb2.HealthCheckResponse.SERVING)
        self.picker.on_change = self._changed
        await self._server.start()

    async def close(self, within_s: float = 0.0) -> None:
        """Takes no new requests, and lets those that there are end for so long."""
        await self._health.enter_graceful_shutdown()
        await self._server.stop(within_s)
        await asyncio.gather(*self._tasks)

    async def _says(self) -> None:
        status = health_pb2.HealthCheckResponse
        for name in READY:
            await self._health.set(name, status.SERVING if self.picker.deciding.candidates else status.NOT_SERVING)

    def _changed(self) -> None:
        task = asyncio.get_running_loop().create_task(self._says())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


def listen(picker: Picker, host: str, port: int) -> Served:
    """Port 0 takes a free one (`Served.port`). Raises InvalidInput where it cannot listen."""
    limits = picker.limits
    server = grpc.aio.server(
        options=(
            ("grpc.so_reuseport", 0),  # or a second picker could take the same port
            ("grpc.max_receive_message_length", limits.body_bytes + MESSAGE_BYTES),
            ("grpc.max_send_message_length", limits.body_bytes + MESSAGE_BYTES),
            ("grpc.max_metadata_size", limits.header_bytes),
        ),
        maximum_concurrent_rpcs=limits.connections,
    )
    external_processor_pb2_grpc.add_ExternalProcessorServicer_to_server(Processor(picker), server)
    at = f"[{host}]" if ":" in host else host
    try:
        taken = server.add_insecure_port(f"{at}:{port}")
    except RuntimeError:
        raise InvalidInput(f"cannot listen on host={host} port={port}: does another process listen there?") from None
    return Served(picker, server, taken)


def made(
    policy: Policy, hardware: Sequence[Any], seed: int, how: How, client: Client
) -> tuple[Picker, Recording | None]:
    """A picker that decides by `policy`, not yet listening, and its recording, if one is asked for."""
    deciding, recording = decider(policy, hardware, seed, how)
    places = [*how.upstreams, *[None] * (how.slots - len(how.upstreams))]
    picker = Picker(
        deciding,
        [Upstream(number, place) for number, place in enumerate(places)],
        client,
        session_header=how.session_header.lower(),
        hold_s=how.hold_s,
        health_s=how.health_s,
        health_fails=how.health_fails,
        limits=how.limits or Limits(),
        kv_events=how.kv_events,
        kv_replay=how.kv_replay,
    )
    return picker, recording


async def serve(
    policy: Policy,
    hardware: Sequence[Any],
    seed: int,
    how: How,
    metrics_port: int | None = None,
    pool: tuple[Origin, tuple[str, str]] | None = None,
) -> None:
    """Until a signal ends it. `pool`: where the API is, and the namespace and name of the pool that has the servers.
    Raises InvalidInput where that cannot be read at the beginning."""
    logging.basicConfig(level=logging.INFO, format="prebleexp: %(message)s", stream=sys.stderr)
    client = Client()
    picker, recording = made(policy, hardware, seed, how, client)
    watched = None if pool is None else Pool(client, *pool, picker.place)
    if watched is not None:
        try:
            await watched.look()
        except Unknown as error:
            raise InvalidInput(f"pool: {error}") from None
        watched.begin(how.health_s)
    await picker.begin()
    served = listen(picker, how.host, how.port)
    limits = Limits(body_bytes=0)
    beside = None if metrics_port is None else await http.listen(_said(picker), metrics_port, how.host, limits)
    await served.begin()
    ended = told_to_end()
    up = sum(one.stage is Stage.UP for one in picker.upstreams)
    LOG.info("picks for Envoy at %s:%d among %d servers, %d are up", how.host, served.port, how.slots, up)
    await ended.wait()
    LOG.info("letting requests end, for %g s at most", how.drain_s)
    await served.close(how.drain_s)
    if watched is not None:
        await watched.end()
    await picker.end()
    if beside is not None:
        await beside.close()
    client.close()
    if recording is not None:
        recording.close()
    counts = picker.counts
    LOG.info("%d answered, %d refused, %d lost", counts.answered, counts.refused.total(), counts.left + counts.cut)


def _said(picker: Picker) -> Any:
    def answer(exchange: Exchange) -> None:
        if exchange.path == "/metrics":
            exchange.respond(200, picker.metrics().encode(), b"text/plain; version=0.0.4; charset=utf-8")
        else:
            exchange.fail(404, f"there is no {exchange.method} {exchange.path[:80]} here")

    return answer
