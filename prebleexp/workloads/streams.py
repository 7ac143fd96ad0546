"""A choice of a trace's requests as those of a run."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from prebleexp.sim.arrays import ragged
from prebleexp.sim.types import Floats, Ints, Longs, Workload
from prebleexp.workloads.blocks import Prompts
from prebleexp.workloads.rescale import Choice
from prebleexp.workloads.trace import Trace

NOBODY = -1


def workload_of(trace: Trace, chosen: Choice, max_new_tokens: int | None = None, *, closed: bool = False) -> Workload:
    """Generation is cut short after `max_new_tokens`, if that is given. `closed`: requests come after those that they
    came after in the trace, if these were chosen too."""
    rows = chosen.row
    output = trace.output_tokens[rows].astype(np.int32)
    prompts, answer = _prompts(trace, chosen)
    session, parent = _sessions(trace, chosen)
    links = _links(trace, chosen) if closed else _unlinked(len(rows))
    made = Workload(
        arrival_s=chosen.start_s,
        prompt_tokens=trace.prompt_tokens[rows],
        output_tokens=output,
        max_new_tokens=output if max_new_tokens is None else np.full_like(output, max_new_tokens),
        prefix_group=np.full(len(rows), NOBODY, np.int32),
        segment_offsets=prompts.offsets,
        segment_ids=prompts.ids,
        segment_tokens=prompts.tokens,
        session=session,
        turn=trace.turn[rows],
        answer_segment=answer,
        parent_session=parent,
        after_offsets=links.offsets,
        after_ids=links.ids,
        delay_s=links.delay_s,
    )
    if trace.adapter is None:
        return made
    from prebleexp.workloads.adapters import adapted  # few recordings say any

    return adapted(made, trace.adapter[rows])


class _Links(NamedTuple):
    """As columns of a workload."""

    offsets: Longs
    ids: Ints
    delay_s: Floats


def _unlinked(n: int) -> _Links:
    return _Links(np.zeros(n + 1, np.int64), np.zeros(0, np.int32), np.zeros(n))


def _prompts(trace: Trace, chosen: Choice) -> tuple[Prompts, Ints]:
    """Segments of the chosen requests, and those of their answers; what is a session's own has an id of its own in each
    copy."""
    offsets, ids, tokens = trace.prompts
    into, at = ragged(offsets, chosen.row)
    unknown = np.full(len(chosen), NOBODY, np.int32)
    if len(chosen) == len(trace) and not chosen.copy.any():
        return Prompts(into, ids[at], tokens[at]), unknown if trace.answer is None else trace.answer[chosen.row]
    every = int(ids.max()) + 1

    def copied(found: Longs, copy: Longs) -> Longs:
        own = found + copy * every
        return own if trace.public is None else np.where(trace.public[found], found, own)

    names = copied(ids[at].astype(np.int64), np.repeat(chosen.copy, np.diff(into)))
    known, dense = np.unique(names, return_inverse=True)
    prompts = Prompts(into, dense.astype(np.int32), tokens[at])
    if trace.answer is None:
        return prompts, unknown
    answer = trace.answer[chosen.row].astype(np.int64)
    name = copied(np.maximum(answer, 0), chosen.copy)
    place = np.minimum(np.searchsorted(known, name), len(known) - 1)
    kept = (answer >= 0) & (known[place] == name)
    return prompts, np.where(kept, place, NOBODY).astype(np.int32)


def _sessions(trace: Trace, chosen: Choice) -> tuple[Ints, Ints]:
    """Numbers of sessions and of their parents. To whoever looks at sessions, a lane is one."""
    every = int(trace.session.max()) + 1
    root = trace.family[chosen.row]

    def names(session: Longs) -> Longs:
        own = chosen.copy * every + session
        return own if chosen.lanes is None else np.where(session == root, NOBODY - chosen.lanes.lane, own)

    session = names(trace.session[chosen.row].astype(np.int64))
    known, inverse = np.unique(session, return_inverse=True)
    numbers = inverse.astype(np.int32)
    if trace.parent is None:
        return numbers, np.full_like(numbers, NOBODY)
    parent = trace.parent[chosen.row].astype(np.int64)
    name = names(np.maximum(parent, 0))
    place = np.minimum(np.searchsorted(known, name), len(known) - 1)
    there = (parent >= 0) & (known[place] == name)
    return numbers, np.where(there, place, NOBODY).astype(np.int32)


def _links(trace: Trace, chosen: Choice) -> _Links:
    n, rows = len(trace), chosen.row
    later, before, delay_s = np.zeros(0, np.int64), np.zeros(0, np.int64), np.zeros(len(rows))
    if trace.links is not None:
        counts = np.bincount(trace.links.later, minlength=n)
        _, link = ragged(np.concatenate(([0], np.cumsum(counts))), rows)
        later = np.repeat(np.arange(len(rows)), counts[rows])
        keys = chosen.copy * n + rows
        sorter = np.argsort(keys)
        wanted = chosen.copy[later] * n + trace.links.before[link]
        place = sorter[np.minimum(np.searchsorted(keys, wanted, sorter=sorter), len(rows) - 1)]
        there = keys[place] == wanted
        later, before = later[there], place[there]
        delay_s[later] = trace.links.delay_s[rows[later]]
    if chosen.lanes is not None:
        later = np.concatenate([later, chosen.lanes.later])
        before = np.concatenate([before, chosen.lanes.before])
        delay_s[chosen.lanes.later] = chosen.lanes.between_s
    order = np.lexsort((before, later))
    offsets = np.concatenate(([0], np.cumsum(np.bincount(later, minlength=len(rows)))))
    return _Links(offsets, before[order].astype(np.int32), delay_s)
