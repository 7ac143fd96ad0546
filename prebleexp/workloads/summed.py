"""Doubts about rows that, by their numbers, are not each a request that was served: running totals, parts of answers,
the same request written down by several, requests without an answer, a sample of all."""

from __future__ import annotations

import re
from collections.abc import Iterator

import numpy as np

from prebleexp.checks import is_number
from prebleexp.errors import significant
from prebleexp.sim.types import Ints, Longs
from prebleexp.workloads.columns import plain
from prebleexp.workloads.rows import NOTHING, Rows

LEAST = 8
"""rows, from which on numbers alone say something"""
RARE, MANY, MOST = 0.05, 0.1, 0.9
"""shares of rows"""
NEAR = 4
"""rows, among which the parts of an answer stand that others come between"""
SAMPLED = re.compile(r"(^|_)sampl\w*_(rate|ratio|weight|fraction|percent|percentage|probability|priority_rate)(_v1)?$")
"""how a field is called that says which share of the requests a log has"""
RATES = ("requests_per_second", "requests_s", "req_s", "rps", "qps", "request_rate", "requests_per_minute")
"""what rows have that are means over some time"""


def doubts(rows: Rows, inputs: Longs, outputs: Longs, session: Ints) -> Iterator[str]:
    """Of n rows in order of time, (n,) tokens of prompts and answers, −1 where it is not said, and sessions."""
    yield from _empty(inputs, outputs)
    if len(rows) >= LEAST:
        yield from _running(inputs, outputs, session)
        yield from _parts(inputs, outputs)
        yield from _several(inputs, outputs)
    for name in rows.names:
        values = _numbers(rows, name)
        if not values or "." in plain(name):
            continue
        most = significant(max(values))
        if SAMPLED.search(plain(name)) and set(values) != {1.0}:
            yield f"{name} is {most}: if the file has a sample of the requests, give rps= as high as that of all was"
        elif plain(name) in RATES:
            yield f"{name} is up to {most}: if rows are means over some time, list requests one by one"


def _numbers(rows: Rows, name: str) -> list[float]:
    """Those of a field that may be one of the above, if all that it has are numbers."""
    if not (SAMPLED.search(plain(name)) or plain(name) in RATES):
        return []
    values = [value for value in rows.optional(name) if value not in NOTHING]
    return [float(value) for value in values] if all(map(is_number, values)) else []


def _empty(inputs: Longs, outputs: Longs) -> Iterator[str]:
    empty = outputs == 0
    of_tokens = float(np.maximum(inputs, 0)[empty].sum()) > MANY * float(np.maximum(inputs, 0).sum())
    if empty.mean() > MANY or (empty.any() and of_tokens):
        yield (
            f"{int(empty.sum()):,} of {len(outputs):,} rows have an answer of 0 tokens, and are taken for requests "
            "that were served: if they failed, or only counted tokens, leave them out"
        )


def _running(inputs: Longs, outputs: Longs, session: Ints) -> Iterator[str]:
    """Where prompts and answers never become shorter, in the whole log or in its sessions."""
    order = np.argsort(session, kind="stable")
    same = session[order][1:] == session[order][:-1]
    if not same.any():
        order, same = np.arange(len(inputs)), np.ones(len(inputs) - 1, np.bool_)
    more, longer = (np.diff(one[order])[same] for one in (inputs, outputs))
    if len(more) < LEAST or min((more > 0).mean(), (longer > 0).mean()) < MOST:
        return
    if max((more < 0).mean(), (longer < 0).mean()) <= RARE:
        yield "prompts and answers become longer all the time: if they are totals so far, give each request its own"


def _parts(inputs: Longs, outputs: Longs) -> Iterator[str]:
    again = np.zeros(len(inputs), np.bool_)
    for back in range(1, NEAR + 1):
        again[back:] |= inputs[back:] == inputs[:-back]
    if (outputs == 1).mean() > MOST and again.mean() > 1 / 2 and len(np.unique(inputs)) > 1:
        yield "answers have 1 token, and prompts repeat: if rows are parts of answers, give each request one row"


def _several(inputs: Longs, outputs: Longs) -> Iterator[str]:
    """Where each pair of lengths is there as often."""
    found, many = np.unique(np.stack((inputs, outputs)), axis=1, return_counts=True)
    times = int(np.median(many))
    if times > 1 and found.shape[1] >= LEAST and many[many == times].sum() >= MOST * len(inputs):
        yield (
            f"each request is there {times:,} times, by its lengths: if several wrote it down, as a gateway and a "
            "server do, leave the others out"
        )
