"""A cluster of which something is searched for: its runs as cells, and what they say."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from prebleexp.checks import require
from prebleexp.cluster.replicas import MOST_GPUS
from prebleexp.errors import InvalidInput
from prebleexp.experiment.cell import Cell
from prebleexp.planning import gpus, load, recorded
from prebleexp.planning.load import Search
from prebleexp.planning.promise import ToKeep
from prebleexp.planning.trials import Question, Sample, Trial
from prebleexp.workloads.replayed import Replayed

RPS, USERS, GPUS = "rps", "workload.lanes", "gpus"
"""what may be searched for, by the key that has it"""
DURATION_S = "duration_s"
BURST_S = 1.0
"""in which all requests of the first look come"""
SESSIONS_S = 60.0
"""the same of sessions, of which a greater rate has more; how fast they go on shows in no burst, so the look is over
then"""
SESSIONS_IDLE = 20.0
"""times less than the guess their rate is taken for idle: much less has no request in a window"""
BURST = 512
"""requests a replica of it"""
MOST_BURST = 16_384
"""in all"""
LOOK_REPLICAS = 4
"""of the first look, where their number is searched for"""
LOOK_USERS = 32
"""of a replica, where the load is users: in the first look, and where the search begins"""
BELOW = 0.7
"""of the rate at which a burst is served, a load is tried first"""
LEAST_REQUESTS = 4_000
"""of a run"""


@dataclass(frozen=True)
class Contender:
    """`searched` is the key whose value is wanted; that of `cell` does not matter."""

    cell: Cell
    searched: str

    def __post_init__(self) -> None:
        workload = self.cell.workload
        if "seed" not in workload.obeys or (RPS not in workload.obeys and workload.users is None):
            self._check_stream(self.cell.names.get("workload", type(workload).__name__))
        elif self.searched == (RPS if self.load_key == USERS else USERS):
            raise InvalidInput(f"{self.searched}: the load of this workload is {self.load_key}")
        if self.cell.draws_costs:
            raise InvalidInput(
                "hardware.uncertainty=true is not valid for a plan, whose intervals are of means; take false"
            )
        ToKeep.of(self.cell.slo)
        if self.searched == GPUS and self.cell.cluster.groups and not self.is_recorded:
            raise InvalidInput(
                f"cluster.groups have {self.cell.gpus} GPUs, so there is no number of GPUs to search for; "
                f"say gpus={self.cell.gpus} in place of {self.load_key}, and the greatest load is searched"
            )

    def _check_stream(self, name: str) -> None:
        """Raises InvalidInput unless it is a recording, for which GPUs are searched."""
        if not self.is_recorded:
            raise InvalidInput(
                f"workload={name} says itself how many come and when; a plan needs one that obeys rps and seed, or a "
                "recording"
            )
        if self.searched != GPUS:
            raise InvalidInput(
                f"workload={name} is one stream at one rate as it is: leave gpus out, and the fewest GPUs for it are "
                "searched; or say workload.load=scaled, and the greatest rate is at which it keeps its shape; or "
                "duration_s=, and windows of it are drawn"
            )

    @property
    def is_recorded(self) -> bool:
        """Whether its load is all of one recording, as it came or scaled to a rate: no seed draws another."""
        workload = self.cell.workload
        if workload.synthetic or workload.users is not None or DURATION_S in workload.obeys:
            return False
        return self.searched == GPUS or RPS not in workload.obeys

    @property
    def is_nested(self) -> bool:
        """Whether runs are as long at every load, which is that of more or fewer sessions, as windows of a recording
        are."""
        return self.is_recorded or (self.cell.workload.nested and self.cell.arrivals.changes_nothing)

    @property
    def load_key(self) -> str:
        return RPS if self.cell.workload.users is None else USERS

    @property
    def load(self) -> float | None:
        """Of `cell`: requests a second, or users; None of a recording without times."""
        if self.is_recorded:
            return self.cell.load.rps
        return self.cell.rps if self.cell.workload.users is None else self.cell.workload.users

    @property
    def each(self) -> int:
        """GPUs of a replica, or of ranks that step together, where all are of one kind."""
        return self.cell.sizes[0].unit

    def _gpus(self, replicas: int) -> int:
        """Those of groups are what the cluster has."""
        return self.cell.gpus if self.cell.cluster.groups else replicas * self.each

    def shown(self, size: float) -> float:
        """A size of a search as people count it: replicas in GPUs; groups have what they have."""
        if self.cell.cluster.groups and self.searched == GPUS:
            return self.cell.gpus
        return int(size) * self.each if self.searched == GPUS else size

    @cached_property
    def to_keep(self) -> ToKeep:
        return ToKeep.of(self.cell.slo)

    def first_look(self) -> Cell:
        """How fast a burst is served tells where to begin; of users, who are no burst, whether any is served; of a
        recording the same of all of it, as it came."""
        count = LOOK_REPLICAS if self.searched == GPUS else self.cell.replicas
        if self.is_recorded:
            return replace(self.cell, gpus=self._gpus(count))
        requests = min(BURST * count, MOST_BURST)
        burst_s = min(SESSIONS_S, self.cell.duration_s) if self.is_nested else BURST_S
        burst: dict[str, Any] = {"gpus": self._gpus(count), "rps": requests / burst_s, "duration_s": burst_s}
        if self.load_key == USERS:
            burst["workload"] = self.cell.workload.with_users(LOOK_USERS * count)
        elif isinstance(workload := self.cell.workload, Replayed) and workload.load == "scaled":
            burst["workload"] = replace(workload, load="window")
        horizon = "stop" if self.is_nested else "drain"
        return replace(self.cell, horizon=horizon, slo=replace(self.cell.slo, warmup_s=0.0), **burst)

    def search(self, question: Question, look: Mapping[str, Any]) -> Search:
        """`look` are the metrics of the first look. Raises InvalidInput if nothing of it was served."""
        rate = look["requests_per_s"]
        if not rate:
            name = self.cell.names.get("policy", type(self.cell.policy).__name__)
            raise InvalidInput(
                f"policy={name} served none of {look['n_requests']:,} requests of a first look, and refused "
                f"{look['n_refused']:,}, so there is nothing to plan with"
            )
        self.to_keep.kept(look)  # whether anything is promised
        if self.searched == USERS:
            return self.search_from(question, float(LOOK_USERS * self.cell.replicas))
        if self.searched == RPS:
            return self.search_from(question, BELOW * rate)
        if self.is_recorded:
            short = self.to_keep.kept(look) < question.target and look["offered_per_s"]
            return self.search_from(question, LOOK_REPLICAS * (look["offered_per_s"] / (BELOW * rate) if short else 1))
        of_one = BELOW * rate / LOOK_REPLICAS if self.load_key == RPS else LOOK_USERS
        assert self.load is not None
        return self.search_from(question, self.load / of_one)

    def search_from(self, question: Question, guess: float, least: int = 1) -> Search:
        """`guess` is a load, or a number of replicas; of these no fewer than `least` are asked for."""
        if self.searched == USERS:
            return load.largest(replace(question, whole=True), guess, guess)  # one is idle
        if self.searched == RPS:
            return load.largest(question, guess, SESSIONS_IDLE if self.is_nested else load.IDLE)
        if self.is_recorded and self.cell.cluster.groups:
            return recorded.given(question, self.cell.gpus)
        find = recorded.fewest if self.is_recorded else gpus.fewest
        return find(question, math.ceil(guess), MOST_GPUS // self.each, self.each, least)

    def cell_of(self, trial: Trial) -> Cell:
        """Its stream has so many requests, and at every load and number of replicas the same ones. Of sessions, it is
        as long at every load, and a greater one has what a smaller one has."""
        size: dict[str, Any] = {self.searched: self.shown(trial.size)}
        if self.searched == USERS:
            size = {"workload": self.cell.workload.with_users(int(trial.size))}
        rps = size.get(RPS, self.cell.rps)
        return replace(
            self.cell, seed=self.cell.seed + trial.seed, duration_s=self.duration_s(trial.requests, rps), **size
        )

    def duration_s(self, requests: int, rps: float) -> float:
        """Seconds of simulated time of a run with so many requests at this rate."""
        return self.cell.duration_s if self.is_nested else requests / rps

    def sample(self, metrics: Mapping[str, Any]) -> Sample:
        """What a search needs of a run with these metrics."""
        kept, due, trend = self.to_keep.kept(metrics), metrics["due_requests"], metrics["in_system_trend"]
        if not self.is_recorded:
            return Sample(kept, due, trend)
        alone = self.to_keep.alone(metrics)
        missed, first, worst = (metrics[f"slo_missed_{of}"] for of in ("batches", "first", "worst"))
        return Sample(kept, due, trend, alone, missed, first, worst)


def question(
    contender: Contender, *, tolerance: float, seeds: int, most_seeds: int, requests: int | None, most_requests: int
) -> Question:
    """`requests` of a run: None is the least, or what it takes to see enough misses. Raises InvalidInput for what is
    not valid."""
    if contender.is_nested:
        if requests is not None:
            how_long = "of a recording are all of it" if contender.is_recorded else "of sessions last duration_s"
            raise InvalidInput(f"requests={requests}: a plan's runs {how_long}")
        requests = most_requests = 1
    if contender.is_recorded:
        seeds = most_seeds = 1
    require(0 < tolerance < 1, "tol", tolerance, "a share of the answer, between 0 and 1")
    require(seeds <= most_seeds, "most_seeds", most_seeds, f"at least seeds={seeds}")
    to_keep = contender.to_keep
    return Question(
        target=to_keep.target,
        strictest=to_keep.strictest,
        tolerance=tolerance,
        seeds=seeds,
        most_seeds=most_seeds,
        requests=requests or LEAST_REQUESTS,
        most_requests=max(most_requests, requests or 0),
    )
