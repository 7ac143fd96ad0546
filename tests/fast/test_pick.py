"""`prebleexp pick`: an endpoint picker, driven by a client that speaks to it as Envoy does."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import cache
from pathlib import Path
from typing import Any

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from prebleexp.__main__ import main as command
from prebleexp.errors import InvalidInput
from prebleexp.experiment.cell import Cell
from prebleexp.launch import configure
from prebleexp.live import extra
from prebleexp.live.http.client import Client
from prebleexp.live.http.exchange import Exchange
from prebleexp.live.http.limits import Limits
from prebleexp.live.http.places import origin
from prebleexp.live.http.server import listen
from prebleexp.live.mock.kv_events import Publisher
from prebleexp.live.picker import served
from prebleexp.live.picker.messages import endpoint
from prebleexp.live.picker.picker import Picker
from prebleexp.live.picker.pool import VERSIONS, Pool, Unknown, named
from prebleexp.live.router.deciding import Deciding
from prebleexp.live.router.prompts import read
from prebleexp.live.router.served import How, compile_for
from prebleexp.sim.answers import HOLD, REFUSE
from tests.support.engines import Engine
from tests.support.envoy import BUFFERED, DUPLEX, STREAMED, Shown, event, headers
from tests.support.few_prompts import remember_few
from tests.support.http import run
from tests.support.processes import free_ports

MODES = [(DUPLEX, DUPLEX), (BUFFERED, STREAMED), (BUFFERED, BUFFERED)]


@cache
def cell(policy: str) -> Cell:
    """With machine code: no test waits for that."""
    made = configure.cells([f"policy={policy}", "rps=1", "gpus=1"])[0]
    compile_for(made.policy, made.hardware)
    return made


@pytest.fixture(autouse=True)
def _ready(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Before the loop begins."""
    remember_few(monkeypatch)
    params = request.node.callspec.params if hasattr(request.node, "callspec") else {}
    cell(params.get("policy", "lor"))


class Running:
    """A picker for engines, and a channel to it."""

    def __init__(self, picker: Picker, channel: Any, engines: list[Engine]) -> None:
        self.picker, self.channel, self.engines = picker, channel, engines

    def shown(self, mode: int = DUPLEX, back: int = DUPLEX) -> Shown:
        return Shown(self.channel, mode, back)

    def gpu(self, place: bytes) -> int:
        there = [one for one in self.picker.upstreams if one.origin is not None]
        return next(one.number for one in there if endpoint(one) == place.decode())

    @property
    def outstanding(self) -> list[int]:
        found: list[int] = self.picker.deciding.host.view.sent["outstanding"].tolist()
        return found

    async def until(self, outstanding: list[int]) -> None:
        while self.outstanding != outstanding:
            await asyncio.sleep(0.005)

    async def healthy(self, name: str) -> int:
        said = await health_pb2_grpc.HealthStub(self.channel).Check(health_pb2.HealthCheckRequest(service=name))
        return int(said.status)


@asynccontextmanager
async def picking(policy: str, count: int, **how: Any) -> AsyncIterator[Running]:
    one = cell(policy)
    engines = [await Engine().start() for _ in range(count)]
    client = Client()
    places = [origin("url", engine.url) for engine in engines]
    settings = How(places, count, health_s=how.pop("health_s", 0.1), rows=4096, **how)
    picker, recorded = served.made(one.policy, [one.hardware] * count, 0, settings, client)
    await picker.begin()
    listening = served.listen(picker, "127.0.0.1", 0)
    await listening.begin()
    channel = grpc.aio.insecure_channel(f"127.0.0.1:{listening.port}")
    try:
        yield Running(picker, channel, engines)
    finally:
        await channel.close()
        await listening.close()
        await picker.end()
        for engine in engines:
            await engine.kill()
        client.close()
        if recorded is not None:
            recorded.close()


