"""The client of `prebleexp.live.http` before servers that are well, dead, dying or no servers; events of a stream."""

from __future__ import annotations

import asyncio
import itertools
import socket
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from prebleexp.errors import InvalidInput
from prebleexp.live.http import sse
from prebleexp.live.http.calls import Broken, Failed, NotConnected, NotHttp, Receiver, TimedOut
from prebleexp.live.http.client import Client, Settings
from prebleexp.live.http.exchange import Fields
from prebleexp.live.http.limits import Limits
from prebleexp.live.http.places import Origin, origin
from prebleexp.live.http.server import listen
from tests.support.http import Site, run, serving


class Heard(Receiver):
    """Writes down what it is told."""

    def __init__(self) -> None:
        self.told: list[Any] = []
        self.body, self.pieces = bytearray(), 0
        self.headers: Fields = []
        self.over = asyncio.Event()
        self.at_data: Callable[[], None] = lambda: None

    def sent(self) -> None:
        self.told.append("sent")

    def head(self, status: int, headers: Fields) -> None:
        self.told.append(status)
        self.headers = headers

    def data(self, piece: bytes) -> None:
        self.body += piece
        self.pieces += 1
        if self.told[-1] != "data":
            self.told.append("data")
        self.at_data()

    def done(self) -> None:
        self.told.append("done")
        self.over.set()

    def failed(self, error: Failed) -> None:
        self.told.append(error)
        self.over.set()


def at(port: int) -> Origin:
    return origin("url", f"http://127.0.0.1:{port}")


def answered(*pieces: bytes, stay: bool = False) -> Any:
    """A server that sends these bytes to whoever writes to it."""

    class Fixed(asyncio.Protocol):
        def connection_made(self, transport: Any) -> None:
            self.transport = transport

        def data_received(self, data: bytes) -> None:
            for piece in pieces:
                self.transport.write(piece)
            if not stay:
                self.transport.close()

    return Fixed


async def heard_of(*pieces: bytes, stay: bool = False) -> Heard:
    loop = asyncio.get_running_loop()
    server = await loop.create_server(answered(*pieces, stay=stay), "127.0.0.1", 0)
    client, heard = Client(), Heard()
    client.call(at(server.sockets[0].getsockname()[1]), b"POST", b"/x", [], b"{}", heard)
    await heard.over.wait()
    client.close()
    server.close()
    return heard


OK = b"HTTP/1.1 200 OK\r\n"
CHUNKED = OK + b"transfer-encoding: chunked\r\n\r\n"
WHOLE = {
    "length": ((OK + b"content-length: 3\r\n\r\nabc",), b"abc"),
    "length, a byte at a time": (tuple(bytes([one]) for one in OK + b"content-length: 3\r\n\r\nabc"), b"abc"),
    "chunks": ((CHUNKED + b"2\r\nab\r\n1\r\nc\r\n0\r\n\r\n",), b"abc"),
    "chunks with the end of chunks inside": ((CHUNKED + b"7\r\n\r\n0\r\n\r\n\r\n0\r\n\r\n",), b"\r\n0\r\n\r\n"),
    "chunks with trailers": ((CHUNKED + b"1\r\na\r\n0\r\nt: x\r\n\r\n",), b"a"),
    "until the end": ((OK + b"\r\nabc", b"def"), b"abcdef"),
    "nothing": ((b"HTTP/1.1 204 No Content\r\n\r\n",), b""),
    "a second answer that nobody asked for": (
        (OK + b"content-length: 3\r\n\r\nabc" + CHUNKED + b"1\r\nx\r\n",),
        b"abc",
    ),
    "more than its length, and no more requests": (
        (OK + b"connection: close\r\ncontent-length: 3\r\n\r\nabcdef",),
        b"abc",
    ),
    "interim answers first": (
        (
            b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nlink: x\r\n\r\n"
            + OK
            + b"content-length: 1\r\n\r\nx",
        ),
        b"x",
    ),
}


