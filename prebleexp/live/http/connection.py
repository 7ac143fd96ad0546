"""A connection to a server, for one call at a time."""

from __future__ import annotations

import asyncio
from typing import Protocol, cast

import httptools

from prebleexp.live.http.calls import IGNORED, Broken, Call, Failed, NotHttp
from prebleexp.live.http.exchange import Fields
from prebleexp.live.http.places import Origin

HEADER_BYTES = 256 << 10
"""of an answer, at most"""


class Owner(Protocol):
    """The pool that it belongs to."""

    def opened(self, connection: Connection) -> None: ...
    def release(self, connection: Connection) -> None: ...
    def closed(self, connection: Connection) -> None: ...


class Connection(asyncio.Protocol):
    """To one server, for one call at a time. The parser calls the methods that begin with `on_`."""

    def __init__(self, client: Owner, origin: Origin) -> None:
        self._client, self.origin = client, origin
        self.idle_since = 0.0
        self._transport: asyncio.Transport | None = None
        self._call: Call | None = None
        self._used = False
        self._pieces: list[bytes] = []
        self.on_body = self._pieces.append
        self._parser = httptools.HttpResponseParser(self)
        self._begin()

    def _begin(self) -> None:
        self._headers: Fields = []
        self._head_bytes = 0
        self._status = 0
        """until it is told, else 0"""
        self._in_head, self._begun, self._whole, self._framed, self._may_stay = True, False, False, False, False

    def send(self, call: Call) -> None:
        assert self._transport is not None
        self._call, call.wire = call, self
        call.receiver.sent()
        self._transport.write(call.request)
        call.request = b""
        if call.paused:
            self._transport.pause_reading()

    def read(self, on: bool) -> None:
        if self._transport is None or self._transport.is_closing():
            return
        if on and not self._transport.is_reading():
            self._transport.resume_reading()
        elif not on and self._transport.is_reading():
            self._transport.pause_reading()

    def abort(self) -> None:
        if self._transport is not None:
            self._transport.abort()

    # ------------------------------------------------------------ the transport's
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's is none by class
        self._client.opened(self)

    def data_received(self, data: bytes) -> None:
        if self._call is None:
            self.abort()  # an answer to nothing
            return
        self._begun, wrong = True, None
        if self._in_head:
            self._head_bytes += len(data)
        try:
            self._parser.feed_data(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade) as error:
            wrong = f"sent no HTTP answer: {str(error)[:80]}"
        if self._in_head and self._head_bytes > HEADER_BYTES:
            wrong = f"sent a header of more than {HEADER_BYTES:,} bytes"
        try:
            if self._status:
                status, self._status = self._status, 0
                self._call.receiver.head(status, self._headers)
            if self._pieces:  # what came at once is one piece, however many chunks it was
                piece = self._pieces[0] if len(self._pieces) == 1 else b"".join(self._pieces)
                self._pieces.clear()
                self._call.whole = self._whole
                self._call.receiver.data(piece)
        except Exception:
            self._fail(NotHttp("an answer could not be taken"))
            raise
        if self._whole:
            self._finish()
        elif wrong is not None:
            self._fail(NotHttp(f"{self.origin} {wrong}"))

    def connection_lost(self, error: Exception | None) -> None:
        self._client.closed(self)
        self._transport = None
        if self._call is None:
            return
        if error is None and self._begun and not self._in_head and not self._framed:
            self._finish()  # a body that ends with its connection
        else:
            broken = Broken(f"{self.origin} closed the connection before its answer was whole")
            broken.kept = self._used
            self._fail(broken)

    # ------------------------------------------------------------ the parser's
    def on_message_begin(self) -> None:
        if self._whole:
            self._may_stay = False
            raise NotHttp("nobody asked for a second answer")

    def on_header(self, name: bytes, value: bytes) -> None:
        if self._in_head:  # and not in a trailer
            name = name.lower()
            self._headers.append((name, value))
            self._framed = self._framed or name in (b"content-length", b"transfer-encoding")

    def on_headers_complete(self) -> None:
        status = self._parser.get_status_code()
        if status < 200:
            self._headers, self._head_bytes, self._framed = [], 0, False
        else:
            self._in_head, self._status = False, status

    def on_message_complete(self) -> None:
        if not self._in_head:  # it was no interim one
            self._whole, self._may_stay = True, self._parser.should_keep_alive()

    # ------------------------------------------------------------ the end of a call
    def _finish(self) -> None:
        call, self._call = self._call, None
        assert call is not None
        call.wire = None
        transport = self._transport
        if transport is not None and not transport.is_closing():
            if call.receiver is not IGNORED and self._may_stay:
                self.read(True)
                self._used = True
                self._begin()
                self._client.release(self)
            else:
                transport.close()
        call.receiver.done()

    def _fail(self, error: Failed) -> None:
        call, self._call = self._call, None
        self.abort()
        if call is not None:
            call.wire = None
            error.begun = self._begun
            call.receiver.failed(error)