# ---------------------------------------------------------------- decisions
@pytest.mark.thorough
@pytest.mark.parametrize("policy", ["lor", "round_robin", "vllm_cache_aware", "vllm_sticky_least_loaded"])
@pytest.mark.parametrize("mode", [0, 1])
def test_decisions_are_those_of_the_policy_asked_directly(policy: str, mode: int) -> None:
    async def main() -> None:
        async with picking(policy, 3, health_s=1000) as running:
            one = cell(policy)
            plain = Deciding(one.policy, [one.hardware] * 3, 0, 1, rows=4096)
            plain.begin([0, 1, 2])
            flying = []
            for i in range(30):
                given = {"prompt": f"{i % 4} " * 400 + str(i), "max_tokens": 8}
                shown = running.shown(*MODES[mode])
                place = await shown.asks(session=f"s{i % 5}", **given)
                body = json.dumps({"model": "tiny", **given}).encode()
                ticket = plain.arrives(read(body)._replace(session=f"s{i % 5}"), float(i))
                assert running.gpu(place) == plain.ask(ticket, float(i))
                flying.append((shown, ticket))
                if i % 3 == 2:  # one of the last three ends, in the one as in the other
                    shown, ticket = flying.pop(i % 2)
                    changed = await shown.answered(event(), event())
                    assert changed.set_headers[0].header.key == "x-prebleexp-gpu"
                    assert int(changed.set_headers[0].header.raw_value) == ticket.gpu
                    plain.first_token(ticket, i + 0.2)
                    await shown.token(event(usage={"prompt_tokens": 9, "completion_tokens": 7}), end=True)
                    plain.finished(ticket, 7, i + 0.5)
                    await shown.over()
            assert running.outstanding == plain.host.view.sent["outstanding"].tolist()
            assert sum(running.outstanding) == 20
            assert running.picker.counts.answered == 10
            assert "requests_total" in running.picker.metrics()
            for shown, _ in flying:
                shown.leaves()
            await running.until([0, 0, 0])

    run(main())


