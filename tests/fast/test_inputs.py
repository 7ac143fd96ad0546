"""Files that people have, in the shapes that gateways, benchmarks and simulators write: they are taken for what they
are, and what was understood is said."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from prebleexp.errors import InvalidInput
from prebleexp.sim.types import Workload
from prebleexp.workloads.agents import Agents
from prebleexp.workloads.azure import Azure
from prebleexp.workloads.bench_log import BenchLog
from prebleexp.workloads.mooncake import Mooncake
from prebleexp.workloads.output_length import OutputLength
from prebleexp.workloads.replayed import Replayed
from prebleexp.workloads.request_log import RequestLog

OUTPUT = OutputLength((1,), (1.0,))
EPOCH = 1_764_000_000
"""seconds"""
EPOCH_DAY = "2026-03-02T09:00:0{}Z"
UNITS = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}


def lines(path: Path, *rows: Mapping[str, Any]) -> str:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return str(path)


def log(path: Path, *rows: Mapping[str, Any], **settings: Any) -> RequestLog:
    return RequestLog(lines(path / "log.jsonl", *rows), load="recorded", **settings)


def drawn(source: Replayed) -> Workload:
    return source.draw(rps=1, duration_s=1, seed=0, output_length=OUTPUT)


def said(source: Replayed) -> dict[str, str]:
    return dict(source.understood.facts)


def refusal(source: Replayed) -> str:
    with pytest.raises(InvalidInput) as caught:
        drawn(source)
    return str(caught.value)


# ---------------------------------------------------------------- D1: units of time
@pytest.mark.parametrize("unit", UNITS)
def test_a_time_since_1970_is_in_the_one_unit_in_which_it_can_be(unit: str, tmp_path: Path) -> None:
    size = UNITS[unit]
    rows: list[dict[str, float]]
    rows = [{"timestamp": EPOCH * size + i * size // 4, "prompt_tokens": 9, "completion_tokens": 1} for i in range(8)]
    if unit == "s":
        rows = [row | {"timestamp": EPOCH + i / 4} for i, row in enumerate(rows)]
    source = log(tmp_path, *rows)
    assert drawn(source).arrival_s.tolist() == [i / 4 for i in range(8)]
    assert "since 1970 (UTC), from 2025-11-24 16:00:00" in said(source)["time"]
    assert said(source)["rate"] == "4.571 requests/s"


@pytest.mark.parametrize("unit", UNITS)
@pytest.mark.parametrize("name", ["arrival_time_{}", "startTime{}", "ts_{}"])
def test_a_name_says_its_unit(unit: str, name: str, tmp_path: Path) -> None:
    field = name.format(unit if "_" in name else unit.capitalize())
    rows = [{field: i * UNITS[unit] * 2, "prompt_tokens": 9, "completion_tokens": 1} for i in range(3)]
    assert drawn(log(tmp_path, *rows)).arrival_s.tolist() == [0, 2, 4]


def test_a_name_that_its_numbers_contradict_is_refused_unless_the_unit_is_set(tmp_path: Path) -> None:
    rows = [{"ts_s": (EPOCH + i) * 1000, "prompt_tokens": 9, "completion_tokens": 1} for i in range(3)]
    found = refusal(log(tmp_path, *rows))
    assert "row 1: ts_s=1764000000000 is not valid; it must be seconds, as its name says" in found
    assert "workload.time_unit=" in found
    assert drawn(log(tmp_path, *rows, time_unit="ms")).arrival_s.tolist() == [0, 1, 2]


def test_two_units_in_a_column_are_refused(tmp_path: Path) -> None:
    rows = [{"timestamp": at, "prompt_tokens": 9, "completion_tokens": 1} for at in (EPOCH, EPOCH + 1, EPOCH * 1000)]
    assert "row 3: timestamp=1764000000000 is not valid; it must be seconds since 1970" in refusal(log(tmp_path, *rows))


def test_a_unit_that_nothing_says_is_said_to_be_assumed_and_doubted_where_it_is_improbable(tmp_path: Path) -> None:
    rows = [{"timestamp": 250 * i, "prompt_tokens": 9, "completion_tokens": 1} for i in range(8)]
    source = log(tmp_path, *rows)
    assert said(source)["time"] == "timestamp, seconds (assumed: nothing says so)"
    assert any("workload.time_unit=" in one for one in source.understood.doubts)
    set_to = log(tmp_path, *rows, time_unit="ms")
    assert drawn(set_to).arrival_s[-1] == 1.75
    assert not set_to.understood.doubts


def test_a_trace_of_mooncake_in_seconds_is_doubted_and_can_be_set(tmp_path: Path) -> None:
    rows = [{"timestamp": i / 5, "input_length": 700, "output_length": 5, "hash_ids": [0, i]} for i in range(1, 9)]
    source = Mooncake(lines(tmp_path / "t", *rows), load="recorded")
    assert any("time_unit" in one for one in source.understood.doubts)
    source = Mooncake(source.path, load="recorded", time_unit="s")
    assert drawn(source).arrival_s[-1] == pytest.approx(1.4)
    assert not source.understood.doubts


@pytest.mark.parametrize(
    ("times", "zone"),
    [
        (("2026-03-02T09:00:00+02:00", "2026-03-02T07:00:01Z"), "in +02:00 and UTC"),
        (("02/Mar/2026:09:00:00 +0000", "02/Mar/2026:09:00:01 +0000"), "in UTC"),
        (("2026-03-02 09:00:00,000", "2026-03-02 09:00:01,000"), "without a time zone"),
        (("Mon, 02 Mar 2026 09:00:00 GMT", "Mon, 02 Mar 2026 09:00:01 GMT"), "in UTC"),
    ],
)
def test_dates_are_read_in_the_forms_of_servers_and_loggers(times: Sequence[str], zone: str, tmp_path: Path) -> None:
    source = log(tmp_path, *({"time": at, "prompt_tokens": 9, "completion_tokens": 1} for at in times))
    assert drawn(source).arrival_s.tolist() == [0, 1]
    assert zone in said(source)["time"]


# ---------------------------------------------------------------- D2: cached tokens, and what else usage has
USAGES: dict[str, tuple[dict[str, Any], int, int]] = {
    "anthropic": (
        {"usage": {"input_tokens": 21, "cache_read_input_tokens": 9000, "cache_creation_input_tokens": 310,
                   "output_tokens": 70}}, 9331, 70),
    "anthropic, by lifetimes": (
        {"usage": {"input_tokens": 21, "cache_read_input_tokens": 9000, "output_tokens": 70,
                   "cache_creation": {"ephemeral_5m_input_tokens": 300, "ephemeral_1h_input_tokens": 10}}}, 9331, 70),
    "bedrock": (
        {"usage": {"inputTokens": 21, "outputTokens": 70, "cacheReadInputTokens": 9000, "cacheWriteInputTokens": 310,
                   "totalTokens": 9401}}, 9331, 70),
    "openai": (
        {"usage": {"prompt_tokens": 9331, "completion_tokens": 70, "total_tokens": 9401,
                   "prompt_tokens_details": {"cached_tokens": 9000},
                   "completion_tokens_details": {"reasoning_tokens": 60}}}, 9331, 70),
    "openai responses": (
        {"usage": {"input_tokens": 9331, "input_tokens_details": {"cached_tokens": 9000}, "output_tokens": 70,
                   "output_tokens_details": {"reasoning_tokens": 60}, "total_tokens": 9401}}, 9331, 70),
    "gemini": (
        {"usageMetadata": {"promptTokenCount": 9331, "cachedContentTokenCount": 9000, "candidatesTokenCount": 10,
                           "thoughtsTokenCount": 60, "totalTokenCount": 9401}}, 9331, 70),
    "gemini with tools": (
        {"usageMetadata": {"promptTokenCount": 9300, "toolUsePromptTokenCount": 31, "candidatesTokenCount": 70,
                           "totalTokenCount": 9401}}, 9331, 70),
    "deepseek": (
        {"usage": {"prompt_tokens": 9331, "prompt_cache_hit_tokens": 9000, "prompt_cache_miss_tokens": 331,
                   "completion_tokens": 70}}, 9331, 70),
    "litellm": (
        {"response": {"usage": {"prompt_tokens": 9331, "completion_tokens": 70, "total_tokens": 9401,
                                "cache_read_input_tokens": 9000, "cache_creation_input_tokens": 310}}}, 9331, 70),
    "litellm, before it was mended": (
        {"usage": {"prompt_tokens": 21, "completion_tokens": 70, "total_tokens": 91, "cache_read_input_tokens": 9000,
                   "cache_creation_input_tokens": 310}}, 9331, 70),
    "thoughts beside": (
        {"usage": {"prompt_tokens": 9331, "completion_tokens": 10, "total_tokens": 9401,
                   "completion_tokens_details": {"reasoning_tokens": 60}}}, 9331, 70),
    "opentelemetry": (
        {"attributes": {"gen_ai.usage.input_tokens": 9331, "gen_ai.usage.cache_read.input_tokens": 9000,
                        "gen_ai.usage.output_tokens": 70}}, 9331, 70),
    "openinference": (
        {"attributes": {"llm.token_count.prompt": 9331, "llm.token_count.prompt_details.cache_read": 9000,
                        "llm.token_count.completion": 70}}, 9331, 70),
    "vercel": ({"usage": {"inputTokens": 9331, "cachedInputTokens": 9000, "outputTokens": 70}}, 9331, 70),
    "openrouter": ({"tokens_prompt": 9331, "tokens_completion": 70, "native_tokens_cached": 9000}, 9331, 70),
    "bedrock converse": (
        {"usage": {"inputTokens": 31, "cacheReadInputTokens": 9000, "cacheWriteInputTokens": 300, "outputTokens": 70}},
        9331, 70),
    "bedrock invocation log": (
        {"input": {"inputTokenCount": 31, "cacheReadInputTokenCount": 9000, "cacheWriteInputTokenCount": 300},
         "output": {"outputTokenCount": 70}}, 9331, 70),
    "langfuse": ({"usageDetails": {"input": 31, "input_cache_read": 9000, "input_cache_creation": 300, "output": 70}},
                 9331, 70),
    "usage as text": ({"usage": json.dumps({"prompt_tokens": 9331, "completion_tokens": 70})}, 9331, 70),
}  # fmt: skip


@pytest.mark.parametrize("name", USAGES)
def test_a_prompt_has_its_cached_tokens_whoever_counts_them(name: str, tmp_path: Path) -> None:
    usage, prompt, answer = USAGES[name]
    source = log(tmp_path, {"timestamp": "2026-03-02T09:00:00Z"} | usage, {"timestamp": "2026-03-02T09:00:06Z"} | usage)
    workload = drawn(source)
    assert workload.prompt_tokens.tolist() == [prompt] * 2
    assert workload.output_tokens.tolist() == [answer] * 2


def test_what_was_cached_is_said_and_that_prompts_share_nothing_here(tmp_path: Path) -> None:
    source = log(tmp_path, *({"created": EPOCH + i} | USAGES["anthropic"][0] for i in range(2)))
    assert said(source)["cached"] == "usage.cache_read_input_tokens: 96.5% of the prompts' tokens"
    assert "usage.input_tokens + usage.cache_read_input_tokens" in said(source)["prompt"]
    assert any("here prompts share nothing" in one for one in source.understood.doubts)
    assert "the recorder's cache found 96.5% of their tokens" in source.understood.unshared
    assert "; a log with session ids, messages or hash_ids says what they share" in source.understood.unshared
    cure = "workload.columns={prefix: FIELD} workload.prefix_tokens=N says whose system prompts are the same"
    assert source.understood.unshared.endswith(f", and {cure}")


def test_a_count_of_cached_tokens_under_an_unknown_name_is_said(tmp_path: Path) -> None:
    row = {"input_tokens": 31, "output_tokens": 70, "vendor": {"promptCacheReads": 9000, "cacheEnabled": 1}}
    source = log(tmp_path, *({"created": EPOCH + i} | row for i in range(2)))
    assert drawn(source).prompt_tokens.tolist() == [31] * 2
    assert source.understood.doubts == (
        "vendor.promptCacheReads seems to count cached tokens (18,000), and is not used",
    )


def test_an_answer_without_tokens_counts_as_one_and_that_is_said(tmp_path: Path) -> None:
    rows = [{"created": EPOCH + i, "prompt_tokens": 10, "completion_tokens": 5 * i} for i in range(2)]
    source = log(tmp_path, *rows)
    assert drawn(source).output_tokens.tolist() == [1, 5]
    assert said(source)["output"].startswith("completion_tokens, 0 in 1 of 2 rows, taken as 1")


def test_columns_may_be_apart_by_tabs(tmp_path: Path) -> None:
    (tmp_path / "log.tsv").write_text("arrived_at\tprompt_tokens\toutput_tokens\n0.5\t100\t10\n1.5\t120\t20\n")
    workload = drawn(RequestLog(str(tmp_path / "log.tsv"), load="recorded"))
    assert workload.prompt_tokens.tolist() == [100, 120]


def test_rows_of_several_providers_are_each_read_as_their_own(tmp_path: Path) -> None:
    rows = [{"created": EPOCH + i} | USAGES[name][0] for i, name in enumerate(("openai", "anthropic", "gemini"))]
    workload = drawn(log(tmp_path, *rows))
    assert workload.prompt_tokens.tolist() == [9331] * 3
    assert workload.output_tokens.tolist() == [70] * 3


def test_totals_that_say_two_things_are_refused(tmp_path: Path) -> None:
    apart = {"prompt_tokens": 21, "completion_tokens": 9, "cached_tokens": 20, "total_tokens": 50}
    among = {"prompt_tokens": 21, "completion_tokens": 9, "cached_tokens": 20, "total_tokens": 30}
    found = refusal(log(tmp_path, {"created": EPOCH} | apart, {"created": EPOCH} | among))
    assert (
        "row 2: prompt_tokens has the cached tokens among its own, as the total says, and in row 1 it has not" in found
    )


# ---------------------------------------------------------------- D3: a request's own count, tools first
def test_a_request_has_as_many_tokens_as_its_own_count_says(tmp_path: Path) -> None:
    tools = [{"type": "function", "function": {"name": "act", "description": "d " * 9000}}]
    first = [{"role": "system", "content": "s" * 400}, {"role": "user", "content": "u" * 100}]
    more = [*first, {"role": "assistant", "content": "a" * 60}, {"role": "tool", "content": "t" * 7000}]
    rows = [
        {
            "timestamp": EPOCH + 4 * i,
            "request": {"tools": tools, "messages": messages},
            "response": {"usage": {"prompt_tokens": count, "completion_tokens": 20}},
        }
        for i, (messages, count) in enumerate(((first, 4900), (more, 6950)))
    ]
    source = log(tmp_path, *rows)
    workload = drawn(source)
    assert workload.prompt_tokens.tolist() == [4900, 6950]
    a, b = workload.segment_offsets[1:3].tolist()
    shared = np.intersect1d(workload.segment_ids[:a], workload.segment_ids[a:b])
    assert int(workload.segment_tokens[:a][np.isin(workload.segment_ids[:a], shared)].sum()) == 4900
    assert workload.session.tolist() == [0, 0]


def test_prompts_that_part_behind_their_system_prompt_keep_their_counts(tmp_path: Path) -> None:
    system = {"role": "system", "content": "s" * 4000}
    rows = [
        {
            "created": EPOCH + i,
            "messages": [system, {"role": "user", "content": f"{i}" * 100 * (i + 1)}],
            "usage": {"prompt_tokens": 1500 + 40 * i, "completion_tokens": 5},
        }
        for i in range(5)
    ]
    workload = drawn(log(tmp_path, *rows))
    assert workload.prompt_tokens.tolist() == [1500 + 40 * i for i in range(5)]
    assert len(set(workload.segment_ids[workload.segment_offsets[:-1]].tolist())) == 1


def test_a_count_less_than_that_of_what_a_prompt_begins_with_is_said(tmp_path: Path) -> None:
    first = [{"role": "user", "content": "u" * 400}]
    more = [*first, {"role": "assistant", "content": "a"}]
    rows = [
        {"created": EPOCH, "messages": first, "prompt_tokens": 900, "completion_tokens": 1},
        {"created": EPOCH + 1, "messages": more, "prompt_tokens": 100, "completion_tokens": 1},
    ]
    assert any("cannot be" in one for one in log(tmp_path, *rows).understood.doubts)


# ---------------------------------------------------------------- D4: closed loops of benchmarks
def bench(path: Path, **other: Any) -> BenchLog:
    n = len(other.get("input_lens", [0] * 40))
    record = {"backend": "vllm", "request_rate": "inf", "max_concurrency": 8, "input_lens": [64] * n}
    return BenchLog(lines(path / "bench.json", record | {"output_lens": [8] * n} | other), load="recorded")


def test_a_closed_loop_without_starts_is_played_by_its_clients(tmp_path: Path) -> None:
    workload = drawn(bench(tmp_path))
    assert (workload.waits == 0).sum() == 8
    assert workload.after_ids.tolist() == list(range(32))
    assert not workload.delay_s.any()


@pytest.mark.parametrize("name", ["start_times", "start_timestamps"])
def test_starts_are_read_under_the_names_of_forks(name: str, tmp_path: Path) -> None:
    source = bench(tmp_path, input_lens=[100] * 4, max_concurrency=None, **{name: [EPOCH + i for i in range(4)]})
    assert drawn(source).arrival_s.tolist() == [0, 1, 2, 3]


def test_a_cap_that_was_not_reached_leaves_the_rate(tmp_path: Path) -> None:
    source = bench(tmp_path, request_rate=4.0, request_throughput=3.9)
    assert (drawn(source).waits == 0).all()
    assert (drawn(bench(tmp_path, request_rate=4.0, request_throughput=2.0)).waits == 0).sum() == 8


# ---------------------------------------------------------------- D8: clocks of sub-agents
def agents(path: Path, t: float, inner: Sequence[float]) -> Agents:
    def one(at: float, hashes: int) -> dict[str, Any]:
        return {"t": at, "type": "n", "in": 64 * hashes, "out": 9, "hash_ids": [*range(hashes)], "api_time": 2.0}

    within = {
        "t": t,
        "type": "subagent",
        "duration_ms": 30000,
        "requests": [one(at, 5 + i) for i, at in enumerate(inner)],
    }
    first, last = one(0.0, 10) | {"api_time": 5.0}, one(95.0, 12)
    row = {"id": "s", "tool_tokens": 64, "system_tokens": 64, "requests": [first, within, last]}
    return Agents(lines(path / "agents.jsonl", row))


@pytest.mark.parametrize(("t", "inner"), [(60.0, (60.0, 70.0)), (90.0, (0.0, 10.0))], ids=["session's", "own"])
def test_a_sub_agent_starts_when_it_started_on_either_clock(t: float, inner: Sequence[float], tmp_path: Path) -> None:
    trace = agents(tmp_path, t, inner).whole
    assert trace.links is not None
    assert trace.links.delay_s.tolist() == [0, 55, 8, 5]


def test_a_sub_agent_on_no_clock_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match=r"row 1: t=45 of a sub-agent's first request is not valid"):
        _ = agents(tmp_path, 90.0, (45.0, 50.0)).whole


# ---------------------------------------------------------------- D9: names of columns, shapes of files, failures
FORMS: dict[str, tuple[str, list[float], list[int], list[int]]] = {
    "vidur": (
        "arrived_at,num_prefill_tokens,num_decode_tokens\n0.0,380,41\n4.5,401,110\n", [0, 4.5], [380, 401], [41, 110]),
    "splitwise": (
        "request_id,request_type,application_id,arrival_timestamp,batch_size,prompt_size,token_size\n"
        "0,2,0,0.0,1,374,44\n1,2,0,2.5,1,396,109\n", [0, 2.5], [374, 396], [44, 109]),
    "azure": (
        "TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:15:46.5,374,44\n2023-11-16 18:15:47.5,396,109\n",
        [0, 1], [374, 396], [44, 109]),
    "burstgpt": (
        "Timestamp,Model,Request tokens,Response tokens,Total tokens\n5,m,472,18,490\n45,m,1087,230,1317\n",
        [0, 40], [472, 1087], [18, 230]),
    "llmservingsim": (
        '{"input_toks": 1200, "output_toks": 90, "arrival_time_ns": 46000000}\n'
        '{"input_toks": 700, "output_toks": 50, "arrival_time_ns": 310000000}\n', [0, 0.264], [1200, 700], [90, 50]),
    "aiperf": (
        "".join(
            json.dumps({"metadata": {"request_start_ns": EPOCH * 10**9 + i * 250_000_000, "benchmark_phase": phase},
                        "metrics": {"input_sequence_length": {"value": 550 + i},
                                    "output_sequence_length": {"value": 40 + i}}, "error": None}) + "\n"
            for i, phase in enumerate(("warmup", "profiling", "profiling"))
        ), [0, 0.25], [551, 552], [41, 42]),
    "an array": (
        json.dumps([{"timestamp": 0.0, "prompt_tokens": 9, "completion_tokens": 1},
                    {"timestamp": 0.5, "prompt_tokens": 8, "completion_tokens": 2}], indent=1),
        [0, 0.5], [9, 8], [1, 2]),
    "an array within": (
        json.dumps(
            {"data": [{"createdAt": "2026-03-02T09:00:00Z", "promptTokens": 9, "completionTokens": 1}]}, indent=1),
        [0], [9], [1]),
    "guidellm": (
        json.dumps({"benchmarks": [{"requests": {
            "successful": [{"start_time": EPOCH + 0.5, "prompt_tokens": 9, "output_tokens": 3},
                           {"start_time": EPOCH, "prompt_tokens": 8, "output_tokens": 4}],
            "errored": [{"start_time": EPOCH, "prompt_tokens": 7, "output_tokens": 0}], "incomplete": []}}]}),
        [0, 0.5], [8, 9], [4, 3]),
    "otlp": (
        json.dumps({"resourceSpans": [{"scopeSpans": [{"spans": [
            {"traceId": "a", "spanId": "b", "startTimeUnixNano": str(EPOCH * 10**9 + 10**9), "attributes": [
                {"key": "gen_ai.usage.input_tokens", "value": {"intValue": "12"}},
                {"key": "gen_ai.usage.output_tokens", "value": {"intValue": "3"}}]},
            {"traceId": "a", "spanId": "c", "startTimeUnixNano": str(EPOCH * 10**9), "attributes": []}]}]}]}),
        [0], [12], [3]),
    "semicolons": ("time;input_tokens;output_tokens\n0;9;1\n2;8;2\n", [0, 2], [9, 8], [1, 2]),
    "a mark of its bytes": ("\ufefftime,input_tokens,output_tokens\n0,9,1\n2,8,2\n", [0, 2], [9, 8], [1, 2]),
    "failures": (
        '{"timestamp": 0.0, "prompt_tokens": 100, "completion_tokens": 10, "status": 200}\n'
        '{"timestamp": 0.5, "prompt_tokens": 100, "completion_tokens": null, "status": 429, "error": "rate limit"}\n'
        '{"timestamp": 1.0, "prompt_tokens": 100, "completion_tokens": 10, "status": 200}\n',
        [0, 1], [100] * 2, [10] * 2),
}  # fmt: skip


@pytest.mark.parametrize("name", FORMS)
def test_a_log_is_read_under_the_names_and_in_the_shape_that_it_has(name: str, tmp_path: Path) -> None:
    text, times, prompts, answers = FORMS[name]
    path = tmp_path / "log"
    path.write_text(text)
    workload = drawn(RequestLog(str(path), load="recorded"))
    assert workload.arrival_s.tolist() == pytest.approx(times)
    assert workload.prompt_tokens.tolist() == prompts
    assert workload.output_tokens.tolist() == answers


def test_what_was_left_out_is_said_with_its_row(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_text(FORMS["failures"][0])
    source = RequestLog(str(path), load="recorded")
    demand = "the demand is up to 50 % higher with them"
    assert said(source)["left out"] == f"1 of 3 rows, which failed: 1 with 429; {demand} (the first is row 2)"


@pytest.mark.parametrize(
    "line",
    [
        "INFO 11-24 13:30:01 [logger.py:39] Received request chatcmpl-35: prompt: None, params: SamplingParams(n=1)",
        "(APIServer pid=7) INFO 11-24 13:30:01 [loggers.py:123] Engine 000: Avg prompt throughput: 0.0 tokens/s",
        'INFO:     127.0.0.1:4021 - "POST /v1/chat/completions HTTP/1.1" 200 OK',
        "[2026-11-24 13:30:01 TP0] Prefill batch. #new-seq: 1, #new-token: 7, #cached-token: 0",
    ],
)
def test_what_a_server_writes_for_people_is_called_so(line: str, tmp_path: Path) -> None:
    """It was read as CSV, with the first request for a header."""
    path = tmp_path / "server.log"
    path.write_text(f"{line}\n" * 3)
    assert refusal(RequestLog(str(path), load="recorded")) == (
        f"{path}: a server's log in lines of text, which do not say in fields how long prompts and answers were; give "
        "a row a request, of JSON lines, CSV or Parquet, as the gateway or a tracer exports them"
    )


def test_failures_are_counted_by_their_kind(tmp_path: Path) -> None:
    path = tmp_path / "log.csv"
    statuses = [200] * 8 + [499, 429, 503, 500, 404, 429]
    rows = [f"{i},100,10,{status}" for i, status in enumerate(statuses)]
    path.write_text("\n".join(["timestamp,prompt_tokens,completion_tokens,status", *rows]))
    assert said(RequestLog(str(path), load="recorded"))["left out"] == (
        "6 of 14 rows, which failed: 2 with 429, 1 with 499, 1 with 4xx, 2 with 5xx; the demand is up to 75 % higher "
        "with them (the first is row 10)"
    )


@pytest.mark.parametrize("where", ["http_status", "status_code", "error_code", "code", "error.code", "error.status"])
def test_a_status_of_http_may_stand_beside_the_word_for_it(where: str, tmp_path: Path) -> None:
    """It was "which failed", and nothing of 429, where a field said success or failure."""
    path = tmp_path / "log.jsonl"
    rows = []
    for i, status in enumerate([200] * 7 + [429, 503, 429]):
        code = status if "error" not in where or status != 200 else None
        outer, _, inner = where.partition(".")
        rows.append(
            {"timestamp": i, "prompt_tokens": 100, "completion_tokens": 10}
            | {"status": "success" if status == 200 else "failure", outer: {inner: code} if inner else code}
        )
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    demand = "the demand is up to 42.9 % higher with them"
    assert said(RequestLog(str(path), load="recorded"))["left out"] == (
        f"3 of 10 rows, which failed: 2 with 429, 1 with 5xx; {demand} (the first is row 8)"
    )


@pytest.mark.parametrize("name", ["x-conversation-id", "http_x_session_id", "HTTP_THREAD_ID", "X-Chat-Id"])
def test_a_session_may_come_as_a_header_of_the_gateway(name: str, tmp_path: Path) -> None:
    """It was "there are no sessions"."""
    path = tmp_path / "log.csv"
    path.write_text(
        f"timestamp,prompt_tokens,completion_tokens,{name}\n0,10,5,a\n1,20,5,b\n2,30,5,a\n3,30,5,-\n4,30,5,-\n"
    )
    drawn_of = drawn(RequestLog(str(path), load="recorded"))
    assert drawn_of.session is not None
    assert len(set(drawn_of.session.tolist())) == 4, "nginx writes - for a header that was not there"


def test_columns_can_be_set_and_what_is_not_there_is_named(tmp_path: Path) -> None:
    path = tmp_path / "log.csv"
    path.write_text("when,asked,answered\n0,9,1\n1,8,2\n")
    columns = {"arrival": "when", "input": "asked", "output": "answered"}
    for kind in (RequestLog, Azure):
        workload = drawn(kind(str(path), load="recorded", columns=columns))
        assert workload.prompt_tokens.tolist() == [9, 8]
        assert "workload.columns={arrival: …}" in refusal(kind(str(path), load="recorded"))
        wrong = kind(str(path), load="recorded", columns=columns | {"input": "ask"})
        assert "workload.columns.input=ask is not valid; there are when, asked, answered" in refusal(wrong)


def test_two_fields_of_one_name_that_differ_are_refused(tmp_path: Path) -> None:
    row = {"timestamp": 0, "a": {"start": 1}, "b": {"start": 2}, "prompt_tokens": 5, "completion_tokens": 5}
    assert "a.start and b.start are both called start, and differ" in refusal(log(tmp_path, row))


def test_sessions_with_pauses_of_tools_wait_for_their_answers(tmp_path: Path) -> None:
    inner = [
        {"input_toks": 1470, "output_toks": 130, "tool_duration_ns": 127000000},
        {"input_toks": 1580, "output_toks": 1},
    ]
    rows = [{"session_id": f"s{i}", "arrival_time_ns": (2 - i) * 10**9, "sub_requests": inner} for i in range(2)]
    workload = drawn(log(tmp_path, *rows))
    assert workload.arrival_s.tolist() == [0, 0, 1, 1]
    assert workload.delay_s.tolist() == [0, 0.127, 0, 0.127]
    assert workload.prompt_tokens.tolist() == [1470, 1580] * 2


# ---------------------------------------------------------------- D10: hashes of other blocks, or none, in any order
def mooncake(path: Path, *rows: Mapping[str, Any], **settings: Any) -> Mooncake:
    return Mooncake(lines(path / "trace.jsonl", *rows), load="recorded", **settings)


def hashes(at: float, tokens: int, ids: Sequence[Any] | None = None, **other: Any) -> dict[str, Any]:
    row: dict[str, Any] = {"timestamp": at, "input_length": tokens, "output_length": 20}
    return row | ({} if ids is None else {"hash_ids": ids}) | other


@pytest.mark.parametrize("size", [None, 64])
def test_blocks_of_another_size_are_told_by_the_numbers_of_hashes_or_set(size: int | None, tmp_path: Path) -> None:
    source = mooncake(tmp_path, hashes(0, 256, [1, 2, 3, 4]), hashes(500, 320, [1, 2, 3, 4, 5]), block_tokens=size)
    workload = drawn(source)
    assert workload.segment_tokens.tolist() == [64] * 9
    assert said(source)["prefix"] == "hash_ids, of 64 tokens"
    assert source.blocks_of == 64


def test_hashes_of_complete_blocks_alone_leave_the_rest_to_a_prompt_of_its_own(tmp_path: Path) -> None:
    source = mooncake(tmp_path, hashes(0, 150, [1, 2]), hashes(1, 140, [1, 2]), block_tokens=64)
    workload = drawn(source)
    assert workload.prompt_tokens.tolist() == [150, 140]
    assert workload.segment_tokens.tolist() == [64, 64, 22, 64, 64, 12]
    assert len(set(workload.segment_ids.tolist())) == 4


def hashed_log(path: Path, *rows: tuple[int, Sequence[Any]], **settings: Any) -> RequestLog:
    usual = [
        {"timestamp": EPOCH + i, "usage": {"prompt_tokens": tokens, "completion_tokens": 9}, "hash_ids": ids}
        for i, (tokens, ids) in enumerate(rows)
    ]
    return log(path, *usual, **settings)


def shared(source: Replayed) -> int:
    """Tokens of prompts that stand in an earlier one, too."""
    workload = drawn(source)
    _, first = np.unique(workload.segment_ids, return_index=True)
    return int(workload.segment_tokens.sum() - workload.segment_tokens[first].sum())


def test_a_log_may_have_hashes_of_whole_or_of_complete_blocks(tmp_path: Path) -> None:
    whole = hashed_log(tmp_path, (100, [*range(7)]), (130, [*range(6), 7, 8, 9]), (40, [50, 51, 52]))
    assert said(whole)["prefix"] == "hash_ids, of 16 tokens"
    assert said(whole)["sessions"] == "read off the hashes"
    assert drawn(whole).prompt_tokens.tolist() == [100, 130, 40]
    assert shared(whole) == 96
    complete = hashed_log(tmp_path, (100, [*range(6)]), (130, [*range(8)]), (40, [50, 51]))
    assert said(complete)["prefix"].startswith("hash_ids, of 16 tokens (what follows the last complete block")
    assert shared(complete) == 96
    assert drawn(complete).session.tolist() == [0, 0, 1]


def test_hashes_that_are_asked_for_come_before_messages(tmp_path: Path) -> None:
    rows = [
        {"created": EPOCH + i, "messages": [{"role": "user", "content": f"{i}"}], "prompt_tokens": 96,
         "completion_tokens": 9, "mine": [*range(6)]}
        for i in range(2)
    ]  # fmt: skip
    assert shared(log(tmp_path, *rows)) == 0
    assert shared(log(tmp_path, *rows, columns={"hashes": "mine"})) == 96
    assert "there is no field hash_ids" in refusal(log(tmp_path, *rows, block_tokens=16))
    assert "workload.columns.hashes=other is not valid" in refusal(log(tmp_path, *rows, columns={"hashes": "other"}))


def test_a_log_whose_hashes_have_unknown_sizes_says_so(tmp_path: Path) -> None:
    rows = ((90, [0, 1, 2]), (91, [0, 1, 2]))
    (doubt,) = hashed_log(tmp_path, (90, [0]), (91, [0])).understood.doubts
    assert doubt == (
        "hash_ids does not say how many tokens a hash stands for (128, 256, 512, 1024, 2048, 4096, 8192, 16384 would "
        "all fit), and is not used; workload.block_tokens= says it"
    )
    odd = hashed_log(tmp_path, (90, [0, 1, 2]), (91, [0, 1, 2, 3]), columns={"hashes": "hash_ids"})
    assert "no power of two fits all rows); say workload.block_tokens=" in refusal(odd)
    assert shared(hashed_log(tmp_path, *rows, block_tokens=30)) == 90
    assert "usage.prompt_tokens=90 needs 6, one to 16 tokens" in refusal(hashed_log(tmp_path, *rows, block_tokens=16))


def test_columns_are_named_within_objects_for_any_trace(tmp_path: Path) -> None:
    rows = [{"timestamp": i, "usage": {"in": 1024, "out": 5}, "hash_ids": [1, 2]} for i in range(2)]
    source = mooncake(tmp_path, *rows, columns={"input": "usage.in", "output": "usage.out"})
    assert drawn(source).prompt_tokens.tolist() == [1024, 1024]
    wrong = mooncake(tmp_path, *rows, columns={"input": "usage.on", "output": "usage.out"})
    assert "workload.columns.input=usage.on is not valid; there are timestamp, usage.in" in refusal(wrong)
    azure = Azure(
        lines(tmp_path / "azure.jsonl", *({"at": 1.5 * i, "n": {"in": 3, "out": 4}} for i in range(2))),
        load="recorded",
        columns={"arrival": "at", "input": "n.in", "output": "n.out"},
    )
    assert drawn(azure).prompt_tokens.tolist() == [3, 3]


TURNS = ((100, 20), (150, 30), (170, 10), (130, 40))
"""tokens of prompts and answers of a session: as long as both before, as the prompt before alone, and shorter"""


def turns(path: Path, *lengths: tuple[int, int], **settings: Any) -> RequestLog:
    rows = [
        {"created": EPOCH + i, "prompt_tokens": prompt, "completion_tokens": answer, "session_id": "a"}
        for i, (prompt, answer) in enumerate(lengths)
    ]
    return log(path, *rows, **settings)


def test_turns_of_which_lengths_are_known_may_begin_with_what_was_said_before(tmp_path: Path) -> None:
    apart = turns(tmp_path, *TURNS)
    assert shared(apart) == 0
    assert "1 session of several turns is there: caches, and routers that follow prefixes, have nothing" in (
        apart.understood.unshared
    )
    assert "; workload.growth=accumulate has a turn begin with" in apart.understood.unshared
    assert any("workload.growth=accumulate" in one for one in apart.understood.doubts)
    grows = turns(tmp_path, *TURNS, (170, 1), growth="accumulate")
    assert drawn(grows).prompt_tokens.tolist() == [prompt for prompt, _ in TURNS] + [170]
    workload = drawn(grows)
    second = workload.segment_ids[slice(*workload.segment_offsets[1:3])].tolist()
    assert workload.answer_segment[0] == second[1], "it stands behind the first prompt"
    assert (workload.answer_segment >= 0).tolist() == [True, False, False, True, False]
    assert said(grows)["prefix"] == (
        "assumed: 2 of 4 later turns begin with the prompt and the answer before them, 1, too short for that, with the "
        "prompt, 1, shorter still, share nothing"
    )
    assert shared(grows) == 100 + 150 + 130, "prompts; an answer is no earlier prompt's"
    assert not grows.understood.unshared
    cut = turns(tmp_path, *TURNS[:3], growth="accumulate", max_new_tokens=20)
    assert said(cut)["prefix"].startswith("assumed: 2 of 2 later turns begin")


def test_only_turns_of_which_nothing_else_is_known_can_grow(tmp_path: Path) -> None:
    rows = [{"created": EPOCH + i, "prompt_tokens": 9, "completion_tokens": 1} for i in range(2)]
    assert "there are no sessions: say which field" in refusal(log(tmp_path, *rows, growth="accumulate"))
    hashed = hashed_log(tmp_path, (32, [0, 1]), (48, [0, 1, 2]), growth="accumulate")
    assert "growth=accumulate is not valid; hash_ids, of 16 tokens says what prompts share" in refusal(hashed)
    with pytest.raises(InvalidInput, match=r"workload\.growth=recorded is not valid"):
        log(tmp_path, *rows, growth="recorded")


def test_requests_of_a_row_a_session_grow_or_have_hashes(tmp_path: Path) -> None:
    def row(**more: Sequence[Any]) -> dict[str, Any]:
        inner = [{"input_toks": tokens, "output_toks": 10, "tool_duration_ns": 0} for tokens in (64, 96)]
        for name, values in more.items():
            inner = [one | {name: value} for one, value in zip(inner, values, strict=True)]
        return {"arrival_time_ns": 0, "session_id": "a", "sub_requests": inner}

    assert "workload.growth=accumulate" in log(tmp_path, row()).understood.unshared
    assert shared(log(tmp_path, row(), growth="accumulate")) == 64
    assert shared(log(tmp_path, row(block_hashes=["abcd", "abcxyz"]))) == 0
    ids = ([*range(4)], [*range(4), 9, 10])
    assert shared(log(tmp_path, row(block_hashes=ids), row(block_hashes=ids))) == 64 * 3 + 32


def test_a_trace_without_hashes_has_lengths(tmp_path: Path) -> None:
    source = mooncake(tmp_path, hashes(0, 655), hashes(9000, 672))
    assert drawn(source).prompt_tokens.tolist() == [655, 672]
    assert "there are no hash_ids" in said(source)["prefix"]


def test_rows_come_in_any_order(tmp_path: Path) -> None:
    source = mooncake(tmp_path, hashes(EPOCH * 1000 + 500.25, 1024, [1, 2]), hashes(EPOCH * 1000.0, 1000, [1, 3]))
    assert drawn(source).arrival_s.tolist() == pytest.approx([0, 0.50025])
    assert drawn(source).prompt_tokens.tolist() == [1000, 1024]


@pytest.mark.parametrize("ids", [["a3f0", "b"], [2**64 - 1, 5], [-(2**63), 7]], ids=["texts", "unsigned", "signed"])
def test_hashes_are_texts_or_of_64_bits(ids: Sequence[Any], tmp_path: Path) -> None:
    workload = drawn(mooncake(tmp_path, hashes(0, 1024, ids), hashes(1, 1024, [ids[0], ids[0]])))
    found = workload.segment_ids.tolist()
    assert found[0] == found[2] != found[1] != found[3]


def test_turns_with_delays_come_after_their_answers(tmp_path: Path) -> None:
    rows = [
        hashes(1000, 600, session_id="a"),
        {"session_id": "a", "delay": 2000, "input_length": 700, "output_length": 5},
        hashes(0, 500, session_id="b"),
    ]
    source = mooncake(tmp_path, *rows)
    workload = drawn(source)
    assert workload.prompt_tokens.tolist() == [500, 600, 700]
    assert workload.delay_s.tolist() == [0, 0, 2]
    assert (workload.waits > 0).tolist() == [False, False, True]
    assert "workload.mode=open is not valid" in refusal(mooncake(tmp_path, *rows, mode="open"))


# ---------------------------------------------------------------- rows that are no requests of their own
def test_events_without_tokens_and_parts_of_one_answer_are_left_out(tmp_path: Path) -> None:
    """As coding agents write their sessions: what users say, and a row for each part of an answer."""
    usage = {"input_tokens": 4, "cache_read_input_tokens": 900, "cache_creation_input_tokens": 96, "output_tokens": 7}
    rows: list[dict[str, Any]] = [
        {"type": "user", "timestamp": "2026-03-02T09:00:00Z", "message": {"role": "user", "content": "hello"}},
        *(
            {
                "type": "assistant",
                "timestamp": f"2026-03-02T09:00:0{i}Z",
                "requestId": "r1",
                "message": {"usage": usage},
            }
            for i in (1, 2)
        ),
        {"type": "assistant", "timestamp": "2026-03-02T09:00:09Z", "requestId": "r2", "message": {"usage": usage}},
    ]
    source = log(tmp_path, *rows)
    assert drawn(source).prompt_tokens.tolist() == [1000, 1000]
    assert drawn(source).arrival_s.tolist() == [0, 8], "that of the first part, which is nearest to when it came"
    assert said(source)["left out"] == (
        "1 of 4 rows, of other kinds, without tokens (the first is row 1); "
        "1 of 4 rows, of which a later row has the same id and prompt (the first is row 2)"
    )


def test_a_span_around_others_does_not_count_their_tokens_again(tmp_path: Path) -> None:
    def span(own: str, parent: str | None, tokens: int) -> dict[str, Any]:
        of = {"gen_ai.usage.input_tokens": tokens, "gen_ai.usage.output_tokens": 5}
        return {"span_id": own, "parent_span_id": parent, "start_time": EPOCH + ord(own), "attributes": of}

    source = log(tmp_path, span("a", None, 300), span("b", "a", 100), span("c", "a", 200))
    assert drawn(source).prompt_tokens.tolist() == [100, 200]


def test_ids_of_tokens_are_prompts(tmp_path: Path) -> None:
    rows = [{"created": EPOCH + i, "prompt": [1, 2, 3, *[i] * i], "completion_tokens": 1} for i in range(3)]
    workload = drawn(log(tmp_path, *rows))
    assert workload.prompt_tokens.tolist() == [3, 4, 5]
    assert len(set(workload.segment_ids[workload.segment_offsets[:-1]].tolist())) == 1


@pytest.mark.parametrize(
    ("row", "word"),
    [({"prefix_length": 900}, "prefix_length is not used"), ({"hash_ids": [1]}, "workload.block_tokens= ")],
)
def test_what_says_more_of_prompts_and_is_not_used_is_said(row: dict[str, Any], word: str, tmp_path: Path) -> None:
    source = log(tmp_path, {"created": EPOCH, "prompt_tokens": 100, "completion_tokens": 1} | row)
    assert any(word in one for one in source.understood.doubts)


# ---------------------------------------------------------------- what else such files have
def test_times_may_have_their_units_beside_them(tmp_path: Path) -> None:
    times = ("0ms", "500ms", "1.5 s", "2min", "120000000us")
    source = log(tmp_path, *({"arrival": one, "prompt_tokens": 9, "completion_tokens": 1} for one in times))
    assert source.whole.start_s.tolist() == pytest.approx([0, 0.5, 1.5, 120, 120])
    assert said(source)["time"] == "arrival, with units beside its numbers"
    mixed = log(tmp_path, *({"arrival": one, "prompt_tokens": 9, "completion_tokens": 1} for one in ("0ms", "soon")))
    assert "row 2: arrival='soon' is not valid; it must be a time with its unit" in refusal(mixed)


@pytest.mark.parametrize(
    ("more", "doubt"),
    [
        ([{"n": 4}] * 12, "n is up to 4: where a request has several answers"),
        ([{"num_requests": 30 + i} for i in range(12)], "num_requests is up to 41, and a row is taken for one request"),
        ([{"id": f"r{i // 3}"} for i in range(12)], "8 rows have the id and the prompt of a later one"),
        ([{"n": i} for i in range(12)], ""),
        ([{"num_requests": 1}] * 12, ""),
        ([{"id": f"r{i}"} for i in range(12)], ""),
    ],
)
def test_rows_that_may_stand_for_several_are_said(more: list[dict[str, Any]], doubt: str, tmp_path: Path) -> None:
    """Several answers to a request, requests by the minute, and parts of an answer; not numbers of rows."""
    usual = [{"created": EPOCH + i // 3, "prompt_tokens": 9 + i // 3, "completion_tokens": 1 + i} for i in range(12)]
    doubts = log(tmp_path, *(row | one for row, one in zip(usual, more, strict=True))).understood.doubts
    assert len(doubts) == bool(doubt)
    assert all(one.startswith(doubt) for one in doubts)


@pytest.mark.parametrize("kind", ["csv", "jsonl"])
def test_a_clock_without_a_zone_that_goes_back_once_is_said(kind: str, tmp_path: Path) -> None:
    """Where summer time ends, an hour comes twice: in order of time its requests would be laid over each other."""
    times = [f"2025-10-26 02:{minute:02d}:00" for minute in (55, 58, 1, 4)]
    path = tmp_path / f"log.{kind}"
    if kind == "csv":
        path.write_text("\n".join(["timestamp,prompt_tokens,completion_tokens", *(f"{one},9,1" for one in times)]))
    else:
        lines(path, *({"timestamp": one, "prompt_tokens": 9, "completion_tokens": 1} for one in times))
    for zone, many in (("", 1), ("Z", 0)):
        path.write_text(path.read_text().replace(":00,", f":00{zone},").replace(':00"', f':00{zone}"'))
        doubts = RequestLog(str(path), load="recorded").understood.doubts
        assert sum("timestamp goes back once, by 57 minutes after row 2" in one for one in doubts) == many


def test_how_long_requests_took_is_read_where_a_log_says_it(tmp_path: Path) -> None:
    """Nothing of a run depends on it; a plan says it beside what it simulates."""
    usual = {"prompt_tokens": 9, "completion_tokens": 100}
    rows = [{"ts": float(i), **usual, "request_duration_ms": 2000 if i else 4000} for i in range(40)]
    source = log(tmp_path, *rows)
    assert said(source)["latency"] == "request_duration_ms; mean 2.05 s, p95 2 s"
    silent = log(tmp_path, *({"ts": float(i), **usual} for i in range(4)))
    assert silent.whole.reading.times.took is None
    assert "latency" not in said(silent)


def test_how_long_requests_took_is_read_off_their_starts_and_ends(tmp_path: Path) -> None:
    """As LiteLLM has them: an answer that was not streamed has its first token when it ended."""
    usual = {"prompt_tokens": 9, "completion_tokens": 100, "session_id": "a"}

    def at(second: float) -> str:
        return f"2026-11-24 13:{int(second) // 60:02}:{second % 60:06.3f}"

    def row(start: float, **more: object) -> dict[str, object]:
        return {"startTime": at(start), **usual, **more}

    rows = [row(30 * i, completionStartTime=at(30 * i + 0.25), endTime=at(30 * i + 2)) for i in range(20)]
    whole = row(600, completionStartTime=at(604), endTime=at(604))
    found = said(log(tmp_path, *rows, whole, row(630)))
    assert found["latency"] == "startTime to endTime; mean 2.1 s, p95 2 s"
    assert found["first token"] == "startTime to completionStartTime; mean 0.25 s, p95 0.25 s"
    assert found["think time"] == "an answer to the next turn; mean 27.9 s, p95 28 s"
    took = [one | {"latency_ms": 1000} for one in rows]
    assert said(log(tmp_path, *took))["latency"] == "latency_ms; mean 1 s, p95 1 s", "a field of its own says it better"
    odd = [row(30 * i, endTime=f"{30 * i} s later") for i in range(20)]
    assert "latency" not in said(log(tmp_path, *odd)), "what is no time is none"


def test_starts_and_ends_may_be_numbers_or_times_of_a_column(tmp_path: Path) -> None:
    usual = {"prompt_tokens": 9, "completion_tokens": 100}
    rows = [{"start_time": 1.8e9 + i, "end_time": 1.8e9 + i + 3, **usual} for i in range(20)]
    assert said(log(tmp_path, *rows))["latency"] == "start_time to end_time; mean 3 s, p95 3 s"
    path = tmp_path / "log.parquet"
    frame = pd.DataFrame(rows)
    for name in ("start_time", "end_time"):
        frame[name] = pd.to_datetime(frame[name], unit="s")
    frame.to_parquet(path)
    assert said(RequestLog(str(path), load="recorded"))["latency"] == "start_time to end_time; mean 3 s, p95 3 s"
