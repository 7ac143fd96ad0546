"""Logs as those give them out who keep them, with dates and numbers as people and spreadsheets write them: each is read
for what it is, or refused with a way out where it may be two things."""

from __future__ import annotations

import base64
import datetime
import json
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from prebleexp.errors import InvalidInput
from prebleexp.workloads.azure import Azure
from prebleexp.workloads.request_log import RequestLog
from tests.support.odd_files import exports as of
from tests.support.odd_files.shapes import table
from tests.support.odd_files.truth import EPOCH_S, Row

COUNTS = ("prompt_tokens", "completion_tokens")


def read(data: str | bytes, tmp_path: Path, **settings: Any) -> RequestLog:
    path = tmp_path / "log"
    path.write_bytes(data if isinstance(data, bytes) else data.encode())
    return RequestLog(str(path), load="recorded", **settings)


def as_meant(source: RequestLog, at: tuple[float, ...] = of.AT) -> None:
    trace = source.whole
    assert trace.start_s == pytest.approx(np.array(at), abs=0.0015)
    assert trace.prompt_tokens.tolist() == list(of.PROMPT)
    assert trace.output_tokens.tolist() == list(of.OUTPUT)


def counts(p: int, o: int) -> Row:
    return dict(zip(COUNTS, (p, o), strict=True))


# ---------------------------------------------------------------- documents around rows
def tags(**values: Any) -> list[Row]:
    return [{"key": name, "value": value} for name, value in values.items()]


def jaeger(i: int, at: float, p: int, o: int, c: int) -> Row:
    """A trace of a span around the one that has the tokens."""
    span = {"traceID": f"t{i}", "startTime": of.of_ms(at) * 1000, "duration": 900, "logs": []}
    within = [{"refType": "CHILD_OF", "spanID": f"a{i}"}]
    asked = tags(**{"gen_ai.usage.input_tokens": p, "gen_ai.usage.output_tokens": o})
    above = span | {"spanID": f"a{i}", "references": [], "tags": tags(**{"http.status_code": 200})}
    return {"traceID": f"t{i}", "spans": [above, span | {"spanID": f"b{i}", "references": within, "tags": asked}]}


def loki(line: Callable[[Row], str], lines: list[Row] = of.PLAIN) -> str:
    values = [[of.of_ns(at), line(row)] for at, row in zip(of.AT, lines, strict=True)]
    streams = [{"stream": {"pod": str(k)}, "values": values[k::2][::-1]} for k in (0, 1)]
    return json.dumps({"status": "success", "data": {"resultType": "streams", "result": streams, "stats": {}}})


def of_numbers(row: Row) -> Row:
    return {name: row[name] for name in COUNTS}


def har(encoding: str = "", streamed: bool = False) -> str:
    def entry(i: int, at: float, p: int, o: int, c: int) -> Row:
        text = json.dumps({"usage": counts(p, o)})
        text = f'data: {{"choices": []}}\n\ndata: {text}\n\ndata: [DONE]\n' if streamed else text
        text = base64.b64encode(text.encode()).decode() if encoding else text
        asked = json.dumps({"model": "m", "temperature": i})
        found = {"startedDateTime": of.iso(at), "time": 900, "request": {"postData": {"text": asked}}}
        return found | {"response": {"status": 200, "content": {"text": text, "encoding": encoding}}}

    style = {"startedDateTime": of.iso(-9), "request": {}, "response": {"status": 200, "content": {"text": "x"}}}
    return json.dumps({"log": {"version": "1.2", "entries": [style, *of.each(entry)]}})


def item(i: int, at: float, p: int, o: int, c: int) -> Row:
    usage = {"prompt_tokens": {"N": str(p)}, "completion_tokens": {"N": str(o)}, "tags": {"L": [{"NULL": True}]}}
    return {"created_at": {"S": of.iso(at)}, "usage": {"M": usage}, "cached": {"BOOL": False}}


