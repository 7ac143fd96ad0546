"""Files as tools of many kinds export them, all of the same eight requests, in data of our own: what these are, and the
files that have them."""

from __future__ import annotations

import datetime
import json
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from tests.support.odd_files.shapes import table
from tests.support.odd_files.truth import EPOCH_S, Row

AT = (0.0, 0.5, 1.25, 4.0, 9.0, 12.5, 20.0, 31.0)
PROMPT = (1210, 2455, 964, 3120, 1777, 2048, 4099, 887)
OUTPUT = (120, 35, 410, 77, 9, 256, 301, 64)
CACHED = (0, 1024, 512, 1600, 800, 0, 2048, 400)
TOOK = (9, 38, 2, 21, 14, 3, 30, 1)
"""seconds until each was answered"""
N = len(AT)
Of = Callable[[int, float, int, int, int], Any]


def each(row: Of) -> list[Any]:
    """A row for each request, of its number, start, prompt, output and cached tokens."""
    return [row(i, *one) for i, one in enumerate(zip(AT, PROMPT, OUTPUT, CACHED, strict=True))]


def iso(at: float, zone: str = "Z") -> str:
    moment = datetime.datetime.fromtimestamp(EPOCH_S + at, datetime.UTC)
    return moment.strftime("%Y-%m-%dT%H:%M:%S.%f")[:-3] + zone


def of_ms(at: float) -> int:
    return round((EPOCH_S + at) * 1000)


def of_ns(at: float) -> str:
    return str(of_ms(at) * 10**6)


def lines(rows: Iterable[Any]) -> str:
    return "".join(json.dumps(row) + "\n" for row in rows)


def mixed(rows: Iterable[Sequence[Any]]) -> str:
    return lines(row for several in rows for row in several)


def attributes(of: Row) -> list[Row]:
    """As OTLP writes them."""
    return [{"key": key, "value": {"intValue": str(value)}} for key, value in of.items()]


def plain(i: int, at: float, p: int, o: int, c: int) -> Row:
    return {"ts": iso(at), "prompt_tokens": p, "completion_tokens": o}


PLAIN = each(plain)


def litellm(i: int, at: float, p: int, o: int, c: int) -> Row:
    """A spend log that keeps no messages."""
    usage = {"prompt_tokens": p, "completion_tokens": o, "total_tokens": p + o}
    more = {"additional_usage_values": {"cache_read_input_tokens": c}, "error_information": None}
    found = {"request_id": f"r{i}", "call_type": "acompletion", "spend": 0.001, "startTime": iso(at)}
    found |= usage | {"endTime": iso(at + 9), "metadata": {"usage_object": usage} | more, "session_id": f"s{i}"}
    return found | {"status": "success", "messages": {}, "response": {}, "proxy_server_request": {}}


LITELLM_FAILED = litellm(8, 0.2, 0, 0, 0) | {
    "status": "failure",
    "metadata": {"error_information": {"error_code": "429", "error_class": "RateLimitError"}},
}


def as_text(row: Row) -> Row:
    return {key: json.dumps(value) if isinstance(value, dict | list) else value for key, value in row.items()}


def langfuse(i: int, at: float, p: int, o: int, c: int) -> Row:
    """Its parts of a usage are disjoint."""
    cached, thought = int(0.45 * p), int(0.8 * o)
    parts = {"input": p - cached, "input_cached_tokens": cached, "output": o - thought}
    return {"id": f"o{i}", "startTime": iso(at), "usageDetails": parts | {"output_reasoning_tokens": thought}}


def langsmith(i: int, at: float, p: int, o: int, c: int) -> list[Row]:
    run = {"name": "x", "start_time": iso(at, ""), "prompt_tokens": p, "completion_tokens": o, "session_id": "project"}
    above = {"id": f"a{i}", "run_type": "chain", "parent_run_id": None}
    return [run | above, run | {"id": f"b{i}", "run_type": "llm", "parent_run_id": f"a{i}"}]


def kong(i: int, at: float, p: int, o: int, c: int) -> Row:
    usage = {"prompt_tokens": p, "completion_tokens": o, "total_tokens": p + o, "time_per_token": 12}
    return {"started_at": of_ms(at), "response": {"status": 200}, "ai": {"proxy": {"usage": usage, "payload": {}}}}


def envoy(i: int, at: float, p: int, o: int, c: int) -> Row:
    counts = {"gen_ai.usage.input_tokens": str(p), "gen_ai.usage.output_tokens": str(o)}
    return {"start_time": iso(at), "response_code": 200, "response_flags": "-", "duration": 3100} | counts


LEFT = {"start_time": iso(0.7), "response_code": 0, "response_flags": "DC", "gen_ai.usage.input_tokens": "-"}


