"""What may be deployed, all but how many replicas: its runs as cells."""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from prebleexp.cluster.groups import Cluster, Group
from prebleexp.experiment.cell import Cell
from prebleexp.planning.contender import GPUS, Contender
from prebleexp.planning.trials import Trial
from prebleexp.workloads.replayed import Replayed

WHOLE = "whole"
MODEL = "hardware/model"
"""in `Design.at` where several models may be served: the answer is one for each, as none stands in for another"""
LIMITS = ("max_num_seqs", "max_running_requests")
"""in `Design.at`: requests of a replica at a time"""
OWN_LIMIT = 256
"""that an engine takes by itself, at least: vLLM on a small GPU"""
SHAPE = ("gpu", "tensor_parallel", "roles", "policy", "engine")
"""in `Design.at`, with keys of hardware: all but the engine's own"""
WINDOWS = 32
"""of a recording, of which a short round has the busiest"""
SHORTEST_S = 30.0
"""of a window"""


@dataclass(frozen=True)
class Split:
    """Replicas of which some compute prompts alone, and the others make outputs."""

    share: float
    """of the replicas that compute prompts, of those that there are"""
    more: int
    """and so many more"""
    cluster: Cluster
    """what is said of links and protocols; its groups do not matter"""

    def prefill(self, replicas: int) -> int:
        return min(replicas - 1, max(1, round(self.share * replicas)) + self.more)


@dataclass(frozen=True)
class Design:
    """`cell` serves with whole replicas; how many does not matter, nor does its seed."""

    at: Mapping[str, Any]
    """what tells it from others: gpu, tensor_parallel, roles, policy and all else of which several may be chosen"""
    cell: Cell
    price: float
    """of an hour of a replica"""
    most: int
    """replicas that can be had"""
    least: int = 1
    """replicas below which it cannot keep the promise, by its cost model alone"""
    split: Split | None = None

    @property
    def name(self) -> str:
        """ "4 x h100 whole lor", with what else was chosen of several."""
        return " ".join(_said(key, value) for key, value in self.at.items() if value is not None)

    @property
    def model(self) -> str | None:
        """Of several that may be served."""
        return self.at.get(MODEL)

    @property
    def gpu(self) -> tuple[str | None, str]:
        """The model it serves, of several, and its kind of GPU."""
        return self.model, self.at["gpu"]

    @property
    def but_budget(self) -> Hashable:
        """What tells it from others, but for the budget of the engine."""
        return tuple((key, value) for key, value in self.at.items() if key in SHAPE or key.startswith("hardware"))

    @property
    def limit(self) -> int:
        """Requests that a replica may have at a time, where several limits may be chosen."""
        return next((int(self.at[key]) for key in LIMITS if self.at.get(key) is not None), OWN_LIMIT)

    @property
    def but_limit(self) -> Hashable:
        """What tells it from others, but for `limit`."""
        return tuple((key, value) for key, value in self.at.items() if key not in LIMITS)

    @property
    def each(self) -> int:
        """GPUs of one replica, or of ranks that step together."""
        return self.cell.sizes[0].unit

    @property
    def fewest(self) -> int:
        """Replicas without which there is none: of two kinds one each."""
        return 1 if self.split is None else 2

    @cached_property
    def contender(self) -> Contender:
        return Contender(self.cell, GPUS)

    def with_stream(self, changed: Mapping[str, Any]) -> Design:
        """This design under another stream of requests, as `shorter` says it."""
        return replace(self, cell=replace(self.cell, **changed)) if changed else self

    def cell_of(self, trial: Trial) -> Cell:
        """Its size is a number of replicas."""
        return self.parted(self.contender.cell_of(trial), int(trial.size))

    def at_size(self, replicas: int) -> Cell:
        """The first replication, with so many."""
        return self.parted(replace(self.cell, gpus=replicas * self.each), replicas)

    def parted(self, cell: Cell, replicas: int) -> Cell:
        """A cell of whole replicas, so many, as this design has them."""
        if self.split is None:
            return cell
        prefill = self.split.prefill(replicas)
        roles = {"prefill": prefill, "decode": replicas - prefill}
        groups = tuple(Group(count * self.each, cell.hardware, role=role) for role, count in roles.items())
        cluster = replace(self.split.cluster, groups=groups)
        return replace(cell, cluster=cluster, names={**cell.names, "cluster": "groups"})


def shorter(of: Contender, share: float) -> dict[str, Any]:
    """What of a cell makes its stream last so much of the time: of a recording the busiest of several windows of it as
    it came, since a quiet one tells nothing apart; of sessions one that is shorter. Nothing for others, whose runs have
    fewer requests, and where it would be no shorter."""
    cell, source = of.cell, of.cell.workload
    if share == 1 or not of.is_nested:
        return {}
    if not of.is_recorded:
        lasts_s = max(cell.duration_s * share, SHORTEST_S, 2 * cell.slo.warmup_s)
        return {"duration_s": lasts_s} if lasts_s < cell.duration_s else {}
    if not isinstance(source, Replayed) or "window" not in source.loads or not cell.profile.changes_nothing:
        return {}
    span_s, rps = source.span_s, cell.load.rps
    lasts_s = max(span_s * share, SHORTEST_S, 2 * cell.slo.warmup_s)
    if rps is None or not lasts_s < span_s < math.inf:
        return {}
    window = replace(source, load="window")
    lasts_s = float(f"{lasts_s:.4g}")
    seed = max(range(cell.seed, cell.seed + WINDOWS), key=lambda seed: window.comes(seed, lasts_s))
    return {"workload": window, "rps": rps, "duration_s": lasts_s, "seed": seed}


def _said(key: str, value: Any) -> str:
    if key in ("gpu", "roles", "policy"):
        return str(value)
    if key == MODEL:
        return str(value)
    if key == "tensor_parallel":
        return f"TP {value}"
    return f"{key}={value}"
