"""The requests of logs, whatever document they are in: spans, results of benchmarks, objects within objects."""

from __future__ import annotations

import datetime
from collections.abc import Mapping, Sequence
from typing import Any

from prebleexp.errors import InvalidInput
from prebleexp.workloads import envelopes
from prebleexp.workloads.columns import plain
from prebleexp.workloads.failed import OTHER, PHASE
from prebleexp.workloads.rows import NOTHING, Records, Rows, Table, parsed
from prebleexp.workloads.usage import INPUTS, OUTPUTS

LISTS = (
    "requests",
    "data",
    "results",
    "logs",
    "records",
    "rows",
    "items",
    "traces",
    "entries",
    "observations",
    "spans",
    "events",
    "hits",
)
"""in which a document has its rows"""
INNER = (
    *("request", "response", "body", "usage", "metadata", "usage_metadata", "usage_details", "meta", "attributes"),
    *("metrics", "log", "message", "payload", "event", "result", "details", "line"),
)
"""objects that exports write as text"""
INNER_WORDS = ("request", "response", "body", "payload", "usage", "metadata")
"""with which names of such end, as `full_response`"""
ATTRIBUTES = "attributes"
TYPED = "$"
"""with which MongoDB begins the name of a value's type, around the value"""
OTLP = (
    (("resourceSpans", "resource_spans"), ("scopeSpans", "scope_spans"), ("spans",)),
    (("resourceLogs", "resource_logs"), ("scopeLogs", "scope_logs"), ("logRecords", "log_records")),
)
"""where OpenTelemetry's documents have spans, and events"""


def flattened(rows: Rows, benchmark: int | None = None) -> Rows:
    """A row a request, each field with the objects that it is in, as `usage.prompt_tokens`. Of a document with several
    benchmarks one is taken, from 1 on: the last, if none is named. Raises InvalidInput if there are not so many."""
    if isinstance(rows, Table):
        if not any(_is_inner(rows, name) for name in rows.names):
            return rows
        columns = [[_written(value) for value in rows.values(name)] for name in rows.names]
        records = [dict(zip(rows.names, values, strict=True)) for values in zip(*columns, strict=True)]
        rows = Records(rows.path, records, [rows.number(row) for row in range(len(rows))])
    assert isinstance(rows, Records)
    rows = _unwrapped(rows, benchmark)
    return Records(rows.path, [_flat(one) for one in rows.records], rows.lines)


def _written(value: Any) -> Any:
    """A time as its text."""
    return value.isoformat() if isinstance(value, datetime.date) else value


def _is_inner(rows: Table, name: str) -> bool:
    first = next((one for one in rows.values(name)[:100] if one not in NOTHING), None)
    return isinstance(first, Mapping) or (_named_inner(name) and isinstance(first, str) and first[:1] == "{")


def _named_inner(name: str) -> bool:
    tail = plain(name).rpartition(".")[2]
    return tail in INNER or tail.rpartition("_")[2] in INNER_WORDS


def _unwrapped(rows: Records, benchmark: int | None) -> Records:
    """Of documents that have their rows in a list, those."""
    found: list[Any] = []
    for record in rows.records:
        inner = _inner_of(rows.path, record, benchmark)
        if inner is None:
            chosen(rows.path, benchmark, 1)
            return rows
        found += inner
    for number, one in enumerate(found, start=1):
        if not isinstance(one, dict):
            raise InvalidInput(f"{rows.path}: request {number}: not a JSON object")
    return Records(rows.path, found, range(1, len(found) + 1))


def _inner_of(path: str, record: Mapping[str, Any], benchmark: int | None) -> list[Any] | None:
    for resources, scopes, rows_within in OTLP:
        if isinstance(within := next((record[one] for one in resources if one in record), None), list):
            return [row for one in within for scope in _lists(one, *scopes) for row in _lists(scope, *rows_within)]
    if isinstance(runs := record.get("benchmarks"), list):  # guidellm
        taken = chosen(path, benchmark, len(runs))
        return [one for number, run in enumerate(runs, start=1) for one in _requests(path, run, number != taken)]
    if (found := envelopes.rows_in(record)) is not None:
        return found
    for name in LISTS:
        rows = record.get(name)
        if isinstance(rows, dict):  # as hits.hits of Elasticsearch, or data.result
            rows = next((rows[one] for one in LISTS if isinstance(rows.get(one), list)), None)
        if isinstance(rows, list) and rows and all(isinstance(one, dict) for one in rows):
            return None if _counts(record) and not any(map(_counts, rows)) else rows
    return None


def _counts(record: Mapping[str, Any]) -> bool:
    """Whether it says how long a prompt or an answer was: then it is a request, whatever lists it has beside."""
    names = [plain(name) for name in _flat(record)]
    return any(name == alias or name.endswith(f".{alias}") for name in names for alias in (*INPUTS, *OUTPUTS))


def chosen(path: str, benchmark: int | None, many: int) -> int:
    """Which of so many benchmarks of a file is taken. Raises InvalidInput if it has not so many."""
    if benchmark is not None and benchmark > many:
        raise InvalidInput(f"{path}: workload.benchmark={benchmark} is not valid; the file has {many}, from 1 on")
    return benchmark or many


def _requests(path: str, run: Any, other: bool) -> list[Any]:
    """Of one of guidellm's benchmarks; whether it is another than the one that is taken stands with them."""
    requests = run.get("requests") if isinstance(run, dict) else None
    if isinstance(requests, list):
        requests = {"successful": requests}
    if not isinstance(requests, dict):
        raise InvalidInput(f"{path}: a benchmark has no requests; let guidellm write them (--output kind=json)")
    phase = {PHASE: OTHER} if other else {}
    lost = ("errored", "incomplete")
    found = [
        (one, {"error": name} if name in lost else {})
        for name in ("successful", *lost)
        for one in _each(requests.get(name))
    ]
    return [_sent(one) | kind | phase for one, kind in found if isinstance(one, dict)]


def _sent(request: dict[str, Any]) -> dict[str, Any]:
    """Without the times at which guidellm 0.2 laid requests in store, long before it sent them."""
    stored = request.get("scheduler_info")
    if not isinstance(stored, dict):
        return request
    return request | {"scheduler_info": {name: one for name, one in stored.items() if not name.endswith("queued_time")}}


def _each(rows: Any) -> Sequence[Any]:
    return rows if isinstance(rows, list) else ()


def _lists(record: Any, *names: str) -> Sequence[Any]:
    found: Any = next((record[name] for name in names if isinstance(record, dict) and name in record), [])
    return found if isinstance(found, list) else []


def _flat(record: Mapping[str, Any], within: str = "") -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, value in record.items():
        if name == ATTRIBUTES and isinstance(value, list):
            value = {str(one.get("key")): _value(one.get("value")) for one in value if isinstance(one, dict)}
        elif isinstance(value, str) and value[:1] == "{" and _named_inner(name):
            value = parsed(value) or value
        while isinstance(value, Mapping) and len(value) == 1 and next(iter(value)).startswith(TYPED):
            (value,) = value.values()
        if isinstance(value, Mapping) and value:
            found |= _flat(value, f"{within}{name}.")
        else:
            found[f"{within}{name}"] = value
    return found


def _value(value: Any) -> Any:
    """Of an attribute as OTLP writes it: {"intValue": "12"}."""
    if isinstance(value, Mapping) and len(value) == 1:
        kind, inner = next(iter(value.items()))
        if kind == "intValue" and str(inner).lstrip("-").isdigit():
            return int(inner)
        return inner
    return value
