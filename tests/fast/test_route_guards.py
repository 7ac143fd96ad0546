"""What `prebleexp route` is guarded against: web pages, fields that end with a connection, bodies without
end, and a disk that is full."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from prebleexp.__main__ import main as command
from prebleexp.errors import InvalidInput
from prebleexp.live.http.exchange import Exchange
from prebleexp.live.http.pages import refuses
from prebleexp.live.http.places import is_loopback, origin
from prebleexp.live.router.recording import Recording
from tests.support.http import raw, run, statuses
from tests.support.routing import cell, routing


@pytest.fixture(autouse=True)
def _compiled() -> None:
    """Before the loop begins."""
    cell("lor")


class Nowhere:
    """A connection that nobody reads."""

    def write(self, data: bytes) -> bool:
        return True

    def abort(self) -> None: ...
    def finished(self, keep_alive: bool) -> None: ...


@pytest.mark.parametrize(
    ("host", "fields", "why"),
    [
        ("127.0.0.1", {}, None),
        ("127.0.0.1", {"host": "127.0.0.1:8000"}, None),
        ("127.0.0.1", {"host": "LocalHost:8000"}, None),
        ("127.0.0.1", {"host": "router.localhost"}, None),
        ("::1", {"host": "[::1]:8000"}, None),
        ("127.0.0.1", {"host": "192.168.1.4:8000"}, None),
        ("127.0.0.1", {"host": "evil.example:8000"}, "Host is evil.example:8000"),
        ("localhost", {"host": "127.0.0.1.evil.example"}, "Host is 127.0.0.1.evil.example"),
        ("127.0.0.1", {"host": "[half"}, "Host is [half"),
        ("127.0.0.1", {"host": "127.0.0.1:8000", "origin": "http://127.0.0.1:8000"}, "Origin"),
        ("127.0.0.1", {"host": "127.0.0.1:8000", "origin": "null"}, "Origin"),
        ("0.0.0.0", {"host": "router.cluster.local:8000"}, None),
        ("0.0.0.0", {"host": "router.cluster.local:8000", "origin": "http://evil.example"}, "Origin"),
    ],
)
def test_pages_change_nothing(host: str, fields: dict[str, str], why: str | None) -> None:
    given = [(name.encode(), value.encode()) for name, value in fields.items()]
    said = refuses(Exchange(Nowhere(), b"POST", b"/workers", given, b"", True, False), host)
    assert (said is None) if why is None else (said is not None and why in said)


def test_who_serves_this_machine_alone() -> None:
    assert all(map(is_loopback, ("127.0.0.1", "127.8.0.1", "::1", "localhost")))
    assert not any(map(is_loopback, ("0.0.0.0", "::", "10.0.0.1", "router", "localhost.example")))


def test_a_page_adds_drains_and_removes_no_server() -> None:
    async def main() -> None:
        async with routing("lor", 1, slots=2) as running:
            body = json.dumps({"url": running.engines[0].url}).encode()
            page = b"Host: 127.0.0.1\r\nOrigin: https://evil.example\r\nContent-Type: text/plain\r\n"
            rebound = b"Host: evil.example\r\n"
            for asked in (b"POST /workers", b"POST /workers/drain", b"DELETE /workers"):
                for fields in (page, rebound):
                    head = b"%b HTTP/1.1\r\n%bContent-Length: %d\r\nConnection: close\r\n\r\n" % (
                        asked,
                        fields,
                        len(body),
                    )
                    assert statuses(await raw(running.server.port, head + body)) == [403]
            assert running.proxy.upstreams[0].about()["stage"] == "up"
            deep = b"[" * 100_000
            reply = await running.client.fetch(running.at, "/workers", "POST", deep)
            assert reply.status == 400
            assert (await running.client.fetch(running.at, "/workers")).status == 200

    run(main())


def test_what_a_connection_names_ends_with_it() -> None:
    """In both directions; the rest passes."""

    async def main() -> None:
        async with routing("lor", 1) as running:
            engine = running.engines[0]
            engine.fields = [(b"connection", b"X-Hop, keep-alive"), (b"x-hop", b"1"), (b"x-kept", b"1")]
            body = b'{"prompt": "x", "max_tokens": 1}'
            fields = [(b"connection", b"keep-alive, X-Secret"), (b"x-secret", b"1"), (b"x-mine", b"1")]
            reply = await running.client.fetch(running.at, "/v1/completions", "POST", body, fields)
            assert reply.status == 200
            told, back = engine.headers[-1], dict(reply.headers)
            assert (b"x-secret" in told, b"x-mine" in told) == (False, True)
            assert (b"x-hop" in back, b"x-kept" in back) == (False, True)
            await running.client.fetch(running.at, "/v1/models", headers=fields)
            told = engine.headers[-1]
            assert (b"x-secret" in told, b"x-mine" in told) == (False, True)

    run(main())


@pytest.mark.parametrize("target", ["/v1/models?limit=2&after=a%20b", "/v1/models", "/v1/models?"])
def test_a_get_keeps_its_query(target: str) -> None:
    async def main() -> None:
        async with routing("lor", 1) as running:
            reply = await running.client.fetch(running.at, target)
            direct = await running.client.fetch(origin("u", running.engines[0].url), target)
            assert reply.status == direct.status == 200
            through, asked = running.engines[0].targets
            assert through == asked == target.removesuffix("?")

    run(main())


def fill_its_disk(recording: Recording) -> None:
    recording._file.close()
    recording._file = Path("/dev/full").open("a", encoding="utf-8")  # noqa: SIM115


def test_a_full_disk_ends_the_recording_and_no_request(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """It is said in the log once, by /health and by /metrics."""
    file = tmp_path / "recorded.jsonl"

    async def main() -> None:
        async with routing("lor", 2, record=file) as running:
            for _ in range(20):
                assert (await running.ask()).status == 200
            about = json.loads((await running.client.fetch(running.at, "/health")).body)
            assert about == {"up": 2, "of": 2, "recording": True}
            assert "prebleexp:recording 1\n" in await running.metrics()
            recorded = running.proxy.deciding.recording
            assert recorded is not None
            fill_its_disk(recorded)
            for _ in range(60):
                assert (await running.ask()).status == 200
            reply = await running.client.fetch(running.at, "/health")
            assert (reply.status, json.loads(reply.body)["recording"]) == (200, False)
            assert "prebleexp:recording 0\n" in await running.metrics()

    run(main())
    said = [one.getMessage() for one in caplog.records if "record=" in one.getMessage()]
    assert said == [f"record={file}: No space left on device. Nothing more is recorded; requests go on"]
    with pytest.raises(InvalidInput, match="record=/dev/full: No space left on device"):
        Recording(Path("/dev/full"), [], 2)
    late = Recording(tmp_path / "late.jsonl", [], 2)
    fill_its_disk(late)
    late.laps(0.0)
    late.close()
    assert late.stopped
    caplog.clear()
    late.close()
    assert not caplog.records


def test_what_was_recorded_before_a_cut_is_checked(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "recorded.jsonl"

    async def main() -> None:
        async with routing("lor", 2, record=file, settings=["policy=lor", "gpus=2"]) as running:
            for _ in range(4):
                await running.ask()

    run(main())
    whole = file.read_text()
    file.write_text(whole[:-9])
    assert command(["route", f"check={file}"]) == 0
    printed = capsys.readouterr()
    assert printed.out == "4 decisions, 0 differ\n"
    assert "ends in the midst of a line" in printed.err
    lines = whole.splitlines(keepends=True)
    file.write_text("".join([*lines[:3], "{\n", *lines[3:]]))
    assert command(["route", f"check={file}"]) == 2
    assert "line 4, is no JSON" in capsys.readouterr().err
