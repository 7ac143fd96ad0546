"""Sessions of coding agents as kv-cache-tester publishes them, put into their compact form."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from prebleexp.checks import is_number
from prebleexp.workloads.rows import Records

BLOCK = 64
"""tokens a hash"""
ABSOLUTE, RELATIVE = "the session's", "its own"
"""of whom the clock of a sub-agent's requests is"""
CLOSE_S = 0.5
"""times that differ by no more are the same"""


def compact(rows: Records, row: int, record: Any) -> dict[str, Any]:
    """{turns, agents, tool, system} of {requests: […], tool_tokens, system_tokens}, in which sub-agents stand between
    the requests of their parent. Raises InvalidInput, naming the row, for what is not valid."""
    requests = record["requests"]
    if not (isinstance(requests, list) and all(isinstance(one, dict) for one in requests)):
        raise rows.wrong(row, "requests is not valid; it must be a list of objects")
    own = [one for one in requests if "requests" not in one]
    turns = _turns(rows, row, own)
    agents = []
    place = 0
    groups: list[list[dict[str, Any]]] = [[] for _ in range(len(own) + 1)]
    for one in requests:
        if "requests" in one:
            groups[place].append(one)
        else:
            place += 1
    for after, group in enumerate(groups[1:]):
        spans = [_span(rows, row, one) for one in group]
        answered = turns[after][0] + max(turns[after][6], 0)
        left = turns[after + 1][0] - max(span.end for span in spans) if group and after + 1 < len(turns) else -1
        for one, span in zip(group, spans, strict=True):
            inner = _turns(rows, row, one["requests"])
            agents.append(
                {
                    "after": after,
                    "start": max(round(span.start - answered, 3), 0.0),
                    "join": round(left, 3) if left >= 0 else None,
                    "tool": one.get("tool_tokens", 0),
                    "system": one.get("system_tokens", 0),
                    "turns": [turn[1:] for turn in inner],
                    "clock": span.clock,
                }
            )
    return {
        "turns": [[*turn, 0] for turn in turns],
        "agents": agents,
        "tool": record.get("tool_tokens", 0),
        "system": record.get("system_tokens", 0),
    }


class Span(NamedTuple):
    """Of a sub-agent, in seconds of its session."""

    start: float
    end: float
    clock: str


def _span(rows: Records, row: int, one: Any) -> Span:
    """When a sub-agent began and ended. Published corpora are of two kinds, which its own requests tell apart: their
    clock is the session's, and its `t` is when it began (AgentX); or their clock is its own, from 0 on, and its `t` is
    when it ended (kv-cache-tester). Raises InvalidInput where they fit neither."""
    t = _number(rows, row, one, "t")
    inner = one["requests"]
    if not (isinstance(inner, list) and inner and all(isinstance(each, dict) for each in inner)):
        raise rows.wrong(row, "requests of a sub-agent is not valid; it must be a list of objects")
    first = _number(rows, row, inner[0], "t")
    last = max(_number(rows, row, each, "t") + max(_api(each), 0.0) for each in inner)
    given = one.get("duration_ms")
    seconds = None if given is None else _number(rows, row, one, "duration_ms") / 1000
    took = last - first if seconds is None else seconds
    if first >= t - CLOSE_S and (t > 0 or took > 0):
        if first > t + took + CLOSE_S:
            raise rows.wrong(row, _unlike(first, t, took))
        return Span(t, max(t + took, last), ABSOLUTE)
    if first > took + CLOSE_S:
        raise rows.wrong(row, _unlike(first, t, took))
    return Span(t - took, t, RELATIVE)


def _unlike(first: float, t: float, took: float) -> str:
    return (
        f"t={first:g} of a sub-agent's first request is not valid; the sub-agent has t={t:g} and took {took:g} s: it "
        "must be from 0 on, or on its session's clock from when the sub-agent began"
    )


def _api(one: Any) -> float:
    value = one.get("api_time", -1)
    return float(value) if is_number(value) else -1.0


def _turns(rows: Records, row: int, requests: Sequence[Any]) -> list[list[Any]]:
    """[t, think, in, out, from, keep, api] of each."""
    found: list[list[Any]] = []
    hashes: list[Any] = []
    for one in requests:
        ids = one.get("hash_ids")
        if not isinstance(ids, list) or set(map(type, ids)) - {int}:
            raise rows.wrong(row, "hash_ids is not valid; it must be a list of integers")
        mine = np.array(ids, np.int64)
        shares = [_common(mine, other) for other in hashes]
        best = max(range(len(shares)), key=lambda i: (shares[i], i)) if any(shares) else -1
        tokens = one.get("in")
        kept = min(BLOCK * shares[best], tokens, found[best][2]) if best >= 0 and isinstance(tokens, int) else 0
        found.append(
            [
                _number(rows, row, one, "t"),
                _think(found, one),
                tokens,
                one.get("out"),
                best,
                kept,
                one.get("api_time", -1),
            ]
        )
        hashes.append(mine)
    return found


def _common(one: Any, other: Any) -> int:
    n = min(len(one), len(other))
    differ = np.flatnonzero(one[:n] != other[:n])
    return int(differ[0]) if len(differ) else n


def _think(before: Sequence[Sequence[Any]], one: Any) -> Any:
    """As recorded; else what is left of the gap between starts without the recorded service."""
    think = one.get("think_time")
    if think is not None or not before:
        return 0.0 if think is None else think
    return max(one.get("t") - before[-1][0] - max(before[-1][6], 0), 0.0)


def _number(rows: Records, row: int, one: Any, name: str) -> float:
    value = one.get(name)
    if not is_number(value):
        raise rows.wrong(row, f"{name}={value!r} is not valid; it must be a number")
    return float(value)
