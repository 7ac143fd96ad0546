"""Logs with a row a session, in which its requests stand one after the other, as LLMServingSim's of agents."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from prebleexp.checks import is_number
from prebleexp.sim.types import Floats
from prebleexp.workloads import hashes, inferred, usage
from prebleexp.workloads.accumulated import CURE
from prebleexp.workloads.blocks import begun, joined, private
from prebleexp.workloads.clock import UNITS, clock, in_order, unit_of
from prebleexp.workloads.columns import found, matching, plain
from prebleexp.workloads.hashes import Hashes
from prebleexp.workloads.records import flattened
from prebleexp.workloads.rows import Records, Rows
from prebleexp.workloads.trace import Links, Reading, Trace

if TYPE_CHECKING:
    from prebleexp.workloads.request_log import RequestLog

TURNS = ("sub_requests",)
ARRIVALS = ("arrival_time_ns", "arrival_time_us", "arrival_time_ms", "arrival_time_s", "arrival_time", "arrival")
TOOLS = ("tool_duration_ns", "tool_duration_us", "tool_duration_ms", "tool_duration_s")
TOKENS = ("input_tok_ids",)


def is_nested(rows: Rows) -> bool:
    return isinstance(rows, Records) and any(matching(rows, one) for one in TURNS)


def read(rows: Rows, log: RequestLog) -> Trace:
    """Each session starts when its row says; a request comes so long after the answer before it as the tool took that
    this called. Raises InvalidInput, naming the row, for what is not valid."""
    columns, block_tokens = log.columns, log.block_tokens
    field = next(name for one in TURNS for name in matching(rows, one))
    arrival = columns.get("arrival") or found(rows, ARRIVALS) or ARRIVALS[-2]
    when = clock(rows, arrival, log.time_unit, "s", told=unit_of(plain(arrival)))
    order, starts = in_order(when.seconds)
    rows = rows.taken(order)
    inner: list[dict[str, Any]] = []
    session: list[int] = []
    turn: list[int] = []
    for row, turns in enumerate(rows.values(field)):
        if not (isinstance(turns, list) and turns and all(isinstance(one, dict) for one in turns)):
            raise rows.wrong(row, f"{field} is not valid; it must be a list of objects, a request each")
        inner += turns
        session += [row] * len(turns)
        turn += range(len(turns))
    lines = [rows.number(row) for row in session]
    requests = flattened(Records(rows.path, inner, lines))
    counts = usage.counts(requests, columns)
    inputs = usage.demand(requests, counts.inputs, "input", usage.INPUTS, 1)
    outputs = usage.demand(requests, counts.outputs, "output", usage.OUTPUTS, 0)
    tool = found(requests, TOOLS)
    waits = np.zeros(len(requests))
    if tool is not None:
        took = _seconds(requests, tool)
        waits[1:] = np.where(np.array(turn[1:]) > 0, took[:-1], 0.0)
    of = (np.array(session, np.int32), np.array(turn, np.int32))
    ids = None if hashes.are_asked_for(columns, block_tokens) else found(requests, TOKENS)
    doubts, cure, answer = [*when.doubts, *counts.doubts], "", None
    prompts, prefix = private(inputs), ids or "prompts share nothing"
    blocks = Hashes() if ids is not None else hashes.read(requests, columns, block_tokens, inputs, counts.input_says)
    doubts += [blocks.doubt] if blocks.doubt else []
    if ids is not None:
        log.refuse_growth(ids)
        prompts = begun(requests, ids, inputs)[0]
    elif blocks.prompts is not None:
        log.refuse_growth(blocks.says)
        prompts, prefix = joined(blocks.prompts)[0], blocks.says
    elif log.growth == "accumulate":
        prompts, answer, prefix = log.accumulated(inputs, outputs, *of)
    else:
        cure = CURE
    later = np.flatnonzero(np.array(turn) > 0)
    reading = Reading(
        time=f"{when.says}; later turns after the answer before and {tool or 'no pause'}",
        prompt=counts.input_says,
        output=counts.output_says,
        cached=counts.cached_says,
        found_share=counts.found_share,
        prefix=prefix,
        sessions=f"a row each, of {field}",
        doubts=tuple(doubts),
        block_tokens=blocks.block or 1,
        cure=cure,
    )
    return Trace(
        starts[session],
        np.maximum(outputs, 1),
        prompts,
        *of,
        None if answer is not None else inferred.public(prompts),
        Links(later, later - 1, waits),
        answer=answer,
        reading=reading,
        closed=True,
    )


def _seconds(rows: Rows, name: str) -> Floats:
    """(n,) of what a row may lack; it took no time then."""
    found = np.zeros(len(rows))
    for row, value in enumerate(rows.optional(name)):
        if value is not None:
            if not (is_number(value) and value >= 0):
                raise rows.invalid(row, name, value, "a number >= 0")
            found[row] = value / UNITS[unit_of(plain(name)) or "s"]
    return found