def hit(i: int, at: float, p: int, o: int, c: int) -> Row:
    return {"_id": str(i), "fields": {"@timestamp": [of.iso(at)], "prompt_tokens": [p], "completion_tokens": [o]}}


def opencode(i: int, at: float, p: int, o: int, c: int) -> Row:
    """What was cached, or thought, stands beside."""
    tokens = {"input": p - c, "output": o - 2, "reasoning": 2, "cache": {"read": c, "write": 0}}
    return {"time": {"created": of.of_ms(at), "completed": of.of_ms(at + 9)}, "tokens": tokens}


def gemini(i: int, at: float, p: int, o: int, c: int) -> Row:
    """What was cached is among the input."""
    tokens = {"input": p, "output": o - 3, "cached": c, "thoughts": 3, "tool": 0, "total": p + o}
    return {"timestamp": of.iso(at), "type": "gemini", "tokens": tokens}


def embedding(i: int, at: float, p: int, o: int, c: int) -> list[Row]:
    asked = {"timestamp": of.iso(at), "path": "/v1/chat/completions", "status": 200, **counts(p, o)}
    return [asked, {"timestamp": of.iso(at + 0.1), "path": "/v1/models", "status": 200}]


def arrow(file: bool) -> bytes:
    import pyarrow as pa

    times = [datetime.datetime.fromtimestamp(EPOCH_S + at, datetime.UTC) for at in of.AT]
    rows = pa.table({"ts": times, "prompt_tokens": of.PROMPT, "completion_tokens": of.OUTPUT})
    sink = pa.BufferOutputStream()
    with (pa.ipc.new_file if file else pa.ipc.new_stream)(sink, rows.schema) as writer:
        writer.write_table(rows)
    return bytes(sink.getvalue())


