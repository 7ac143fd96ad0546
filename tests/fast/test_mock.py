"""A mock's tokens come when the simulator says, and what it answers is what OpenAI's clients expect. The clock stands
still until a test sets it."""

from __future__ import annotations

import asyncio
import math
import re
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from prebleexp.errors import InvalidInput, PrebleexpError
from prebleexp.experiment import runs
from prebleexp.launch import configure
from prebleexp.live.http.calls import Receiver
from prebleexp.live.http.client import Client as HttpClient
from prebleexp.live.http.places import Origin, origin
from prebleexp.live.measuring.phases import Watched
from prebleexp.live.mock import tokens
from prebleexp.live.mock.cluster import Cluster
from prebleexp.live.mock.late import Late
from prebleexp.live.mock.metrics import Metrics
from prebleexp.live.mock.prompts import Known, Prompts
from prebleexp.live.mock.room import Full
from prebleexp.live.mock.serving import Mock, Terms
from prebleexp.sim.types import Ints, State
from tests.support import http
from tests.support.mocked import MODEL, Client, Site, cluster_of, tokens_of

ONE_TABLE = "hardware/model=llama_3_1_8b"
"""a model all of whose layers look back to all"""
PROMPT = "t1 t2 t3 t4"


# ---------------------------------------------------------------- the same as simulated
@pytest.mark.thorough
@pytest.mark.parametrize("engine", ["vllm", "sglang"])
@pytest.mark.parametrize("more", [["rps=10"], ["rps=30", "hardware.kv_tokens=30000"]])
def test_a_stream_is_served_as_it_is_simulated(engine: str, more: list[str]) -> None:
    """Each request at the GPU that a router chose: hits, first and last tokens, to the bit where a cache has blocks."""
    cell = configure.cells(["gpus=2", f"engine={engine}", "policy=lmetric", "duration_s=8", "seed=5", *more])[0]
    stream = runs.draw(cell)
    watched = Watched(len(stream))
    true = runs.simulate_cell(cell, stream, on_event=watched)
    cluster, made = Cluster(cell, rows=len(stream)), dict[int, Ints]()
    cluster.watching = Metrics(cluster, MODEL)
    served, hits = [], []
    for row, at_s in enumerate(stream.arrival_s.tolist()):
        output = int(min(stream.output_tokens[row], stream.max_new_tokens[row]))
        answer = np.random.default_rng([2, row]).integers(1 << 30, 1 << 31, output).astype(np.int32)
        client, most = Client(), int(stream.max_new_tokens[row])
        ticket = cluster.come(int(true.gpu[row]), tokens_of(stream, row, made), answer, most, at_s, client)
        served.append((client, ticket))
    cluster.to(1e6)
    hits = np.array([cluster.hit_tokens(ticket) for _, ticket in served])
    ttft_s = np.array([client.times[0] for client, _ in served]) - stream.arrival_s
    latency_s = np.array([client.times[-1] for client, _ in served]) - stream.arrival_s
    assert [len(client.times) for client, _ in served] == true.output_seen.tolist()
    assert true.hit_tokens.sum() > 0
    if engine == "vllm":
        for name in ("queued_s", "scheduled_s"):
            np.testing.assert_array_equal([getattr(ticket, name) for _, ticket in served], getattr(watched, name))
        np.testing.assert_array_equal(hits, true.hit_tokens)
        np.testing.assert_array_equal(ttft_s, true.ttft_s)
        np.testing.assert_array_equal(latency_s, true.latency_s)
    else:  # a token at a time, of which a mock sees whole blocks
        assert (hits <= true.hit_tokens).all()
        assert (hits > true.hit_tokens - cluster.block).all()


