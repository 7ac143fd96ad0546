"""Files as gateways, tracers, agents, benchmarks and shippers of logs export them: each is read for what it is, or
refused or doubted in words that say why."""

from __future__ import annotations

import gzip
import io
import json
import zipfile
from datetime import datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from prebleexp.errors import InvalidInput
from prebleexp.workloads.bench_log import BenchLog
from prebleexp.workloads.mooncake import Mooncake
from prebleexp.workloads.replayed import Replayed
from prebleexp.workloads.request_log import RequestLog
from tests.support.odd_files import exports as of
from tests.support.odd_files.shapes import table, zstd
from tests.support.odd_files.truth import EPOCH_S, Row

PLAIN = of.PLAIN
SUM = {"ts": of.iso(of.AT[-1]), "prompt_tokens": sum(of.PROMPT), "completion_tokens": sum(of.OUTPUT)}
NOTHING = {"ts": of.iso(2), "prompt_tokens": 0, "completion_tokens": 0}
DEAR = {"ts": of.iso(0.2), "prompt_tokens": 90_000, "completion_tokens": 0}
"""one that failed, and would count"""


def with_one(row: Row, good: list[Row] = PLAIN, at: int = 1) -> str:
    return of.lines([*good[:at], row, *good[at:]])


def zipped() -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("log.jsonl", of.lines(PLAIN))
        archive.writestr("__MACOSX/._log.jsonl", "x")
    return file.getvalue()


