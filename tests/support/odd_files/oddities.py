"""What rows of a log have beside requests, and what is wrong with them: (rows, the field of times, the truth)."""

from __future__ import annotations

import math

import numpy as np

from tests.support.odd_files.truth import Row, Truth

LENGTHS = ("prompt", "input", "isl", "context", "request")
"""with which names of a prompt's length begin"""


def as_they_are(rows: list[Row], name: str, of: Truth, rng: np.random.Generator) -> list[Row]:
    return rows


def shuffled(rows: list[Row], name: str, of: Truth, rng: np.random.Generator) -> list[Row]:
    return [rows[i] for i in rng.permutation(len(rows))]


def with_failures(rows: list[Row], name: str, of: Truth, rng: np.random.Generator) -> list[Row]:
    ways: list[Row] = [{"status": 429}, {"error": "timeout"}, {"status": "failed"}]
    failed = {name: rows[-1][name]} | ways[int(rng.integers(3))]
    good = [row | {"status": 200} for row in rows] if "status" in failed and failed["status"] == 429 else rows
    return [*good[:1], failed, *good[1:]]


def with_decoys(rows: list[Row], name: str, of: Truth, rng: np.random.Generator) -> list[Row]:
    decoys = {"max_tokens": 4096, "latency_ms": 1234.5, "duration": 3.2, "temperature": 0.7, "total_cost": 0.01}
    decoys |= {"request_time": 0.35, "model": "m", "context_window": 131_072, "bytes_sent": 48_211}
    return [row | decoys | {"end_time_unix_nano": 1, "max_input_tokens": 8192} for row in rows]


def with_ids(rows: list[Row], name: str, of: Truth, rng: np.random.Generator) -> list[Row]:
    return [row | {"request_id": f"r{i}", "user": f"u{i % 3}"} for i, row in enumerate(rows)]


def with_retries(rows: list[Row], name: str, of: Truth, rng: np.random.Generator) -> list[Row]:
    """The second was refused once, and tried again under its id."""
    rows = [row | {"status": 200} for row in with_ids(rows, name, of, rng)]
    return [rows[0], {name: rows[1][name], "request_id": "r1", "status": 503}, *rows[1:]]


def written_twice(rows: list[Row], name: str, of: Truth, rng: np.random.Generator) -> list[Row]:
    """As by shippers of logs that try again: under its id, or as it is."""
    of.wrong = "every row is there twice"
    if rng.random() < 0.5:
        rows = with_ids(rows, name, of, rng)
    return [row for row in rows for _ in range(2)]


def streamed(rows: list[Row], name: str, of: Truth, rng: np.random.Generator) -> list[Row]:
    """A line a chunk: only the last has counts; or all have them, of what there is so far."""
    found = []
    for i, row in enumerate(rows):
        chunk = {name: row[name], "id": f"chatcmpl-{i}", "object": "chat.completion.chunk"}
        found += [chunk | {"usage": None} if "usage" in row else chunk] * 2
        found.append(row | {"id": f"chatcmpl-{i}", "object": "chat.completion.chunk"})
    of.strange = "a line a chunk"
    return found


def with_events(rows: list[Row], name: str, of: Truth, rng: np.random.Generator) -> list[Row]:
    """A line when it came, and one when it was answered that has the counts."""
    return [
        line
        for i, row in enumerate(rows)
        for line in ({name: row[name], "event": "received", "request_id": f"r{i}"}, row | {"event": "answered"})
    ]


def of_two_units(rows: list[Row], name: str, of: Truth, rng: np.random.Generator) -> list[Row]:
    at = rows[-1][name]
    if not isinstance(at, int | float) or at < 1e9:
        return rows
    of.wrong = "units"
    return [*rows[:-1], rows[-1] | {name: at * 1000}]


def of_a_wrong_clock(rows: list[Row], name: str, of: Truth, rng: np.random.Generator) -> list[Row]:
    """One was on a machine whose clock began in 1970."""
    at = rows[1][name]
    if not isinstance(at, int | float) or at < 1e9:
        return rows
    of.wrong = "a clock"
    return [rows[0], rows[1] | {name: type(at)(at / 1e6)}, *rows[2:]]


def without_a_time(rows: list[Row], name: str, of: Truth, rng: np.random.Generator) -> list[Row]:
    of.wrong = "time"
    return [*rows[:1], {key: value for key, value in rows[1].items() if key != name}, *rows[2:]]


def with_a_bad_time(rows: list[Row], name: str, of: Truth, rng: np.random.Generator) -> list[Row]:
    of.wrong = "a time"
    bad = [math.nan, math.inf, "yesterday", "", None, [], 10**30][int(rng.integers(7))]
    return [rows[0], rows[1] | {name: bad}, *rows[2:]]


def without_lengths(rows: list[Row], name: str, of: Truth, rng: np.random.Generator) -> list[Row]:
    of.wrong = "lengths"
    return [{name: row[name]} for row in rows]


def with_a_bad_length(rows: list[Row], name: str, of: Truth, rng: np.random.Generator) -> list[Row]:
    key = next((key for key, value in rows[1].items() if key != name and isinstance(value, int)), None)
    if key is None:
        return rows
    of.wrong = "a length"
    bad = [-5, 1.5, "many", True, None, 10**12, math.nan, math.inf, "12k", "1,234"][int(rng.integers(10))]
    return [rows[0], rows[1] | {key: bad}, *rows[2:]]


def of_mixed_types(rows: list[Row], name: str, of: Truth, rng: np.random.Generator) -> list[Row]:
    """Numbers as texts in some rows."""
    of.strange = "numbers as texts"

    def as_text(row: Row) -> Row:
        return {key: str(value) if isinstance(value, int | float) else value for key, value in row.items()}

    return [as_text(row) if i % 2 else row for i, row in enumerate(rows)]


def in_thousands(rows: list[Row], name: str, of: Truth, rng: np.random.Generator) -> list[Row]:
    """Lengths with separators."""
    of.strange = "thousands with commas"
    keys = [key for key, value in rows[0].items() if key != name and isinstance(value, int)]
    return [row | {key: f"{row[key]:,}" for key in keys} for row in rows]


def with_two_times(rows: list[Row], name: str, of: Truth, rng: np.random.Generator) -> list[Row]:
    """When it ended, too."""
    return [row | {"end_time": row[name], "completed_at": row[name], "end_time_ns": 5} for row in rows]


ODD = (
    *(as_they_are, as_they_are, shuffled, shuffled, with_failures, with_decoys, with_ids, with_retries, streamed),
    *(with_events, with_two_times, of_mixed_types, in_thousands, written_twice, of_two_units, of_a_wrong_clock),
    *(without_a_time, with_a_bad_time, without_lengths, with_a_bad_length),
)