def test_an_answer_is_found_in_the_next_prompt() -> None:
    cluster = cluster_of(ONE_TABLE)
    first, answer, more = (np.arange(at, at + 100, dtype=np.int32) for at in (0, 200, 400))
    cluster.come(0, first, answer, 100, 0.0, Client())
    cluster.to(60.0)
    ticket = cluster.come(0, np.concatenate([first, answer, more]), more, 100, 60.0, Client())
    cluster.to(120.0)
    assert cluster.hit_tokens(ticket) == (199 // 16) * 16, "the last token of an answer is never computed"


def test_prompts_share_segments_as_they_share_blocks() -> None:
    prompts = Prompts(4, 100)
    a = prompts.segments(np.arange(10, dtype=np.int32))
    b = prompts.segments(np.array([*range(8), 99, 98], np.int32))
    assert a.ends.tolist() == b.ends.tolist() == [4, 8, 10]
    assert (a.ids == b.ids).tolist() == [True, True, False]
    answer = prompts.answer(a, np.arange(50, 57, dtype=np.int32))
    c = prompts.segments(np.array([*range(10), *range(50, 57), 1, 2], np.int32))
    assert c.ids.tolist()[:4] == [*a.ids.tolist(), answer]
    assert c.ends.tolist() == [4, 8, 10, 17, 19]
    cut = prompts.segments(np.array([*range(10), 50, 51], np.int32))
    assert (cut.ids.tolist(), cut.ends.tolist()) == ([*a.ids.tolist(), answer], [4, 8, 10, 12])


@pytest.mark.thorough
def test_memory_stays() -> None:
    """Rows, ids and answers of a thousand requests in room for 32, some of which are left in the midst."""
    for engine in ("vllm", "sglang"):
        cluster, rng = cluster_of(f"engine={engine}", rows=32), np.random.default_rng(0)
        at_s, clients, last = 0.0, [], None
        for number in range(1000):
            at_s += 0.05
            prompt = rng.integers(0, 1000, int(rng.integers(1, 60))).astype(np.int32)
            clients.append(Client())
            if number % 5 == 4 and last is not None:
                cluster.leave(last, at_s)
            last = cluster.come(number % 2, prompt, prompt[:20], 64, at_s, clients[-1])
        cluster.to(1e6)
        state = cluster.run.world
        assert (len(cluster.tickets), int(state.control.present)) == (0, 0)
        assert len(state.jobs) == 32
        done = [one for one in clients if one.end is not None]
        assert {one.end[0] for one in done if one.end} == {State.FINISHED}
        assert len(done) >= 800
        assert (state.live.running == 0).all()
        live = state.live
        assert (live.kv_tokens - live.kv_free - live.evictable < cluster.block).all(), "nobody holds anything"
    known = Known[int, int](10)
    for number in range(1000):
        known[number] = number
    assert len(known) <= 20


def test_what_a_gpu_tells_of_itself_is_right_though_clients_leave() -> None:
    """Whenever that is: in the queue, part-way, decoding, and in the step before the last token."""
    cluster, rng = cluster_of(ONE_TABLE, "hardware.kv_tokens=4000", rows=64), np.random.default_rng(0)
    mine, look, looks = cluster.engine.mine, cluster._look, 0

    def check(state: Any) -> None:
        nonlocal looks
        look(state)
        looks += 1
        for g, gpu in enumerate(mine.gpus):
            rows = mine.running[g, : gpu.running]
            jobs, prompt = mine.jobs[rows], state.seen.requests.prompt_tokens[rows]
            steady = np.where(jobs.steady_from >= 0, np.maximum(0, gpu.over - jobs.steady_from), 0)
            generated = (jobs.known + steady - prompt)[jobs.finished == 0].sum()
            assert (gpu.generated, state.live[g].running) == (generated, gpu.running)

    cluster._look = check  # type: ignore[method-assign]
    at_s, tickets = 0.0, []
    for number in range(400):
        at_s += rng.exponential(0.01)
        prompt = rng.integers(0, 1000, int(rng.integers(1, 120))).astype(np.int32)
        answer = np.full(int(rng.integers(1, 60)), number, np.int32)
        tickets.append(cluster.come(number % 2, prompt, answer, len(answer), at_s, Client()))
        if rng.random() < 0.4:
            at_s += 1e-4
            cluster.leave(tickets[int(rng.integers(max(0, number - 12), number + 1))], at_s)
    cluster.to(1e6)
    live = cluster.run.world.live
    assert looks > 1000
    assert (live.generated == 0).all()
    assert (live.waiting_tokens == 0).all()


def test_who_finds_no_row_is_told_so() -> None:
    cluster, some = cluster_of(rows=4), np.arange(5, dtype=np.int32)
    for _ in range(4):
        cluster.come(0, some, some, 5, 0.0, Client())
    with pytest.raises(Full, match="no room for one more"):
        cluster.come(0, some, some, 5, 0.0, Client())
    cluster.to(60.0)
    cluster.come(0, some, some, 5, 60.0, Client())


@pytest.mark.uncompiled
def test_who_has_left_keeps_a_row_while_the_queue_has_it() -> None:
    """It is passed over when its turn comes: until then nobody else may stand there."""
    cluster, some = cluster_of(ONE_TABLE, "engine.max_num_seqs=1", rows=8), np.arange(5, dtype=np.int32)
    clients = [Client() for _ in range(10)]
    tickets = [cluster.come(0, some, some, 64, 0.0, one) for one in clients[:8]]
    cluster.to(0.06)
    assert [one.end is not None for one in clients[:8]] == [True] + [False] * 7, "one is served, and one runs"
    for one in tickets[2:5]:
        cluster.leave(one, 0.06)
    assert cluster.come(0, some, some, 64, 0.06, clients[8]).row == tickets[0].row
    with pytest.raises(Full):
        cluster.come(0, some, some, 64, 0.06, clients[9])
    cluster.to(60.0)
    assert [one.end is not None for one in clients] == [True, True, False, False, False, *[True] * 4, False]
    assert cluster.come(0, some, some, 64, 60.0, clients[9]).row in [one.row for one in tickets]


# ---------------------------------------------------------------- what is answered
@pytest.fixture(scope="module")
def kept() -> Cluster:
    return cluster_of(ONE_TABLE)


@pytest.fixture
def site(kept: Cluster) -> Iterator[Site]:
    made = Site(kept)
    made.at_s = max(0.0, float(kept.run.world.control.until))
    yield made
    made.pass_time(100.0)
    assert not kept.tickets


def _text(events: list[Any]) -> str:
    return "".join(one["choices"][0]["text"] for one in events if one != b"[DONE]" and one["choices"])


def test_a_completion_is_streamed_when_its_tokens_are_due(site: Site) -> None:
    asked = {"prompt": PROMPT, "max_tokens": 5, "ignore_eos": True, "stream": True}
    asked |= {"stream_options": {"include_usage": True}, "return_token_ids": True, "model": MODEL}
    begun_s = site.at_s
    connection, _ = site.ask("/v1/completions", asked)
    assert connection.written == b"", "nothing is there yet"
    site.pass_time(10.0)
    assert connection.status == 200
    assert b"text/event-stream" in connection.head
    *pieces, used, done = connection.events
    assert done == b"[DONE]"
    assert len(pieces) == len(site.due) == 5
    assert all(one["object"] == "text_completion" and one["model"] == MODEL for one in pieces)
    assert [one["choices"][0]["finish_reason"] for one in pieces] == [None] * 4 + ["length"]
    ids = [one["choices"][0]["token_ids"][0] for one in pieces]
    assert _text(pieces) == " ".join(f"t{one}" for one in ids)
    assert tokens.encode(_text(pieces)) == ids
    assert pieces[0]["choices"][0]["prompt_token_ids"] == [1, 2, 3, 4]
    assert used["usage"] == {
        "prompt_tokens": 4,
        "completion_tokens": 5,
        "total_tokens": 9,
        "prompt_tokens_details": {"cached_tokens": 0},
    }
    assert used["choices"] == []
    assert begun_s < site.due[0] < site.due[-1]
    assert sorted(set(connection.times)) == site.due, "each was written when it was due"


def test_a_chat_is_answered(site: Site) -> None:
    asked: dict[str, Any] = {"messages": [{"role": "user", "content": [{"type": "text", "text": "Who is there?"}]}]}
    whole, _ = site.ask("/v1/chat/completions", asked | {"max_tokens": 20, "stop": ["x"]}, gpu=1)
    site.pass_time(10.0)
    choice = whole.json["choices"][0]
    assert choice["message"]["role"] == "assistant"
    assert choice["finish_reason"] == "stop", "it has three tokens, as the cell's lengths say"
    assert len(choice["message"]["content"].split()) == whole.json["usage"]["completion_tokens"] == 3
    assert b"x-prebleexp-ignored: stop" in whole.head
    streamed, _ = site.ask("/v1/chat/completions", asked | {"max_completion_tokens": 2, "stream": True}, gpu=1)
    site.pass_time(10.0)
    role, first, last, done = streamed.events
    assert role["choices"][0]["delta"] == {"role": "assistant", "content": ""}
    assert done == b"[DONE]"
    said = first["choices"][0]["delta"]["content"] + last["choices"][0]["delta"]["content"]
    assert choice["message"]["content"].startswith(said), "the same prompt, the same answer"
    more = [*asked["messages"], choice["message"], {"role": "user", "content": "so?"}]
    begun = tokens.encode_chat(asked["messages"])
    assert tokens.encode_chat(more)[: len(begun) + 3] == [*begun, *tokens.encode(choice["message"]["content"])]


@pytest.mark.parametrize(
    ("more", "header", "length", "reason"),
    [
        ({"max_tokens": 7, "ignore_eos": True}, {}, 7, "length"),
        ({"max_tokens": 7}, {}, 3, "stop"),
        ({"max_tokens": 2}, {}, 2, "length"),
        ({"max_tokens": 9, "min_tokens": 5}, {}, 5, "stop"),
        ({"max_tokens": 9}, {"x_prebleexp_output_tokens": "4"}, 4, "stop"),
        ({"max_tokens": 3}, {"x_prebleexp_output_tokens": "4"}, 3, "length"),
        ({"ignore_eos": True}, {}, 16, "length"),
    ],
)
def test_how_long_an_answer_is(site: Site, more: Any, header: Any, length: int, reason: str) -> None:
    connection, _ = site.ask("/v1/completions", {"prompt": [5, 6, 7]} | more, **header)
    site.pass_time(10.0)
    assert connection.json["usage"]["completion_tokens"] == length
    assert connection.json["choices"][0]["finish_reason"] == reason


@pytest.mark.parametrize(
    ("path", "body", "status", "said"),
    [
        ("/v1/completions", {"prompt": PROMPT, "max_tokens": 10**7}, 400, "maximum context length is 131072 tokens"),
        ("/v1/completions", {"prompt": ""}, 400, "non-empty"),
        ("/v1/completions", {"prompt": [-1]}, 400, "vocabulary"),
        ("/v1/completions", {"prompt": ["a", "b"]}, 400, "several prompts"),
        ("/v1/completions", {"prompt": [1, "b"]}, 400, "token ids"),
        ("/v1/completions", {"prompt": PROMPT, "n": 2}, 400, "n=2"),
        ("/v1/completions", {"prompt": PROMPT, "max_tokens": 0}, 400, "at least 1"),
        ("/v1/completions", {"prompt": PROMPT, "max_tokens": 2, "min_tokens": 3}, 400, "min_tokens"),
        ("/v1/completions", {"prompt": PROMPT, "model": "gpt"}, 404, "does not exist"),
        ("/v1/completions", {"prompt": 7}, 400, "not valid"),
        ("/v1/completions", b"{", 400, "not valid"),
        ("/v1/completions", b'{"prompt": "\xff\xfe"}', 400, "not valid"),
        ("/v1/completions", b"[" * 100_000, 400, "not valid"),
        ("/v1/chat/completions", {"messages": []}, 400, "at least one"),
        ("/v1/completions", None, 405, "Not Allowed"),
        ("/v1/embeddings", {"input": "x"}, 404, "Not Found"),
        ("/tokenize", b"[]", 400, "not valid"),
    ],
)
def test_errors_are_vllms(site: Site, path: str, body: Any, status: int, said: str) -> None:
    connection, _ = site.ask(path, body)
    assert connection.status == status
    error = connection.json["error"]
    assert error["code"] == status
    assert said in error["message"]
    assert not site.cluster.tickets


def test_what_else_routers_ask(site: Site) -> None:
    assert site.ask("/health")[0].status == site.ask("/ping")[0].status == 200
    model = site.ask("/v1/models")[0].json["data"][0]
    assert (model["id"], model["max_model_len"]) == (MODEL, 131072)
    assert site.ask("/get_model_info")[0].json["model_path"] == site.ask("/model_info")[0].json["model_path"] == MODEL
    assert site.ask("/tokenize", {"prompt": "t7 routers"})[0].json["count"] == 3
    assert site.ask("/load")[0].json == {"server_load": 0}
    site.ask("/v1/completions", {"prompt": PROMPT})
    assert site.ask("/load")[0].json == {"server_load": 1}
    assert site.ask("/reset_prefix_cache", {})[0].status == 409, "somebody uses it"
    site.pass_time(10.0)
    assert "version" in site.ask("/version")[0].json
    long = {"prompt": list(range(100)), "max_tokens": 1}
    site.ask("/v1/completions", long)
    site.pass_time(10.0)
    hit, _ = site.ask("/v1/completions", long)
    site.pass_time(10.0)
    assert site.ask("/reset_prefix_cache", {})[0].status == 200
    missed, _ = site.ask("/v1/completions", long)
    site.pass_time(10.0)
    cached = [one.json["usage"]["prompt_tokens_details"]["cached_tokens"] for one in (hit, missed)]
    assert cached == [96, 0]


@pytest.mark.parametrize("path", ["/reset_prefix_cache", "/flush_cache"])
def test_a_page_empties_no_cache_of_a_mock(site: Site, path: str) -> None:
    answer, _ = site.ask(path, {}, origin="https://evil.example")
    assert answer.status == 403
    assert "web pages" in answer.json["error"]["message"]
    assert site.ask(path, {}, host="evil.example")[0].status == 403
    assert site.ask(path, {}, host="127.0.0.1:9100")[0].status == 200


def test_who_leaves_frees_what_it_had(site: Site) -> None:
    for seconds in (0.0, 1.0):  # before its first token, and behind it
        connection, exchange = site.ask("/v1/completions", {"prompt": PROMPT, "max_tokens": 4000, "ignore_eos": True})
        site.pass_time(seconds)
        assert len(site.cluster.tickets) == 1
        exchange.leave()
        site.pass_time(1.0)
        live = site.cluster.run.world.live[0]
        assert (len(site.cluster.tickets), int(live.running), int(live.queued)) == (0, 0, 0)
        assert connection.written == b""


def test_metrics_have_vllms_names_and_edges(site: Site) -> None:
    before = site.ask("/metrics")[0].body.decode()
    for _ in range(3):
        site.ask("/v1/completions", {"prompt": list(range(40)), "max_tokens": 4, "ignore_eos": True})
    while site.cluster.run.world.live[0].running < 3:
        site.pass_time(1e-3)
    running = site.ask("/metrics")[0].body.decode()
    site.pass_time(30.0)
    after = site.ask("/metrics")[0].body.decode()

    def value(text: str, name: str, more: str = "") -> float:
        labels = re.escape(f'engine="0",model_name="{MODEL}"{more}')
        (found,) = re.findall(rf"^vllm:{name}{{{labels}}} (\S+)$", text, re.MULTILINE)
        return float(found)

    def grown(name: str, more: str = "") -> float:
        return value(after, name, more) - value(before, name, more)

    assert value(running, "num_requests_running") + value(running, "num_requests_waiting") == 3
    assert grown("prompt_tokens_total") == grown("prefix_cache_queries_total") == 120
    assert grown("generation_tokens_total") == 12
    assert grown("request_success_total", ',finished_reason="length"') == 3
    for name, count in (
        ("time_to_first_token_seconds", 3),
        ("inter_token_latency_seconds", 9),
        ("e2e_request_latency_seconds", 3),
        ("request_queue_time_seconds", 3),
        ("request_prefill_time_seconds", 3),
        ("request_decode_time_seconds", 3),
        ("request_inference_time_seconds", 3),
        ("request_time_per_output_token_seconds", 3),
        ("request_prompt_tokens", 3),
        ("request_generation_tokens", 3),
    ):
        assert grown(f"{name}_count") == count
        assert f'vllm:{name}_bucket{{engine="0",model_name="{MODEL}",le="+Inf"}}' in after
    assert grown("iteration_tokens_total_sum") == 120 - grown("prefix_cache_hits_total") + 9
    fixed, each = site.cluster.cell.hardware.frontend_s
    spent = [grown(f"request_{one}_time_seconds_sum") for one in ("queue", "inference")]
    assert math.isclose(sum(spent) + 3 * fixed + 120 * each, grown("e2e_request_latency_seconds_sum"))
    edges = re.findall(r'^vllm:time_to_first_token_seconds_bucket{.*le="(.*)"}', after, re.MULTILINE)
    assert edges[:3] + edges[-2:] == ["0.001", "0.005", "0.01", "2560.0", "+Inf"]
    assert 'vllm:cache_config_info{block_size="16",engine="0",num_gpu_blocks="' in after
    assert site.cluster.kv_tokens // 16 == int(re.findall(r'num_gpu_blocks="(\d+)"', after)[0])


@pytest.mark.parametrize(("engine", "prefix"), [("vllm", "vllm:request_"), ("sglang", "sglang:")])
def test_who_comes_to_an_idle_gpu_waits_in_no_queue(engine: str, prefix: str) -> None:
    """As vLLM and SGLang count: times to first and last tokens begin at the frontend, and the queue behind it."""
    site = Site(cluster_of(f"engine={engine}"), metrics=engine)
    for _ in range(3):
        site.ask("/v1/completions", {"prompt": list(range(40)), "max_tokens": 4, "ignore_eos": True})
        site.pass_time(10.0)
    said = site.ask("/metrics")[0].body.decode()

    def total(name: str) -> float:
        (found,) = re.findall(rf"^{name}_sum{{.*}} (\S+)$", said, re.MULTILINE)
        return float(found)

    assert f"{prefix}queue_time_seconds_count" in said
    assert total(f"{prefix}queue_time_seconds") == 0
    fixed, each = site.cluster.cell.hardware.frontend_s
    assert fixed > 0
    if engine == "vllm":
        first, whole = total("vllm:time_to_first_token_seconds"), total("vllm:e2e_request_latency_seconds")
        prefill, decode = (total(f"vllm:request_{one}_time_seconds") for one in ("prefill", "decode"))
        assert math.isclose(first - prefill, 3 * (fixed + 40 * each))
        assert math.isclose(whole - first, decode)


def test_metrics_of_sglang() -> None:
    site = Site(cluster_of("engine=sglang"), metrics="sglang")
    site.ask("/v1/completions", {"prompt": PROMPT, "max_tokens": 50, "ignore_eos": True})
    site.pass_time(0.1)
    said = site.ask("/metrics")[0].body.decode()
    assert f'sglang:num_running_reqs{{model_name="{MODEL}"}} 1.0' in said
    assert "sglang:num_queue_reqs" in said
    assert "sglang:token_usage" in said
    site.pass_time(10.0)
    assert f'sglang:num_requests_total{{model_name="{MODEL}"}} 1.0' in site.ask("/metrics")[0].body.decode()
    assert site.ask("/flush_cache", {})[0].status == 200
    assert site.cluster.run.world.live[0].evictable == 0


# ---------------------------------------------------------------- what goes wrong
def test_a_gpu_that_is_lost_cuts_its_streams() -> None:
    happen = "faults.happen=[{at_s: 2, gpu: 0, event: down}, {at_s: 4, gpu: 0, event: up}]"
    site = Site(cluster_of("faults=timeline", happen))
    asked = {"prompt": PROMPT, "max_tokens": 4000, "ignore_eos": True, "stream": True}
    lost, _ = site.ask("/v1/completions", asked)
    other, _ = site.ask("/v1/completions", asked | {"max_tokens": 400}, gpu=1)
    site.pass_time(3.0)
    assert lost.cut
    assert b"[DONE]" not in lost.written
    assert lost.written.count(b"data: ") > 1
    assert site.ask("/health")[0].status == site.ask("/v1/completions", asked)[0].status == 503
    assert site.ask("/health", gpu=1)[0].status == 200
    site.pass_time(2.0)
    assert site.ask("/health")[0].status == 200
    again, _ = site.ask("/v1/completions", asked | {"max_tokens": 2})
    site.pass_time(60.0)
    assert again.events[-1] == other.events[-1] == b"[DONE]"
    assert not site.cluster.tickets


def test_a_gateway_refuses_with_429() -> None:
    site = Site(cluster_of("gateway.max_in_flight=1", "gateway.queue_limit=1"))
    asked = {"prompt": PROMPT, "max_tokens": 100, "ignore_eos": True}
    first, second, third = (site.ask("/v1/completions", asked)[0] for _ in range(3))
    assert third.status == 429
    assert third.json["error"]["type"] == "RateLimitError"
    assert (first.written, second.written) == (b"", b"")
    site.pass_time(60.0)
    assert (first.status, second.status) == (200, 200)
    assert first.times[-1] < second.times[-1], "one at a time"


def test_a_request_that_no_gpu_could_hold_is_refused() -> None:
    site = Site(cluster_of("hardware.kv_tokens=2000"))
    asked = {"prompt": list(range(1985)), "max_tokens": 10, "ignore_eos": True}
    refused, _ = site.ask("/v1/completions", asked)
    assert refused.status == 400
    assert "does not fit into the GPU's 2,000 KV tokens" in refused.json["error"]["message"]
    served, _ = site.ask("/v1/completions", asked | {"prompt": [1]})
    site.pass_time(60.0)
    assert served.status == 200


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["engine=sglang_2024"], "engine=sglang_2024 cannot be a mock"),
        (["engine=preble"], "engine=preble cannot be a mock"),
        (["cluster=tiered"], "the cell has tiers"),
        (["adapters=zipf"], "adapters= is not valid with mock"),
        (
            ["engine.speculative_config={method: eagle, num_speculative_tokens: 3, acceptance_rate: 0.7}"],
            "engine.speculative_config is not valid with mock",
        ),
    ],
)
def test_what_cannot_be_a_mock_says_so(words: list[str], said: str) -> None:
    with pytest.raises(InvalidInput, match=re.escape(said)):
        cluster_of(*words)


