"""`prebleexp route`: requests through a policy to servers that are well, hang, die and come back."""

from __future__ import annotations

import asyncio
import json
import logging
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from prebleexp.__main__ import main
from prebleexp.errors import InvalidInput
from prebleexp.gateway.base import Gateway
from prebleexp.live.host import Host
from prebleexp.live.http.calls import Reply
from prebleexp.live.http.places import origin
from prebleexp.live.router import proxy as proxying
from prebleexp.live.router import recording, served
from prebleexp.live.router.caches import Assumed
from prebleexp.live.router.deciding import LONG_NAME, Deciding, Known, Ticket
from prebleexp.live.router.gate import WORDS
from prebleexp.live.router.outputs import MOST, Outputs
from prebleexp.live.router.prompts import Interner, Malformed, Request, read
from prebleexp.live.router.upstreams import gauges
from prebleexp.sim.answers import HOLD
from tests.support.engines import Engine
from tests.support.few_prompts import remember_few
from tests.support.http import run
from tests.support.routing import cell, gpu_of, routing


@pytest.fixture(autouse=True)
def _ready(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Before the loop begins."""
    remember_few(monkeypatch)
    params = request.node.callspec.params if hasattr(request.node, "callspec") else {}
    for policy in {"lor", "round_robin", params.get("policy", "lor")}:
        cell(policy)


@pytest.mark.parametrize("path", ["/v1/completions", "/v1/chat/completions"])
@pytest.mark.parametrize("stream", [False, True])
def test_bodies_and_answers_pass_byte_for_byte(path: str, stream: bool) -> None:
    async def main() -> None:
        async with routing("lor", 1) as running:
            body = b'{"model":  "tiny", "messages": [{"role": "user", "content": "h\\u00e9"}], "prompt": "x"'
            body += b', "max_tokens": 3, "stream": true}' if stream else b"}"
            headers = [(b"authorization", b"Bearer secret"), (b"accept-encoding", b"gzip"), (b"x-mine", b"1")]
            direct = await running.client.fetch(origin("u", running.engines[0].url), path, "POST", body, headers)
            through = await running.client.fetch(running.at, path, "POST", body, headers)
            assert through.body == direct.body
            assert through.status == direct.status == 200
            first, second = running.engines[0].bodies
            assert first == second == body
            told = running.engines[0].headers[1]
            assert told[b"authorization"] == b"Bearer secret"
            assert told[b"x-mine"] == b"1"
            assert b"accept-encoding" not in told
            assert gpu_of(through) == 0
            for name in (b"content-type", *([b"x-engine"] if stream else [])):
                assert dict(through.headers)[name] == dict(direct.headers)[name]

    run(main())


def test_it_says_how_many_servers_are_up(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        one, up = cell("lor"), await Engine(0.002).start()
        gone = await Engine(0.002).start()
        await gone.kill()
        ended = asyncio.Event()
        ended.set()
        monkeypatch.setattr(served, "told_to_end", lambda: ended)
        places = [origin("url", engine.url) for engine in (up, up, gone)]
        await served.serve(one.policy, [one.hardware] * 5, 0, served.How(places, 5, port=0, rows=64))
        await up.kill()

    with caplog.at_level(logging.INFO):
        run(main())
    assert "before 5 servers, of which 2 are up" in caplog.text


def test_requests_go_where_the_policy_says() -> None:
    async def main() -> None:
        async with routing("lor", 3, 0.02) as running:
            replies = await asyncio.gather(*(running.ask(stream=bool(i % 2), max_tokens=5) for i in range(9)))
            assert sorted(map(gpu_of, replies)) == [0, 0, 0, 1, 1, 1, 2, 2, 2]
            book = running.proxy.deciding.host.view.sent
            assert book["outstanding"].tolist() == [0, 0, 0]
            assert book["tokens"].tolist() == [0, 0, 0]
            assert running.proxy.deciding.waiting_tokens == [0, 0, 0]

    run(main())


@pytest.mark.thorough
def test_prompts_that_begin_alike_meet_again() -> None:
    cell("vllm_cache_aware")

    async def main() -> None:
        async with routing("vllm_cache_aware", 4) as running:
            where: dict[int, set[int]] = {}
            for i in range(24):
                reply = await running.ask(prompt=f"{i % 3} " * 400 + str(i), stream=True)
                where.setdefault(i % 3, set()).add(gpu_of(reply))
            assert all(len(gpus) == 1 for gpus in where.values())

    run(main())


@pytest.mark.thorough
@pytest.mark.parametrize(
    "policy", ["sglang_consistent_hashing", "vllm_sticky_least_loaded", "production_stack_session"]
)
def test_sessions_stay_where_they_are(policy: str) -> None:
    async def main() -> None:
        async with routing(policy, 4) as running:
            for name in ("ann", "bob", "céline"):
                by_header = [gpu_of(await running.ask(session=name)) for _ in range(4)]
                by_body = [gpu_of(await running.ask(session_id=name)) for _ in range(2)]
                by_body += [gpu_of(await running.ask(user=name))]
                assert len(set(by_header)) == 1
                if name.isascii():
                    assert set(by_body) == set(by_header)

    run(main())


# ---------------------------------------------------------------- servers that are not well
def test_a_dead_server_gets_nothing_and_nobody_notices() -> None:
    async def main() -> None:
        async with routing("lor", 3) as running:
            await running.engines[1].kill()
            replies = await asyncio.gather(*(running.ask(stream=True) for _ in range(30)))
            assert {reply.status for reply in replies} == {200}
            assert {gpu_of(reply) for reply in replies} == {0, 2}
            assert running.proxy.deciding.candidates == [0, 2]
            await running.engines[1].start()
            while len(running.proxy.deciding.candidates) < 3:
                await asyncio.sleep(0.01)
            assert await running.where(9) == {0, 1, 2}

    run(main())


def test_who_has_no_token_yet_is_answered_elsewhere_and_who_has_one_is_told() -> None:
    async def main() -> None:
        async with routing("round_robin", 2) as running:
            running.engines[0].gap_s = 600.0
            asked = [asyncio.create_task(running.ask(stream=True, max_tokens=1)) for _ in range(4)]
            while running.engines[0].flying < 2:
                await asyncio.sleep(0.01)
            await running.engines[0].kill()
            replies = await asyncio.gather(*asked)
            assert [reply.status for reply in replies] == [200] * 4
            assert all(reply.body.endswith(b"data: [DONE]\n\n") for reply in replies)
            assert {gpu_of(reply) for reply in replies} == {1}
            await running.engines[0].start()
        async with routing("round_robin", 2, 0.05) as running:
            deciding, begun = running.proxy.deciding, list[float]()
            first_token = deciding.first_token

            def told(ticket: Any, now: float) -> None:
                begun.append(now)
                first_token(ticket, now)

            deciding.first_token = told
            asked = [asyncio.create_task(running.ask(stream=True, max_tokens=40)) for _ in range(2)]
            while len(begun) < 2:
                await asyncio.sleep(0.01)
            await running.engines[0].kill()
            replies = sorted(await asyncio.gather(*asked), key=gpu_of)
            assert [reply.body.endswith(b"data: [DONE]\n\n") for reply in replies] == [False, True]
            events = [json.loads(one[6:]) for one in replies[0].body.split(b"\n\n") if one]
            assert events[-1]["error"]["message"] == "the server of this request is gone: it closed the connection"
            assert str(running.engines[0].port) not in events[-1]["error"]["message"]
            assert running.proxy.counts.cut == 1

    run(main())


def test_a_server_that_hangs_is_found_out() -> None:
    async def main() -> None:
        async with routing("round_robin", 2) as running:
            running.engines[0].hangs = True
            replies = await asyncio.gather(*(running.ask() for _ in range(6)))
            assert {gpu_of(reply) for reply in replies} == {1}
            assert running.proxy.deciding.candidates == [1]

    run(main())


def test_without_servers_requests_wait_and_then_are_told() -> None:
    async def main() -> None:
        async with routing("lor", 1, hold_s=0.5) as running:
            await running.engines[0].kill()
            reply = await running.ask()
            assert reply.status == 503
            assert b"no server took this request within 0.5 s" in reply.body
            assert (await running.client.fetch(running.at, "/health")).status == 503
        async with routing("lor", 1, hold_s=600.0) as running:
            await running.engines[0].kill()
            waits = asyncio.create_task(running.ask())
            await asyncio.sleep(0.05)
            await running.engines[0].start()
            assert (await waits).status == 200

    run(main())


def test_who_is_held_is_asked_about_again_at_a_first_token() -> None:
    async def main() -> None:
        async with routing("lor", 1, 0.05) as running:
            deciding, answered = running.proxy.deciding, list[int]()
            ask, first_token = deciding.ask, deciding.first_token

            def late(ticket: Any, now: float, room: Any) -> int:
                answered.append(ask(ticket, now, room) if not answered or first else HOLD)
                return answered[-1]

            def told(ticket: Any, now: float) -> None:
                first.append(now)
                first_token(ticket, now)

            first: list[float] = []
            deciding.ask, deciding.first_token = late, told
            tasks = [asyncio.create_task(running.ask(stream=True, max_tokens=30))]
            while not running.engines[0].flying:
                await asyncio.sleep(0.005)
            tasks.append(asyncio.create_task(running.ask(stream=True, max_tokens=1)))
            await tasks[1]
            assert answered == [0, HOLD, 0]
            assert not tasks[0].done(), "the first one goes on"
            await tasks[0]

    run(main())


def test_a_client_that_leaves_ends_its_request_there() -> None:
    async def main() -> None:
        async with routing("lor", 1, 0.05) as running:
            for when in (0.02, 0.3):
                asked = asyncio.create_task(running.ask(stream=True, max_tokens=100))
                while not running.engines[0].flying:
                    await asyncio.sleep(0.005)
                await asyncio.sleep(when)
                asked.cancel()
                while running.engines[0].flying:
                    await asyncio.sleep(0.005)
                assert running.proxy.deciding.host.view.sent["outstanding"].tolist() == [0]
            assert running.engines[0].left == 2
            assert running.proxy.counts.left == 2

    run(main())


@pytest.mark.parametrize("status", [400, 404, 429, 500, 503])
def test_errors_of_servers_pass(status: int) -> None:
    async def main() -> None:
        async with routing("lor", 1) as running:
            reply = await running.ask(refuse=status)
            assert reply.status == status
            assert json.loads(reply.body)["error"]["message"] == "as asked"
            assert running.proxy.deciding.host.view.sent["outstanding"].tolist() == [0]

    run(main())


ODD = ["many", [1], {"a": 1}, -5, 1 << 80, 2.5, True]


@pytest.mark.parametrize("odd", ODD, ids=repr)
@pytest.mark.parametrize("stream", [False, True])
def test_an_odd_usage_passes_and_ends_its_request(odd: Any, stream: bool) -> None:
    """The client gets what the server says, and nothing stays in the policy's book."""

    async def main() -> None:
        async with routing("lor", 1) as running:
            (engine,) = running.engines
            engine.usage = {"prompt_tokens": odd, "completion_tokens": odd, "prompt_tokens_details": odd}
            for _ in range(2):
                reply = await running.ask(stream=stream, max_tokens=3)
                assert reply.status == 200
                assert json.dumps(engine.usage).encode() in reply.body
            engine.usage["prompt_tokens_details"] = {"cached_tokens": odd}
            assert (await running.ask(stream=stream, max_tokens=3)).status == 200
            assert running.proxy.deciding.host.view.sent["outstanding"].tolist() == [0]
            assert running.proxy.counts.answered == 3

    run(main())


def test_who_is_read_apart_is_answered_whatever_happens(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(body: bytes) -> Any:
        raise RuntimeError("as asked")

    async def main() -> None:
        async with routing("lor", 1) as running:
            monkeypatch.setattr(proxying, "read", fails)
            long = b'{"prompt": "%b"}' % (b"x" * proxying.LONG)
            reply = await running.client.fetch(running.at, "/v1/completions", "POST", long)
            assert reply.status == 500

    run(main())


def test_servers_are_looked_at_again_whatever_one_of_them_says() -> None:
    async def main() -> None:
        async with routing("lor", 2) as running:
            told = 0

            def fails(upstream: Any, text: str) -> None:
                nonlocal told
                told += 1
                raise RuntimeError("as asked")

            running.proxy.health._told = fails
            while told < 4:
                await asyncio.sleep(0.01)
            await running.engines[1].kill()
            while running.proxy.deciding.candidates != [0]:
                await asyncio.sleep(0.01)

    run(main())


def test_names_that_clients_choose_take_little_memory() -> None:
    known = Known()
    assert [known.number(one) for one in ("a", "b" * 100_000, "b" * 99_999, "a", "b" * 100_000)] == [0, 1, 2, 0, 1]
    assert all(len(one) <= LONG_NAME for one in known)


BAD_BODIES = [
    b"",
    b"{",
    b"[]",
    b'"x"',
    b"\xff\xfe",
    b'{"prompt": [1, "x"]}',
    b'{"max_tokens": "many"}',
    b"null",
    b"1e999",
    b'{"x": ' + b"[" * 100_000,
    b'{"x": ' + b"[" * 1_000_000,
]


@pytest.mark.parametrize("body", BAD_BODIES, ids=lambda one: repr(one[:20]) + str(len(one)))
def test_bodies_that_are_none_are_told_so(body: bytes) -> None:
    async def main() -> None:
        async with routing("lor", 1) as running:
            reply = await running.client.fetch(running.at, "/v1/completions", "POST", body)
            assert reply.status == 400
            assert not running.engines[0].asked

    run(main())


# ---------------------------------------------------------------- what it tells, and is told
def test_a_long_body_keeps_nobody_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is read elsewhere: others are answered meanwhile, and it is when it was read."""
    may_go_on = threading.Event()

    def slow(body: bytes) -> Any:
        if len(body) > proxying.LONG:
            assert may_go_on.wait(60)
        return read(body)

    async def main() -> None:
        monkeypatch.setattr(proxying, "read", slow)
        async with routing("lor", 1) as running:
            long = [asyncio.create_task(running.ask(prompt=p)) for p in ([7] * 200_000, [1.5] * 200_000)]
            while len(running.proxy._tasks) < 2:
                await asyncio.sleep(0.01)
            assert (await running.ask()).status == 200
            assert not any(one.done() for one in long)
            may_go_on.set()
            assert [one.status for one in await asyncio.gather(*long)] == [200, 400]
            assert "Expected" in (await long[1]).body.decode()

    run(main())


def test_a_queue_is_full_and_who_leaves_makes_room() -> None:
    async def main() -> None:
        async with routing("lor", 1, 0.02, gateway=Gateway(max_in_flight=1, queue_limit=1)) as running:
            first = asyncio.create_task(running.ask(max_tokens=50))
            second = asyncio.create_task(running.ask())
            while not running.proxy.gate.waiting:
                await asyncio.sleep(0.01)
            refused = await running.ask()
            assert (refused.status, WORDS["queue"] in refused.body.decode()) == (429, True)
            assert 'prebleexp:requests_total{outcome="refused",reason="queue"} 1' in await running.metrics()
            second.cancel()
            while running.proxy.gate.waiting:
                await asyncio.sleep(0.01)
            assert [(await one).status for one in (first, asyncio.create_task(running.ask()))] == [200, 200]
            assert running.engines[0].left == 0

    run(main())


def test_it_tells_of_itself() -> None:
    async def main() -> None:
        async with routing("lor", 2) as running:
            for _ in range(4):
                await running.ask(prompt="word " * 100, stream=True)
            text = await running.metrics()
            assert 'prebleexp:requests_total{outcome="answered"} 4' in text
            assert "prebleexp:decision_seconds_count 4" in text
            assert 'prebleexp:upstream_up{gpu="1"} 1' in text
            assert running.proxy.deciding.bytes_per_token != 4.0
            models = await running.client.fetch(running.at, "/v1/models")
            assert json.loads(models.body)["data"][0]["id"] == "tiny"
            assert (await running.client.fetch(running.at, "/elsewhere")).status == 404
            assert (await running.client.fetch(running.at, "/health")).body == b'{"up": 2, "of": 2}'

    run(main())


def test_workers_are_added_drained_and_removed() -> None:
    async def main() -> None:
        async with routing("lor", 1, slots=2) as running:

            async def change(method: str, path: str, url: str) -> Reply:
                return await running.client.fetch(running.at, path, method, json.dumps({"url": url}).encode())

            more = await Engine().start()
            assert (await change("POST", "/workers", more.url)).status == 200
            assert (await change("POST", "/workers", more.url)).status == 409
            while len(running.proxy.deciding.candidates) < 2:
                await asyncio.sleep(0.01)
            assert await running.where(4) == {0, 1}
            assert (await change("POST", "/workers/drain", running.engines[0].url)).status == 200
            assert await running.where(4) == {1}
            assert (await change("DELETE", "/workers", running.engines[0].url)).status == 200
            stages = [one["stage"] for one in json.loads((await running.client.fetch(running.at, "/workers")).body)]
            assert stages == ["empty", "up"]
            for bad in ("http://u:p@x", "ftp://x", "file:///etc/passwd"):
                assert (await change("POST", "/workers", bad)).status == 400
            assert (await change("DELETE", "/workers", "http://127.0.0.1:1")).status == 404
            await more.kill()
        async with routing("lor", 1, admin=False) as running:
            reply = await running.client.fetch(running.at, "/workers", "POST", b'{"url": "http://127.0.0.1:1"}')
            assert reply.status == 403

    run(main())


def test_reports_of_servers_are_read() -> None:
    async def main() -> None:
        async with routing("lor", 1) as running:
            seen = running.proxy.deciding.host.view.gpus[0]
            while seen.kv_free == seen.kv_tokens:
                await asyncio.sleep(0.01)
            assert seen.kv_free == int(0.75 * seen.kv_tokens)

    run(main())
    assert gauges('vllm:num_requests_waiting{engine="0"} 3\nvllm:num_requests_waiting{engine="1"} 4.0\nx 1\n') == {
        "queued": 7.0
    }
    odd = "# HELP vllm:num_requests_waiting x\nvllm:num_requests_waiting_by_reason 9\nvllm:num_requests_waiting"
    assert gauges(odd) == {}
    assert gauges("sglang:num_queue_reqs 1e300\nsglang:num_running_reqs -1\n") == {}
    assert gauges(odd + " 2.0 1700000000") == {"queued": 2.0}
    assert gauges("sglang:token_usage 0.5\nsglang:num_running_reqs nan\n")["usage"] == 0.5


@pytest.mark.parametrize("policy", ["lmetric", "sglang_prefix_hash", "vllm_sticky_least_loaded"])
def test_what_is_recorded_decides_alike_and_has_no_prompts(policy: str, tmp_path: Path) -> None:
    """Laps, deaths and clients that leave included."""
    file = tmp_path / "recorded.jsonl"
    one = cell(policy)

    async def main() -> None:
        async with routing(policy, 3, record=file, rows=40) as running:
            for i in range(20):
                asked = [
                    running.ask(prompt="confidential " * (20 + j) + str(i), session=f"ann{j}", stream=bool(j % 2))
                    for j in range(6)
                ]
                replies = await asyncio.gather(*asked)
                assert {reply.status for reply in replies} == {200}
                if i == 10:
                    await running.engines[2].kill()
            assert running.proxy.deciding.host.lap >= 2

    run(main())
    text = file.read_text()
    assert "confidential" not in text
    assert "ann1" not in text
    settings, gpus = recording.settings_of(file)
    assert (settings, gpus) == ([], 3)
    found = recording.check(file, Host(one.policy, [one.hardware] * 3, 0, 40))
    print(f"{policy}: {found.decisions} decisions, {found.differ} differ")
    assert found.decisions >= 120
    assert found.differ == 0
    lines = text.splitlines()
    at = next(i for i, line in enumerate(lines) if '"e":"ask"' in line)
    told = json.loads(lines[at])
    lines[at] = json.dumps(told | {"gpu": (told["gpu"] + 1) % 3})
    file.write_text("\n".join(lines))
    assert recording.check(file, Host(one.policy, [one.hardware] * 3, 0, 40)).first == at + 1


def test_answers_are_expected_to_be_as_long_as_the_last_were(tmp_path: Path) -> None:
    """lengths=mean: what it was is in the recording."""
    file = tmp_path / "recorded.jsonl"

    async def main() -> None:
        async with routing("lor", 1, record=file, lengths_window_s=180.0) as running:
            for i, tokens in enumerate((2, 6, 7)):
                await running.ask(max_tokens=tokens, stream=i != 1)

    run(main())
    arrived = [told for line in file.read_text().splitlines() if (told := json.loads(line)).get("e") == "arrives"]
    assert [one.get("expected") for one in arrived] == [None, 2.0, 4.0]
    one = cell("lor")
    host = Host(one.policy, [one.hardware], 0, 40)
    assert recording.check(file, host).differ == 0
    requests = host.view.requests
    assert requests.expected_output[:3].tolist() == [2.0, 2.0, 4.0]
    assert requests.informed[:3].tolist() == [0, 1, 1]
    outputs = Outputs(10.0)
    for now, tokens in ((0.0, 100), (5.0, 10), (6.0, 20)):
        outputs.finished(tokens, now)
    assert [outputs.expected(now) for now in (10.0, 10.1, 15.5, 17.0)] == [130 / 3, 15.0, 20.0, None]
    outputs = Outputs(10.0)
    for tokens in range(MOST + 2):
        outputs.finished(tokens, 0.0)
    assert outputs.expected(0.0) == (MOST + 3) / 2, "the first two are forgotten"


@pytest.mark.parametrize("lengths", ["oracle", "noisy", "mean lengths.over=prefix"])
def test_lengths_that_nobody_knows_are_refused(lengths: str, capsys: pytest.CaptureFixture[str]) -> None:
    asked = ["route", "policy=e2", "upstream=http://127.0.0.1:1", *f"lengths={lengths}".split()]
    assert main(asked) == 2
    assert "max or mean" in capsys.readouterr().err


def test_another_file_is_no_recording(tmp_path: Path) -> None:
    for content in (b"", b"{}", b"\xff\xfe", b"[1]", b'{"format": "x"}'):
        file = tmp_path / "file"
        file.write_bytes(content)
        with pytest.raises(InvalidInput, match="check="):
            recording.settings_of(file)


# ---------------------------------------------------------------- prompts and caches
def ids_of(interner: Interner, text: bytes, kind: str = "") -> list[int]:
    found = interner.of(text, kind)
    assert found is not None
    assert len(found.ids) == len(found.ends)
    assert (np.diff(found.ends, prepend=0) > 0).all()
    return [int(one) for one in found.ids]


def test_blocks_stand_for_their_path() -> None:
    interner = Interner(1000, 7)
    a, b = ids_of(interner, b"a" * 200 + b"b" * 56), ids_of(interner, b"a" * 200 + b"c" * 100)
    assert a[:3] == b[:3]
    assert a[3] != b[3]
    assert len(set(a)) == 4  # equal blocks behind others are others
    assert ids_of(interner, b"a" * 200 + b"b" * 56) == a
    assert not set(ids_of(interner, b"a" * 256, "another model")) & set(a)
    assert ids_of(interner, b"x") != ids_of(interner, b"x\0")
    assert ids_of(Interner(1000, 8), b"a" * 64) == [0]
    assert len(ids_of(interner, b"")) == 1
    for size in range(1, 300):
        ids_of(interner, b"z" * size)


def test_an_interner_says_when_it_is_full() -> None:
    interner = Interner(3, 0)
    assert interner.of(b"a" * 64 * 4, "") is None
    interner.begin(4.0)
    assert ids_of(interner, b"b" * 64 * 3) == [0, 1, 2]


def test_bodies_are_read() -> None:
    assert read(b'{"prompt": [1, 2, 300]}').text == np.array([1, 2, 300], np.int32).tobytes()
    assert read(b'{"prompt": [[1], [2]]}').whole_tokens
    for ids in ([0], [2**31 - 1, 2**31, 2**32 + 5, 10**17], [-3, 4], list(range(99_000))):
        assert read(json.dumps({"prompt": ids}, indent=1).encode()).text == np.array(ids).astype(np.int32).tobytes()
    for wrong in ("[1.5]", "[true]", "[[[1]]]", "[null, 2]", f"[{10**30}]"):
        with pytest.raises(Malformed, match=r"^prompt: "):
            read(b'{"prompt": %b}' % wrong.encode())
    first = read(b'{"messages": [{"role": "user", "content": "a"}], "max_completion_tokens": 9, "stream": true}')
    later = read(b'{"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]}')
    assert later.text.startswith(first.text)
    assert (first.most, first.stream, first.session) == (9, True, None)
    assert read(b'{"prompt": "x", "user": "u", "session_id": "s"}').session == "s"
    assert read(b'{"prompt": "x", "model": "a"}').of != read(b'{"prompt": "x", "model": "b"}').of
    with pytest.raises(Malformed, match="no JSON"):
        read(b"{")


def test_assumed_caches_drop_what_was_used_least_recently() -> None:
    cache = Assumed(64)
    ends = [16, 32]
    assert list(cache.stored(0, [10, 11], ends, 32)) == []
    assert list(cache.stored(1, [10, 12], ends, 32)) == []
    assert cache.held == 48
    assert list(cache.stored(2, [13, 14], ends, 32)) == [(0, 16)]
    assert list(cache.stored(3, [15, 16], ends, 16)) == [(1, 16)]
    assert list(cache.stored(4, [17, 18, 19], [16, 32, 48], 48)) == [(1, 0), (2, 0)], "of 2 at once"


def test_what_was_assumed_in_an_earlier_lap_is_told_again_once() -> None:
    """With the prompt that begins so, as far as the policy has not heard; what goes before that is not told."""
    cache = Assumed(80)
    ends = [16, 32, 48]
    assert list(cache.stored(0, [1, 2, 3], ends, 48)) == []
    assert list(cache.stored(1, [1, 4], ends[:2], 32)) == []
    assert (cache.untold, cache.again(2, [1, 2], ends[:2])) == (0, 0)
    cache.begin_lap(2)
    assert cache.untold == 4
    assert cache.again(2, [7, 8], ends[:2]) == 0
    assert cache.again(2, [1, 4, 9], ends) == 32
    assert (cache.untold, cache.again(3, [1, 4], ends[:2])) == (2, 0)
    assert cache.again(3, [1, 2, 9], ends) == 32, "the first block was told, the second was not"
    assert list(cache.stored(1, [1, 2], ends[:2], 32)) == [], "it has come in the lap before, and is of no more use"
    assert cache.untold == 1
    assert list(cache.stored(4, [5, 6], ends[:2], 32)) == [], "block 3 went, of which the policy knows nothing"
    assert cache.untold == 0
    assert list(cache.stored(5, [7], ends[:1], 16)) == [(2, 16)], "block 4"
    cache.begin_lap(6)
    cache.forget()
    assert (cache.untold, cache.again(6, [1], ends[:1])) == (0, 0)


def test_a_new_lap_is_told_what_gpus_hold(caplog: pytest.LogCaptureFixture, tmp_path: Path) -> None:
    """As soon as a prompt comes that begins so: the policy decides as it would have."""
    file, one = tmp_path / "recorded", cell("lmetric")
    recorded = recording.Recording(file, [], 2)
    deciding = Deciding(one.policy, [one.hardware] * 2, 0, 1, 5, recorded)
    deciding.begin([0, 1])

    def ask(text: str, now: float) -> Ticket:
        ticket = deciding.arrives(Request(text.encode(), "m", 4, True, None, False), now)
        deciding.ask(ticket, now)
        return ticket

    with caplog.at_level(logging.INFO):
        under_way = [ask("b" * 4000, 0.0), ask("a" * 4000, 0.0)]
        assert [one.gpu for one in under_way] == [0, 1]
        for ticket in under_way:
            deciding.finished(ticket, 4, 0.5)
        for i in range(2, 12):
            ticket = ask("a" * 4000 + f"{i}", float(i))
            assert (ticket.gpu, ticket.taken.lap) == (1, i // 5)
            deciding.finished(ticket, 4, i + 0.5)
    assert [message for one in caplog.records if "lap" in (message := one.getMessage())] == [
        f"lap {lap} begins: all rows are used, the policy begins anew and hears again what GPUs hold" for lap in (1, 2)
    ]
    recorded.close()
    assert recording.check(file, Host(one.policy, [one.hardware] * 2, 0, 5)).differ == 0


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["policy=lor"], "upstream= is missing"),
        (["upstream=ftp://x"], "upstream=ftp://x is not valid; it must be a URL as http://127.0.0.1:8000"),
        (["upstream=http://a:b@x"], "upstream= has a password in its URL"),
        (["upstream=a:1,a:1"], "upstream=a:1,a:1 names a server twice"),
        (["upstream=a:1,b:1", "slots=1"], "slots=1 is not valid; it must be at least 2, the number of servers"),
        (["upstream=a:1", "port=x"], "port=x is not valid"),
        (["upstream=a:1", "hold_s=0"], "hold_s=0.0 is not valid; it must be a number of seconds > 0"),
        (["upstream=a:1", "faults.mtbf_s=3"], "route does not take faults.mtbf_s= of a simulation; valid: its own"),
        (
            ["upstream=a:1", "gateway.order=vtc"],
            "gateway.order=vtc is of simulated gateways; route has fcfs and priority",
        ),
        (["upstream=a:1", "polcy=lor"], "route does not take polcy= of a simulation"),
        (["upstream=a:1", "policy=lro"], "unknown policy 'lro'. Did you mean 'lor'?"),
        (["upstream=a:1", "policy=replay", "policy.path=x.npz"], "policy Replay cannot be hosted: it says where"),
        (["check=nowhere"], "check=nowhere cannot be read"),
    ],
)
def test_what_is_not_valid_is_said(words: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["route", *words]) == 2
    assert said in capsys.readouterr().err
