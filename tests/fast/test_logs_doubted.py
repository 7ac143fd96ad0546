"""Logs whose times are those of answers, and rows that are no requests of their own: what is known is read so, and what
only may be is said."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from prebleexp.errors import InvalidInput
from prebleexp.workloads.request_log import RequestLog
from tests.support.odd_files import exports as of
from tests.support.odd_files.truth import EPOCH_S, Row

N = 24
AT = np.cumsum(np.random.default_rng(7).exponential(1.7, N)).round(3).tolist()
PROMPT = np.random.default_rng(8).integers(200, 6000, N).tolist()
OUTPUT = np.random.default_rng(9).integers(20, 700, N).tolist()
TOOK = [round(0.05 + one / 50, 3) for one in OUTPUT]
ENDS = [at + took for at, took in zip(AT, TOOK, strict=True)]
BY_END = np.argsort(ENDS).tolist()


def rows(**more: Any) -> list[Row]:
    """In order of arrival; `more` are functions of a request's number."""
    return [
        {"timestamp": of.iso(AT[i]), "prompt_tokens": PROMPT[i], "completion_tokens": OUTPUT[i]}
        | {name: value(i) for name, value in more.items()}
        for i in range(N)
    ]


def ended(**fields: Any) -> str:
    """In order of ends, as servers write them."""
    found = rows(**fields)
    return of.lines(
        {key: value for key, value in found[i].items() if key != "timestamp" or key in fields} for i in BY_END
    )


def read(data: str, tmp_path: Path, **settings: Any) -> RequestLog:
    path = tmp_path / "log"
    path.write_text(data)
    return RequestLog(str(path), load="recorded", **settings)


def as_meant(source: RequestLog, abs_s: float = 0.0021) -> None:
    trace = source.whole
    assert trace.prompt_tokens.tolist() == PROMPT
    assert trace.output_tokens.tolist() == OUTPUT
    assert trace.start_s == pytest.approx(np.array(AT) - AT[0], abs=abs_s)


# ---------------------------------------------------------------- times of answers
def end(i: int) -> str:
    return of.iso(ENDS[i])


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({"end_time": end, "duration_ms": lambda i: TOOK[i] * 1e3}, "less duration_ms, milliseconds"),
        ({"endTime": end, "latency": lambda i: f"{TOOK[i]}s"}, "less latency, seconds"),
        ({"finished_at": end, "elapsed": lambda i: TOOK[i]}, "less elapsed, seconds"),
        ({"completedAt": end, "duration": lambda i: round(TOOK[i] * 1e9)}, "less duration, nanoseconds"),
        ({"msec": lambda i: EPOCH_S + ENDS[i], "request_time": lambda i: str(TOOK[i])}, "less request_time, seconds"),
        (
            {"time_local": end, "msec": lambda i: EPOCH_S + ENDS[i], "request_time": lambda i: TOOK[i]},
            "msec, seconds, since 1970 (UTC), from 2025-11-24 16:00:0",
        ),
    ],
)
def test_what_ended_came_so_long_before_as_it_took(fields: Row, says: str, tmp_path: Path) -> None:
    source = read(ended(**fields), tmp_path)
    as_meant(source)
    assert says in source.understood.line


@pytest.mark.parametrize("name", ["timestamp", "ts", "time", "@timestamp"])
def test_a_time_that_may_be_that_of_the_answer_is_doubted_and_can_be_set(name: str, tmp_path: Path) -> None:
    text = ended(**{name: lambda i: of.iso(ENDS[i])}, latency_ms=lambda i: TOOK[i] * 1e3)
    (doubt,) = read(text, tmp_path).understood.doubts
    columns = {"end": name, "took": "latency_ms"}
    assert doubt.startswith(f"{name} is taken for when requests came; if it is when they were answered, latency_ms (")
    assert doubt.endswith(f"workload.columns={{end: {name}, took: latency_ms}}")
    as_meant(read(text, tmp_path, columns=columns))


def test_an_end_that_was_set_as_an_arrival_is_doubted(tmp_path: Path) -> None:
    source = read(ended(end_time=end, latency_ms=lambda i: TOOK[i] * 1e3), tmp_path, columns={"arrival": "end_time"})
    assert any(one.startswith("end_time is taken for when requests came") for one in source.understood.doubts)


def test_starts_in_order_of_ends_are_starts(tmp_path: Path) -> None:
    found = rows(latency_s=lambda i: TOOK[i])
    source = read(of.lines(found[i] for i in BY_END), tmp_path)
    as_meant(source)
    assert not source.understood.doubts


def test_one_request_after_the_other_came_in_either_order(tmp_path: Path) -> None:
    found = [row | {"timestamp": of.iso(20.0 * i + i * i), "latency_s": TOOK[i]} for i, row in enumerate(rows())]
    assert not read(of.lines(found), tmp_path).understood.doubts


