"""How long KV is under way from one GPU to another, where several transfers may want the same port.

Each GPU has an egress and an ingress of the same rate; a transfer uses one of each. It takes a latency, which uses no
bandwidth, and then its bytes over the rate that it gets (spec: clusters.md, section 2):

| sharing | rate |
| --- | --- |
| INFINITE | that of a port, whoever else uses it |
| FIFO | that of a port, when all that were asked for before at its egress or at its ingress have arrived |
| FAIR | max-min fair over all ports, anew whenever a transfer's bytes begin to move or have arrived |

Transfers have an agenda of their own, as sessions have: with FAIR an end is known only until somebody else begins.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from prebleexp.sim import addresses
from prebleexp.sim.compiled import compiled
from prebleexp.sim.events import ARRIVED, key, pop, push
from prebleexp.sim.records import Events
from prebleexp.sim.types import records

INFINITE, FIFO, FAIR = range(3)

LINKS = np.dtype(
    [
        ("time", np.float64),  # of the next event of a transfer, infinite if there is none, …
        ("key", np.int64),  # … and the event
        ("sharing", np.int64),
        ("latency_s", np.float64),
        ("rate", np.float64),  # bytes a second of each port
        ("events", np.int64),  # in Links.timers
        ("moving", np.int64),  # rows of Links.moving in use
        ("changed_s", np.float64),  # when rates last changed
    ],
    align=True,
)

TRANSFER = np.dtype(
    [
        ("source", np.int64),
        ("target", np.int64),
        ("bytes", np.float64),
        ("left", np.float64),  # of them, when rates last changed
        ("rate", np.float64),  # bytes a second from then on; negative: not decided yet
        ("ends_s", np.float64),
    ],
    align=True,
)
"""Of a request; the last three fields are FAIR's."""


class UnderWay(NamedTuple):
    """What a run knows of its transfers. All else is plugged in: most runs have none, and need not compile it."""

    control: Any
    """`LINKS`"""
    calls: Any
    """`prebleexp.sim.addresses.LINK`: `ask` and `happens`"""


class Links(NamedTuple):
    """All transfers of a run."""

    control: Any
    """`LINKS`"""
    transfers: Any
    """(n,) `TRANSFER`, by request"""
    timers: Events
    """transfers that arrive; of FAIR those whose bytes begin to move"""
    moving: Any
    """(n,) requests whose bytes move, in the order in which they began (FAIR)"""
    free_s: Any
    """(2 · GPUs,) when each port has served all that was asked for: egresses, then ingresses (FIFO)"""
    room: Any
    """(2 · GPUs,) what is left of each port's rate while it is shared out (FAIR), …"""
    users: Any
    """(2 · GPUs,) … and how many have no rate yet"""


def made_links(requests: int, gpus: int, sharing: int, rate: float, latency_s: float) -> Links:
    """No transfer yet; `rate` in bytes a second."""
    control = records(1, LINKS)[0]
    control.time, control.sharing, control.rate, control.latency_s = np.inf, sharing, rate, latency_s
    ports = 2 * gpus
    return Links(
        control=control,
        transfers=records(requests, TRANSFER),
        timers=Events(np.zeros(requests), np.zeros(requests, np.int64)),
        moving=np.zeros(requests, np.int64),
        free_s=np.zeros(ports),
        room=np.zeros(ports),
        users=np.zeros(ports, np.int64),
    )


def nothing() -> UnderWay:
    """No links."""
    control = records(1, LINKS)[0]
    control.time = np.inf
    return UnderWay(control, records(1, addresses.LINK)[0])


@compiled
def ask(self: None, links: Links, request: int, source: int, target: int, size: float, now: float) -> None:
    """So many bytes are to come from one GPU to another."""
    control, one = links.control, links.transfers[request]
    one.source, one.target, one.bytes, one.left = source, target, size, size
    begins_s = now + control.latency_s
    if control.sharing == FAIR and begins_s == now:
        _begin(links, request, now)
    elif control.sharing == FAIR:
        push(links.timers, control, begins_s, key(ARRIVED, request))
    else:
        egress, ingress = source, (len(links.free_s) >> 1) + target
        if control.sharing == FIFO:
            begins_s = max(begins_s, links.free_s[egress], links.free_s[ingress])
        ends_s = begins_s + size / control.rate
        links.free_s[egress] = links.free_s[ingress] = ends_s
        push(links.timers, control, ends_s, key(ARRIVED, request))
    _look_ahead(links)


@compiled
def happens(self: None, links: Links, request: int, now: float) -> bool:
    """The event of a transfer is in hand: whether all of it is there, or its bytes only begin to move."""
    control = links.control
    timed = control.events > 0 and links.timers.keys[0] == control.key
    if timed:
        pop(links.timers, control)
    arrived = not (timed and control.sharing == FAIR)
    if not arrived:
        _begin(links, request, now)
    elif control.sharing == FAIR:
        _end(links, request, now)
    _look_ahead(links)
    return arrived


@compiled
def _look_ahead(links: Links) -> None:
    """Find the next event of a transfer."""
    control, timers = links.control, links.timers
    control.time, control.key = float("inf"), 0
    if control.events > 0:
        control.time, control.key = timers.times[0], timers.keys[0]
    for row in range(control.moving):
        request = links.moving[row]
        time, a_key = links.transfers[request].ends_s, key(ARRIVED, request)
        if time < control.time or (time == control.time and a_key < control.key):
            control.time, control.key = time, a_key


# ---------------------------------------------------------------- FAIR
@compiled
def _begin(links: Links, request: int, now: float) -> None:
    control = links.control
    _advance(links, now)
    links.moving[control.moving] = request
    control.moving += 1
    _share_out(links, now)


@compiled
def _end(links: Links, request: int, now: float) -> None:
    control, row = links.control, 0
    _advance(links, now)
    while links.moving[row] != request:
        row += 1
    control.moving -= 1
    for other in range(row, control.moving):
        links.moving[other] = links.moving[other + 1]
    _share_out(links, now)


@compiled
def _advance(links: Links, now: float) -> None:
    """Write down what of each transfer is left. One that ends now has nothing left, whatever was rounded."""
    since_s = now - links.control.changed_s
    for row in range(links.control.moving):
        one = links.transfers[links.moving[row]]
        one.left = 0.0 if one.ends_s <= now else max(0.0, one.left - one.rate * since_s)
    links.control.changed_s = now


@compiled
def _share_out(links: Links, now: float) -> None:
    """Max-min fair rates: again and again, the port that has least for each of its transfers that have no rate yet
    gives them that."""
    control, transfers, gpus = links.control, links.transfers, len(links.room) >> 1
    for port in range(2 * gpus):
        links.room[port], links.users[port] = control.rate, 0
    for row in range(control.moving):
        one = transfers[links.moving[row]]
        one.rate = -1.0
        links.users[one.source] += 1
        links.users[gpus + one.target] += 1
    left = control.moving
    while left > 0:
        port = _narrowest(links)
        share = links.room[port] / links.users[port]
        for row in range(control.moving):
            one = transfers[links.moving[row]]
            egress, ingress = one.source, gpus + one.target
            if one.rate < 0 and port in (egress, ingress):
                one.rate, one.ends_s = share, now + one.left / share
                for used in (egress, ingress):
                    links.room[used] -= share
                    links.users[used] -= 1
                left -= 1


@compiled
def _narrowest(links: Links) -> int:
    """The port that has least for each; of equal ones the first."""
    found, least = -1, 0.0
    for port in range(len(links.room)):
        if links.users[port] > 0:
            share = links.room[port] / links.users[port]
            if found < 0 or share < least:
                found, least = port, share
    return found