@pytest.mark.parametrize("kind", WHOLE)
def test_a_whole_answer_is_told(kind: str) -> None:
    pieces, body = WHOLE[kind]
    heard = run(heard_of(*pieces))
    assert heard.body == body
    assert heard.told[0] == "sent"
    assert heard.told[1] in (200, 204)
    assert heard.told[-1] == "done"
    assert len(heard.told) == 3 + bool(body)


BAD: dict[str, tuple[tuple[bytes, ...], bool, type[Failed], bool]] = {
    "closed at once": ((), False, Broken, False),
    "half a head": ((OK + b"content-le",), False, Broken, True),
    "half a body": ((OK + b"content-length: 9\r\n\r\nabc",), False, Broken, True),
    "half a chunk": ((CHUNKED + b"9\r\nabc",), False, Broken, True),
    "no last chunk": ((CHUNKED + b"3\r\nabc\r\n",), False, Broken, True),
    "noise": ((b"\xff\xfe\xfd" * 100,), True, NotHttp, True),
    "noise behind the head": ((CHUNKED + b"zz\r\n",), True, NotHttp, True),
    "header bomb": ((OK + b"x: " + b"y" * (1 << 20),), True, NotHttp, True),
    "interim answers for ever": ((b"HTTP/1.1 100 Continue\r\n\r\n" * 100,), False, Broken, True),
}


@pytest.mark.parametrize("kind", BAD)
def test_a_bad_answer_fails_once(kind: str) -> None:
    pieces, stay, error, begun = BAD[kind]
    heard = run(heard_of(*pieces, stay=stay))
    assert isinstance(heard.told[-1], error)
    assert heard.told[-1].begun == begun
    assert [one for one in heard.told if isinstance(one, Failed)] == heard.told[-1:]


def test_nobody_there_is_told_apart() -> None:
    async def main() -> Heard:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        client, heard = Client(), Heard()
        client.call(at(port), b"GET", b"/", [], b"", heard)
        await heard.over.wait()
        with pytest.raises(NotConnected, match=r"no connection to http://127\.0\.0\.1"):
            await client.warm(at(port), 2)
        client.close()
        return heard

    heard = run(main())
    assert len(heard.told) == 1
    assert isinstance(heard.told[0], NotConnected)


def test_connections_are_kept_and_opened_ahead() -> None:
    async def main() -> tuple[int, int, int]:
        async with serving(Site()) as server:
            client = Client()
            await client.warm(at(server.port), 3)
            while len(server.connections) < 3:
                await asyncio.sleep(0.005)
            warm = len(server.connections)
            for _ in range(5):
                assert (await client.fetch(at(server.port), "/echo", "POST", b"x")).body == b"x"
            one_by_one = len(server.connections)
            await asyncio.gather(*(client.fetch(at(server.port), "/echo", "POST", b"x") for _ in range(8)))
            client.close()
            return warm, one_by_one, len(server.connections)

    assert run(main()) == (3, 3, 8)


@pytest.mark.parametrize("more", [b"H", OK + b"content-length: 1\r\n\r\nx", b"noise"])
def test_a_connection_that_says_more_than_was_asked_is_not_used_again(more: bytes) -> None:
    """Else the next request would get an answer to nothing."""

    async def main() -> int:
        opened = 0

        def made() -> Any:
            nonlocal opened
            opened += 1
            return answered(OK + b"content-length: 3\r\n\r\nabc" + more, stay=True)()

        server = await asyncio.get_running_loop().create_server(made, "127.0.0.1", 0)
        client, here = Client(), at(server.sockets[0].getsockname()[1])
        for _ in range(2):
            assert (await client.fetch(here, "/")).body == b"abc"
        client.close()
        server.close()
        return opened

    assert run(main()) == 2


