"""What became of a run: the state in which it ended, as the columns of `Outcome`."""

from __future__ import annotations

from typing import Any, NamedTuple, get_args, get_type_hints

import numpy as np

from prebleexp.sim.records import World
from prebleexp.sim.types import Outcome, State

KINDS = {name: get_args(get_args(hint)[1])[0] for name, hint in get_type_hints(Outcome).items() if hint is not float}
"""of each column's elements"""


class Ended(NamedTuple):
    """What is left of a run, so that all else of it can go before it is copied."""

    requests: Any
    """(n,) `REQUEST`"""
    jobs: Any
    """(n,) `JOB`"""
    totals: Any
    """(GPUs,) `TOTALS`"""
    sent: Any
    """(GPUs,) `SENT`"""
    end_s: float
    linked: bool
    """whether some requests come after others, so that it is no matter of course when each was due"""


def ended(world: World) -> Ended:
    linked = len(world.sessions.behind) > 0
    return Ended(world.seen.requests, world.jobs, world.totals, world.seen.sent, float(world.control.clock), linked)


def outcome(left: Ended) -> Outcome:
    """Copies, by name: `gpu_…` are fields of `totals`, the others of `jobs`."""
    requests, jobs, totals, sent, end_s, linked = left
    due = requests.arrival_s <= end_s
    state = jobs.state if not linked else np.where(due | (jobs.state != State.UNROUTED), jobs.state, State.NOT_DUE)
    made = {
        "gpu": requests.gpu,
        "decode_gpu": requests.gpu,
        "state": state,
        "due_s": np.where(due, requests.arrival_s, np.nan),
        "told_output": np.where(requests.gpu >= 0, requests.expected_output, np.nan),
        "gpu_requests": sent.requests,
        "gpu_lost_s": np.where(totals.downs > 0, totals.lost_s, np.nan),
    }
    for name in KINDS.keys() - made.keys():
        made[name] = totals[name.removeprefix("gpu_")] if name.startswith("gpu_") else jobs[name]
    return Outcome(**{name: np.array(column, KINDS[name]) for name, column in made.items()}, end_s=end_s)
