"""What is known of who is due when.

Requests that wait for nobody are an ascending array. How long the others wait is known too, but not from when: one is
due `delay_s` behind the last end of those that it comes after, or of the stage before its own, or when so many have
ended (`after_ends`), and stands in a heap from then on. So does the end of its patience, from when it has come.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from prebleexp.sim.events import KIND_BITS, SUBMIT
from prebleexp.sim.records import Events
from prebleexp.sim.rules import Rules
from prebleexp.sim.types import Floats, Workload, records

AGENDA = np.dtype(
    [
        ("time", np.float64),  # of the next event of a request, infinite if there is none, …
        ("key", np.int64),  # … and the event
        ("came", np.int64),  # of Sessions.firsts, so far
        ("events", np.int64),  # in Sessions.timers
        ("stage", np.int64),  # that requests are of by now
        ("ended", np.int64),  # requests, if anybody waits for a number of them
    ],
    align=True,
)


class Sessions(NamedTuple):
    """Who is due when (see `prebleexp.sim.sessions`)."""

    control: Any
    """`AGENDA`"""
    firsts: Any
    """requests that wait for nobody, in order of arrival"""
    waits: Any
    """(n,) for how many others, which have not ended, each request waits; a stage before its own is one more, as is a
    number of ends"""
    behind_offsets: Any
    """(n + stages,) after request i come rows behind_offsets[i] to behind_offsets[i + 1] of `behind`, and after the end
    of stage s likewise those of n + s; (n + stages + n,) if anybody waits for a number of ends: behind all of these
    those that come after the first end, the second, …"""
    behind: Any
    delay_s: Any
    goes_on: Any
    stage: Any
    """(n,) of each request, from 0 on"""
    left: Any
    """(stages,) requests of each that have not ended; (0,) if there is one stage"""
    from_s: Any
    """(n,) before when each is not due, as far as is known; (0,) if nobody waits for a number of ends"""
    patience_s: Any
    """(n,); (0,) if nobody's ends"""
    timers: Events
    """those that wait for nobody any more; and when the patience of those that have come is over, or their time in the
    gateway's queue"""


def made_sessions(workload: Workload, rules: Rules) -> Sessions:
    """At time 0. Sessions that begin after `rules.last_start_s` never do."""
    links, rows = workload.waits, np.arange(len(workload), dtype=np.int32)
    order = np.argsort(workload.after_ids, kind="stable")
    behind, behind_offsets = np.repeat(rows, links)[order], np.zeros(len(rows) + 1, np.int64)
    if len(behind):
        np.cumsum(np.bincount(workload.after_ids, minlength=len(rows)), out=behind_offsets[1:])
    stage = workload.stage - workload.stage[:1] if workload.staged else np.zeros(len(rows), np.int32)
    of_stages = np.bincount(stage) if workload.staged else np.zeros(0, np.int64)
    if len(of_stages):
        behind = np.concatenate([behind, rows[stage > 0]])
        behind_offsets = np.concatenate([behind_offsets, behind_offsets[-1] + np.cumsum(of_stages[1:])])
    capped = workload.after_ends > 0
    from_s = np.zeros(0)
    if capped.any():
        counts = np.bincount(workload.after_ends[capped], minlength=len(rows) + 1)[1:]
        behind = np.concatenate([behind, rows[capped][np.argsort(workload.after_ends[capped], kind="stable")]])
        behind_offsets = np.concatenate([behind_offsets, behind_offsets[-1] + np.cumsum(counts)])
        from_s = np.where(workload.arrives, workload.arrival_s, 0.0)
    firsts = rows[workload.dated & (starts_s(workload) <= rules.last_start_s)]
    control = records(1, AGENDA)[0]
    control.time = np.inf
    if len(firsts):
        control.time, control.key = workload.arrival_s[firsts[0]] + rules.submit_s, SUBMIT << KIND_BITS | int(firsts[0])
    patience_s = workload.patience_s if np.isfinite(workload.patience_s).any() else np.zeros(0)
    waits = links  # zeros, of which no memory is touched, where nobody waits
    if len(of_stages):
        waits = waits + (stage > 0)
    if capped.any():
        waits = waits + capped
    room = int((waits > 0).sum()) + len(patience_s) + len(rows) * rules.timers
    return Sessions(
        control=control,
        firsts=firsts,
        waits=waits,
        behind_offsets=behind_offsets,
        behind=behind,
        delay_s=workload.delay_s,
        goes_on=workload.goes_on,
        stage=stage,
        left=of_stages,
        from_s=from_s,
        patience_s=patience_s,
        timers=Events(np.zeros(room), np.zeros(room, np.int64)),
    )


def starts_s(workload: Workload) -> Floats:
    """(n,) when the session of each request begins: with the first one of it that waits for nobody."""
    start_s, session = np.where(workload.dated, workload.arrival_s, np.inf), workload.session
    known = session >= 0
    if known.any():
        of_session = np.full(1 + int(session.max()), np.inf)
        np.minimum.at(of_session, session[known], start_s[known])
        start_s[known] = of_session[session[known]]
    return start_s