def test_what_comes_at_once_is_one_piece_and_a_trailer_is_no_header() -> None:
    heard = run(heard_of(CHUNKED + b"2\r\nab\r\n1\r\nc\r\n0\r\nx-prebleexp-gpu: 3\r\n\r\n"))
    assert (heard.body, heard.pieces) == (b"abc", 1)
    assert heard.headers == [(b"transfer-encoding", b"chunked")]


def test_an_idle_connection_is_not_used_for_long() -> None:
    async def main() -> None:
        async with serving(Site()) as server:
            client = Client(Settings(idle_s=0.05))
            await client.fetch(at(server.port), "/echo")
            first = set(server.connections)
            await asyncio.sleep(0.2)
            await client.fetch(at(server.port), "/echo")
            assert not first & server.connections
            client.close()

    run(main())


def test_a_kept_connection_that_its_server_closed_is_told_apart() -> None:
    """It may be sent again: the server has never seen it."""

    class Once(asyncio.Protocol):
        def connection_made(self, transport: Any) -> None:
            self.transport, self.seen = transport, 0

        def data_received(self, data: bytes) -> None:
            self.seen += 1
            if self.seen == 1:
                self.transport.write(OK + b"content-length: 0\r\n\r\n")
            else:
                self.transport.abort()

    async def main() -> Any:
        server = await asyncio.get_running_loop().create_server(Once, "127.0.0.1", 0)
        here = at(server.sockets[0].getsockname()[1])
        client, heard = Client(), Heard()
        await client.fetch(here, "/")
        client.call(here, b"POST", b"/", [], b"x", heard)
        await heard.over.wait()
        client.close()
        server.close()
        return heard.told[-1]

    error = run(main())
    assert isinstance(error, Broken)
    assert (error.kept, error.begun) == (True, False)


def test_a_stream_is_told_piece_by_piece_and_cut_when_cancelled() -> None:
    async def main() -> None:
        site = Site()
        async with serving(site) as server:
            client, heard = Client(), Heard()
            call = client.call(at(server.port), b"POST", b"/big", [], b"", heard)
            got = asyncio.Event()
            heard.at_data = got.set
            await got.wait()
            call.cancel()
            size = len(heard.body)
            while server.connections:
                await asyncio.sleep(0.005)
            assert site.left == 1
            assert len(heard.body) == size < 64 << 20
            assert heard.told == ["sent", 200, "data"]
            before = client.call(at(server.port), b"POST", b"/echo", [], b"", heard)
            before.cancel()  # not even connected
            await asyncio.sleep(0.05)
            assert heard.told == ["sent", 200, "data"]
            client.close()

    run(main())


def test_what_is_not_read_is_not_sent() -> None:
    async def main() -> None:
        site = Site()
        async with serving(site, Limits()) as server:
            client, heard = Client(), Heard()
            call = client.call(at(server.port), b"POST", b"/big", [], b"", heard)
            heard.at_data = call.pause
            while not heard.body:
                await asyncio.sleep(0.005)
            written = -1
            while written != site.written:
                written = site.written
                await asyncio.sleep(0.1)
            assert written < 32 << 20
            heard.at_data = lambda: None
            call.resume()
            await heard.over.wait()
            assert len(heard.body) == 64 << 20
            client.close()

    run(main())


def test_a_stream_that_is_cut_fails() -> None:
    async def main() -> Heard:
        async with serving(Site()) as server:
            client, heard = Client(), Heard()
            client.call(at(server.port), b"POST", b"/cut", [], b"", heard)
            await heard.over.wait()
            client.close()
            return heard

    heard = run(main())
    assert heard.body == b"data: half\n\n"
    assert isinstance(heard.told[-1], Broken)


