"""A stream on its way through a router: what is written to the client, and when."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from prebleexp.live.http.calls import Call, Failed
from prebleexp.live.http.connection import Connection
from prebleexp.live.http.exchange import Exchange
from prebleexp.live.http.places import origin
from prebleexp.live.router.passing import Passage
from prebleexp.live.router.upstreams import Upstream
from tests.support.http import run


class Client:
    """A connection that keeps what is written to it."""

    def __init__(self) -> None:
        self.written: list[bytes] = []

    def write(self, data: bytes) -> bool:
        self.written.append(data)
        return True

    def abort(self) -> None: ...
    def finished(self, keep_alive: bool) -> None: ...


class Owner:
    """Of one passage."""

    def __init__(self, connection: Connection) -> None:
        self._connection, self.output = connection, -1

    def sends(self, passage: Passage) -> Call:
        call = Call(b"", passage)
        self._connection.send(call)
        return call

    def first_token(self, passage: Passage) -> None:
        passage.ticket.first_s = 1.0

    def finished(self, passage: Passage, output: int, usage: dict[str, Any]) -> None:
        self.output = output

    def fails(self, passage: Passage, error: Failed) -> None:
        raise AssertionError(error)

    def leaves(self, passage: Passage) -> None: ...


class Server:
    """A connection's transport and pool: nobody is there."""

    def __getattr__(self, name: str) -> Any:
        return lambda *_: False


def chunk(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)


HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
TOKEN, LAST, END = b'data: {"choices": [{"text": "a"}]}\n\n', b"data: [DONE]\n\n", b"0\r\n\r\n"


@pytest.mark.parametrize(
    ("come", "written"),
    [
        ([HEAD + chunk(TOKEN), chunk(TOKEN), chunk(LAST) + END], [chunk(TOKEN), chunk(TOKEN), chunk(LAST) + END]),
        ([HEAD + chunk(TOKEN), chunk(TOKEN) + chunk(LAST) + END], [chunk(TOKEN), chunk(TOKEN + LAST) + END]),
        ([HEAD, chunk(TOKEN), chunk(TOKEN) + chunk(LAST), END], [chunk(TOKEN), chunk(TOKEN + LAST), END]),
        ([HEAD + chunk(TOKEN) * 2 + END], [chunk(TOKEN * 2), END]),
    ],
    ids=["a last piece", "several", "an end alone", "all at once"],
)
def test_what_comes_together_is_written_together(come: list[bytes], written: list[bytes]) -> None:
    """The head with the first piece, and the end with the last."""
    client = Client()

    async def main() -> None:
        connection = Connection(Server(), origin("u", "http://x"))
        connection.connection_made(Server())  # type: ignore[arg-type]
        exchange = Exchange(client, b"POST", b"/v1/completions", [], b"{}", True, False)
        owner = Owner(connection)
        ticket: Any = SimpleNamespace(first_s=None)
        Passage(owner, exchange, ticket, 0.0).go(Upstream(0, None))
        for data in come:
            connection.data_received(data)
        assert owner.output == 2

    run(main())
    head, _, first = client.written[0].partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 200")
    assert [first, *client.written[1:]] == written
