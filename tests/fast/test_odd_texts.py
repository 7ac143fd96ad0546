"""Logs in the encodings, with the notes, dates and fields that people have: read as they are meant, or said."""

from __future__ import annotations

import datetime
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from prebleexp.errors import InvalidInput
from prebleexp.workloads.bench_log import BenchLog
from prebleexp.workloads.request_log import RequestLog

N = 20
AT = [0.5 * i for i in range(N)]
PROMPT, ANSWER = [1000 + 37 * i for i in range(N)], [100 + 3 * i for i in range(N)]
START = datetime.datetime(2024, 5, 10, 9, 30, tzinfo=datetime.UTC)
Moment = Callable[[datetime.datetime], Any]


def table(head: str = "timestamp,prompt_tokens,completion_tokens", separator: str = ",", end: str = "\n") -> str:
    rows = [f"{1715333400 + at}{separator}{p}{separator}{o}" for at, p, o in zip(AT, PROMPT, ANSWER, strict=True)]
    return end.join([head.replace(",", separator), *rows, ""])


def lines(at: Callable[[int], Any] | None = None, **more: Callable[[int], Any]) -> bytes:
    def row(i: int) -> dict[str, Any]:
        time = 1715333400 + AT[i] if at is None else at(i)
        base = {"timestamp": time, "prompt_tokens": PROMPT[i], "completion_tokens": ANSWER[i]}
        return base | {name: value(i) for name, value in more.items()}

    return "".join(f"{json.dumps(row(i))}\n" for i in range(N)).encode()


def read(path: Path, data: bytes, **settings: Any) -> RequestLog:
    path.write_bytes(data)
    return RequestLog(str(path), load="recorded", **settings)


def as_meant(source: RequestLog) -> None:
    trace = source.whole
    assert trace.span_s == pytest.approx(AT[-1])
    assert trace.prompt_tokens.tolist() == PROMPT
    assert trace.output_tokens.tolist() == ANSWER


@pytest.mark.parametrize(
    "data",
    [
        table().encode("utf-8-sig"),
        table().encode("utf-16"),
        table().encode("utf-16-le"),
        lines().decode().encode("utf-16-le"),
        table().encode("utf-32"),
        table(end="\r").encode(),
        table(end="\r\n").encode(),
        lines().replace(b"\n", b"\r"),
        b"# of a tool\n#\n\n" + table().encode(),
        b"sep=;\r\n" + table(separator=";", end="\r\n").encode(),
        table("# timestamp,prompt_tokens,completion_tokens").encode(),
    ],
    ids=str,
)
def test_texts_as_people_have_them(tmp_path: Path, data: bytes) -> None:
    as_meant(read(tmp_path / "log", data))


@pytest.mark.parametrize(
    "written",
    [
        lambda t: t.strftime("%Y-%m-%dT%H:%M:%S,%f"),
        lambda t: t.strftime("%Y-%m-%d %H:%M:%S.%f UTC"),
        lambda t: t.strftime("%Y%m%d%H%M%S") + f"{t.microsecond // 1000:03d}",
        lambda t: int(t.strftime("%Y%m%d%H%M%S") + f"{t.microsecond // 1000:03d}"),
        lambda t: t.strftime("%Y%m%d%H%M%S%f"),
    ],
)
def test_dates_as_people_write_them(tmp_path: Path, written: Moment) -> None:
    source = read(tmp_path / "log", lines(lambda i: written(START + datetime.timedelta(seconds=AT[i]))))
    as_meant(source)
    assert "from 2024-05-10 09:30:00.000" in source.understood.line


@pytest.mark.parametrize("name", ["arrival_minutes", "start_hours", "time_min"])
def test_minutes_are_not_taken_for_seconds(tmp_path: Path, name: str) -> None:
    data = table(f"{name},prompt_tokens,completion_tokens").encode()
    with pytest.raises(
        InvalidInput, match=f"row 2: {name}=.* its name says .*: convert it, or, if that is not so, say"
    ):
        _ = read(tmp_path / "log", data, columns={"arrival": name}).whole
    as_meant(read(tmp_path / "log", data, columns={"arrival": name}, time_unit="s"))


@pytest.mark.parametrize(
    ("more", "says"),
    [
        ({"num_model_requests": lambda i: 25}, "num_model_requests is up to 25, and a row is taken for one request"),
        ({"body": lambda i: {"n": 4}}, "body.n is up to 4: where a request has several answers"),
        (
            {"total_tokens": lambda i: 5000},
            "the totals are 100,000 tokens, and prompts and answers 29,600: if these lack",
        ),
        (
            {"model": lambda i: "ab"[i % 2]},
            "model has 2 models (a 10, b 10), and all requests are taken for those of one",
        ),
        ({"cache_hit": lambda i: str(i < 5)}, "cache_hit says of 5 of 20 rows that a cache had it"),
        ({"tokens_prompt": lambda i: 5, "native_tokens_prompt": lambda i: PROMPT[i]}, "prompt_tokens is taken, and"),
    ],
)
def test_what_seems_to_be_something_else_is_said(
    tmp_path: Path, more: dict[str, Callable[[int], Any]], says: str
) -> None:
    doubts = read(tmp_path / "log", lines(**more)).understood.doubts
    assert any(one.startswith(says) for one in doubts), doubts


RESULT: dict[str, Any] = {
    **{"input_lens": PROMPT, "output_lens": ANSWER, "start_times": [1000 + at for at in AT], "duration": 12.0},
    **{"total_input_tokens": sum(PROMPT), "total_output_tokens": sum(ANSWER)},
}


@pytest.mark.parametrize(
    ("more", "says"),
    [
        ({}, ""),
        (
            {"total_input_tokens": 9 * sum(PROMPT)},
            "total_input_tokens is 243,270, and the lists of lengths add up to 27,030",
        ),
        (
            {"start_times": [1e6 + 1000 * at for at in AT]},
            "the benchmark took 12 s (duration), and its starts are 9,500 s",
        ),
    ],
)
def test_a_result_that_contradicts_itself_is_said(tmp_path: Path, more: dict[str, Any], says: str) -> None:
    path = tmp_path / "result.json"
    path.write_text(json.dumps(RESULT | more))
    doubts = BenchLog(str(path), load="recorded").understood.doubts
    assert any(one.startswith(says) for one in doubts) if says else not doubts, doubts
    with pytest.raises(
        InvalidInput, match="it is a benchmark's result, with lists of lengths; take workload=bench_log"
    ):
        _ = RequestLog(str(path), load="recorded").whole


@pytest.mark.parametrize("more", [{"model": lambda i: "a"}, {"cached": lambda i: False}, {"cached": lambda i: 7}])
def test_nothing_is_said_where_nothing_is_odd(tmp_path: Path, more: dict[str, Callable[[int], Any]]) -> None:
    doubts = read(tmp_path / "log", lines(**more)).understood.doubts
    assert not [one for one in doubts if "models" in one or "a cache had it" in one]