def test_an_end_needs_how_long_it_took(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match=r"workload\.columns\.end=at is not valid without how long a request took"):
        _ = read(ended(at=end), tmp_path, columns={"end": "at"}).whole


# ---------------------------------------------------------------- rows that are no requests
def running() -> list[Row]:
    sums = [np.cumsum(one).tolist() for one in (PROMPT, OUTPUT)]
    return rows(prompt_tokens=lambda i: sums[0][i], completion_tokens=lambda i: sums[1][i])


def running_sessions() -> list[Row]:
    """Of three, by turns."""
    found = rows(session_id=lambda i: f"s{i % 3}")
    for i in range(3, N):
        for name in ("prompt_tokens", "completion_tokens"):
            found[i][name] += found[i - 3][name]
    return found


def chunks(**more: Any) -> list[Row]:
    return [
        {"timestamp": of.iso(AT[i] + k / 50), "prompt_tokens": PROMPT[i], "completion_tokens": 1}
        | {name: value(i) for name, value in more.items()}
        for i in range(N)
        for k in range(12)
    ]


def every(step_s: float, at_once: int = 1) -> list[Row]:
    """In steps of a time, not all of them taken."""
    slots = [k for k in range(2 * N) if k % 5 or k % 3]
    return rows(timestamp=lambda i: of.iso(step_s * slots[i // at_once]))


DOUBTED: dict[str, tuple[list[Row], str]] = {
    "totals so far": (running(), "prompts and answers become longer all the time: if they are totals so far"),
    "totals of sessions": (running_sessions(), "prompts and answers become longer all the time"),
    "parts by their id": (
        chunks(request_id=lambda i: f"r{i}"),
        "the rows that are left out for a later one with their",
    ),
    "one id for two": (
        rows(request_id=lambda i: f"r{i // 2}"),
        "12 rows have the id of another one, and another prompt: each is taken for a request",
    ),
    "parts": (chunks(), "answers have 1 token, and prompts repeat: if rows are parts of answers"),
    "a gateway and a server": (
        [one for row in rows(request_id=lambda i: i) for one in (row, row | {"request_id": f"x{row['request_id']}"})],
        "each request is there 2 times, by its lengths: if several wrote it down",
    ),
    "tries": (
        [one for row in rows() for one in (row | {"completion_tokens": 0}, row)],
        "24 of 48 rows have an answer of 0 tokens, and are taken for requests that were served: if they failed",
    ),
    "a great one that was blocked": (
        [*rows(), {"timestamp": of.iso(9), "prompt_tokens": 90_000, "completion_tokens": 0, "finish": "blocked"}],
        "1 of 25 rows have an answer of 0 tokens",
    ),
    "a sample": (rows(sample_rate=lambda i: 0.1), "sample_rate is 0.1: if the file has a sample of the requests"),
    "Datadog's sample": (rows(_sampling_priority_rate_v1=lambda i: 0.2), "_sampling_priority_rate_v1 is 0.2: if"),
    "Azure's sample": (rows(itemCount=lambda i: 10), "itemCount is up to 10, and a row is taken for one request"),
    "counts": (rows(count=lambda i: 3 + i % 4), "count is up to 6, and a row is taken for one request"),
    "rates": (rows(requests_per_second=lambda i: 2.5), "requests_per_second is up to 2.5: if rows are means over"),
    "scrapes": (
        every(15),
        "all come at whole multiples of 15 s: if times are rounded, or rows are sums over that time",
    ),
    "minutes": (every(60, at_once=2), "all come at whole multiples of 60 s"),
    "letters": (
        rows(output_size=lambda i: 4 * OUTPUT[i], completion_tokens=lambda i: None),
        "output_size is taken for tokens: letters would be about four times as many",
    ),
    "two restarts": (
        [row | {"timestamp": round(AT[i % 9], 3)} for i, row in enumerate(rows())],
        "timestamp begins anew 2 times, with",
    ),
}


@pytest.mark.parametrize("name", DOUBTED)
def test_rows_that_may_be_no_requests_are_doubted(name: str, tmp_path: Path) -> None:
    found, says = DOUBTED[name]
    doubts = read(of.lines(found), tmp_path).understood.doubts
    assert any(one.startswith(says) for one in doubts), doubts


@pytest.mark.parametrize(
    "found",
    [
        rows(),
        rows(sample_rate=lambda i: 1.0, count=lambda i: 1),
        rows(prompt_tokens=lambda i: 1024, completion_tokens=lambda i: 1),
        rows(prompt_tokens=lambda i: 1024, completion_tokens=lambda i: 128),
        rows(
            completion_tokens=lambda i: 0 if i == 3 else OUTPUT[i], prompt_tokens=lambda i: 9 if i == 3 else PROMPT[i]
        ),
        rows(sampling_temperature=lambda i: 0.7),
        every(1.0),
    ],
)
def test_nothing_is_said_of_rows_that_are_requests(found: list[Row], tmp_path: Path) -> None:
    assert not read(of.lines(found), tmp_path).understood.doubts
