"""`python -m prebleexp route policy=NAME upstream=URL,URL …`: a policy as a proxy before OpenAI-style servers."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from prebleexp.checks import not_valid
from prebleexp.commands import hosted
from prebleexp.commands.arguments import Command, Commands, Given, choice, integer, path, text
from prebleexp.errors import InvalidInput
from prebleexp.live import extra


def _route(given: Given) -> int:
    extra.check()
    if given["check"] is not None:
        return _check(given["check"], given.others)
    from prebleexp.live.http import loops, places
    from prebleexp.live.router import gate, served

    urls = hosted.listed(given["upstream"])
    if not urls:
        raise InvalidInput("upstream= is missing: the URLs of servers, as upstream=http://127.0.0.1:8001,…")
    origins = [places.origin("upstream", one) for one in urls]
    hosted.refuse_twice(given["upstream"], origins)
    slots = given["slots"] or len(origins)
    if slots < len(origins):
        raise not_valid("slots", slots, f"at least {len(origins)}, the number of servers")
    events, replay = hosted.kv(given, len(origins), slots)
    hosted.refuse_others("route", given.others, "gateway")
    settings = [*given.others, f"gpus={slots}"]
    cell = hosted.cell(settings)
    gate.check(cell.gateway)
    admin = given["admin"] == "true" or (given["admin"] == "auto" and places.is_loopback(given["host"]))
    own: dict[str, Any] = {"admin": admin, "kv_events": events, "kv_replay": replay, "gateway": cell.gateway}
    how = replace(hosted.how(given, origins, slots, settings, cell), **own)
    print(f"prebleexp: compiling policy {type(cell.policy).__name__}", file=sys.stderr, flush=True)
    served.compile_for(cell.policy, cell.hardware)
    loops.run(served.serve(cell.policy, [cell.hardware] * slots, cell.seed, how))
    return 0


def _check(recorded: Path, others: Sequence[str]) -> int:
    """0 if a fresh policy decides alike, 1 if not."""
    from prebleexp.live.host import Host
    from prebleexp.live.router import recording

    settings, gpus = recording.settings_of(recorded)
    cell = hosted.cell([*settings, *others])
    found = recording.check(recorded, Host(cell.policy, [cell.hardware] * gpus, cell.seed))
    print(f"{found.decisions:,} decisions, {found.differ:,} differ")
    if found.cut:
        said = "ends in the midst of a line: its router was killed, or its disk full; this is of what comes before"
        print(f"prebleexp: {recorded} {said}", file=sys.stderr)
    if found.first is not None:
        print(f"prebleexp: the first is line {found.first} of {recorded}", file=sys.stderr)
    return int(found.differ > 0)


COMMANDS: Commands = {
    "": Command(
        "a policy as a router that runs: a proxy before OpenAI-style servers (vLLM, SGLang, prebleexp mock), which "
        "decides with the simulator's own code; needs pip install 'prebleexp[live]'",
        _route,
        "python -m prebleexp route policy=e2 port=8000 upstream=http://127.0.0.1:8001,http://127.0.0.1:8002",
        settings=(
            text("upstream", "URLs of servers, with commas between: GPU 0, 1, … of the policy", ""),
            integer("port", "where it listens", 8000, least=0, most=65535),
            hosted.HOST,
            integer(
                "slots",
                "servers that there is room for, as many as URLs unless you say",
                least=1,
                most=hosted.MOST_SERVERS,
            ),
            *hosted.OF_SERVING,
            *hosted.OF_CACHES,
            choice("admin", "who may change /workers: auto is all if host is this machine", "auto", "true", "false"),
            path("record", "a file for all that the policy is asked and told: no prompts, numbers of blocks"),
            path("check", "such a file: is a fresh policy of the same opinion? Nothing is served"),
        ),
        others=f"{hosted.OTHERS}, gateway.…=",
    )
}
