"""One request as Envoy shows it: its header and body, where it is to go, and the answer on its way back."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from typing import Any, Protocol

from prebleexp.live.http import sse
from prebleexp.live.http.limits import FULL, Budget, Limits
from prebleexp.live.picker import messages
from prebleexp.live.router.answers import Answer
from prebleexp.live.router.deciding import Ticket
from prebleexp.live.router.passing import HELD_BYTES
from prebleexp.live.router.upstreams import Upstream

STREAMED, WHOLE = messages.Mode.FULL_DUPLEX_STREAMED, messages.Mode.BUFFERED
REQUESTS = (STREAMED, WHOLE)
"""modes of a body in which its request can still be sent anywhere, …"""
ANSWERS = (STREAMED, WHOLE, messages.Mode.STREAMED)
"""… or in which an answer can be read to its end"""
HOW = (
    "Envoy's ext_proc filter must show all of a request: processing_mode with headers SEND, request_body_mode "
    "FULL_DUPLEX_STREAMED or BUFFERED, response_body_mode FULL_DUPLEX_STREAMED, STREAMED or BUFFERED; and no "
    "observability_mode"
)


class Misconfigured(Exception):
    """Envoy does not show what a picker must see."""


class Refused(Exception):
    """The client is to be told so."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


class Owner(Protocol):
    """What a stream asks of the picker that it belongs to."""

    limits: Limits
    budget: Budget

    def session_of(self, headers: Any) -> str | None: ...
    def anybody(self, stream: Stream) -> Upstream: ...
    async def picks(self, stream: Stream, body: bytes) -> Upstream | None: ...
    def first_token(self, stream: Stream) -> None: ...
    def finished(self, stream: Stream) -> None: ...
    def lost(self, stream: Stream) -> None: ...
    def fails(self, stream: Stream) -> None: ...


