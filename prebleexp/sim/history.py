"""What became of the GPUs over a run, what its autoscaler decided, and which requests were moved: rows in order of
time, made in Python.

A unit is what routers send to, as everywhere in the core: with tensor parallelism a replica of several GPUs.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import IntEnum
from typing import NamedTuple


class GpuState(IntEnum):
    """In the words of Kubernetes, as far as it has one."""

    READY = 0
    """it may be sent to"""
    SLOW = 1
    """likewise, and its steps take longer (faults)"""
    STARTING = 2
    """it gets a machine, an image and weights, and serves nobody yet"""
    DRAINING = 3
    """nothing is sent to it any more, and it goes on with what it has"""
    FAILED = 4
    """it went down, whether routers know it or not"""
    OFF = 5
    """nobody wants it, or it was drained and has nothing any more; it is not paid for"""


SERVING = (GpuState.READY, GpuState.SLOW)
"""that routers send to"""
PAID = (*SERVING, GpuState.STARTING, GpuState.DRAINING)
"""`gpu_on_s` is the time in these"""


class Change(NamedTuple):
    """A GPU is in a state from a time on."""

    at_s: float
    gpu: int
    """its index, as in the column `gpu` of requests"""
    state: GpuState


class Decision(NamedTuple):
    """What an autoscaler saw at a look, what it wanted, and what was done for that."""

    at_s: float
    wanted: int
    """of ready and starting ones, within `least` and `gpus=`"""
    ready: int
    """that may be sent to, as far as routers know"""
    starting: int
    draining: int
    started: int
    """that are started now: fewer than are wanted where others have failed"""
    drained: int
    """that are drained now, or started no further"""


class Move(NamedTuple):
    """A request was to be moved from one GPU to another, and was or was not."""

    at_s: float
    """when the two were paired"""
    request: int
    source: int
    target: int
    tokens: int
    """that it had then: its prompt, and what was generated"""
    running: bool
    """it ran, and its KV was copied while it went on; else it waited, and changed queues"""
    stages: int
    """in which KV was copied"""
    copied_tokens: int
    """in whole blocks, whatever came of it"""
    moved: bool
    """else the move was aborted"""
    ended_s: float
    stopped_s: float
    """for how long it was in no GPU's batch"""


@dataclass(frozen=True)
class History:
    """All are empty of a run in which nothing of it happens: its GPUs are ready from its beginning to its end."""

    gpu_states: tuple[Change, ...] = ()
    """in order of time; each GPU has a row at 0"""
    decisions: tuple[Decision, ...] = ()
    """of the autoscaler, in order of time"""
    moves: tuple[Move, ...] = ()
    """that are over, in order of their ends"""


NOTHING = History()


def changes_of(gpus: int, noted: Iterable[Change]) -> tuple[Change, ...]:
    """What was noted of each GPU in order of time, put together: of one instant the last counts, and what does not
    differ from before is left out."""
    of: dict[int, list[Change]] = {g: [Change(0.0, g, GpuState.READY)] for g in range(gpus)}
    for one in noted:
        rows = of[one.gpu]
        if rows[-1].at_s == one.at_s:
            rows.pop()
        if not rows or rows[-1].state != one.state:
            rows.append(one)
    every = sorted(one for rows in of.values() for one in rows)
    return () if all(one.state == GpuState.READY for one in every) else tuple(every)
