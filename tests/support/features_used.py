"""What each feature of a run did in it: a run of which one did nothing shows nothing about that."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import fields, replace
from typing import Any

import numpy as np

from prebleexp.lengths.known import Max
from prebleexp.sim.simulate import simulate
from prebleexp.sim.types import Outcome, State, Workload

Counts = dict[str, Callable[[Workload, dict[str, Any], Outcome], int]]


def _handoffs(workload: Workload, given: dict[str, Any], made: Outcome) -> int:
    return int((made.transferred_tokens > 0).sum())


def _decided(workload: Workload, given: dict[str, Any], made: Outcome) -> int:
    """Requests of the rarer fate."""
    there = made.gpu[made.gpu >= 0] == made.decode_gpu[made.gpu >= 0]
    return int(min(there.sum(), (~there).sum()))


def _loaded(workload: Workload, given: dict[str, Any], made: Outcome) -> int:
    return int((made.host_tokens + made.disk_tokens + made.shared_tokens > 0).sum())


def _scalings(workload: Workload, given: dict[str, Any], made: Outcome) -> int:
    return sum(one.started + one.drained for one in made.history.decisions)


def _refusals(workload: Workload, given: dict[str, Any], made: Outcome) -> int:
    return int((made.refused_by > 0).sum() + made.retries.sum())


def _gave_up(workload: Workload, given: dict[str, Any], made: Outcome) -> int:
    waited = (made.state == State.CANCELLED) & np.isfinite(made.due_s) & np.isfinite(workload.patience_s)
    return int(waited.sum())


def _of_kinds(workload: Workload, given: dict[str, Any], made: Outcome) -> int:
    """Kinds of GPUs that computed something."""
    ends = np.cumsum([count for count, _ in given["kinds"]])
    worked = [part.any() for part in np.split(made.gpu_forwarded_tokens, ends[:-1])]
    return int(sum(worked)) - 1


def _other(name: str, other: Callable[[dict[str, Any]], Any]) -> Callable[[Workload, dict[str, Any], Outcome], int]:
    """Columns that are others where it is off."""

    def count(workload: Workload, given: dict[str, Any], made: Outcome) -> int:
        without = simulate(workload, lengths=Max(), **given | {name: other(given)})
        names = [one.name for one in fields(Outcome) if one.name not in ("history", "begun")]
        return sum(not np.array_equal(getattr(made, one), getattr(without, one), equal_nan=True) for one in names)

    return count


COUNTS: Counts = {
    "pull": _handoffs,
    "reserve_first": _handoffs,
    "push_at_end": _handoffs,
    "decider": _decided,
    "tiers": _loaded,
    "peers": lambda workload, given, made: int((made.peer_tokens > 0).sum()),
    "migration": lambda workload, given, made: int(made.moves.sum()),
    "autoscaler": _scalings,
    "faults": lambda workload, given, made: int(made.losses.sum()),
    "resume": _other("faults", lambda given: replace(given["faults"], on_loss="retry")),
    "requeue": _other("faults", lambda given: replace(given["faults"], drain="finish")),
    "kinds": _of_kinds,
    "gateway": _refusals,
    "patience": _gave_up,
    "replicas": _other("replicas", lambda given: None),
    "ranks": lambda workload, given, made: int((made.gpu_stalled_s > 0).sum() * (made.gpu_empty_steps > 0).any()),
    "stages": lambda workload, given, made: int((made.gpu_stalled_s > 0).sum()),
    "serial": lambda workload, given, made: int((made.router_wait_s > 0).sum()),
}
"""requests, GPUs, decisions or columns that a feature made others"""


DEAR = ("resume", "requeue", "replicas")
"""another run shows what they did"""


def used(features: Iterable[str], workload: Workload, given: dict[str, Any], made: Outcome) -> dict[str, int]:
    """Until one did nothing: there is no need to look further."""
    found: dict[str, int] = {}
    for one in sorted(features, key=lambda one: (one in DEAR, one)):
        found[one] = COUNTS[one](workload, given, made)
        if not found[one]:
            break
    return found