def test_who_is_late_says_so() -> None:
    late = Late()
    for _ in range(200):
        late.add(1e-4)
    assert late.warning() is None
    assert 0.9e-4 < late.quantile(0.5) < 1.2e-4
    for _ in range(200):
        late.add(0.02)
    warned = late.warning()
    assert warned is not None
    assert "too slow for the load" in warned
    assert late.warning() is None, "of what was written since"
    assert sum(late.counts) == 400


# ---------------------------------------------------------------- with sockets
@pytest.mark.thorough
def test_ports_of_a_mock_answer() -> None:
    """A real clock, which runs a hundred times as fast."""

    async def main() -> None:
        mock = Mock(cluster_of(), np.array([3], np.int32), Terms(MODEL, port=0, speed=100.0))
        await mock.open()
        client = HttpClient()
        try:
            places: list[Origin] = [origin("url", one) for one in mock.urls]
            body = b'{"prompt": "t1 t2", "max_tokens": 20, "ignore_eos": true}'
            asked = (client.fetch(one, "/v1/completions", "POST", body) for one in places * 8)
            replies = await asyncio.gather(*asked)
            assert [one.status for one in replies] == [200] * 16
            assert all(b'"completion_tokens":20' in one.body for one in replies)
            said = (await client.fetch(places[1], "/metrics")).body.decode()
            assert "prebleexp:late_seconds_count 16" in said
            assert sum(mock.late.counts) == 16
        finally:
            client.close()
            await mock.close()

    http.run(main())


@pytest.mark.thorough
def test_a_mock_that_cannot_go_on_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    """And is not silent for ever."""

    async def main() -> None:
        mock = Mock(cluster_of(), np.array([3], np.int32), Terms(MODEL, port=0, speed=100.0))
        await mock.open()
        client = HttpClient()
        try:

            def broken(time_s: float) -> None:
                raise PrebleexpError("it broke")

            body = b'{"prompt": "t1", "max_tokens": 100000, "ignore_eos": true}'
            client.call(origin("url", mock.urls[0]), b"POST", b"/v1/completions", (), body, Receiver())
            while not mock.cluster.tickets:
                await asyncio.sleep(1e-3)
            monkeypatch.setattr(mock.cluster, "to", broken)
            with pytest.raises(PrebleexpError, match="it broke"):
                await mock.failed
        finally:
            client.close()
            await mock.close()

    http.run(main())