class Stream:
    """See the module. `read` gives Envoy's next message, None behind the last."""

    def __init__(
        self, owner: Owner, read: Callable[[], Awaitable[Any]], write: Callable[[Any], Awaitable[None]]
    ) -> None:
        self._owner, self._read, self._write = owner, read, write
        self._ahead: asyncio.Future[Any] | None = None
        self.ticket: Ticket | None = None
        self.upstream: Upstream | None = None
        """where it is under way"""
        self.session: str | None = None
        self.subset: list[str] | None = None
        """endpoints that the gateway leaves to choose from"""
        self.answer = Answer()
        self._duplex = self._duplex_back = True
        self._status = 0
        self._taken = 0
        """bytes of the request, of the owner's budget"""
        self._held: list[bytes] = []
        self._held_bytes = 0
        self._unread = False
        """more came than is read"""

    async def run(self) -> None:
        """To its end. Raises Misconfigured."""
        try:
            if not await self._request():
                return
            while (message := await self._next()) is not None:
                for one in self._answered(message):
                    await self._write(one)
        except Refused as refused:
            await self._write(messages.refusal(refused.status, str(refused)))
        finally:
            self._owner.budget.give(self._taken)
            if self._ahead is not None:
                self._ahead.cancel()
            if self.upstream is not None:
                self._owner.lost(self)

    def ahead(self) -> asyncio.Future[Any]:
        """Envoy's next message, while something else is waited for."""
        if self._ahead is None:
            self._ahead = asyncio.ensure_future(self._read())
        return self._ahead

    async def _next(self) -> Any:
        ahead, self._ahead = self._ahead, None
        return await (self._read() if ahead is None else ahead)

    # ------------------------------------------------------------ the request
    async def _request(self) -> bool:
        """Until it is sent somewhere; False: nobody waits for it any more."""
        first = await self._next()
        if first is None:
            return False
        self._look_at_modes(first)
        headers = first.request_headers
        self.subset, self.session = messages.subset(first), self._owner.session_of(headers)
        path, method = messages.field(headers, ":path") or b"", messages.field(headers, ":method")
        if headers.end_of_stream or method != b"POST" or not path.startswith(b"/v1/"):  # no model is asked
            await self._write(messages.chosen("request_headers", self._owner.anybody(self)))
            return True
        if not self._duplex:  # the body comes behind the answer to this, and then the header can still be changed
            await self._write(messages.headers_pass("request_headers"))
        try:
            async with asyncio.timeout(self._owner.limits.request_s):
                body, trailers = await self._body()
        except TimeoutError:
            raise Refused(408, "the request was not whole in time") from None
        upstream = None if body is None else await self._owner.picks(self, body)
        if body is None or upstream is None:
            return False
        if self._duplex:
            await self._write(messages.chosen("request_headers", upstream))
            for one in messages.body_again("request_body", body, end=not trailers):
                await self._write(one)
            if trailers:
                await self._write(messages.trailers_pass("request_trailers"))
        else:
            await self._write(messages.chosen("request_body", upstream))
        return True

    def _look_at_modes(self, first: Any) -> None:
        """Envoy says them in its first message; who does not say any is taken to stream both ways."""
        if not first.HasField("request_headers") or first.observability_mode:
            raise Misconfigured(HOW)
        if first.HasField("protocol_config"):
            modes = first.protocol_config
            if modes.request_body_mode not in REQUESTS or modes.response_body_mode not in ANSWERS:
                raise Misconfigured(HOW)
            self._duplex = modes.request_body_mode == STREAMED
            self._duplex_back = modes.response_body_mode == STREAMED

    async def _body(self) -> tuple[bytes | None, bool]:
        """None: nobody waits. And whether trailers ended it."""
        pieces, size = list[bytes](), 0
        while (message := await self._next()) is not None:
            if message.HasField("request_trailers"):
                return b"".join(pieces), True
            pieces.append(message.request_body.body)
            size += len(pieces[-1])
            if size > self._owner.limits.body_bytes:
                raise Refused(413, f"the body has more than {self._owner.limits.body_bytes:,} bytes")
            if not self._owner.budget.take(len(pieces[-1])):
                raise Refused(*FULL)
            self._taken = size
            if message.request_body.end_of_stream or not self._duplex:
                return b"".join(pieces), False
        return None, False

    # ------------------------------------------------------------ its answer
    def _answered(self, message: Any) -> Iterator[Any]:
        """What Envoy is told of it."""
        kind = message.WhichOneof("request")
        if kind == "response_headers":
            self._begins(message.response_headers)
            fields = [] if self.upstream is None else [("x-prebleexp-gpu", b"%d" % self.upstream.number)]
            if message.response_headers.end_of_stream:
                self._ends()
            yield messages.headers_pass(kind, fields)
        elif kind in ("request_body", "response_body"):
            part = getattr(message, kind)
            if kind == "response_body":
                self._hears(part.body)
                if part.end_of_stream:
                    self._ends()
            if self._duplex if kind == "request_body" else self._duplex_back:
                yield from messages.body_again(kind, part.body, part.end_of_stream)
            else:
                yield messages.body_passes(kind)
        elif kind in ("request_trailers", "response_trailers"):
            if kind == "response_trailers":
                self._ends()
            yield messages.trailers_pass(kind)

    def _begins(self, headers: Any) -> None:
        status = messages.field(headers, ":status") or b""
        self._status = int(status) if status.isdigit() else 0
        self.answer.begins(messages.field(headers, "content-type") or b"")

    def _hears(self, piece: bytes) -> None:
        if self.upstream is None or self._unread:
            return
        if self.answer.streams:
            try:
                first = self.answer.feed(piece)
            except sse.TooLong:
                self._unread = True
            else:
                if first:
                    self._owner.first_token(self)
            return
        self._held.append(piece)
        self._held_bytes += len(piece)
        if self._held_bytes > HELD_BYTES:
            self._held, self._unread = [], True

    def _ends(self) -> None:
        """Of a server that is gone, Envoy tells the client with a status of 5xx: nothing was computed to the end."""
        if self.upstream is None:
            return
        if self._status >= 500:
            self._owner.fails(self)
            return
        if not self.answer.streams:
            self.answer.whole(b"".join(self._held))
        self._owner.finished(self)
