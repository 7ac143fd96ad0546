"""What became of a run: the state in which it ended, as the columns of `Outcome`."""

from __future__ import annotations

from typing import Any, get_args, get_type_hints

import numpy as np

from prebleexp.sim.records import World
from prebleexp.sim.types import Outcome, State

KINDS = {name: get_args(get_args(hint)[1])[0] for name, hint in get_type_hints(Outcome).items() if hint is not float}
"""of each column's elements"""


def outcome(world: World) -> Outcome:
    """Copied from the state in which the run ended."""
    linked = len(world.sessions.behind) > 0
    return collected(world.seen.requests, world.jobs, world.totals, world.seen.sent, float(world.control.clock), linked)


def collected(requests: Any, jobs: Any, totals: Any, sent: Any, end_s: float, linked: bool = False) -> Outcome:
    """Copies, by name: `gpu_…` are fields of `totals`, the others of `jobs`. `linked`: some requests come after others,
    so that it is no matter of course when each was due."""
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
