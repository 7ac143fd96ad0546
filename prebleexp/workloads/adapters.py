"""LoRA adapters with which requests are computed, and how often each is asked for."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from prebleexp.checks import integer, is_number, require
from prebleexp.sim.types import Floats, Ints, Longs, Workload
from prebleexp.sources import Part
from prebleexp.workloads.arrivals import families

ADAPTERS = 60
"""random stream"""
MOST = 2**16


@dataclass(frozen=True)
class Adapters(Part, ABC):
    """Subclass it as a frozen dataclass that gives `shares`, and name the class in conf/adapters/<name>.yaml."""

    changes_nothing: ClassVar[bool] = False

    @abstractmethod
    def shares(self) -> Floats:
        """(adapters + 1,) of sessions, or of requests of none, that ask for each; the first for none."""


@dataclass(frozen=True)
class NoAdapters(Adapters):
    """The model alone; or, of a recording that says, the adapters that it says."""

    changes_nothing: ClassVar[bool] = True

    def shares(self) -> Floats:
        return np.ones(1)


@dataclass(frozen=True)
class Zipf(Adapters):
    """The k-th most frequent of `count` is asked for 1 / k^exponent as often as the first."""

    count: int = 16
    """how many adapters there are"""
    exponent: float = 1.0
    """0: all as often"""
    base_share: float = 0.0
    """of sessions that ask for none"""

    def __post_init__(self) -> None:
        integer("adapters.count", self.count, 1, MOST)
        valid = is_number(self.exponent) and self.exponent >= 0
        require(valid, "adapters.exponent", self.exponent, "a number >= 0; 0: all are asked for as often")
        valid = is_number(self.base_share) and 0 <= self.base_share < 1
        require(valid, "adapters.base_share", self.base_share, "a number from 0 to below 1")

    def shares(self) -> Floats:
        weights = np.arange(1, self.count + 1, dtype=np.float64) ** -float(self.exponent)
        return np.concatenate([[self.base_share], weights / weights.sum() * (1 - self.base_share)])


NONE = NoAdapters()


def given(workload: Workload, of: Adapters, seed: int) -> Workload:
    """The same stream, each session of which asks for one, and so does each request of no session."""
    sessions = families(workload)
    shares = of.shares()
    drawn = np.random.default_rng([seed, ADAPTERS]).choice(
        len(shares), size=int(sessions.max(initial=-1)) + 1, p=shares
    )
    return adapted(workload, drawn[sessions])


def adapted(workload: Workload, adapter: Ints | Longs) -> Workload:
    """The same stream with these adapters. (n,) `adapter`. What several of them have in common has an id for each: KV
    of one is of no use to another, and ids stand for KV."""
    adapter = np.asarray(adapter, np.int32)
    several = int(adapter.max(initial=0)) + 1
    ids = workload.segment_ids.astype(np.int64) * several + np.repeat(adapter, np.diff(workload.segment_offsets))
    answers = np.where(workload.answer_segment >= 0, workload.answer_segment.astype(np.int64) * several + adapter, -1)
    _, dense = np.unique(np.concatenate([ids, answers[answers >= 0]]), return_inverse=True)
    answer_segment = np.full(len(workload), -1, np.int32)
    answer_segment[answers >= 0] = dense[len(ids) :]
    return workload.changed(
        adapter=adapter, segment_ids=dense[: len(ids)].astype(np.int32), answer_segment=answer_segment
    )