def decimals() -> bytes:
    """With digits behind the point, all 0."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    many = pa.array(map(Decimal, of.OUTPUT), pa.decimal128(38, 9))
    rows = pa.table({"ts": [of.of_ms(at) for at in of.AT], "prompt_tokens": of.PROMPT, "completion_tokens": many})
    sink = pa.BufferOutputStream()
    pq.write_table(rows, sink)
    return bytes(sink.getvalue())


KEPT: dict[str, str | bytes] = {
    "Jaeger": json.dumps({"data": of.each(jaeger), "total": 0}),
    "Loki": loki(lambda row: json.dumps(of_numbers(row))),
    "Loki, with times of its own": loki(lambda row: json.dumps(row), of.PLAIN),
    "Loki, with lines of Go": loki(lambda row: " ".join(f"{key}={row[key]}" for key in COUNTS) + ' msg="a b"'),
    "HAR": har(),
    "HAR, packed": har(encoding="base64"),
    "HAR, of events": har(streamed=True),
    "DynamoDB's export": of.lines({"Item": one} for one in of.each(item)),
    "DynamoDB's scan": json.dumps({"Items": of.each(item), "Count": of.N}),
    "DynamoDB's stream": of.lines({"NewImage": one} for one in of.each(item)),
    "Elasticsearch's fields": json.dumps({"hits": {"total": of.N, "hits": of.each(hit)}}),
    "a data frame": json.dumps(
        {"columns": list(of.PLAIN[0]), "index": [*range(of.N)], "data": [list(row.values()) for row in of.PLAIN]}
    ),
    "ClickHouse's rows": json.dumps(
        {
            "meta": [{"name": one, "type": "String"} for one in of.PLAIN[0]],
            "data": [list(row.values()) for row in of.PLAIN],
            "rows": of.N,
        }
    ),
    "a list a column": json.dumps({name: [row[name] for row in of.PLAIN] for name in of.PLAIN[0]}),
    "opencode": of.lines(of.each(opencode)),
    "Gemini's command line": of.lines(of.each(gemini)),
    "other endpoints": of.mixed(of.each(embedding)),
    "an Arrow file": arrow(file=True),
    "an Arrow stream": arrow(file=False),
    "decimals": decimals(),
}


@pytest.mark.parametrize("name", KEPT)
def test_documents_around_rows_are_opened(name: str, tmp_path: Path) -> None:
    as_meant(read(KEPT[name], tmp_path))


def test_a_header_that_is_said_again_is_no_row(tmp_path: Path) -> None:
    text = table(of.PLAIN[:4], ",") + table(of.PLAIN[4:], ",")
    source = read(text, tmp_path)
    as_meant(source)
    assert "left out: 1 line that says the header again" in source.understood.line
    with pytest.raises(InvalidInput, match="row 10: "):  # the lines are counted as they stand in the file
        _ = read(text.replace(str(of.PROMPT[7]), "many"), tmp_path).whole


def test_a_data_set_of_conversations_is_asked_at_a_rate(tmp_path: Path) -> None:
    said = [{"id": "a", "conversations": [{"from": "human", "value": "hello"}, {"from": "gpt", "value": "hello"}]}]
    with pytest.raises(InvalidInput, match="a data set of conversations, without times; take workload=vllm_bench"):
        _ = read(json.dumps(said * 3), tmp_path).whole


# ---------------------------------------------------------------- dates
Write = Callable[[datetime.datetime], str]
SECONDS = tuple(float(int(at)) for at in of.AT)


def dated(write: Write, begin: datetime.datetime, separator: str = ",") -> str:
    rows = [{"timestamp": write(begin + datetime.timedelta(seconds=at)), **of_numbers(row)}
            for at, row in zip(of.AT, of.PLAIN, strict=True)]  # fmt: skip
    return table(rows, separator)


BEGIN = datetime.datetime(2025, 11, 24, 11, 59, 50)
"""so that noon comes"""


@pytest.mark.parametrize(
    ("form", "at"),
    [
        ("%d/%m/%Y %H:%M:%S.%f", of.AT),
        ("%m/%d/%Y %H:%M:%S.%f", of.AT),
        ("%d.%m.%Y %H:%M:%S", SECONDS),
        ("%d-%m-%Y %H:%M:%S", SECONDS),
        ("%m/%d/%y %H:%M:%S", SECONDS),
        ("%Y/%m/%d %H:%M:%S", SECONDS),
        ("%m/%d/%Y, %I:%M:%S %p", SECONDS),
        ("%d/%m/%Y %I:%M:%S.%f %p", of.AT),
        ("%Y-%m-%d %I:%M:%S %p", SECONDS),
        ("%d/%m/%Y %H:%M:%S +00:00", SECONDS),
        ("%a %b %d %Y %H:%M:%S GMT+0000 (Coordinated Universal Time)", SECONDS),
        ("%b %d, %Y @ %H:%M:%S.%f", of.AT),
        ("%H:%M:%S.%f", of.AT),
    ],
)
def test_dates_of_spreadsheets_browsers_and_people(form: str, at: tuple[float, ...], tmp_path: Path) -> None:
    source = read(dated(lambda moment: moment.strftime(form), BEGIN, "\t"), tmp_path)
    as_meant(source, at)
    assert ("2025-11-24 11:59:50" if "%d" in form else "11:59:50") in source.understood.line


def test_a_date_and_a_time_in_two_columns_are_one(tmp_path: Path) -> None:
    rows = [{"Date": f"24/11/2025 {text}".split()[0], "Time": text, **of_numbers(row)} for row, text in
            ((row, (BEGIN + datetime.timedelta(seconds=at)).strftime("%H:%M:%S.%f"))
             for at, row in zip(of.AT, of.PLAIN, strict=True))]  # fmt: skip
    source = read(table(rows, ","), tmp_path)
    as_meant(source)
    assert "Date and Time, a date and time without a time zone, from 2025-11-24 11:59:50" in source.understood.line


def of_dates(*texts: str) -> str:
    return of.lines({"timestamp": text, **counts(900, 9)} for text in texts)


def test_the_order_of_rows_tells_the_day_from_the_month(tmp_path: Path) -> None:
    days = ("03/04/2025 23:59:59", "04/04/2025 00:00:01", "05/03/2025 00:00:00")
    assert read(of_dates(*days), tmp_path).whole.span_s > 29 * 86_400  # April 3rd, April 4th, May 3rd
    one = "04/05/2025 10:00:00", "04/05/2025 10:00:07"
    assert read(of_dates(*one), tmp_path).whole.span_s == 7


@pytest.mark.parametrize(
    ("texts", "says"),
    [
        (("01/02/2025 10:00:00", "02/02/2025 10:00:00"), "row 1: .*it may be the first number or the second; say it"),
        (("01/02/2025 10:00:00", "03/01/2025 10:00:00", "02/03/2025 10:00:00"), "row 1: .*it may be the first number"),
        (("13/02/2025 10:00:00", "02/14/2025 10:00:00"), "row 2: .*a date with the day first, as that of other rows"),
        (("23:59:59", "00:00:01"), "row 2: .*later than that of the row before, as it has no date: give times with"),
        (("2025-11-24T08:00:00Z", "0001-01-01T00:00:00Z"), "row 2: .*a date from 2004 to 2052, as that of other rows"),
        (("1970-01-01T00:00:00Z", "2025-11-24T08:00:00Z"), "row 1: .*a date from 2004 to 2052, as that of other rows"),
    ],
)
def test_dates_that_may_be_others_are_refused(texts: tuple[str, ...], says: str, tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match=says):
        _ = read(of_dates(*texts), tmp_path).whole


def test_dates_of_no_calendar_year_may_stand_for_seconds(tmp_path: Path) -> None:
    assert read(of_dates("1970-01-01T00:00:00Z", "1970-01-01T00:00:09Z"), tmp_path).whole.span_s == 9


# ---------------------------------------------------------------- numbers, and names
@pytest.mark.parametrize("mark", [",", " ", "\u202f", "\u00a0", "'", "’"])
def test_thousands_of_tokens_may_have_marks_between_them(mark: str, tmp_path: Path) -> None:
    rows = [row | {"prompt_tokens": f"{row['prompt_tokens']:,}".replace(",", mark)} for row in of.PLAIN]
    as_meant(read(of.lines(rows), tmp_path))
    with pytest.raises(InvalidInput, match=r"row 2: prompt_tokens='0,687' is not valid"):
        _ = read(of.lines([rows[0], rows[1] | {"prompt_tokens": "0,687"}]), tmp_path).whole


def test_a_comma_behind_a_zero_is_a_decimal_one(tmp_path: Path) -> None:
    rows = [{"arrival_s": f"{at:.3f}".replace(".", ","), **of_numbers(row)}
            for at, row in zip(of.AT, of.PLAIN, strict=True)]  # fmt: skip
    as_meant(read(table(rows, ";"), tmp_path))


@pytest.mark.parametrize(
    ("name", "per_s"),
    [
        ("timestamp (µs)", 1e6),
        ("Start time in ms", 1e3),
        ("arrival in µs", 1e6),
        ("Time [sec.]", 1),
        ("Start [ns]", 1e9),
    ],
)
def test_units_in_heads_are_read(name: str, per_s: float, tmp_path: Path) -> None:
    heads = ("Input Sequence Length (tokens)", "Output Sequence Length [tokens]")
    rows = [{name: at * per_s, heads[0]: p, heads[1]: o} for at, p, o in zip(of.AT, of.PROMPT, of.OUTPUT, strict=True)]
    source = read(table(rows, ","), tmp_path)
    as_meant(source)
    assert "as its name says" in source.understood.line


def test_an_end_is_of_a_log_alone(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match=r"workload\.columns\.end is not valid with workload=azure"):
        Azure(str(tmp_path / "x"), load="recorded", columns={"end": "TIMESTAMP"})
