"""What became of a run: the state in which it ended, as the columns of `Outcome`."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, NamedTuple, get_args, get_type_hints

import numpy as np

from prebleexp.sim.histogram import BINS
from prebleexp.sim.history import NOTHING as NO_HISTORY
from prebleexp.sim.history import History
from prebleexp.sim.pools import BOTH
from prebleexp.sim.records import NONE, World
from prebleexp.sim.tiers import NAMES
from prebleexp.sim.types import Outcome, State
from prebleexp.sim.warmth import Begun

KINDS = {
    name: get_args(get_args(hint)[1])[0]
    for name, hint in get_type_hints(Outcome).items()
    if hint not in (float, History, Begun | None)
}
"""of each column's elements"""


SERVED = np.isin(list(State), (State.QUEUED, State.RUNNING, State.FINISHED, State.LOST, State.FAILED))
"""(states,) whether by a GPU, if only until that was lost"""

UNLESS_KNOWN = {"refused_by", "retries", "moves", "moves_aborted", "stopped_s", *(f"{name}_tokens" for name in NAMES)}
"""of requests: zero, unless something in the run says otherwise"""

NOTHING: Mapping[str, Any] = MappingProxyType({})


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
    """whether some requests come after others, or in stages, so that it is no matter of course when each was due"""
    known: Mapping[str, Any] = NOTHING
    """columns that are not in these"""


def ended(world: World, known: Mapping[str, Any] = NOTHING) -> Ended:
    """`known`: columns that something else than the world knows."""
    linked = len(world.sessions.behind) + len(world.sessions.left) > 0
    rest = (world.totals, world.seen.sent, float(world.control.clock), linked)
    known = {**known, **_from_tiers(world), **_of_moves(world)}
    if world.pools.legs:
        return Ended(*_joined(world), *rest, {**known, **_of_legs(world)})
    return Ended(world.seen.requests, world.jobs, *rest, known)


def _from_tiers(world: World) -> dict[str, Any]:
    """Columns of what was loaded."""
    tiers = enumerate(NAMES if len(world.tiers.tiers) else ())
    made: dict[str, Any] = {}
    for tier, name in tiers:
        tokens = world.tiers.tokens[tier]
        if world.pools.legs:
            requests, legs = np.split(tokens, 2)
            tokens = np.where(_computed_here(world), requests, legs)
        made |= {f"{name}_tokens": tokens, f"gpu_{name}_tokens": world.tiers.totals[tier]}
    return made


def _computed_here(world: World) -> Any:
    """(n,) whether a request's prompt is computed where its output is made, on a GPU for outputs."""
    n, gpus = world.pools.requests, world.seen.requests.gpu
    return (gpus[n:] == NONE) & (gpus[:n] != NONE) & SERVED[world.jobs.state[:n]]


def _of_moves(world: World) -> dict[str, Any]:
    moved = world.moves.requests
    if not len(moved):
        return {}
    made = {"moves": moved.moves, "moves_aborted": moved.aborted, "stopped_s": moved.stopped_s}
    return {name: np.sum(column.reshape(-1, world.pools.requests), axis=0) for name, column in made.items()}


def outcome(left: Ended, history: History = NO_HISTORY) -> Outcome:
    """Copies, by name: `gpu_…` are fields of `totals`, the others of `jobs`, unless `known`."""
    requests, jobs, totals, sent, end_s, linked, known = left
    due = requests.arrival_s <= end_s
    state = jobs.state if not linked else np.where(due | (jobs.state != State.UNROUTED), jobs.state, State.NOT_DUE)
    made = {
        "gpu": requests.gpu,
        "decode_gpu": requests.gpu,
        "state": state,
        "due_s": np.where(due, requests.arrival_s, np.nan),
        "told_output": np.where(requests.gpu >= 0, requests.expected_output, np.nan),
        "prefill_end_s": jobs.ttft_s,
        "gpu_requests": sent.requests,
        "gpu_lost_s": np.where(totals.downs > 0, totals.lost_s, np.nan),
        **dict.fromkeys(("gap_p99_s", "gap_top10_s"), np.full(len(jobs), np.nan)),
        **{name: np.zeros((0, BINS) if name == "gaps_counts" else 0) for name in KINDS if name.startswith("gaps_")},
        **{f"gpu_{name}_tokens": np.zeros(len(totals)) for name in NAMES},
        **known,
    }
    columns: dict[str, Any] = {name: np.zeros(len(jobs), KINDS[name]) for name in UNLESS_KNOWN}  # takes no memory
    for name in KINDS.keys() - made.keys() - UNLESS_KNOWN:
        made[name] = totals[name.removeprefix("gpu_")] if name.startswith("gpu_") else jobs[name]
    columns |= {name: np.array(column, KINDS[name]) for name, column in made.items()}
    return Outcome(**columns, end_s=end_s, history=history)


def _joined(world: World) -> tuple[Any, Any]:
    """Of each request its row or, while its prompt's leg says where it is, that of the leg."""
    n = world.pools.requests
    requests, jobs = world.seen.requests[:n].copy(), world.jobs[:n].copy()
    by_leg, shown_s = jobs.state == State.UNROUTED, jobs.ttft_s.copy()
    jobs[by_leg] = world.jobs[n:][by_leg]
    jobs.ttft_s = np.where(np.isnan(shown_s), jobs.ttft_s, shown_s)
    for name in ("gpu", "expected_output"):
        requests[name][by_leg] = world.seen.requests[n:][name][by_leg]
    return requests, jobs


def _of_legs(world: World) -> dict[str, Any]:
    """Columns that both legs have a part in."""
    n = world.pools.requests
    requests, legs, first = world.jobs[:n], world.jobs[n:], world.seen.requests.gpu[n:]
    by_leg = requests.state == State.UNROUTED
    served_whole = by_leg & (first != NONE) & (world.pools.roles[first] == BOTH)
    second = world.seen.requests.gpu[:n]
    here = _computed_here(world)
    made = {name: np.where(here, requests[name], legs[name]) for name in ("hit_tokens", "prefilled_tokens")}
    made |= {"prefill_end_s": np.where(here, requests.ttft_s, legs.ttft_s), "gpu": np.where(here, second, first)}
    made |= {"transferred_tokens": requests.transferred_tokens, "losses": legs.losses + requests.losses}
    made["decode_gpu"] = np.where(served_whole, first, second)
    for name in ("overhead_s", "router_wait_s"):  # of both decisions, if there were two
        either = np.isnan(legs[name]) & np.isnan(requests[name])
        both = np.nan_to_num(legs[name]) + np.nan_to_num(requests[name])
        made[name] = np.where(either, np.nan, both)
    return made
