"""`python -m prebleexp pick policy=NAME upstream=IP:PORT,…`: a policy as an endpoint picker behind Envoy."""

from __future__ import annotations

import sys
from ipaddress import ip_address
from typing import TYPE_CHECKING

from prebleexp.checks import positive
from prebleexp.commands import hosted
from prebleexp.commands.arguments import Command, Commands, Given, integer, number, path, text
from prebleexp.errors import InvalidInput
from prebleexp.live import extra

if TYPE_CHECKING:
    from prebleexp.live.http.places import Origin

MOST_SERVERS = 1024


def _pick(given: Given) -> int:
    extra.check_picker()
    from prebleexp.live.http import loops
    from prebleexp.live.picker import served
    from prebleexp.live.router.served import How, compile_for

    origins = [_endpoint(one) for one in given["upstream"].strip("[]").split(",") if one]
    if not origins:
        raise InvalidInput("upstream= is missing: servers as Envoy knows them, upstream=10.0.0.1:8000,10.0.0.2:8000")
    if len(set(origins)) < len(origins):
        raise InvalidInput(f"upstream={given['upstream']} names a server twice")
    if len(origins) > MOST_SERVERS:
        raise InvalidInput(f"upstream= has {len(origins):,} servers; there may be {MOST_SERVERS:,}")
    hosted.refuse_others("pick", given.others)
    settings = [*given.others, f"gpus={len(origins)}"]
    cell = hosted.cell(settings)
    how = How(
        upstreams=origins,
        slots=len(origins),
        host=given["host"],
        port=given["port"],
        session_header=given["session_header"],
        hold_s=positive("hold_s", given["hold_s"], "a number of seconds > 0"),
        health_s=positive("health_s", given["health_s"], "a number of seconds > 0"),
        health_fails=given["health_fails"],
        drain_s=given["drain_s"],
        bytes_per_token=positive("bytes_per_token", given["bytes_per_token"]),
        record=given["record"],
        settings=settings,
        lengths_window_s=hosted.lengths_window_s(cell),
    )
    print(f"prebleexp: compiling policy {type(cell.policy).__name__}", file=sys.stderr, flush=True)
    compile_for(cell.policy, cell.hardware)
    hardware = [cell.hardware] * len(origins)
    loops.run(served.serve(cell.policy, hardware, cell.seed, how, given["metrics_port"]))
    return 0


def _endpoint(given: str) -> Origin:
    """Raises InvalidInput for what is no IP:PORT."""
    from prebleexp.live.http.places import origin

    place = origin("upstream", given)
    try:
        ip_address(place.host)
    except ValueError:
        raise InvalidInput(
            f"upstream={given} is not valid; it must be IP:PORT, as 10.0.0.1:8000: Envoy looks up no names"
        ) from None
    if place.scheme != "http" or place.base:
        raise InvalidInput(f"upstream={given} is not valid; it must be IP:PORT alone, as 10.0.0.1:8000")
    return place


COMMANDS: Commands = {
    "": Command(
        "a policy as an endpoint picker (Gateway API Inference Extension) behind Envoy: an ext_proc server that says "
        "where each request goes, with the simulator's own code; needs pip install 'prebleexp[picker]'",
        _pick,
        "python -m prebleexp pick policy=e2 port=9002 upstream=127.0.0.1:8001,127.0.0.1:8002",
        settings=(
            text("upstream", "IP:PORT of servers, with commas between, as Envoy has them: GPU 0, 1, …", ""),
            integer("port", "where it listens for Envoy (gRPC)", 9002, least=0, most=65535),
            text("host", "at which address; only this machine is served unless you say", "127.0.0.1"),
            integer("metrics_port", "where /metrics is served; nowhere unless you say", least=0, most=65535),
            text(
                "session_header", "that names a request's session; else session_id or user of its body", "x-session-id"
            ),
            number("hold_s", "for which a request waits where there is no server for it; then 503", 30.0),
            number("health_s", "between two looks at each server's /health and /metrics", 1.0),
            integer("health_fails", "in a row, after which a server is down", 3, least=1),
            number("drain_s", "for which requests may end after SIGTERM", 30.0),
            number("bytes_per_token", "of prompts that come as text, until usage says better", 4.0),
            path("record", "as of route, and route check=FILE asks a fresh policy again: no prompts"),
        ),
        others="of a simulation: policy=, policy.…=, hardware=, hardware/gpu=, lengths=max|mean, seed=",
    )
}
