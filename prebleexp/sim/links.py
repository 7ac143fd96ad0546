"""How long KV is under way from one GPU to another, where several transfers may want the same port.

Each place that KV is at, such as a GPU, has an egress and an ingress; a transfer uses one of each. It takes the
latency of its egress, which uses no bandwidth, and then its bytes over the rate that it gets (spec: clusters.md,
section 2), as its egress says:

| sharing | rate |
| --- | --- |
| INFINITE | that of the slower port, whoever else uses it |
| FIFO | the same, when all that were asked for before at its egress or at its ingress have arrived |
| FAIR | max-min fair over all ports, anew whenever a transfer's bytes begin to move or have arrived |

A port of infinite rate is in nobody's way. A transfer may be dropped before it has arrived. With FIFO the others come
when they would have come, but what was asked for last at a port gives it back.

Transfers have an agenda of their own, as sessions have: with FAIR an end is known only until somebody else begins.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from prebleexp.sim import addresses
from prebleexp.sim.compiled import compiled
from prebleexp.sim.events import ARRIVED, key, pop, push, remove
from prebleexp.sim.records import Events
from prebleexp.sim.types import records

INFINITE, FIFO, FAIR = range(3)

OFFLOAD, MIGRATION, HANDOFF = range(3)
"""whose a transfer is: of tiers and of what GPUs lend, of requests that are moved, of prompts computed elsewhere"""

LINKS = np.dtype(
    [
        ("time", np.float64),  # of the next event of a transfer, infinite if there is none, …
        ("key", np.int64),  # … and the event
        ("events", np.int64),  # in Links.timers
        ("moving", np.int64),  # rows of Links.moving in use
        ("changed_s", np.float64),  # when rates last changed
    ],
    align=True,
)

PORT = np.dtype(
    [
        ("sharing", np.int64),
        ("latency_s", np.float64),
        ("rate", np.float64),  # bytes a second
        ("free_s", np.float64),  # when it has served all that was asked for (FIFO)
        ("room", np.float64),  # what is left of its rate while that is shared out (FAIR), …
        ("users", np.int64),  # … and how many have no rate yet: none, but while that is done
    ],
    align=True,
)

TRANSFER = np.dtype(
    [
        ("egress", np.int64),
        ("ingress", np.int64),
        ("bytes", np.float64),
        ("left", np.float64),  # of them, when rates last changed
        ("rate", np.float64),  # bytes a second from then on; negative: not decided yet
        ("begins_s", np.float64),  # when its bytes begin to move (but with FAIR)
        ("ends_s", np.float64),
    ],
    align=True,
)
"""`left` and `rate` are FAIR's."""


class UnderWay(NamedTuple):
    """What a run knows of its transfers. All else is plugged in: most runs have none, and need not compile it."""

    control: Any
    """`LINKS`"""
    calls: Any
    """`prebleexp.sim.addresses.LINK`: `ask` and `happens`"""
    first: Any
    """(3,) by owner, the first subject that is its: they have theirs in this order"""
    places: Any
    """(3,) likewise of places"""


class Links(NamedTuple):
    """All transfers of a run, and the ports that they take."""

    control: Any
    """`LINKS`"""
    transfers: Any
    """(n,) `TRANSFER`, by subject: a request, or what else is said to be under way"""
    timers: Events
    """transfers that arrive; of FAIR those whose bytes begin to move"""
    moving: Any
    """(n,) transfers whose bytes move, in the order in which they began (FAIR)"""
    ports: Any
    """(2 · places,) `PORT`: egresses, then ingresses"""
    used: Any
    """(2 · places,) those that are shared out in hand (FAIR)"""
    sendings: Any
    """(n,) `prebleexp.sim.sending.SENDING`, where bytes get ready part by part"""


def made_links(transfers: int, places: int, sharing: int, rate: float, latency_s: float) -> Links:
    """No transfer yet, of so many at once, between so many places that are alike; `rate` in bytes a second."""
    control, ports = records(1, LINKS)[0], records(2 * places, PORT)
    control.time = np.inf
    ports.sharing, ports.rate, ports.latency_s = sharing, rate, latency_s
    return Links(
        control=control,
        transfers=records(transfers, TRANSFER),
        timers=Events(np.zeros(transfers), np.zeros(transfers, np.int64)),
        moving=np.zeros(transfers, np.int64),
        ports=ports,
        used=np.zeros(2 * places, np.int64),
        sendings=None,
    )


