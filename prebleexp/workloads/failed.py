"""Which rows of a log do not count as requests: failures, warm-ups, other benchmarks."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import numpy as np

from prebleexp.checks import is_integer, is_number
from prebleexp.errors import significant
from prebleexp.sim.types import Longs
from prebleexp.workloads.columns import Columns, matching, plain, set_column
from prebleexp.workloads.rows import Mask, Rows

STATUS = (
    *("status", "status_code", "http_status", "http_status_code", "response_status", "response_code", "status.code"),
    *("level", "outcome", "state", "result", "request_status", "http_code", "sc_status"),
)
HTTP = ("http_status", "http_status_code", "response_code", "http_code", "sc_status")
"""of which 0 is that nothing came back; another status of 0 may be one of success"""
FINISHES = ("finish_reason", "stop_reason")
SUCCESS = ("success", "ok", "succeeded", "is_success", "valid")
ERRORS = ("error", "errors", "error_message", "error_type", "error_code", "exception", "is_error", "failed")
WITHIN = ("error", "exception", "error_information", "error_info", "error_details")
"""objects of a request that failed"""
SAYS_WHICH = (
    *("message", "msg", "code", "type", "name", "reason", "error_type", "error_code", "error_class"),
    *("error_msg", "error_message", "status"),
)
"""what such an object has, and is empty where nothing failed"""
CANCELLED = (
    *("was_cancelled", "cancelled", "canceled", "aborted", "timed_out", "is_timeout", "rejected", "rate_limited"),
    *("throttled", "grpc_status", "grpc_code", "grpc.status_code"),
)
CODE, CODES = "code", (100, 599)
"""a field of that name has statuses if all rows have such numbers"""
IN_WORDS = re.compile(r"\s*[45](\d\d|xx)\b")
"""how a status begins that has its words behind it, or is one of a class: 429 Too Many Requests, 5xx"""
FAILED = re.compile(r"\s*([45]\d\d)(?:\.0)?(?![\d.])")
"""a status of a failure, and what may be behind it"""
CODES_OF = ("error_code", *(f"{within}.{name}" for within in WITHIN for name in ("code", "status")))
"""fields of an error that may be such a status"""
TOLD_APART = ("429", "499")
"""statuses of requests that somebody wanted served: too many at once, and clients that gave up"""
BAD = ("error", "fail", "cancel", "abort", "timeout", "timed out", "reject", "status_code_error")
"""with what a status in words begins, or what it has"""
NONE = ("", "none", "null", "nil", "false", "0", "200", "no", "ok", "{}", "[]")
"""what stands where there is no error"""
PHASE, WARMUP = "benchmark_phase", ("warmup", "warm_up")
OTHER = "other"
"""the phase of those of a document's benchmarks that are not taken"""
Test = Callable[[str, object], bool]


class Kept(NamedTuple):
    rows: Longs
    left_out: tuple[str, ...]


def served(rows: Rows, columns: Columns) -> Kept:
    """The rows of requests that were served, in order; and what is said of the others."""
    n = len(rows)
    failed, warming, other = (np.zeros(n, np.bool_) for _ in range(3))
    status = set_column(rows, columns, "status")
    tests: list[tuple[str, Test]] = [(status, _bad_status)] if status else []
    tests += [(name, test) for name, test in _tests(rows) if name != status]
    for name, test in tests:
        failed |= np.array([test(name, value) for value in rows.optional(name)], np.bool_)
    for name in matching(rows, PHASE)[:1]:
        phases = [str(value).lower() for value in rows.optional(name)]
        warming |= np.array([phase in WARMUP for phase in phases], np.bool_)
        other |= np.array([phase == OTHER for phase in phases], np.bool_)
    said = rows.left_out(
        other, "of other benchmarks of the file; workload.benchmark=1, 2, … takes another than the last"
    )
    gone, kept = failed & ~other, np.flatnonzero(~(failed | warming | other))
    with_codes = [name for name, test in tests if test is _bad_status or plain(name).endswith(CODES_OF)]
    classes = _classes([rows.optional(name) for name in with_codes], gone)
    higher = ""
    if classes and len(kept):
        more = significant(100 * float(gone.sum()) / len(kept))
        higher = f"; the demand is up to {more} % higher with them"
    said += rows.left_out(gone, f"which failed{classes}{higher}") + rows.left_out(warming & ~failed, "of the warm-up")
    return Kept(kept, said)


def _classes(columns: Sequence[Sequence[object]], of: Mask) -> str:
    """How many of these rows have which kind of HTTP status, in the first column with one of a failure; nothing where
    they have none."""
    errors = [
        next((found[1] for column in columns if (found := FAILED.match(str(column[row])))), "")
        for row in np.flatnonzero(of)
    ]
    kinds = Counter(code if code in TOLD_APART else f"{code[0]}xx" for code in errors if code)
    return ": " + ", ".join(f"{count:,} with {kind}" for kind, count in sorted(kinds.items())) if kinds else ""


def _tests(rows: Rows) -> Iterator[tuple[str, Test]]:
    """Fields that say whether a request failed, and how."""
    kinds = ((STATUS, _bad_status), (SUCCESS, _no_success), (ERRORS, _is_error), (CANCELLED, _is_error))
    for aliases, test in (*kinds, (FINISHES, _bad_end)):
        yield from ((name, test) for alias in aliases for name in matching(rows, alias)[:1])
    for name in matching(rows, CODE)[:1]:
        if all(is_integer(value, *CODES) for value in rows.optional(name)):
            yield name, _bad_status
    for name in rows.names:
        *within, tail = plain(name).split(".")
        if tail in SAYS_WHICH and set(within) & set(WITHIN):
            yield name, _is_error


def _bad_status(name: str, value: object) -> bool:
    if isinstance(value, str) and value.strip().isdigit():
        value = int(value)
    if isinstance(value, str):
        words = value.lower()
        return words.startswith(BAD) or words.endswith(("_error", "_failed")) or IN_WORDS.match(words) is not None
    if not is_number(value):
        return False
    kind = plain(name)
    return value >= 400 or (kind.endswith("status.code") and value == 2) or (kind.endswith(HTTP) and value == 0)


def _bad_end(name: str, value: object) -> bool:
    return isinstance(value, str) and value.lower().startswith(BAD)


def _no_success(name: str, value: object) -> bool:
    return value is False or str(value).lower() in ("false", "no") or (is_number(value) and value == 0)


def _is_error(name: str, value: object) -> bool:
    if value is None or value is False or (isinstance(value, float) and value != value):
        return False
    return str(value).strip().lower() not in NONE