def test_a_recording_is_decided_alike_again(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "decisions.jsonl"

    async def main() -> None:
        async with picking("lor", 3, record=file, settings=["policy=lor", "gpus=3"]) as running:
            for i in range(12):
                left = [endpoint(one) for one in running.picker.upstreams[: 1 + i % 3]]
                shown = running.shown()
                assert running.gpu(await shown.asks(among=left)) < 1 + i % 3
                if i % 2:
                    await shown.answered(event())
                    await shown.token(event(), end=True)
                    await shown.over()

    run(main())
    assert command(["route", f"check={file}"]) == 0
    assert capsys.readouterr().out == "12 decisions, 0 differ\n"
    assert "once upon" not in file.read_text()


def test_what_the_gateway_leaves_is_kept_to() -> None:
    async def main() -> None:
        async with picking("lor", 3) as running:
            places = [endpoint(one) for one in running.picker.upstreams]
            for _ in range(3):
                assert running.gpu(await running.shown().asks(among=places[1:2])) == 1
            assert running.gpu(await running.shown().asks(among=[*places, "10.0.0.9:80"])) in (0, 2)
            assert await running.shown().asks(among=[]) == b"503"
            assert await running.shown().asks(among=["10.0.0.9:80"]) == b"503"
            assert running.picker.deciding.candidates == [0, 1, 2]

    run(main())


# ---------------------------------------------------------------- bodies
@pytest.mark.parametrize("trailers", [False, True])
def test_long_bodies_come_back_in_pieces_as_they_were(trailers: bool) -> None:
    async def main() -> None:
        async with picking("lor", 1) as running:
            body = json.dumps({"model": "tiny", "prompt": "é" * 90_000}).encode()
            shown = running.shown()
            await shown.begins()
            await shown.body(body, pieces=7, trailers=trailers)
            first = await shown.hear()
            assert first.request_headers.response.header_mutation.remove_headers == ["accept-encoding"]
            got, sizes, ends = b"", [], []
            while len(got) < len(body):
                piece = (await shown.hear()).request_body.response.body_mutation.streamed_response
                got += piece.body
                sizes.append(len(piece.body))
                ends.append(piece.end_of_stream)
            assert got == body
            assert max(sizes) <= 62_000
            assert ends == [False] * (len(ends) - 1) + [not trailers]
            if trailers:
                assert (await shown.hear()).HasField("request_trailers")
            await shown.over()

    run(main())


def test_bad_bodies_are_refused_with_a_reason() -> None:
    async def main() -> None:
        async with picking("lor", 1, limits=Limits(body_bytes=10_000, request_s=0.3)) as running:
            shown = running.shown()
            await shown.begins()
            await shown.body(b"{no json")
            assert await shown.goes(0) == b"400"
            shown = running.shown()
            await shown.begins()
            await shown.body(b"x" * 12_000, pieces=2)
            assert await shown.goes(0) == b"413"
            shown = running.shown()
            await shown.begins()
            assert await shown.goes(0) == b"408"
            assert running.outstanding == [0]
            assert not running.picker.deciding.waiting_tokens[0]

    run(main())


def test_requests_under_way_hold_so_many_bytes_at_most() -> None:
    async def main() -> None:
        async with picking("lor", 1, limits=Limits(held_bytes=1000)) as running:
            first, second = running.shown(), running.shown()
            assert running.gpu(await first.asks(prompt="x" * 600)) == 0
            assert await second.asks(prompt="x" * 600) == b"503"
            for one in (first, second):
                await one.over()
            await running.until([0])
            assert running.picker.budget.held == 0

    run(main())


def test_what_asks_no_model_goes_to_who_is_up_without_the_policy() -> None:
    async def main() -> None:
        async with picking("lor", 2) as running:
            shown = running.shown()
            await shown.begins(end=True, **{":method": "GET", ":path": "/v1/models"})
            assert running.gpu(await shown.goes(0)) == 0
            await shown.answered(kind="application/json")
            await shown.token(b"{}", end=True)
            await shown.over()
            assert running.picker.counts.answered == 0
            await running.engines[0].kill()
            while running.picker.deciding.candidates != [1]:
                await asyncio.sleep(0.01)
            shown = running.shown()
            await shown.begins(**{":path": "/tokenize"})
            assert running.gpu(await shown.goes(0)) == 1
            await shown.body(b"{}")
            assert (await shown.hear()).request_body.response.body_mutation.streamed_response.body == b"{}"
            await shown.over()

    run(main())


@pytest.mark.parametrize(("mode", "back"), [(STREAMED, DUPLEX), (0, DUPLEX), (DUPLEX, 0)])
def test_an_envoy_that_shows_too_little_is_told(mode: int, back: int, caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        async with picking("lor", 1) as running:
            for _ in range(2):
                shown = running.shown(mode, back)
                await shown.begins()
                assert await shown.code() == grpc.StatusCode.FAILED_PRECONDITION
            shown = running.shown()
            await shown.send(headers("response_headers", {}))
            assert await shown.code() == grpc.StatusCode.FAILED_PRECONDITION

    with caplog.at_level(logging.ERROR, "prebleexp"):
        run(main())
    assert [one.getMessage()[:33] for one in caplog.records] == ["Envoy's ext_proc filter must show"]


# ---------------------------------------------------------------- holds, refusals, losses
def _answers(monkeypatch: pytest.MonkeyPatch, running: Running, answer: int | None) -> None:
    """What the policy says from now on."""
    host, real = running.picker.deciding.host, type(running.picker.deciding.host).decide
    monkeypatch.setattr(
        host, "decide", lambda taken, now: real(host, taken, now) if answer is None else answer, raising=False
    )


def test_refused_requests_get_429(monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        async with picking("lor", 1) as running:
            _answers(monkeypatch, running, REFUSE)
            for mode in MODES:
                assert await running.shown(*mode).asks() == b"429"
            assert running.picker.counts.refused == {"policy": 3}
            assert running.outstanding == [0]

    run(main())


def test_held_requests_go_when_something_ends_and_get_503_when_nothing_does(monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        async with picking("lor", 1, hold_s=0.5, health_s=1000) as running:
            first = running.shown()
            await first.asks()
            _answers(monkeypatch, running, HOLD)
            assert await running.shown().asks() == b"503"
            waits = asyncio.create_task(running.shown().asks())
            leaves = running.shown()
            gone = asyncio.create_task(leaves.asks())
            while "held 2" not in running.picker.metrics():
                await asyncio.sleep(0.005)
            leaves.leaves()
            await asyncio.gather(gone, return_exceptions=True)
            while "held 1" not in running.picker.metrics():
                await asyncio.sleep(0.005)
            _answers(monkeypatch, running, None)
            await first.answered(event())
            await first.token(b"data: [DONE]\n\n", end=True)
            assert running.gpu(await waits) == 0
            assert running.picker.counts.refused == {"policy": 1}
            assert running.picker.counts.left == 1

    run(main())


def test_without_servers_requests_wait_and_health_says_so() -> None:
    async def main() -> None:
        async with picking("lor", 1, hold_s=0.3) as running:
            status = health_pb2.HealthCheckResponse
            assert await running.healthy("") == status.SERVING
            await running.engines[0].kill()
            while running.picker.deciding.candidates:
                await asyncio.sleep(0.01)
            assert await running.shown().asks() == b"503"
            assert await running.healthy("readiness") == status.NOT_SERVING
            assert await running.healthy("liveness") == status.SERVING
            waits = asyncio.create_task(running.shown().asks())
            await running.engines[0].start()
            assert running.gpu(await waits) == 0
            assert await running.healthy("envoy.service.ext_proc.v3.ExternalProcessor") == status.SERVING

    run(main())


@pytest.mark.parametrize("when", ["before", "after_token", "half_closed", "status", "answered"])
def test_lost_streams_are_told_to_the_policy(when: str) -> None:
    """A client that leaves, a server that breaks off, a server that is gone: nothing stays in the book."""

    async def main() -> None:
        async with picking("lor", 1, health_s=1000) as running:
            shown = running.shown()
            await shown.asks(prompt="x" * 4000)
            assert running.outstanding == [1]
            assert running.picker.deciding.waiting_tokens[0] > 900
            if when == "after_token":
                await shown.answered(event())
                assert running.picker.deciding.waiting_tokens == [0]
            if when in ("before", "after_token"):
                shown.leaves()
            elif when == "half_closed":
                await shown.over()
            else:
                await shown.answered(status=503 if when == "status" else 200, kind="text/plain")
                await shown.token(b"upstream connect error", end=True)
                await shown.over()
            await running.until([0])
            assert running.picker.deciding.waiting_tokens == [0]
            assert (running.picker.counts.cut, running.picker.counts.answered) == (
                (0, 1) if when == "answered" else (1, 0)
            )
            assert not running.picker.upstreams[0].flying

    run(main())


def test_a_server_that_takes_no_connection_gets_no_more() -> None:
    """Envoy's 503 is looked into at once; a server's own 500, from one that is well, changes nothing."""

    async def main() -> None:
        async with picking("round_robin", 2, health_s=1000) as running:
            for status in (500, 503):
                shown = running.shown()
                gone = running.gpu(await shown.asks())
                if status == 503:
                    await running.engines[gone].kill()
                await shown.answered(status=status, kind="text/plain")
                await shown.token(b"", end=True)
                while running.picker._looked_at:
                    await asyncio.sleep(0.005)
                assert len(running.picker.deciding.candidates) == (2 if status == 500 else 1)
            for _ in range(3):
                assert running.gpu(await running.shown().asks()) != gone

    cell("round_robin")
    run(main())


@pytest.mark.parametrize("policy", ["lmetric"])
def test_kv_events_say_who_has_a_prompt(policy: str, caplog: pytest.LogCaptureFixture) -> None:
    """What neither the picker nor anybody behind it has sent there; and of text, nothing can be known."""
    ids, size = list(range(100, 1060)), 16
    publishers = [Publisher("127.0.0.1", one, None) for one in free_ports(2)]
    hashes = list(range(1, len(ids) // size + 1))
    stored = {"type": "BlockStored", "block_hashes": hashes, "parent_block_hash": None, "token_ids": ids}
    stored |= {"block_size": size, "lora_id": None, "medium": "GPU"}

    async def main() -> None:
        events = [one.address for one in publishers]
        async with picking(policy, 2, health_s=1000, kv_events=events) as running:
            heard, held = running.picker.ears, running.picker.deciding.held
            assert heard is not None
            assert held is not None
            for ear, publisher in zip(heard.of, publishers, strict=True):
                while ear.next == 0:  # until the subscription has come
                    publisher.publish([])
                    await asyncio.sleep(0.005)
            for one in (1, 0):
                publishers[one].publish([stored])
                publishers[1 - one].publish([{"type": "AllBlocksCleared"}])
                while (held.blocks(one), held.blocks(1 - one)) != (len(hashes), 0):
                    await asyncio.sleep(0.005)
                for last in range(3):
                    shown = running.shown()
                    assert running.gpu(await shown.asks(prompt=[*ids, last])) == one
                    await shown.answered(event())
                    usage = {"prompt_tokens": len(ids) + 1, "prompt_tokens_details": {"cached_tokens": len(ids)}}
                    await shown.token(event(usage=usage | {"completion_tokens": 1}), end=True)
                    await shown.over()
            said = running.picker.metrics()
            assert f"prebleexp:kv_cached_tokens_total {6 * len(ids)}" in said
            assert f"prebleexp:kv_predicted_tokens_total {6 * len(ids)}" in said
            await running.shown().asks()
            assert running.picker.deciding.unmatched == 1

    run(main())
    for one in publishers:
        one.close()
    assert "a prompt came as text" in caplog.text


# ---------------------------------------------------------------- a pool of Kubernetes
class Api:
    """As much of the API of Kubernetes as a picker asks for: one pool, and pods."""

    def __init__(self, version: str, pool: dict[str, Any]) -> None:
        self.paths, self.pool = [f"/apis/{version}/namespaces/ai/inferencepools/mine"], pool
        self.pods: list[dict[str, Any]] = []
        self.asked = list[str]()
        self.well = True

    def __call__(self, exchange: Exchange) -> None:
        self.asked.append(exchange.query.decode())
        if not self.well:
            exchange.fail(500, "not now")
        elif exchange.path in self.paths:
            exchange.respond(200, json.dumps({"spec": self.pool}).encode())
        elif exchange.path == "/api/v1/namespaces/ai/pods":
            exchange.respond(200, json.dumps({"items": self.pods}).encode())
        else:
            exchange.fail(404, "not found")


def pod(address: str, ready: bool = True, **metadata: str) -> dict[str, Any]:
    conditions = [{"type": "PodScheduled", "status": "True"}, {"type": "Ready", "status": str(ready)}]
    return {"metadata": metadata, "status": {"podIP": address, "conditions": conditions}}


NEW = {"selector": {"matchLabels": {"app": "vllm", "tier": "a b"}}, "targetPorts": [{"number": 8000}]}
OLD = {"selector": {"app": "vllm", "tier": "a b"}, "targetPortNumber": 8000}


@pytest.mark.parametrize(("version", "of"), [(VERSIONS[0], NEW), (VERSIONS[1], OLD)])
def test_a_pools_ready_pods_are_the_servers(version: str, of: dict[str, Any], caplog: pytest.LogCaptureFixture) -> None:
    api, found = Api(version, of), list[list[str]]()

    async def main() -> None:
        server, client = await listen(api, 0), Client()
        place = origin("kubernetes", f"http://127.0.0.1:{server.port}")
        pool = Pool(client, place, ("ai", "mine"), lambda servers: found.append([one.host for one in servers]))
        unready = pod("10.0.0.8", ready=False)
        api.pods = [pod("10.0.0.2"), pod("10.0.0.1"), unready, pod("10.0.0.9", deletionTimestamp="now"), pod("")]
        await pool.look()
        await pool.look()
        pool.begin(0.01)
        api.pods = [pod("10.0.0.2"), pod("10.0.0.8")]
        while len(found) < 2:
            await asyncio.sleep(0.005)
        api.well = False
        while "its servers stay as they were" not in caplog.text:
            await asyncio.sleep(0.005)
        api.well, api.pods = True, []
        while len(found) < 3:
            await asyncio.sleep(0.005)
        await pool.end()
        with pytest.raises(Unknown, match="no InferencePool other in namespace ai"):
            await Pool(client, place, ("ai", "other"), print).look()
        api.pool = {"selector": None}
        with pytest.raises(Unknown, match="is not understood"):
            await pool.look()
        await server.close()
        client.close()

    run(main())
    assert found == [["10.0.0.1", "10.0.0.2"], ["10.0.0.2", "10.0.0.8"], []]
    assert "resourceVersion=0&labelSelector=app%3Dvllm%2Ctier%3Da%20b" in api.asked
    assert caplog.text.count("its servers stay as they were") == 1


def test_servers_come_and_go_while_it_picks(caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        async with picking("lor", 2, health_s=0.02) as running:
            places = [origin("url", engine.url) for engine in running.engines]
            flying = running.shown()
            gone = running.gpu(await flying.asks())
            running.picker.place([places[1 - gone]])
            for _ in range(3):
                assert running.gpu(await running.shown().asks()) == 1 - gone
            running.picker.place(places)
            assert "there is no room for" in caplog.text, "a request is under way there"
            await flying.answered(event())
            await flying.token(event(usage={"completion_tokens": 1}), end=True)
            await flying.over()
            assert running.outstanding[gone] == 0
            running.picker.place(places)
            while gone not in running.picker.deciding.candidates:
                await asyncio.sleep(0.005)
            assert running.gpu(await running.shown().asks()) == gone

    run(main())


@pytest.mark.parametrize(
    ("given", "found"), [("mine", ("default", "mine")), ("ai/mine", ("ai", "mine")), ("/mine", None), ("a/b/c", None)]
)
def test_pools_have_a_namespace(given: str, found: tuple[str, str] | None) -> None:
    if found is not None:
        assert named(given) == found
        return
    with pytest.raises(InvalidInput, match=f"pool={given} is not valid; it must be a name, or NAMESPACE/NAME"):
        named(given)


def test_a_pool_that_is_not_there_is_said(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    (port,) = free_ports(1)
    assert command(["pick", "policy=lor", "pool=ai/mine", f"kubernetes=http://127.0.0.1:{port}", "port=0"]) == 2
    assert f"pool: http://127.0.0.1:{port} does not answer" in capsys.readouterr().err
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    assert command(["pick", "policy=lor", "pool=ai/mine"]) == 2
    assert "kubernetes= is missing, and this is no pod" in capsys.readouterr().err


# ---------------------------------------------------------------- the command
@pytest.mark.parametrize(
    ("words", "why"),
    [
        ("", "upstream= is missing"),
        ("upstream=engine:8000", "upstream=engine:8000 is not valid; it must be IP:PORT"),
        ("upstream=https://10.0.0.1:8000", "it must be IP:PORT alone"),
        ("upstream=10.0.0.1:8000/v1", "it must be IP:PORT alone"),
        ("upstream=10.0.0.1:8000,10.0.0.1:8000", "names a server twice"),
        ("upstream=10.0.0.1:8000 rps=3", "pick does not take rps= of a simulation"),
        ("upstream=10.0.0.1:8000 hold_s=0", "hold_s=0"),
        ("upstream=10.0.0.1:8000 policy=replay", "replay"),
        ("upstream=10.0.0.1:8000 kv=events", "kv=events needs kv_events="),
        ("upstream=10.0.0.1:8000 pool=a", "upstream= and pool= are not valid together"),
    ],
)
def test_bad_settings_are_one_line(words: str, why: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert command(["pick", *words.split()]) == 2
    assert why in capsys.readouterr().err


def test_a_taken_port_is_said() -> None:
    async def main() -> None:
        async with picking("lor", 1) as running:
            other = served.listen(running.picker, "127.0.0.1", 0)
            with pytest.raises(InvalidInput, match=r"cannot listen on host=127\.0\.0\.1"):
                served.listen(running.picker, "127.0.0.1", other.port)
            await other.begin()
            await other.close()

    run(main())


def test_what_is_missing_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(extra, "OF_PICKERS", ("no_such_package.messages",))
    with pytest.raises(InvalidInput, match=r"needs no_such_package\.messages.*prebleexp\[picker\]"):
        extra.check_picker()