def joined(owners: Mapping[int, Links]) -> tuple[Links, Any, Any]:
    """The links of several owners as one, and where each of them begins: its first transfer, and its first place."""
    parts = [owners.get(owner) or made_links(0, 0, FIFO, np.inf, 0.0) for owner in (OFFLOAD, MIGRATION, HANDOFF)]
    sizes = [(len(one.transfers), len(one.ports) // 2) for one in parts]
    transfers, places = np.cumsum([(0, 0), *sizes], axis=0).T
    made = made_links(int(transfers[-1]), int(places[-1]), FIFO, np.inf, 0.0)
    for one, first, (_, size) in zip(parts, places, sizes, strict=False):
        for side in range(2):
            made.ports[side * places[-1] + first :][:size] = one.ports[side * size :][:size]
    sendings = [one.sendings for one in parts if one.sendings is not None]
    return made._replace(sendings=sendings[0] if sendings else None), transfers[:-1].copy(), places[:-1].copy()


def nothing() -> UnderWay:
    """Links of a run in which nothing is sent."""
    control = records(1, LINKS)[0]
    control.time = np.inf
    return UnderWay(control, records(1, addresses.LINK)[0], np.zeros(3, np.int64), np.zeros(3, np.int64))


@compiled
def ask(self: None, links: Links, subject: int, source: int, target: int, size: float, now: float) -> None:
    """So many bytes are to come from one place to another."""
    control, one, ports = links.control, links.transfers[subject], links.ports
    one.egress, one.ingress, one.bytes, one.left = source, (len(ports) >> 1) + target, size, size
    egress, ingress = ports[one.egress], ports[one.ingress]
    begins_s = now + egress.latency_s
    if egress.sharing == FAIR and begins_s == now:
        begin(links, subject, now)
    elif egress.sharing == FAIR:
        push(links.timers, control, begins_s, key(ARRIVED, subject))
    else:
        if egress.sharing == FIFO:
            begins_s = max(begins_s, egress.free_s, ingress.free_s)
        one.begins_s, one.ends_s = begins_s, begins_s + size / min(egress.rate, ingress.rate)
        for port in (egress, ingress):
            port.free_s = one.ends_s if port.rate < float("inf") else 0.0
        push(links.timers, control, one.ends_s, key(ARRIVED, subject))
    look_ahead(links)


@compiled
def takes(self: None, links: Links, source: int, target: int, size: float, now: float) -> float:
    """Seconds that it would take, if nobody else used a port that is shared fairly."""
    egress, ingress = links.ports[source], links.ports[(len(links.ports) >> 1) + target]
    begins_s = now + egress.latency_s
    if egress.sharing == FIFO:
        begins_s = max(begins_s, egress.free_s, ingress.free_s)
    return begins_s - now + size / min(egress.rate, ingress.rate)


@compiled
def happens(self: None, links: Links, subject: int, now: float) -> bool:
    """The event of a transfer is in hand: whether all of it is there, or its bytes only begin to move."""
    control, fair = links.control, links.ports[links.transfers[subject].egress].sharing == FAIR
    timed = control.events > 0 and links.timers.keys[0] == control.key
    if timed:
        pop(links.timers, control)
    arrived = not (timed and fair)
    if not arrived:
        begin(links, subject, now)
    elif fair:
        end(links, subject, now)
    look_ahead(links)
    return arrived


@compiled
def drop(self: None, links: Links, subject: int, now: float) -> None:
    """What is under way ends here, and never arrives."""
    control, one = links.control, links.transfers[subject]
    if _row_of(links, subject) < control.moving:
        end(links, subject, now)
    else:
        remove(links.timers, control, key(ARRIVED, subject))
        for port in (links.ports[one.egress], links.ports[one.ingress]):
            if port.sharing != FAIR and port.free_s == one.ends_s:
                port.free_s = one.begins_s
    look_ahead(links)


@compiled
def look_ahead(links: Links) -> None:
    """Find the next event of a transfer."""
    control, timers = links.control, links.timers
    control.time, control.key = float("inf"), 0
    if control.events > 0:
        control.time, control.key = timers.times[0], timers.keys[0]
    for row in range(control.moving):
        subject = links.moving[row]
        time, a_key = links.transfers[subject].ends_s, key(ARRIVED, subject)
        if time < control.time or (time == control.time and a_key < control.key):
            control.time, control.key = time, a_key


# ---------------------------------------------------------------- FAIR
@compiled
def begin(links: Links, subject: int, now: float) -> None:
    control = links.control
    advance(links, now)
    links.moving[control.moving] = subject
    control.moving += 1
    share_out(links, now)


@compiled
def end(links: Links, subject: int, now: float) -> None:
    control, row = links.control, _row_of(links, subject)
    advance(links, now)
    control.moving -= 1
    for other in range(row, control.moving):
        links.moving[other] = links.moving[other + 1]
    share_out(links, now)


@compiled
def _row_of(links: Links, subject: int) -> int:
    """Where it is among those whose bytes move; behind all, if they do not."""
    row = 0
    while row < links.control.moving and links.moving[row] != subject:
        row += 1
    return row


@compiled
def advance(links: Links, now: float) -> None:
    """Write down what of each transfer is left. One that ends now has nothing left, whatever was rounded."""
    since_s = now - links.control.changed_s
    for row in range(links.control.moving):
        one = links.transfers[links.moving[row]]
        one.left = 0.0 if one.ends_s <= now else max(0.0, one.left - one.rate * since_s)
    links.control.changed_s = now


@compiled
def share_out(links: Links, now: float) -> None:
    """Max-min fair rates: again and again, the port that has least for each of its transfers that have no rate yet
    gives them that."""
    control, transfers, ports, used = links.control, links.transfers, links.ports, 0
    for row in range(control.moving):
        one = transfers[links.moving[row]]
        one.rate = -1.0
        for port in (one.egress, one.ingress):
            if ports[port].users == 0:
                links.used[used], ports[port].room = port, ports[port].rate
                used += 1
            ports[port].users += 1
    left = control.moving
    while left > 0:
        port = _narrowest(links, used)
        share = ports[port].room / ports[port].users
        for row in range(control.moving):
            one = transfers[links.moving[row]]
            if one.rate < 0 and port in (one.egress, one.ingress):
                one.rate, one.ends_s = share, now + one.left / share
                for its in (one.egress, one.ingress):
                    ports[its].room -= share
                    ports[its].users -= 1
                left -= 1


@compiled
def _narrowest(links: Links, used: int) -> int:
    """Of so many ports in use, the one that has least for each; of equal ones the first."""
    found, least = -1, 0.0
    for row in range(used):
        port = links.used[row]
        if links.ports[port].users > 0:
            share = links.ports[port].room / links.ports[port].users
            if found < 0 or share < least or (share == least and port < found):
                found, least = port, share
    return found
