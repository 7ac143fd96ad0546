"""When made-up requests, or sessions, come: the gaps between them, and how those of a workload are given others.

A run draws these gaps from `ARRIVALS`, a random stream of their own: prompts and answers are those of the Poisson
process.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from prebleexp.checks import is_number, require
from prebleexp.sim.arrays import ragged
from prebleexp.sim.types import COLUMNS, OPTIONAL, Floats, Longs, Workload
from prebleexp.sources import Part
from prebleexp.workloads import bursty

ARRIVALS = 50
"""random stream"""
LEAST_CV, MOST_CV = 0.01, 100.0


@dataclass(frozen=True)
class Arrivals(Part, ABC):
    """Subclass it as a frozen dataclass that gives `gaps`, and name the class in conf/arrivals/<name>.yaml."""

    changes_nothing: ClassVar[bool] = False
    """true: those that the workload itself draws"""

    @property
    @abstractmethod
    def words(self) -> str:
        """What gaps are, as "gamma gaps of CV 2"; empty where that goes without saying."""

    @abstractmethod
    def gaps(self, rng: np.random.Generator, n: int) -> Floats:
        """(n,) independent gaps, of mean 1."""


@dataclass(frozen=True)
class Poisson(Arrivals):
    """Gaps are exponential: each moment is as likely as any other. As the workload draws them itself."""

    changes_nothing: ClassVar[bool] = True

    @property
    def words(self) -> str:
        return ""

    def gaps(self, rng: np.random.Generator, n: int) -> Floats:
        return rng.standard_exponential(n)


@dataclass(frozen=True)
class Constant(Arrivals):
    """Gaps are equal: requests, or starts of sessions, come at a fixed rate."""

    @property
    def words(self) -> str:
        return "constant gaps"

    def gaps(self, rng: np.random.Generator, n: int) -> Floats:
        return np.ones(n)


@dataclass(frozen=True)
class _OfCv(Arrivals, ABC):
    called: ClassVar[str]
    """the distribution"""

    cv: float = 2.0
    """coefficient of variation of gaps: above 1 requests come in bursts, below it more evenly; 1: Poisson"""

    def __post_init__(self) -> None:
        valid = is_number(self.cv) and LEAST_CV <= self.cv <= MOST_CV
        require(valid, "arrivals.cv", self.cv, f"a number from {LEAST_CV:g} to {MOST_CV:g}")

    @property
    def words(self) -> str:
        return f"{self.called} gaps of CV {self.cv:g}"


@dataclass(frozen=True)
class Gamma(_OfCv):
    """Gaps are gamma distributed, of shape 1 / cv². Raises InvalidInput for another `cv` than from 0.01 to 100.

    vLLM's and SGLang's --burstiness is the shape: cv = 1 / √burstiness.
    """

    called: ClassVar[str] = "gamma"

    def gaps(self, rng: np.random.Generator, n: int) -> Floats:
        return bursty.gaps(rng, n, self.cv**-2)


@dataclass(frozen=True)
class Weibull(_OfCv):
    """Gaps are Weibull distributed, of the shape that has this coefficient of variation. Raises InvalidInput for
    another `cv` than from 0.01 to 100."""

    called: ClassVar[str] = "Weibull"

    def gaps(self, rng: np.random.Generator, n: int) -> Floats:
        shape = _weibull_shape(self.cv)
        return rng.weibull(shape, n) / math.gamma(1 + 1 / shape)


POISSON = Poisson()


def _weibull_shape(cv: float) -> float:
    """By bisection: CV² = Γ(1 + 2/k) / Γ(1 + 1/k)² − 1 falls as the shape k grows."""
    wanted = math.log1p(cv**2)
    low, high = math.log(0.1), math.log(200.0)
    for _ in range(100):
        middle = (low + high) / 2
        inverse = math.exp(-middle)
        if math.lgamma(1 + 2 * inverse) - 2 * math.lgamma(1 + inverse) > wanted:
            low = middle
        else:
            high = middle
    return math.exp((low + high) / 2)


def with_gaps(workload: Workload, arrivals: Arrivals, rps: float, seed: int) -> Workload:
    """The same requests with other gaps, `rps` a second on average. Of sessions, sub-agents among them, the gaps are
    those between their starts; what a session has behind its start stays as it is. The first comes at 0."""
    family = families(workload)
    begins = np.full(int(family.max(initial=-1)) + 1, np.inf)
    np.minimum.at(begins, family, workload.arrival_s)
    gaps = arrivals.gaps(np.random.default_rng([seed, ARRIVALS]), max(len(begins) - 1, 0))
    starts = np.empty(len(begins))
    rate = rps * len(begins) / len(workload)
    starts[np.argsort(begins, kind="stable")] = np.concatenate(([0.0], np.cumsum(gaps))) / rate
    moved = starts[family] + (workload.arrival_s - begins[family])
    order = np.argsort(moved, kind="stable")
    if (np.diff(order) < 0).any():  # turns that come when they were recorded overtake those of other sessions
        workload, moved = _reordered(workload, order), moved[order]
    return workload.changed(arrival_s=moved)


def families(workload: Workload) -> Longs:
    """(n,) numbers of sessions with all their sub-agents; who is of none is one of its own."""
    n = len(workload)
    parent_of = dict(zip(workload.session.tolist(), workload.parent_session.tolist(), strict=True))
    roots: dict[int, int] = {}
    for session in parent_of:
        root = session
        while parent_of.get(root, -1) >= 0:
            root = parent_of[root]
        roots[session] = root
    roots[-1] = -1
    if set(roots) == {-1}:
        return np.arange(n)
    root = np.array([roots[session] for session in workload.session.tolist()], np.int64)
    own = np.where(root >= 0, root, root.max(initial=0) + 1 + np.arange(n))
    return np.unique(own, return_inverse=True)[1]


def _reordered(workload: Workload, order: Longs) -> Workload:
    """Rows in another order, none of which comes after others."""
    assert workload.is_open
    offsets, at = ragged(workload.segment_offsets, order)
    rows = [name for name in (*COLUMNS, *OPTIONAL) if not name.startswith("segment_")]
    columns: dict[str, Any] = {name: getattr(workload, name)[order] for name in rows}
    predictions = {name: told[order] for name, told in workload.predictions.items()}
    segments = {"segment_ids": workload.segment_ids[at], "segment_tokens": workload.segment_tokens[at]}
    return workload.changed(**columns, **segments, segment_offsets=offsets, predictions=predictions)