def test_a_fetch_waits_no_longer_than_said_and_takes_no_more_than_said() -> None:
    async def main() -> None:
        site = Site()
        async with serving(site) as server:
            client = Client()
            with pytest.raises(TimedOut, match=r"no answer within 0\.1 s"):
                await client.fetch(at(server.port), "/never", within_s=0.1)
            with pytest.raises(NotHttp, match="an answer of more than 1,000 bytes"):
                await client.fetch(at(server.port), "/big", most=1000)
            while site.left < 2:
                await asyncio.sleep(0.005)
            client.close()

    run(main())


def test_fields_with_line_ends_are_not_sent() -> None:
    async def main() -> None:
        client = Client()
        with pytest.raises(ValueError, match="line end"):
            client.call(at(1), b"GET", b"/", [(b"x", b"y\r\nz: w")], b"", Heard())
        client.close()

    run(main())


def test_a_server_that_closes_lets_requests_end_and_counts_those_it_cuts() -> None:
    async def main() -> tuple[int, int]:
        site = Site()
        server = await listen(site, 0)
        client, heard = Client(), Heard()
        await client.fetch(at(server.port), "/echo")
        client.call(at(server.port), b"POST", b"/stream", [], b"", heard)
        while site.served[-1] != "/stream":
            await asyncio.sleep(0)
        ended = await server.close(5.0)
        assert heard.told[-1] == "done"
        server = await listen(site, 0)
        client.call(at(server.port), b"POST", b"/never", [], b"", Heard())
        while site.served[-1] != "/never":
            await asyncio.sleep(0.005)
        cut = await server.close(0.05)
        client.close()
        return ended, cut

    assert run(main()) == (0, 1)


def test_a_port_that_is_taken_is_said() -> None:
    async def main() -> None:
        async with serving(Site()) as server:
            with pytest.raises(InvalidInput, match=rf"cannot listen on host=127\.0\.0\.1 port={server.port}: another"):
                await listen(Site(), server.port)

    run(main())


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("http://127.0.0.1:8000", "http://127.0.0.1:8000"),
        ("127.0.0.1:8000", "http://127.0.0.1:8000"),
        ("https://host/base/", "https://host:443/base"),
        ("http://[::1]:80", "http://[::1]:80"),
    ],
)
def test_urls(url: str, expected: str) -> None:
    assert str(origin("upstream", url)) == expected


@pytest.mark.parametrize(
    "url", ["", "http://", "ftp://x", "http://x:99999", "http://x:y", "http://x?y=1", "http://u:secret@x", "http://a b"]
)
def test_urls_that_are_none(url: str) -> None:
    with pytest.raises(InvalidInput, match="upstream=") as error:
        origin("upstream", url)
    assert "secret" not in str(error.value)


@given(
    st.lists(st.binary(max_size=8).filter(lambda one: b"\n" not in one and b"\r" not in one), max_size=6),
    st.sampled_from([b"\n", b"\r\n", b"\r"]),
    st.lists(st.integers(0, 120), max_size=12),
)
def test_events_are_the_same_in_any_pieces(events: list[bytes], end: bytes, cuts: list[int]) -> None:
    stream = b"".join(b"data: %b%b%b" % (one, end, end) for one in events)
    stream = b": comment" + end + b"event: x" + end + stream
    at = [0, *sorted(min(one, len(stream)) for one in cuts), len(stream)]
    reader = sse.Events()
    found = [one for a, b in itertools.pairwise(at) for one in reader.feed(stream[a:b])]
    assert found == events


def test_an_event_of_many_lines_and_one_without_end(monkeypatch: pytest.MonkeyPatch) -> None:
    assert sse.Events().feed(b"data: a\ndata\ndata:b\nid: 3\n\ndata: not whole") == [b"a\n\nb"]
    monkeypatch.setattr(sse, "LONGEST", 1000)
    for line in (b"data: " + b"x" * 100 + b"\n", b"x" * 100):
        reader = sse.Events()
        for _ in range(8):
            reader.feed(line)
        with pytest.raises(sse.TooLong, match="an event of more than 1,000 bytes"):
            reader.feed(line * 4)
