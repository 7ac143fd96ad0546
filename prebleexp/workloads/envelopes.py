"""Documents around the rows of a log, as those write them who keep logs for others: Jaeger's traces, answers of Loki,
archives of HTTP (HAR), items of DynamoDB, hits of Elasticsearch, and tables of databases and data frames.

Jaeger has tags as lists, and a span's parent among its references; Loki has a time, in ns, and a line of text; HAR has
the bodies of request and answer as texts (http://www.softwareishard.com/blog/har-12-spec); DynamoDB has a value within
the name of its type."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

from prebleexp.workloads.rows import parsed

Record = Mapping[str, Any]
OF_LOKI = "loki_ns"
"""the field that has the time of Loki's own"""
TYPES = {"S", "N", "BOOL", "NULL", "M", "L", "SS", "NS", "B", "BS"}
"""of DynamoDB's values"""
ITEMS = ("Item", "NewImage", "Items")
LOGFMT = re.compile(r'([A-Za-z_][\w.]*)=("(?:[^"\\]|\\.)*"|[^\s"]*)')
"""a field of a line as Go's programs log it"""


def rows_in(record: Record) -> list[Any] | None:
    """The rows of such a document; None if it is none."""
    for inside in (_jaeger, _loki, _har, _dynamo, _elastic, _table):
        if (found := inside(record)) is not None:
            return found
    return None


def _jaeger(record: Record) -> list[Any] | None:
    traces = record.get("data", [record])
    if not (isinstance(traces, list) and traces and all(_is_trace(one) for one in traces)):
        return None
    return [_span(span) for one in traces for span in one["spans"] if isinstance(span, dict)]


def _is_trace(one: object) -> bool:
    return isinstance(one, dict) and "traceID" in one and isinstance(one.get("spans"), list)


def _span(span: Record) -> dict[str, Any]:
    """Its times are microseconds since 1970."""
    tags = {str(one.get("key")): one.get("value") for one in span.get("tags") or () if isinstance(one, dict)}
    above = [one.get("spanID") for one in span.get("references") or () if one.get("refType") == "CHILD_OF"]
    found = {"start_time_us": span.get("startTime"), "span_id": span.get("spanID"), "attributes": tags}
    return found | {"parent_span_id": above[0] if above else "", "operation_name": span.get("operationName")}


def _loki(record: Record) -> list[Any] | None:
    data = record.get("data", record)
    streams = data.get("result", data.get("streams")) if isinstance(data, dict) else None
    if not (isinstance(streams, list) and streams and all(_is_stream(one) for one in streams)):
        return None
    return [_line(one[0], one[1]) for stream in streams for one in stream["values"]]


def _is_stream(one: object) -> bool:
    values = one.get("values") if isinstance(one, dict) and "stream" in one else None
    return isinstance(values, list) and all(isinstance(pair, list) and len(pair) >= 2 for pair in values)


def _line(time: Any, text: Any) -> dict[str, Any]:
    """A line that has a time of its own says it before the one at which it was kept."""
    found = parsed(text) if isinstance(text, str) else None
    if not isinstance(found, dict):
        found = {name: value.strip('"') for name, value in LOGFMT.findall(str(text))}
    return {**found, OF_LOKI: time}


def _har(record: Record) -> list[Any] | None:
    log = record.get("log")
    entries = log.get("entries") if isinstance(log, dict) else None
    if not isinstance(entries, list):
        return None
    return [one for entry in entries if isinstance(entry, dict) for one in _asked(entry)]


def _asked(entry: Record) -> Iterator[dict[str, Any]]:
    """Of an entry, if its answer counts tokens: whatever else a page asked for is no request to a model."""
    answer = entry.get("response") or {}
    usage = _usage(_text(answer.get("content") or {}))
    asked = parsed(str(((entry.get("request") or {}).get("postData") or {}).get("text") or ""))
    if usage is None and not (isinstance(asked, dict) and "model" in asked):
        return
    found = {"start_time": entry.get("startedDateTime"), "status": answer.get("status")}
    yield found | {"body": asked if isinstance(asked, dict) else {}, "usage": usage or {}}


def _text(content: Record) -> str:
    text = str(content.get("text") or "")
    if content.get("encoding") != "base64":
        return text
    try:
        return base64.b64decode(text).decode(errors="replace")
    except ValueError:
        return ""


def _usage(text: str) -> dict[str, Any] | None:
    """Of an answer in one piece, or the last one of those that came as events."""
    pieces = [line.removeprefix("data:") for line in text.splitlines() if line.startswith("data:")] or [text]
    found = None
    for piece in pieces:
        one = parsed(piece.strip())
        if isinstance(one, dict):
            usage = next((one[name] for name in ("usage", "usageMetadata") if name in one), None)
            found = usage if isinstance(usage, dict) else found
    return found


def _dynamo(record: Record) -> list[Any] | None:
    if isinstance(items := record.get("Items"), list) and items and all(_is_item(one) for one in items):
        return [_plain(one) for one in items]
    for name in ITEMS[:2]:
        if _is_item(record.get(name)):
            return [_plain(record[name])]
    return [_plain(record)] if _is_item(record) else None


def _is_item(one: object) -> bool:
    """Whether all that it has are values within the name of their type."""
    return isinstance(one, dict) and bool(one) and all(_is_typed(value) for value in one.values())


def _is_typed(value: object) -> bool:
    return isinstance(value, dict) and len(value) == 1 and next(iter(value)) in TYPES


def _plain(item: Record) -> dict[str, Any]:
    return {name: _value(value) for name, value in item.items()}


def _value(value: Any) -> Any:
    if not _is_typed(value):
        return value
    ((kind, inner),) = value.items()
    if kind == "M":
        return _plain(inner)
    if kind == "L":
        return [_value(one) for one in inner]
    if kind == "N":
        return json.loads(inner) if isinstance(inner, str) and inner else inner
    return None if kind == "NULL" else inner


def _elastic(record: Record) -> list[Any] | None:
    """Hits that have lists of values in place of the documents."""
    hits = record.get("hits")
    hits = hits.get("hits") if isinstance(hits, dict) else None
    if not (isinstance(hits, list) and hits and all(_has_fields(one) for one in hits)):
        return None
    return [{name: one[0] if isinstance(one, list) and len(one) == 1 else one for name, one in hit["fields"].items()}
            for hit in hits]  # fmt: skip


def _has_fields(hit: object) -> bool:
    return isinstance(hit, dict) and isinstance(hit.get("fields"), dict) and "_source" not in hit


def _table(record: Record) -> list[Any] | None:
    """Of lists: a row each, whose names stand beside (data frames', ClickHouse's), or a column each."""
    names, rows = record.get("columns", record.get("meta")), record.get("data")
    if isinstance(names, list) and isinstance(rows, list) and all(isinstance(one, list) for one in rows):
        heads = [str(one.get("name")) if isinstance(one, dict) else str(one) for one in names]
        if all(len(one) == len(heads) for one in rows):
            return [dict(zip(heads, one, strict=True)) for one in rows]
    columns = list(record.values())
    if len(columns) < 2 or not all(isinstance(one, list) and len(one) == len(columns[0]) for one in columns):
        return None
    if any(isinstance(value, list | dict) for column in columns for value in column):
        return None
    return [dict(zip(record, one, strict=True)) for one in zip(*columns, strict=True)]
