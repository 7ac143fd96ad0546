"""`python -m prebleexp pick policy=NAME upstream=IP:PORT,…`: a policy as an endpoint picker behind Envoy."""

from __future__ import annotations

import sys
from dataclasses import replace
from ipaddress import ip_address
from typing import TYPE_CHECKING

from prebleexp.commands import hosted
from prebleexp.commands.arguments import Command, Commands, Given, integer, path, text
from prebleexp.errors import InvalidInput
from prebleexp.live import extra

if TYPE_CHECKING:
    from prebleexp.live.http.places import Origin


def _pick(given: Given) -> int:
    extra.check_picker()
    from prebleexp.live.http import loops
    from prebleexp.live.picker import pool, served
    from prebleexp.live.router.served import compile_for

    origins = [_endpoint(one) for one in hosted.listed(given["upstream"])]
    if bool(origins) == bool(given["pool"]):
        raise InvalidInput(
            "upstream= is missing: servers as Envoy knows them, upstream=10.0.0.1:8000,10.0.0.2:8000; or pool="
            if not origins
            else "upstream= and pool= are not valid together: a pool says who its servers are"
        )
    hosted.refuse_twice(given["upstream"], origins)
    if len(origins) > hosted.MOST_SERVERS:
        raise InvalidInput(f"upstream= has {len(origins):,} servers; there may be {hosted.MOST_SERVERS:,}")
    hosted.refuse_others("pick", given.others)
    slots = given["slots"] if given["pool"] else len(origins)
    settings = [*given.others, f"gpus={slots}"]
    cell = hosted.cell(settings)
    events, replay = hosted.kv(given, len(origins), slots)
    how = replace(hosted.how(given, origins, slots, settings, cell), kv_events=events, kv_replay=replay)
    of = (pool.api(given["kubernetes"]), pool.named(given["pool"])) if given["pool"] else None
    print(f"prebleexp: compiling policy {type(cell.policy).__name__}", file=sys.stderr, flush=True)
    compile_for(cell.policy, cell.hardware)
    hardware = [cell.hardware] * slots
    loops.run(served.serve(cell.policy, hardware, cell.seed, how, given["metrics_port"], of))
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
            text("pool", "instead: an InferencePool, NAME or NAMESPACE/NAME, whose ready pods are the servers", ""),
            integer("slots", "servers of a pool that there is room for", 16, least=1, most=hosted.MOST_SERVERS),
            text("kubernetes", "URL of the API that has the pool; by default that of the cluster it runs in", ""),
            integer("port", "where it listens for Envoy (gRPC)", 9002, least=0, most=65535),
            hosted.HOST,
            integer("metrics_port", "where /metrics is served; nowhere unless you say", least=0, most=65535),
            *hosted.OF_SERVING,
            *hosted.OF_CACHES,
            path("record", "as of route, and route check=FILE asks a fresh policy again: no prompts"),
        ),
        others=hosted.OTHERS,
    )
}
