"""What clients do wrong: a clear error or a closed connection, and no harm to others."""

from __future__ import annotations

import asyncio
import logging
import struct
from dataclasses import replace

import pytest

from prebleexp.live.http.client import Client
from prebleexp.live.http.places import origin
from tests.support.http import SMALL, Site, raw, run, serving, statuses

HOST = b"host: x\r\n"
GET = b"GET /echo HTTP/1.1\r\n" + HOST
POST = b"POST /echo HTTP/1.1\r\n" + HOST
END = b"\r\n"
CHUNKED = POST + b"transfer-encoding: chunked\r\n\r\n"
CLOSED: list[int] = []


def post(body: bytes, path: bytes = b"/echo", more: bytes = b"") -> bytes:
    return b"POST %b HTTP/1.1\r\nhost: x\r\n%bcontent-length: %d\r\n\r\n%b" % (path, more, len(body), body)


LAST = post(b"last", more=b"connection: close\r\n")
SENT: dict[str, tuple[list[bytes], list[int]]] = {
    # no HTTP
    "nothing": ([b""], CLOSED),
    "line ends alone": ([b"\r\n\r\n\r\n"], CLOSED),
    "noise": ([bytes(range(256)) * 8], [400]),
    "zeros": ([b"\0" * 4096], [400]),
    "invalid UTF-8": ([b"\xff\xfe\xfd\xfc\r\n\r\n"], [400]),
    "TLS hello": ([bytes.fromhex("16030100a5010000a10303") + b"\x11" * 160], [400]),
    "SSH": ([b"SSH-2.0-OpenSSH_9.6\r\n"], [400]),
    "HTTP/2 preface": ([b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"], [400]),
    "HTTP/0.9": ([b"GET /echo\r\n"], [408]),
    "an answer": ([b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n"], [400]),
    "JSON alone": ([b'{"prompt": "x"}\r\n\r\n'], [400]),
    # request lines
    "unknown method": ([b"BREW /echo HTTP/1.1\r\n" + HOST + END], [400]),
    "lower case method": ([b"get /echo HTTP/1.1\r\n" + HOST + END], [400]),
    "method of a megabyte": ([b"G" * (1 << 20)], [400]),
    "version 9.9": ([b"GET /echo HTTP/9.9\r\n" + HOST + END], [400]),
    "no version": ([b"GET /echo HTTP/\r\n" + HOST + END], [400]),
    "blank in path": ([b"GET /ec ho HTTP/1.1\r\n" + HOST + END], [400]),
    "control in path": ([b"GET /ec\x01ho HTTP/1.1\r\n" + HOST + END], [400]),
    "path of a megabyte": ([b"GET /" + b"a" * (1 << 20) + b" HTTP/1.1\r\n" + HOST + END], [431]),
    "invalid UTF-8 in path": ([b"GET /\xff\xfe HTTP/1.1\r\n" + HOST + END], [400]),
    "path upwards": ([b"GET /../../etc/passwd HTTP/1.1\r\n" + HOST + b"connection: close\r\n\r\n"], [404]),
    "CONNECT": ([b"CONNECT example.com:443 HTTP/1.1\r\n" + HOST + END], [404]),
    "absolute URL": ([b"GET http://elsewhere/echo HTTP/1.1\r\n" + HOST + b"connection: close\r\n\r\n"], [200]),
    # fields
    "header bomb, one field": ([GET + b"x: " + b"a" * (1 << 20) + END + END], [431]),
    "header bomb, one name": ([GET + b"a" * (1 << 20) + b": x\r\n\r\n"], [431]),
    "header bomb, many fields": ([GET + b"".join(b"x%d: y\r\n" % i for i in range(50_000)) + END], [431]),
    "header bomb that never ends": ([GET, *[b"x: " + b"y" * 1000 + END] * 100], [431]),
    "blank in a name": ([GET + b"a b: c\r\n\r\n"], [400]),
    "blank before the colon": ([GET + b"a : c\r\n\r\n"], [400]),
    "no colon": ([GET + b"abc\r\n\r\n"], [400]),
    "control in a value": ([GET + b"a: \x01\r\n\r\n"], [400]),
    "zero in a value": ([GET + b"a: \0\r\n\r\n"], [400]),
    "folded field": ([GET + b"a: b\r\n c\r\nconnection: close\r\n\r\n"], [400]),
    "line feeds alone": ([b"GET /echo HTTP/1.1\nhost: x\nconnection: close\n\n"], [400]),
    "invalid UTF-8 in a value": ([GET + b"a: \xff\xfe\r\nconnection: close\r\n\r\n"], [200]),
    # lengths
    "length below zero": ([POST + b"content-length: -1\r\n\r\n"], [400]),
    "length in words": ([POST + b"content-length: ten\r\n\r\n"], [400]),
    "length of 30 digits": ([POST + b"content-length: " + b"9" * 30 + b"\r\n\r\n"], [400]),
    "two lengths": ([POST + b"content-length: 3\r\ncontent-length: 4\r\n\r\nabcd"], [400]),
    "length and chunks": ([POST + b"content-length: 3\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n"], [400]),
    "unknown coding": ([POST + b"transfer-encoding: gzip\r\n\r\nabc"], [400]),
    "chunked twice": ([POST + b"transfer-encoding: chunked, identity\r\n\r\n0\r\n\r\n"], [400]),
    # bodies
    "100 MB announced": ([POST + b"content-length: 100000000\r\n\r\n"], [413]),
    "100 MB sent": ([POST + b"content-length: 100000000\r\n\r\n", *[b"x" * (1 << 20)] * 95], [413]),
    "100 MB announced and asked": ([POST + b"expect: 100-continue\r\ncontent-length: 100000000\r\n\r\n"], [413]),
    "100 MB in chunks": ([CHUNKED, *[b"100000\r\n" + b"x" * (1 << 20) + b"\r\n"] * 95], [413]),
    "one chunk of 16 EB": ([CHUNKED + b"fffffffffffffff\r\n" + b"x" * (2 << 20)], [413]),
    "chunk size that is none": ([CHUNKED + b"zz\r\nabc\r\n0\r\n\r\n"], [400]),
    "chunk size of 20 digits": ([CHUNKED + b"f" * 20 + b"\r\nabc\r\n"], [400]),
    "chunk longer than said": ([CHUNKED + b"2\r\nabcdef\r\n0\r\n\r\n"], [400]),
    "chunks of one byte": ([CHUNKED + b"1\r\nx\r\n" * 2000 + b"0\r\n\r\n" + LAST], [200, 200]),
    "trailer bomb": ([CHUNKED + b"1\r\nx\r\n0\r\n" + b"".join(b"t%d: y\r\n" % i for i in range(90_000)) + END], [431]),
    "trailer that never ends": ([CHUNKED + b"1\r\nx\r\n0\r\nt: ", *[b"y" * 1000] * 200], [431]),
    "chunk's extension that never ends": ([CHUNKED + b"1;", *[b"y" * 1000] * 200], [431]),
    "more than said": ([post(b"abc") + b"defg" * 100], [200, 400]),
    "half a body": ([POST + b"content-length: 10\r\n\r\nabc"], [408]),
    "half a chunk": ([CHUNKED + b"a\r\nabc"], [408]),
    "half a header": ([GET + b"x: y"], [408]),
    "half a request line": ([b"GET /ec"], [408]),
    "one byte of a request": ([b"G"], [408]),
    "asks to go on, then does not": ([POST + b"expect: 100-continue\r\ncontent-length: 9\r\n\r\n"], [100, 408]),
    # many at once
    "5 pipelined": ([post(b"x") * 5 + LAST], [200] * 6),
    "2,000 pipelined": ([post(b"x") * 2000 + LAST], [200] * 2001),
    "pipelined, then noise": ([post(b"x") * 3 + b"\xff\xff\r\n\r\n"], [200, 200, 200, 400]),
    "pipelined behind a stream": ([post(b"", b"/stream") + LAST], [200, 200]),
    "pipelined behind the last": ([LAST + post(b"x") * 10], [200]),
    "pipelined, a byte at a time": ([bytes([one]) for one in post(b"x") * 2 + LAST], [200, 200, 200]),
    "smuggled": ([post(b"GET /raises HTTP/1.1\r\nhost: x\r\n\r\n") + LAST], [200, 200]),
    # old and odd, served
    "HTTP/1.0": ([b"POST /echo HTTP/1.0\r\ncontent-length: 1\r\n\r\nx"], [200]),
    "HTTP/1.0 and a stream": ([b"GET /stream HTTP/1.0\r\n\r\n"], [200]),
    "upgrade to a web socket": ([GET + b"connection: upgrade\r\nupgrade: websocket\r\n\r\n\x81\x05hello"], [200]),
    "upgrade to h2c": ([GET + b"connection: upgrade, http2-settings\r\nupgrade: h2c\r\n\r\n"], [200]),
    "HEAD": ([b"HEAD /echo HTTP/1.1\r\n" + HOST + b"connection: close\r\n\r\n"], [200]),
    "HEAD of a stream": ([b"HEAD /stream HTTP/1.1\r\n" + HOST + b"connection: close\r\n\r\n"], [200]),
    "a body for GET": ([GET + b"content-length: 3\r\nconnection: close\r\n\r\nabc"], [200]),
    "a handler that raises": ([post(b"", b"/raises") + LAST], [500, 200]),
}


@pytest.mark.parametrize("kind", SENT)
def test_what_is_sent_wrong_is_refused_and_others_are_served(kind: str, caplog: pytest.LogCaptureFixture) -> None:
    sent, expected = SENT[kind]
    site = Site()

    async def main() -> None:
        async with serving(site) as server:
            client = Client()
            here = origin("url", f"http://127.0.0.1:{server.port}")
            bad = asyncio.create_task(raw(server.port, *sent))
            while not bad.done():
                reply = await client.fetch(here, "/echo", "POST", b"good")
                assert (reply.status, reply.body) == (200, b"good")
                await asyncio.sleep(0.01)
            answer = await bad
            assert statuses(answer) == expected, answer[:500]
            while len(server.connections) > 1:  # its own goes when the server hears that the client has gone
                await asyncio.sleep(0.01)
            assert len(server.connections) == 1
            assert server.budget.held == 0
            client.close()

    with caplog.at_level(logging.ERROR):
        run(main())
    assert [one for one in caplog.records if kind != "a handler that raises"] == []


def test_there_are_sixty_kinds() -> None:
    assert len(SENT) + len(LEAVING) >= 60


LEAVING = {
    "before the answer": (b"/never", b"", 1),
    "in the midst of a stream": (b"/big", b"", 1),
    "in the midst of a stream, reset": (b"/big", b"reset", 1),
    "half closed": (b"/never", b"half", 1),
    "behind the answer": (b"/echo", b"", 0),
}


@pytest.mark.parametrize("kind", LEAVING)
def test_the_handler_hears_of_a_client_that_leaves(kind: str) -> None:
    path, how, left = LEAVING[kind]
    site = Site()

    async def main() -> None:
        async with serving(site) as server:
            reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
            writer.write(post(b"x", path))
            while not site.served:
                await asyncio.sleep(0.005)
            if path != b"/never":
                await reader.read(1000)
            if how == b"reset":
                sock = writer.get_extra_info("socket")
                sock.setsockopt(1, 13, struct.pack("ii", 1, 0))  # SO_LINGER of 0 s: a reset
            if how == b"half":
                writer.write_eof()
            else:
                writer.close()
            while server.connections:
                await asyncio.sleep(0.005)
            assert site.left == left
            assert server.budget.held == 0
            writer.transport.abort()

    run(main())


@pytest.mark.parametrize("path", [b"/big", b"/hog"])
def test_a_client_that_does_not_read_fills_no_memory_and_is_cut(path: bytes) -> None:
    site = Site()

    async def main() -> int:
        async with serving(site) as server:
            reader, writer = await asyncio.open_connection("127.0.0.1", server.port, limit=1 << 10)
            reader._transport.pause_reading()  # type: ignore[attr-defined]
            writer.write(post(b"", path))
            while not site.served:
                await asyncio.sleep(0.005)
            most = 0
            while server.connections:
                most = max(most, *(one.unread for one in server.connections))
                await asyncio.sleep(0.005)
            writer.transport.abort()
            return most

    assert run(main()) < SMALL.unread_bytes + (1 << 20)
    assert site.left == 1
    assert site.written < 16 << 20


def test_a_slow_reader_gets_all_of_it() -> None:
    async def main() -> int:
        async with serving(Site()) as server:
            reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
            writer.write(post(b"", b"/big", b"connection: close\r\n"))
            got = 0
            while piece := await reader.read(1 << 20):
                got += len(piece)
                await asyncio.sleep(0.001)
            writer.close()
            return got

    assert run(main()) > 64 << 20


def test_too_many_connections_are_told_so() -> None:
    async def main() -> list[int]:
        async with serving(Site()) as server:
            answers = await asyncio.gather(*(raw(server.port, b"") for _ in range(40)))
            return [one for answer in answers for one in statuses(answer)]

    assert run(main()) == [503] * 24


def test_a_client_that_asks_nothing_is_closed() -> None:
    async def main() -> bytes:
        async with serving(Site()) as server:
            return await raw(server.port, post(b"x"))

    assert statuses(run(main())) == [200]


def test_requests_that_wait_hold_so_many_bytes_at_most() -> None:
    """Bodies that are whole, that come, and requests that nobody has parsed yet; who ends or leaves makes room."""
    limits = replace(SMALL, held_bytes=100_000, request_s=20.0)

    async def main() -> None:
        async with serving(Site(), limits) as server:
            port, held = server.port, []
            for sent in (post(b"x" * 40_000, b"/never"), CHUNKED + b"9c40\r\n" + b"x" * 39_000):
                _, writer = await asyncio.open_connection("127.0.0.1", port)
                writer.write(sent)
                held.append(writer)
            while server.budget.held < 79_000:
                await asyncio.sleep(0.005)
            for sent in (post(b"x" * 40_000), CHUNKED + b"9c40\r\n" + b"x" * 40_000 + b"\r\n", post(b"x") * 1000):
                answer = await raw(port, sent)
                assert statuses(answer)[-1] == 503
                assert b"as many bytes" in answer
                assert server.budget.held <= limits.held_bytes
            assert statuses(await raw(port, LAST)) == [200], "small ones still fit"
            for writer in held:
                writer.transport.abort()
            while server.connections:
                await asyncio.sleep(0.005)
            assert server.budget.held == 0
            assert statuses(await raw(port, post(b"x" * 90_000, more=b"connection: close\r\n"))) == [200]

    run(main())
