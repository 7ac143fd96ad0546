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
        self._begin()

    def _begin(self) -> None:
        self._parser = httptools.HttpResponseParser(self)
        self._headers: Fields = []
        self._head_bytes = 0
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
        self._begun = True
        if self._in_head:
            self._head_bytes += len(data)
        try:
            self._parser.feed_data(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade) as error:
            if isinstance(error.__context__, Exception) and isinstance(error, httptools.HttpParserCallbackError):
                self._fail(NotHttp("an answer could not be taken"))
                raise error.__context__ from None
            self._fail(NotHttp(f"{self.origin} sent no HTTP answer: {str(error)[:80]}"))
            return
        if self._in_head and self._head_bytes > HEADER_BYTES:
            self._fail(NotHttp(f"{self.origin} sent a header of more than {HEADER_BYTES:,} bytes"))
        elif self._whole:
            self._finish()

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
    def on_header(self, name: bytes, value: bytes) -> None:
        name = name.lower()
        self._headers.append((name, value))
        self._framed = self._framed or name in (b"content-length", b"transfer-encoding")

    def on_headers_complete(self) -> None:
        status = self._parser.get_status_code()
        if status < 200:
            self._headers, self._head_bytes, self._framed = [], 0, False
        elif self._call is not None:
            self._in_head = False
            self._call.receiver.head(status, self._headers)

    def on_body(self, body: bytes) -> None:
        if self._call is not None:
            self._call.receiver.data(body)

    def on_message_complete(self) -> None:
        self._whole = not self._in_head
        self._may_stay = self._parser.should_keep_alive()

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