def nginx(i: int, at: float, p: int, o: int, c: int) -> Row:
    counts = {"prompt_tokens": str(p), "completion_tokens": str(o)}
    return {"msec": f"{EPOCH_S + at:.3f}", "request_time": "1.234", "status": "200"} | counts


def event(i: int, at: float, p: int, o: int, c: int) -> Row:
    """Of Gemini's command line."""
    counts = {"input_token_count": p, "output_token_count": o - o // 2, "thoughts_token_count": o // 2}
    more = {"cached_content_token_count": c, "total_token_count": p + o}
    return {"timeUnixNano": of_ns(at), "attributes": attributes(counts | more)}


def logs(*records: Row) -> Row:
    return {"resourceLogs": [{"resource": {}, "scopeLogs": [{"scope": {}, "logRecords": records}]}]}


def console(i: int, at: float, p: int, o: int, c: int) -> Row:
    """A span, as OpenTelemetry's console exporter prints it."""
    counts = {"gen_ai.usage.input_tokens": p, "gen_ai.usage.output_tokens": o}
    said = [{"name": "gen_ai.content.prompt", "timestamp": iso(at), "attributes": {"gen_ai.prompt": "hello"}}]
    context = {"trace_id": f"0x{i}", "span_id": f"0x{i}a"}
    return {"name": "chat", "context": context, "start_time": iso(at), "attributes": counts, "events": said}


TIMED_OUT = console(9, 0.7, 5000, 0, 0)
TIMED_OUT["attributes"]["error.type"] = "timeout"


def zipkin(i: int, at: float, p: int, o: int, c: int) -> list[Row]:
    tags = {"gen_ai.usage.input_tokens": str(p), "gen_ai.usage.output_tokens": str(o)}
    span = {"traceId": f"{i:x}", "timestamp": of_ms(at) * 1000, "tags": tags}
    return [span | {"id": f"{i}p"}, span | {"id": f"{i}c", "parentId": f"{i}p"}]


def databricks(i: int, at: float, p: int, o: int, c: int) -> Row:
    answer = {"usage": {"prompt_tokens": p, "completion_tokens": o, "total_tokens": p + o}}
    asked = {"messages": [{"role": "user", "content": "q" * p}]}
    return {"timestamp_ms": of_ms(at), "status_code": 200, "request": json.dumps(asked), "response": json.dumps(answer)}


def vertex(i: int, at: float, p: int, o: int, c: int) -> Row:
    usage = {"promptTokenCount": p, "cachedContentTokenCount": c, "candidatesTokenCount": o, "totalTokenCount": p + o}
    return {"logging_time": iso(at), "request_id": i, "full_response": json.dumps({"usageMetadata": usage})}


def claude_code(i: int, at: float, p: int, o: int, c: int) -> list[Row]:
    usage = {"input_tokens": 4, "cache_creation_input_tokens": p - 4 - c, "cache_read_input_tokens": c}
    message = {"role": "assistant", "id": f"m{i}", "usage": usage | {"output_tokens": o}}
    of = {"sessionId": "s", "timestamp": iso(at)}
    asked = of | {"type": "user", "message": {"role": "user", "content": "do"}, "uuid": f"v{i}"}
    return [asked, of | {"type": "assistant", "message": message, "requestId": f"q{i}", "uuid": f"w{i}"}]


TASK = {
    "type": "user",
    "sessionId": "s",
    "timestamp": iso(5),
    "message": {"role": "user", "content": [{"type": "tool_result"}]},
    "toolUseResult": {"prompt": "look", "totalTokens": 50_000, "usage": {"input_tokens": 5, "output_tokens": 700}},
}
"""what a sub-agent used, beside what the agent itself did"""


def codex() -> str:
    found, sums = [{"timestamp": iso(0), "type": "session_meta", "payload": {"id": "x"}}], [0, 0, 0]
    for at, *counts in zip(AT, PROMPT, CACHED, OUTPUT, strict=True):
        sums = [one + more for one, more in zip(sums, counts, strict=True)]
        names = ("input_tokens", "cached_input_tokens", "output_tokens")
        so_far, last = ({**dict(zip(names, of, strict=True)), "total_tokens": of[0] + of[2]} for of in (sums, counts))
        info = {"total_token_usage": so_far, "last_token_usage": last}
        found.append({"timestamp": iso(at), "type": "event_msg", "payload": {"type": "token_count", "info": info}})
    return lines(found)


def pi_agent(i: int, at: float, p: int, o: int, c: int) -> Row:
    usage = {"input": p - c, "output": o, "cacheRead": c, "cacheWrite": 0, "totalTokens": p + o}
    return {"timestamp": iso(at), "type": "message", "message": {"role": "assistant", "usage": usage}}


def aiperf(i: int, at: float, p: int, o: int, c: int) -> Row:
    counts = {"input_sequence_length": p, "output_token_count": o - o // 3, "output_sequence_length": o}
    metrics = {name: {"value": value, "unit": "tokens"} for name, value in counts.items()}
    about = {"request_start_ns": int(of_ns(at)), "benchmark_phase": "profiling", "was_cancelled": False}
    return {"metadata": about, "metrics": metrics, "error": None}


AIPERF_FAILED = aiperf(0, 0.7, 1, 1, 0) | {
    "metrics": {"error_isl": {"value": 550, "unit": "tokens"}},
    "error": {"code": 503, "type": "Service Unavailable", "message": "x"},
}


def guidellm(i: int, at: float, p: int, o: int, c: int) -> Row:
    """0.2, which lays requests in store before it sends them."""
    stored = {"queued_time": EPOCH_S - 1, "dequeued_time": EPOCH_S - 0.5}
    counts = {"prompt_tokens": p, "output_tokens": o}
    return {"request_id": f"g{i}", "scheduler_info": stored, "start_time": EPOCH_S + at} | counts


def inference_perf(i: int, at: float, p: int, o: int, c: int) -> Row:
    """On a clock of its own."""
    return {"start_time": 88_123.25 + at, "info": {"input_tokens": p, "output_tokens": o}, "error": None}


def multi_turn(i: int, at: float, p: int, o: int, c: int) -> Row:
    """Of vLLM's benchmark of conversations."""
    of = {"ttft_ms": 50.1, "start_time_ms": 99_000.5 + 1000 * at, "input_num_turns": 1}
    return of | {"input_num_tokens": p, "output_num_tokens": o, "conversation_id": f"c{i}"}


def came_and_went(begun: Of, done: Of) -> str:
    """A line when a request came, and one when it was answered, in order of time."""
    both = [
        one
        for i, (came, went) in enumerate(zip(each(begun), each(done), strict=True))
        for one in ((AT[i], came), (AT[i] + TOOK[i], went))
    ]
    return lines(row for _, row in sorted(both, key=lambda one: one[0]))


def received(i: int, at: float, p: int, o: int, c: int) -> Row:
    return {"timestamp": iso(at), "event": "request.received", "rid": f"r{i}"}


def finished(i: int, at: float, p: int, o: int, c: int) -> Row:
    """By SGLang's server."""
    meta = {"prompt_tokens": p, "completion_tokens": o, "cached_tokens": c, "finish_reason": {"type": "stop"}}
    return {"timestamp": iso(at + TOOK[i]), "event": "request.finished", "rid": f"r{i}", "out": {"meta_info": meta}}


def parts() -> str:
    """Of answers that are streamed: each has the tokens so far."""
    found = [
        (
            AT[i] + k * TOOK[i] / 5,
            {"id": f"c{i}", "object": "chat.completion.chunk", "usage": {"prompt_tokens": PROMPT[i]}},
            -(-OUTPUT[i] * (k + 1) // 6),
        )
        for i in range(N)
        for k in range(6)
    ]
    rows = []
    for at, row, tokens in sorted(found, key=lambda one: one[0]):
        usage = {"prompt_tokens": row["usage"]["prompt_tokens"], "completion_tokens": tokens}  # type: ignore[index]
        rows.append({"created_at": iso(at)} | row | {"usage": usage})
    return lines(rows)


def chained(i: int, at: float, p: int, o: int, c: int) -> Row:
    """Two conversations of four turns."""
    before = f"resp_{i - 1}" if i % 4 else None
    usage = {"input_tokens": p, "output_tokens": o, "total_tokens": p + o}
    return {"id": f"resp_{i}", "previous_response_id": before, "created_at": EPOCH_S + at, "usage": usage}


def grouped(separator: str) -> str:
    """Whole thousands with points, as spreadsheets write them where commas are decimal."""
    rows = [{"zeit": str(at).replace(".", ","), "prompt_tokens": f"{1 + i}.000", "completion_tokens": 7}
            for i, at in enumerate(AT)]  # fmt: skip
    return table(rows, separator)


BENCH: Row = {
    "backend": "vllm",
    "request_rate": "inf",
    "duration": 40.0,
    "completed": N,
    "total_input_tokens": sum(PROMPT),
    "total_output_tokens": sum(OUTPUT),
    "request_throughput": 0.2,
    "input_lens": PROMPT,
    "output_lens": OUTPUT,
    "errors": [""] * N,
}
"""what vLLM's and SGLang's benchmarks write"""
