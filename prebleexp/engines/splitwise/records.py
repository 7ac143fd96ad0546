"""The state of a run of Splitwise's simulator.

A request has two tasks: number 2r is its prompt, 2r + 1 its tokens after the first. Memory is in bytes, weights
included.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from prebleexp.engines.serial_heap import Events
from prebleexp.engines.splitwise.tables import StepTimes

COMING, QUEUED, RUNNING, PREEMPTED, DONE = range(5)
"""states of a task"""
TASK = np.dtype(
    [
        ("state", np.int64),
        ("machine", np.int64),
        ("tokens", np.int64),  # that it brings to an iteration
        ("left", np.int64),  # iterations, while it is not in a batch
        ("goal", np.int64),  # while it is: the count of iterations of its machine at which it is done
        ("bytes", np.int64),  # that it takes when it first runs
        ("passes", np.int64),  # how often it was passed over, but for …
        ("since", np.int64),  # … the batches formed since this one of its machine; NONE: it is not being passed over
        ("start_s", np.float64),
        ("end_s", np.float64),  # when it was done, or preempted last
    ],
    align=True,
)

REQUEST = np.dtype(
    [
        ("arrival_s", np.float64),
        ("prompt", np.int64),  # tokens
        ("memory", np.int64),  # that its tasks have taken
        ("moves", np.int64),  # whether its tokens are made on another machine
        ("picked", np.int64),  # the batch that it was last chosen for
        ("transfer_start_s", np.float64),
        ("transfer_end_s", np.float64),
    ],
    align=True,
)

MACHINE = np.dtype(
    [
        ("kind", np.int64),  # row of StepTimes
        ("home", np.int64),  # its own pool
        ("mixed", np.int64),  # whether it is in the mixed pool
        ("memory", np.int64),
        ("most_memory", np.int64),
        ("booked", np.int64),  # memory as routers book it
        ("pending", np.int64),  # tokens as routers book them
        ("batch_tokens", np.int64),  # as its batch was chosen
        ("batch_prompts", np.int64),  # prompts among it
        ("batch", np.int64),  # lengths of its rows of Lists
        ("waiting", np.int64),
        ("prompts", np.int64),
        ("preempted", np.int64),
        ("requests", np.int64),
        ("batches", np.int64),  # formed so far
        ("iterations", np.int64),  # done so far
        ("step_s", np.float64),  # an iteration of its batch
        ("steps", np.int64),  # iterations until the batch is looked at again
        ("begun_s", np.float64),
        ("ends_s", np.float64),
        ("event", np.int64),  # the serial of its end, of which others are out of date; NONE: it computes nothing
        ("cut", np.int64),  # whether that was brought forward
    ],
    align=True,
)

CONTROL = np.dtype(
    [
        ("now", np.float64),
        ("events", np.int64),  # in the heap
        ("serial", np.int64),  # of the next event
        ("first_serial", np.int64),  # of the first event that was made after the first later arrival
        ("arrived", np.int64),
        ("unfinished", np.int64),
        ("most_requests", np.int64),  # that any machine ever had
        ("moving", np.int64),  # batches and transfers under way
        ("fruitless", np.int64),  # tries to begin a transfer, since anything else happened
        ("retrying", np.int64),  # transfers that wait for memory
        ("stopped", np.int64),  # whether the run is over
        ("next_prompt", np.int64),  # of round robin: positions in the pools
        ("next_token", np.int64),
    ],
    align=True,
)

PICK = np.dtype(
    [("number", np.int64), ("tasks", np.int64), ("tokens", np.int64), ("memory", np.int64)],
    align=True,
)

ALL, PROMPT, TOKEN, MIXED = range(4)
"""pools of machines"""


class Lists(NamedTuple):
    """(machines, room) each: a row is a machine's list, its length a field of that name of `MACHINE`."""

    batch: Any
    """tasks, in order of joining"""
    waiting: Any
    """tasks that are queued or preempted"""
    prompts: Any
    """the prompts among them, by arrival at the machine"""
    preempted: Any
    """and the preempted"""
    requests: Any
    """by arrival: those of which a task is here"""


class Rules(NamedTuple):
    """What stays the same during a run."""

    rule: int
    """of `schedulers`"""
    orca: bool
    """batches by arrival alone, that nobody leaves before the end"""
    token_bytes: int
    """of KV"""
    link: float
    """bytes a second of a transfer"""
    end_s: float
    pause: int


class Sim(NamedTuple):
    """All state of a run of Splitwise's simulator: machines, tasks, links, events."""

    control: Any
    rules: Rules
    step_times: StepTimes
    events: Events
    tasks: Any
    requests: Any
    machines: Any
    lists: Lists
    pools: Any
    """(4, machines), of which `members` are in use: numbers of machines"""
    members: Any
    pick: Any
    picked: Any
    """(most of a batch,): tasks"""
    servers: Any
    """(machines,) `prebleexp.sim.records.SERVER`: the last batch that ended"""
    totals: Any
    live: Any
    """(machines,) `prebleexp.sim.records.REPORT`"""
