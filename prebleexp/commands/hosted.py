"""A policy outside of a simulation, as settings of one name it, before servers: what `route` and `pick` share."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

from prebleexp.checks import not_valid, positive
from prebleexp.commands.arguments import Given, choice, integer, number, text
from prebleexp.errors import InvalidInput
from prebleexp.live import extra

if TYPE_CHECKING:
    from prebleexp.experiment.cell import Cell
    from prebleexp.live.http.places import Origin
    from prebleexp.live.router.served import How

MOST_SERVERS = 1024
HOST = text("host", "at which address; only this machine is served unless you say", "127.0.0.1")
OF_SERVING = (
    text("session_header", "that names a request's session; else session_id or user of its body", "x-session-id"),
    number("hold_s", "for which a request waits where there is no server for it; then 503", 30.0),
    number("health_s", "between two looks at each server's /health and /metrics", 1.0),
    integer("health_fails", "in a row, after which a server is down", 3, least=1),
    number("drain_s", "for which requests may end after SIGTERM", 30.0),
    number("bytes_per_token", "of prompts that come as text, until usage says better", 4.0),
)
"""their own settings of how requests and servers are treated"""
OF_CACHES = (
    choice(
        "kv",
        "what servers have cached: assumed of what they have computed, or by their KV events, which are of "
        "prompts that come as token ids",
        "assumed",
        "events",
    ),
    text("kv_events", "where each server publishes them over ZMQ: tcp://HOST:PORT, with commas between", ""),
    text("kv_replay", "where each tells again what was missed; unless you say, a gap forgets all", ""),
)
"""and of what servers have cached"""
OTHERS = "of a simulation: policy=, policy.…=, hardware=, hardware/gpu=, lengths=max|mean, seed="

OF_SIMULATIONS = ("policy", "hardware", "lengths", "seed")
"""what is taken of their settings"""


def refuse_others(command: str, settings: Sequence[str], *more: str) -> None:
    """Nothing is passed over: what says nothing here is not taken. `more`: what is besides `OF_SIMULATIONS`."""
    valid = (*OF_SIMULATIONS, *more)
    for one in settings:
        key = one.lstrip("+~").partition("=")[0]
        if re.split(r"[./@]", key)[0] not in valid:
            raise InvalidInput(
                f"{command} does not take {key}= of a simulation; valid: its own settings ({command} --help), and "
                f"{', '.join(valid)}"
            )


def listed(given: str) -> list[str]:
    """What stands between commas, in brackets or without."""
    return [one for one in given.strip("[]").split(",") if one]


def refuse_twice(given: str, origins: Sequence[Origin]) -> None:
    if len(set(origins)) < len(origins):
        raise InvalidInput(f"upstream={given} names a server twice")


def how(given: Given, origins: Sequence[Origin], slots: int, settings: Sequence[str], cell: Cell) -> How:
    """What settings of both say. Raises InvalidInput for what is not valid."""
    from prebleexp.live.router.served import How

    return How(
        upstreams=origins,
        slots=slots,
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
        lengths_window_s=lengths_window_s(cell),
    )


def cell(settings: Sequence[str]) -> Cell:
    """What the settings of a simulation say of policy, hardware, lengths and seed."""
    from prebleexp.launch.configure import job

    return job(["rps=1", *settings]).cells[0]


def lengths_window_s(cell: Cell) -> float:
    """Over which the router learns lengths of answers; 0: it does not. Raises InvalidInput for what it cannot know."""
    from prebleexp.lengths.known import Max
    from prebleexp.lengths.mean import Mean

    lengths = cell.lengths
    if isinstance(lengths, Mean) and not lengths.per_prefix:
        return lengths.window
    if isinstance(lengths, Max):
        return 0.0
    name = "mean with lengths.over=prefix" if isinstance(lengths, Mean) else cell.names["lengths"]
    raise not_valid("lengths", name, "max or mean (over all requests): a router knows no more of answers to come")


def kv(given: Given, servers: int, slots: int) -> tuple[list[str], list[str]]:
    """Where servers tell what they have cached, and where they tell it again."""
    found = []
    for name in ("kv_events", "kv_replay"):
        addresses = listed(given[name])
        for one in addresses:
            if re.fullmatch(r"tcp://[^\s:/*]+:\d{1,5}", one) is None:
                raise not_valid(name, one, "tcp://HOST:PORT")
        if addresses and len(addresses) != servers:
            raise InvalidInput(f"{name} has {len(addresses)} addresses, and upstream {servers}: name one for each")
        if addresses and given["kv"] != "events":
            raise InvalidInput(f"{name}= says nothing with kv={given['kv']}; take kv=events")
        found.append(addresses)
    events, replay = found
    if given["kv"] == "events":
        if not events:
            raise InvalidInput("kv=events needs kv_events=: where servers publish them, as tcp://127.0.0.1:5557,…")
        if slots > servers:
            raise not_valid("slots", slots, f"{servers} with kv=events, which is of the servers there at the start")
        extra.check("zmq")
    return events, replay
