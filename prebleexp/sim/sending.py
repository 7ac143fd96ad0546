"""KV that is sent while it is computed, part by part (spec: clusters.md, section 2): of one transfer, bytes get ready
one after the other, and the latency comes behind the last.

Parts that are ready wait for nothing but the link. A transfer whose bytes move, and of which more get ready, goes on
with these; with FIFO each part takes its turn at the ports when it is ready. A part that gets ready is an event of its
own: ARRIVED, as that of a transfer behind all others.
"""

from __future__ import annotations

import numpy as np

from prebleexp.sim.compiled import compiled
from prebleexp.sim.events import ARRIVED, key, pop, push, remove
from prebleexp.sim.links import FAIR, FIFO, Links, advance, begin, end, look_ahead, share_out
from prebleexp.sim.types import records

SENDING = np.dtype(
    [
        ("since_s", np.float64),  # parts get ready from then on, …
        ("seconds", np.float64),  # … in so long all of them, …
        ("parts", np.int64),  # … so many, …
        ("ready", np.int64),  # … of which so many are …
        ("bytes", np.float64),  # … of each
        ("moves", np.int64),  # whether bytes move (FAIR)
        ("last", np.int64),  # whether these parts are the last
    ],
    align=True,
)


def with_parts(links: Links) -> Links:
    """The same, of transfers whose bytes get ready part by part."""
    return links._replace(sendings=records(len(links.transfers), SENDING))


@compiled
def open_for(self: None, links: Links, subject: int, source: int, target: int, now: float) -> None:
    """Bytes will come from one place to another."""
    one = links.transfers[subject]
    one.egress, one.ingress, one.begins_s, one.ends_s = source, (len(links.ports) >> 1) + target, now, now
    links.sendings[subject].moves = 0


@compiled
def more(
    self: None, links: Links, subject: int, size: float, parts: int, seconds: float, last: int, now: float
) -> None:
    """So many bytes more get ready within so many seconds, in equal parts; whether they are the last."""
    one = links.sendings[subject]
    one.since_s, one.seconds, one.parts, one.ready, one.bytes, one.last = now, seconds, parts, 0, size / parts, last
    if seconds > 0:
        _await_part(links, subject)
    else:
        one.ready = parts
        _take(links, subject, size, now)
    look_ahead(links)


@compiled
def happens(self: None, links: Links, subject: int, now: float) -> bool:
    """A part is ready, or bytes have moved, or all of them are there: whether that."""
    control, timers, n = links.control, links.timers, len(links.transfers)
    timed = control.events > 0 and timers.times[0] == control.time and timers.keys[0] == control.key
    if timed:
        pop(timers, control)
    arrived = False
    if subject >= n:
        one = links.sendings[subject - n]
        one.ready += 1
        if one.ready < one.parts:
            _await_part(links, subject - n)
        _take(links, subject - n, float(one.bytes), now)
    elif timed:
        arrived = True
    else:
        end(links, subject, now)
        links.sendings[subject].moves = 0
        arrived = _is_over(links, subject, now)
    look_ahead(links)
    return arrived


@compiled
def drop(self: None, links: Links, subject: int, now: float) -> None:
    """No more is sent. What was asked for last at a port, without a pause, gives that back."""
    control, transfer, one = links.control, links.transfers[subject], links.sendings[subject]
    if one.moves != 0:
        end(links, subject, now)
        one.moves = 0
    for its in (subject, len(links.transfers) + subject):
        remove(links.timers, control, key(ARRIVED, its))
    for port in (links.ports[transfer.egress], links.ports[transfer.ingress]):
        if port.sharing != FAIR and port.free_s == transfer.ends_s:
            port.free_s = transfer.begins_s
    look_ahead(links)


@compiled
def _await_part(links: Links, subject: int) -> None:
    """The next part is ready then; the last one of them at the end of the step, to the last bit."""
    one = links.sendings[subject]
    share = (one.ready + 1) / one.parts
    push(links.timers, links.control, one.since_s + one.seconds * share, key(ARRIVED, len(links.transfers) + subject))


@compiled
def _take(links: Links, subject: int, size: float, now: float) -> None:
    """Take in bytes of a transfer that are ready to be sent."""
    transfer, one = links.transfers[subject], links.sendings[subject]
    egress, ingress = links.ports[transfer.egress], links.ports[transfer.ingress]
    if egress.sharing == FAIR:
        if one.moves == 0:
            transfer.left, one.moves = size, 1
            begin(links, subject, now)
        else:
            advance(links, now)
            transfer.left += size
            share_out(links, now)
        return
    begins_s = max(now, float(transfer.ends_s))
    if egress.sharing == FIFO:
        begins_s = max(begins_s, egress.free_s, ingress.free_s)
    if begins_s > transfer.ends_s:  # else it goes on with this one
        transfer.begins_s = begins_s
    transfer.ends_s = begins_s + size / min(egress.rate, ingress.rate)
    for port in (egress, ingress):
        port.free_s = transfer.ends_s if port.rate < float("inf") else 0.0
    if one.last != 0 and one.ready == one.parts:
        push(links.timers, links.control, transfer.ends_s + egress.latency_s, key(ARRIVED, subject))


@compiled
def _is_over(links: Links, subject: int, now: float) -> bool:
    """All that was ready has moved (FAIR): whether it was all, and has arrived."""
    one, egress = links.sendings[subject], links.ports[links.transfers[subject].egress]
    if one.last == 0 or one.ready < one.parts:
        return False
    if egress.latency_s == 0:
        return True
    push(links.timers, links.control, now + egress.latency_s, key(ARRIVED, subject))
    return False
