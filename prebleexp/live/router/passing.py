"""One request on its way to a server, and its answer on its way back.

Nothing is sent to the client before the first token has come: until then the request can go to another server. An
answer that is no stream is held until it is whole, or too long to hold.
"""

from __future__ import annotations

from typing import Any, Protocol

from prebleexp.live.http.calls import Call, Failed, Receiver
from prebleexp.live.http.exchange import Exchange, Fields
from prebleexp.live.router.answers import Answer
from prebleexp.live.router.deciding import Ticket
from prebleexp.live.router.upstreams import Upstream

HELD_BYTES = 4 << 20
"""of an answer, before it is sent on whatever it is"""
OF_CONNECTIONS = frozenset(
    (
        *(b"connection", b"keep-alive", b"proxy-authenticate", b"proxy-authorization", b"proxy-connection", b"te"),
        *(b"trailer", b"transfer-encoding", b"upgrade", b"content-length"),
    )
)
"""fields that end with a connection"""
NOT_ASKED = OF_CONNECTIONS | {b"host", b"expect", b"accept-encoding"}
"""fields of a request that are not passed on; an answer that is compressed could not be read"""

NOT_ANSWERED = OF_CONNECTIONS | {b"content-type"}
"""fields of an answer that are not passed on as they are"""


def passed_on(fields: Fields, but: frozenset[bytes]) -> Fields:
    """Those that do not end here: neither these, nor what `connection` names."""
    kept = [one for one in fields if one[0] not in but]
    named = [value for name, value in fields if name == b"connection"]
    if named:
        gone = {one.strip().lower() for one in b",".join(named).split(b",")}
        kept = [one for one in kept if one[0] not in gone]
    return kept


class Owner(Protocol):
    """What a passage asks of the proxy that it belongs to."""

    def sends(self, passage: Passage) -> Call: ...
    def first_token(self, passage: Passage) -> None: ...
    def finished(self, passage: Passage, output: int, usage: dict[str, Any]) -> None: ...
    def fails(self, passage: Passage, error: Failed) -> None: ...
    def leaves(self, passage: Passage) -> None: ...


class Passage(Receiver):
    """One request on its way to a server and back; see the module."""

    __slots__ = (
        *("attempts", "exchange", "ticket", "upstream", "held_since", "place"),
        *("_answer", "_call", "_head", "_held", "_held_bytes", "_owner", "_sent"),
    )

    def __init__(self, owner: Owner, exchange: Exchange, ticket: Ticket, now: float) -> None:
        self._owner, self.exchange, self.ticket, self.held_since = owner, exchange, ticket, now
        self.attempts = 0
        self.place: tuple[int, int] | None = None
        """in the queue; None: it has none"""
        self.upstream: Upstream | None = None
        self._call: Call | None = None
        self._begin()
        exchange.on_leave = self._leaves

    def _begin(self) -> None:
        self._head: tuple[int, Fields] | None = None
        self._held: list[bytes] = []
        self._held_bytes = 0
        self._answer = Answer()
        self._sent = False

    def go(self, upstream: Upstream) -> None:
        """Send the request to this server now."""
        self._begin()
        self.place = None
        self.attempts += 1
        self.upstream = upstream
        upstream.flying.add(self)
        upstream.sent += 1
        self._call = self._owner.sends(self)

    def cut(self, error: Failed) -> None:
        """The server does not answer any more."""
        if self._call is not None:
            self._call.cancel()
            self.failed(error)

    # ------------------------------------------------------------ the server's answer
    def head(self, status: int, headers: Fields) -> None:
        self._head = status, headers
        self._answer.begins(next((value for name, value in headers if name == b"content-type"), b""))

    def data(self, piece: bytes) -> None:
        if self._answer.feed(piece):
            self._owner.first_token(self)
        if self._sent and self._call is not None and not self._call.whole:
            self._sends_more(self.exchange.write(piece))
            return
        self._held.append(piece)
        if self._sent:
            return  # it is written together with the end
        self._held_bytes += len(piece)
        if self.ticket.first_s is not None or self._held_bytes > HELD_BYTES:
            self._send_on()

    def done(self) -> None:
        self._over()
        if not self._answer.streams and not self._sent:
            self._answer.whole(b"".join(self._held))
        if self.exchange.closed:
            return
        if self._sent:
            self.exchange.end(b"".join(self._held))
        elif self._head is not None:
            status, headers = self._head
            kind = next((value for name, value in headers if name == b"content-type"), b"application/json")
            self.exchange.respond(status, b"".join(self._held), kind, self._fields(headers))
        self._owner.finished(self, self._answer.output, self._answer.usage)

    def failed(self, error: Failed) -> None:
        if self._call is not None:
            self._over()
            self._owner.fails(self, error)

    @property
    def can_go_again(self) -> bool:
        """Whether the client has seen nothing yet."""
        return not self._sent and not self.exchange.closed

    # ------------------------------------------------------------ to the client
    def _send_on(self) -> None:
        assert self._head is not None
        status, headers = self._head
        kind = next((value for name, value in headers if name == b"content-type"), b"application/json")
        self._sent = True
        self.exchange.on_drain = self._resume
        self._sends_more(self.exchange.start(status, kind, self._fields(headers), b"".join(self._held)))
        self._held = []

    def _sends_more(self, reads: bool) -> None:
        """Unless the client reads no more."""
        if not reads and self._call is not None:
            self._call.pause()

    def _resume(self) -> None:
        if self._call is not None:
            self._call.resume()

    def _fields(self, headers: Fields) -> Fields:
        assert self.upstream is not None
        return [*passed_on(headers, NOT_ANSWERED), (b"x-prebleexp-gpu", b"%d" % self.upstream.number)]

    def _leaves(self) -> None:
        call = self._call
        if call is not None:
            self._over()
            call.cancel()
        self._owner.leaves(self)

    def _over(self) -> None:
        """This attempt has ended, whatever came of it."""
        self._call = None
        if self.upstream is not None:
            self.upstream.flying.discard(self)