def parquet() -> bytes:
    """As databases write whole numbers."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    columns = {"ts": [of.of_ms(at) for at in of.AT], "prompt_tokens": list(map(Decimal, of.PROMPT))}
    file = pa.BufferOutputStream()
    pq.write_table(pa.table(columns | {"completion_tokens": of.OUTPUT}), file)
    return bytes(file.getvalue())


def within(name: str, **more: Any) -> str:
    return of.lines({name: json.dumps(row)} | more for row in PLAIN)


def mongo(i: int, at: float, p: int, o: int, c: int) -> Row:
    counts = {"prompt_tokens": {"$numberInt": str(p)}, "completion_tokens": {"$numberInt": str(o)}}
    return {"_id": {"$oid": "a"}, "created_at": {"$date": {"$numberLong": str(of.of_ms(at))}}} | counts


READ: dict[str, str | bytes] = {
    "LiteLLM": json.dumps([*of.each(of.litellm), of.LITELLM_FAILED]),
    "LiteLLM as CSV": table([of.as_text(row) for row in of.each(of.litellm)], ","),
    "Langfuse": of.lines(of.each(of.langfuse)),
    "Langfuse as CSV": table([of.as_text(row) for row in of.each(of.langfuse)], ","),
    "LangSmith": of.mixed(of.each(of.langsmith)),
    "Kong": of.lines(of.each(of.kong)),
    "Envoy": with_one(of.LEFT, of.each(of.envoy)),
    "Gemini's events": json.dumps(of.logs(*of.each(of.event))),
    "events a line": of.lines(map(of.logs, of.each(of.event))),
    "spans as printed": "\n".join(json.dumps(row, indent=4) for row in of.each(of.console)),
    "spans that timed out": with_one(of.TIMED_OUT, of.each(of.console)),
    "Zipkin": json.dumps([span for spans in of.each(of.zipkin) for span in spans]),
    "Databricks": of.lines(of.each(of.databricks)),
    "Claude Code": of.mixed([*of.each(of.claude_code), [of.TASK, {"type": "summary", "summary": "x"}]]),
    "Codex": of.codex(),
    "pi": of.lines(of.each(of.pi_agent)),
    "aiperf": with_one(of.AIPERF_FAILED, of.each(of.aiperf)),
    "guidellm": json.dumps({"benchmarks": [{"requests": {"successful": of.each(of.guidellm), "errored": []}}]}),
    "inference-perf": json.dumps([*of.each(of.inference_perf), of.inference_perf(0, 0.6, 1000, 0, 0) | {
        "error": {"error_type": "ClientConnectorError", "error_msg": "x"}}]),
    "conversations of vLLM": of.lines(of.each(of.multi_turn)),
    "SGLang's server": of.came_and_went(of.received, of.finished),
    "parts of answers": of.parts(),
    "chains of answers": of.lines(of.each(of.chained)),
    "logcli": within("line", labels={"app": "x"}, timestamp=of.iso(99)).replace('"timestamp"', '"at"'),
    "kubectl": "".join(f"{of.iso(99)} {json.dumps(row)}\n" for row in PLAIN),
    "CRI": "".join(f"{of.iso(99)} stdout F {json.dumps(row)}\n" for row in PLAIN),
    "Compose": "".join(f"gateway-1  | {json.dumps(row)}\n" for row in PLAIN),
    "MongoDB": of.lines(of.each(mongo)),
    "a sum at the end": of.lines([*PLAIN, SUM]),
    "a row of nothing": with_one(NOTHING),
    "an error that is an object": with_one(DEAR | {"error": {"message": "Rate limit", "code": "limited"}}),
    "an error within": with_one(DEAR | {"response": {"error": {"message": "Rate limit", "code": 429}}}),
    "an end that is an error": with_one(DEAR | {"finish_reason": "error"}),
    "a status with its words": with_one(DEAR | {"status": "429 Too Many Requests"}),
    "a class of statuses": with_one(DEAR | {"status": "5xx"}, [row | {"status": "2xx"} for row in PLAIN]),
    "codes": with_one(DEAR | {"code": 503}, [row | {"code": 200} for row in PLAIN]),
    "gRPC's codes": with_one(DEAR | {"grpc_status": 14}, [row | {"grpc_status": 0} for row in PLAIN]),
    "one that was too late": with_one(DEAR | {"timed_out": True}, [row | {"timed_out": False} for row in PLAIN]),
    "a result that is an error": with_one(DEAR | {"result": "error"}),
    "durations in front": of.lines({"queued_time_ms": 12 + i, "time": 0.8, "created_at": row["ts"]} | row | {"ts": None}
                                   for i, row in enumerate(PLAIN)),
    "threads": of.lines(row | {"thread_id": 7} for row in PLAIN),
    "rows with lists": of.lines(row | {"events": [{"name": "x"}], "results": [{"ok": True}]} for row in PLAIN),
    "two members": gzip.compress(of.lines(PLAIN[:4]).encode()) + gzip.compress(of.lines(PLAIN[4:]).encode()),
    "two frames": zstd(of.lines(PLAIN[:4]).encode()) + zstd(of.lines(PLAIN[4:]).encode()),
    "a Mac's zip": zipped(),
    "decimals": parquet(),
    "units in heads": table([{"Timestamp (ms)": round(1000 * at), "Prompt Tokens (#)": p, "Completion Tokens (#)": o}
                             for at, p, o in zip(of.AT, of.PROMPT, of.OUTPUT, strict=True)], ","),
}  # fmt: skip


def read(data: str | bytes, path: Path, kind: type[Replayed] = RequestLog, **settings: Any) -> Replayed:
    path.write_bytes(data if isinstance(data, bytes) else data.encode())
    return kind(str(path), load="recorded", **settings)


def as_meant(source: Replayed, at: tuple[float, ...] = of.AT) -> None:
    trace = source.whole
    assert trace.start_s == pytest.approx(np.array(at), abs=0.0015)
    assert trace.prompt_tokens.tolist() == list(of.PROMPT)
    assert trace.output_tokens.tolist() == list(of.OUTPUT)


@pytest.mark.parametrize("name", READ)
def test_each_is_read_as_what_it_is(name: str, tmp_path: Path) -> None:
    as_meant(read(READ[name], tmp_path / "log"))


def test_fields_that_are_named_are_read_so(tmp_path: Path) -> None:
    as_meant(read(of.lines(of.each(of.vertex)), tmp_path / "log", columns={"arrival": "logging_time"}))
    said = of.lines(of.each(of.nginx))
    with pytest.raises(InvalidInput, match=r"msec=.* must be milliseconds, as its name says; it is seconds since 1970"):
        _ = read(said, tmp_path / "log", columns={"arrival": "msec"}).whole
    as_meant(read(said, tmp_path / "log", columns={"arrival": "msec"}, time_unit="s"))


def test_sessions_are_told_by_the_answers_before_and_a_project_is_none(tmp_path: Path) -> None:
    chains = read(READ["chains of answers"], tmp_path / "chains").whole
    assert chains.session.tolist() == [0] * 4 + [1] * 4
    assert chains.turn.tolist() == [*range(4)] * 2
    for name in ("LangSmith", "threads"):
        assert len(set(read(READ[name], tmp_path / name).whole.session.tolist())) == of.N


def test_a_row_that_is_a_sum_by_chance_is_a_request(tmp_path: Path) -> None:
    rows = of.lines({"ts": i, "prompt_tokens": 100 * i, "completion_tokens": 10 * i} for i in (1, 2, 3))
    assert len(read(rows, tmp_path / "log").whole) == 3


def test_a_request_came_when_its_id_was_first_seen_and_that_is_said(tmp_path: Path) -> None:
    time = dict(read(READ["SGLang's server"], tmp_path / "log").understood.facts)["time"]
    assert time.endswith("; for 8 of 8 requests, of the first row with their id")


def mooncake(**more: int) -> str:
    return of.lines({"timestamp": 20 * i, "input_length": 500, "output_length": 9, "hash_ids": [i]} | more
                    for i in range(8))  # fmt: skip


def plain(at: float) -> Row:
    return {"ts": of.iso(at), "prompt_tokens": 500, "completion_tokens": 40}


DOUBTED: dict[str, tuple[str, type[Replayed], str]] = {
    "Mooncake's as a log": (mooncake(), RequestLog, "it looks like a trace of Mooncake, whose times are in"),
    "Bailian's as Mooncake's": (mooncake(chat_id=1, parent_chat_id=-1), Mooncake, "it looks like a trace of Bailian"),
    "letters": (of.lines({"ts": of.iso(i), "prompt_length": 9, "response_length": 9} for i in range(3)), RequestLog,
                "prompt_length and response_length are taken for tokens: letters would be about four times as many"),
    "embeddings": (of.lines([*({**row, "call_type": "acompletion"} for row in PLAIN), NOTHING | {
        "call_type": "aembedding", "prompt_tokens": 30}]), RequestLog, "call_type says of 1 of 9 rows that they are"),
    "batches": (of.lines(row | {"batch_size": 4} for row in PLAIN), RequestLog, "batch_size is up to 4, and a row is"),
    "minutes": (of.lines(plain(60.0 * i) for i in range(8)), RequestLog, "one comes every 60 s: if rows are sums"),
    "gaps": (of.lines({"arrival": at, "isl": 9, "osl": 9} for at in (0, 0.5, 0.7, 2, 5, 3, 7, 1, 4)), RequestLog,
             "arrival is in no order: if its numbers are gaps"),
    "sums of steps": (of.lines({"ts": row["ts"], "usage": {"inputTokens": 9, "outputTokens": 1}, "totalUsage": {
        "inputTokens": 27, "outputTokens": 3}} for row in PLAIN), RequestLog, "totalUsage.inputTokens has 3 times"),
    "two recordings": (of.lines(row | {"ts": 1.0 * (i % 5)} for i, row in enumerate([*PLAIN, *PLAIN[:2]])), RequestLog,
                       "ts begins anew once, with 0 in row 6"),
    "cached ones of nobody's": (of.lines({"ts": of.iso(i), "input_tokens": 60, "cache_read_tokens": 40,
                                         "output_tokens": 5} for i in range(3)), RequestLog,
                                "nothing says whether input_tokens has the cached tokens (cache_read_tokens)"),
    "texts that were blotted out": (of.lines(row | {"messages": [{"role": "user", "content": "redacted"}]}
                                            for row in PLAIN), RequestLog, "messages is not what was counted in 7"),
    "texts in some rows": (of.lines(row | {"messages": [{"role": "user", "content": f"{i}" * 99}] if i % 2 else None}
                                    for i, row in enumerate(PLAIN)), RequestLog, "messages has nothing in 4 of 8 rows"),
}  # fmt: skip


@pytest.mark.parametrize("name", DOUBTED)
def test_what_may_be_something_else_is_doubted(name: str, tmp_path: Path) -> None:
    data, kind, doubt = DOUBTED[name]
    doubts = read(data, tmp_path / "log", kind).understood.doubts
    assert any(one.startswith(doubt) for one in doubts), doubts


@pytest.mark.parametrize("name", ["texts that were blotted out", "texts in some rows"])
def test_lengths_are_those_counted_whatever_texts_are_there(name: str, tmp_path: Path) -> None:
    as_meant(read(DOUBTED[name][0], tmp_path / "log"))


REFUSED: dict[str, tuple[str, str]] = {
    "a result without details": (json.dumps({key: value for key, value in of.BENCH.items() if "lens" not in key}),
                                 "it is a benchmark's result without its requests; write it with --save-detailed"),
    "buckets of usage": (json.dumps({"object": "page", "data": [{"start_time": EPOCH_S, "results": [
        {"input_tokens": 9, "num_model_requests": 5}]}]}), "there is no field prompt_tokens"),
    "ticks of .NET": (of.lines(row | {"ts": 638_000_000_000_000_000 + i} for i, row in enumerate(PLAIN)),
                      "row 1: ts=638000000000000000 is not valid; it must be seconds, and no clock shows so many"),
    "points between thousands": (of.grouped(";"), "row 2: prompt_tokens=1.000 is not valid; it must be an integer"),
    "the same by tabs": (of.grouped("\t"), "row 2: prompt_tokens=1.000 is not valid; it must be an integer"),
    "units under heads": ("ts,isl,osl\ns,tokens,tokens\n0.5,10,2\n", "row 2: isl=tokens is not valid"),
    "a log in words": ("INFO 11-24 16:00:00 Received request: prompt: 'hello, world'\n" * 3, "a server's log in lines"),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_no_log_is_refused_with_a_way_out(name: str, tmp_path: Path) -> None:
    data, says = REFUSED[name]
    columns = {"arrival": "zeit"} if "zeit" in data else {}
    with pytest.raises(InvalidInput) as caught:
        _ = read(data, tmp_path / "log", columns=columns).whole
    assert str(caught.value).startswith(f"{tmp_path / 'log'}: {says}")


def test_a_tar_is_to_be_unpacked(tmp_path: Path) -> None:
    head = b"log.jsonl".ljust(257, b"\0") + b"ustar"
    with pytest.raises(InvalidInput, match=r"it is an archive of files \(tar\); unpack it"):
        _ = read(gzip.compress(head.ljust(1024, b"\0")), tmp_path / "log").whole


# ---------------------------------------------------------------- results of benchmarks
def test_a_ramp_without_starts_is_no_burst(tmp_path: Path) -> None:
    ramp = {"ramp_up_strategy": "linear", "ramp_up_start_rps": 1, "ramp_up_end_rps": 5, "burstiness": "inf"}
    source = read(json.dumps(of.BENCH | ramp), tmp_path / "log", BenchLog)
    rates = 1 / np.diff(source.whole.start_s)
    assert rates == pytest.approx(1 + 4 * np.arange(1, of.N) / 7)
    assert "drawn along a linear ramp from 1 to 5 requests/s" in source.understood.line
    capped = read(json.dumps(of.BENCH | ramp | {"max_concurrency": 2}), tmp_path / "log", BenchLog)
    assert "2 clients, one request after the other (max_concurrency, ramp_up_strategy=linear" in capped.understood.line
    wrong = read(json.dumps(of.BENCH | ramp | {"ramp_up_end_rps": None}), tmp_path / "log", BenchLog)
    with pytest.raises(InvalidInput, match=r"log: workload\.ramp_up_end_rps=None is not valid"):
        _ = wrong.whole


def test_a_rate_that_was_not_reached_is_one_of_clients(tmp_path: Path) -> None:
    slow = {name: one for name, one in of.BENCH.items() if name != "request_throughput"} | {"request_rate": 50.0}
    source = read(json.dumps(slow | {"max_concurrency": 2}), tmp_path / "log", BenchLog)
    assert (
        "2 clients, one request after the other (max_concurrency, request_rate=50.0, which was"
        in source.understood.line
    )


def test_results_stand_in_lines_in_an_array_or_one_after_the_other(tmp_path: Path) -> None:
    runs = [of.BENCH | {"start_times": [9 + factor * at for at in of.AT]} for factor in (2, 1)]
    for text in (of.lines(runs), json.dumps(runs), "\n".join(json.dumps(one, indent=1) for one in runs)):
        as_meant(read(text, tmp_path / "log", BenchLog))
        first = read(text, tmp_path / "log", BenchLog, benchmark=1).whole
        assert first.span_s == pytest.approx(2 * of.AT[-1])


def test_starts_of_another_unit_are_said_and_can_be_set(tmp_path: Path) -> None:
    text = json.dumps(of.BENCH | {"start_times": [1000 * (5 + at) for at in of.AT]})
    source = read(text, tmp_path / "log", BenchLog)
    assert any("if these are not in seconds, say workload.time_unit=" in one for one in source.understood.doubts)
    as_meant(read(text, tmp_path / "log", BenchLog, time_unit="ms"))
    with pytest.raises(InvalidInput, match=r"workload\.time_unit=min is not valid"):
        read(text, tmp_path / "log", BenchLog, time_unit="min")


def test_the_days_of_these_files_are_what_they_say() -> None:
    assert datetime.fromisoformat(of.iso(0)).timestamp() == EPOCH_S
