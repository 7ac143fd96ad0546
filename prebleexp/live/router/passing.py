"""One request on its way to a server, and its answer on its way back.

Nothing is sent to the client before the first token has come: until then the request can go to another server. An
answer that is no stream is held until it is whole, or too long to hold.
"""

from __future__ import annotations

from typing import Any, Protocol

import msgspec

from prebleexp.live.http import sse
from prebleexp.live.http.calls import Call, Failed, Receiver
from prebleexp.live.http.exchange import Exchange, Fields
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
DONE = b"[DONE]"


class _Piece(msgspec.Struct):
    choices: list[dict[str, Any]] = []
    usage: dict[str, Any] | None = None


_DECODER = msgspec.json.Decoder(_Piece)
CONTENT = ("text", "content", "reasoning", "reasoning_content", "tool_calls", "token_ids")
"""what a first token comes as"""


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
        *("attempts", "exchange", "ticket", "upstream", "held_since"),
        *("_call", "_events", "_head", "_held", "_held_bytes", "_output", "_owner", "_sent", "_usage"),
    )

    def __init__(self, owner: Owner, exchange: Exchange, ticket: Ticket, now: float) -> None:
        self._owner, self.exchange, self.ticket, self.held_since = owner, exchange, ticket, now
        self.attempts = 0
        self.upstream: Upstream | None = None
        self._call: Call | None = None
        self._begin()
        exchange.on_leave = self._leaves

    def _begin(self) -> None:
        self._head: tuple[int, Fields] | None = None
        self._held: list[bytes] = []
        self._held_bytes = self._output = 0
        self._events: sse.Events | None = None
        self._sent = False
        self._usage: dict[str, Any] | None = None

    def go(self, upstream: Upstream) -> None:
        """Send the request to this server now."""
        self._begin()
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
        kind = next((value for name, value in headers if name == b"content-type"), b"")
        if kind.startswith(b"text/event-stream"):
            self._events = sse.Events()

    def data(self, piece: bytes) -> None:
        if self._events is not None:
            self._read(self._events.feed(piece))
        if self._sent:
            self._write(piece)
            return
        self._held.append(piece)
        self._held_bytes += len(piece)
        if self.ticket.first_s is not None or self._held_bytes > HELD_BYTES:
            self._send_on()

    def done(self) -> None:
        self._over()
        if self._events is None:
            self._read_whole(b"".join(self._held))
        if self.exchange.closed:
            return
        if self._sent:
            self.exchange.end()
        elif self._head is not None:
            status, headers = self._head
            kind = next((value for name, value in headers if name == b"content-type"), b"application/json")
            self.exchange.respond(status, b"".join(self._held), kind, self._fields(headers))
        self._owner.finished(self, self._output, self._usage or {})

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
        self.exchange.start(status, kind, self._fields(headers))
        self.exchange.on_drain = self._resume
        self._write(b"".join(self._held))
        self._held = []

    def _write(self, piece: bytes) -> None:
        if not self.exchange.write(piece) and self._call is not None:
            self._call.pause()

    def _resume(self) -> None:
        if self._call is not None:
            self._call.resume()

    def _fields(self, headers: Fields) -> Fields:
        assert self.upstream is not None
        kept = [one for one in headers if one[0] not in OF_CONNECTIONS and one[0] != b"content-type"]
        return [*kept, (b"x-prebleexp-gpu", b"%d" % self.upstream.number)]

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

    # ------------------------------------------------------------ what it says
    def _read(self, events: list[bytes]) -> None:
        for event in events:
            if event == DONE:
                continue
            if self.ticket.first_s is not None and b'"usage"' not in event:
                self._output += 1
                continue
            try:
                piece = _DECODER.decode(event)
            except msgspec.DecodeError:
                continue
            if piece.usage:
                self._usage = piece.usage
            if piece.choices and (self.ticket.first_s is not None or _has_content(piece.choices[0])):
                self._output += 1
                if self.ticket.first_s is None:
                    self._owner.first_token(self)
        if self._usage is not None:
            self._output = max(self._output, int(self._usage.get("completion_tokens") or 0))

    def _read_whole(self, body: bytes) -> None:
        try:
            piece = _DECODER.decode(body)
        except (msgspec.DecodeError, UnicodeDecodeError):
            return
        self._usage = piece.usage
        self._output = int((piece.usage or {}).get("completion_tokens") or 0)


def _has_content(choice: dict[str, Any]) -> bool:
    """Whether there is a token in it: a role alone is none."""
    delta = choice.get("delta")
    return any(choice.get(name) for name in CONTENT) or (
        isinstance(delta, dict) and any(delta.get(name) for name in CONTENT)
    )
