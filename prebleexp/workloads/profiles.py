"""How the rate of a load changes over time. A profile is a curve of mean 1 over the time of a run, by which the rate is
multiplied; it keeps the order of requests and their number, and moves the times at which they come.

A request that would come at t at the mean rate comes when the curve's integral is t. Of a Poisson process that makes a
Poisson process of the changing rate (by inversion of its integral); of a recording, one that is played faster and
slower by turns.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import numpy as np

from prebleexp.checks import flag, is_number, one_of, positive, require
from prebleexp.errors import InvalidInput
from prebleexp.sim.types import Floats, Workload
from prebleexp.sources import Part
from prebleexp.workloads.arrivals import families
from prebleexp.workloads.load_stages import Given, LoadStage, stages_of
from prebleexp.workloads.reading import number

PIECES = 96
"""straight pieces of a curve that is bent"""
SHAPES = ("linear", "exponential")
MOST_KNOTS = 1_000_000


class Knots(NamedTuple):
    """A curve of straight pieces; it jumps where two knots are at one time."""

    times: Floats
    """(k,) seconds, from 0 to the end of the run"""
    rates: Floats
    """(k,) at least 0"""


@dataclass(frozen=True)
class Profile(Part, ABC):
    """Subclass it as a frozen dataclass that gives `knots` and `said`; conf/profile/<name>.yaml names the class."""

    changes_nothing: ClassVar[bool] = False

    @property
    def rps(self) -> float | None:
        """The mean rate, requests/s, if it has one of its own."""
        return None

    @property
    def duration_s(self) -> float | None:
        """How long it lasts, if it says so."""
        return None

    @property
    def ends_s(self) -> tuple[float, ...]:
        """The ends of stages, if it has any: each has numbers of its own."""
        return ()

    @abstractmethod
    def knots(self, duration_s: float) -> Knots:
        """Of rates that are relative to each other."""

    @abstractmethod
    def said(self, rates: Floats) -> str:
        """What people read: `rates` are those of the knots, requests/s."""

    def curve(self, duration_s: float) -> Knots:
        """Of mean 1. Raises InvalidInput for a profile without any requests, or of too many pieces."""
        times, rates = self.knots(duration_s)
        mean = float((np.diff(times) * (rates[1:] + rates[:-1])).sum() / 2 / duration_s)
        if not mean > 0:
            raise InvalidInput(f"profile: no request comes in duration_s={number(duration_s)}; take other rates")
        return Knots(times, rates / mean)

    def words(self, rps: float, duration_s: float) -> str:
        """As "2 → 8 requests/s in 3 stages"; `rps` is the mean."""
        return self.said(self.curve(duration_s).rates * rps)


@dataclass(frozen=True)
class Flat(Profile):
    """The rate is the same all the time."""

    changes_nothing: ClassVar[bool] = True

    def knots(self, duration_s: float) -> Knots:
        return Knots(np.array([0.0, duration_s]), np.ones(2))

    def said(self, rates: Floats) -> str:
        return f"{number(rates[0])} requests/s"


FLAT = Flat()


@dataclass(frozen=True)
class Stages(Profile):
    """A rate after the other. They do not wait: each begins when its time has come, though requests of the one before
    are still served. Their mean is rps, and they last duration_s in all: leave both out.

    Raises InvalidInput for what is no list of stages, and for rates that are all 0.
    """

    stages: Sequence[Given] = (LoadStage(10, 30),)
    """rate (requests/s over all GPUs) and duration (s) of each"""
    relative: bool = False
    """true: rates are relative to each other, and rps is their mean"""

    def __post_init__(self) -> None:
        flag("profile.relative", self.relative)
        valid = "{rate: …, duration: …}, of a duration > 0 and a rate >= 0"
        stages = stages_of("profile.stages", self.stages, valid)
        for i, one in enumerate(stages):
            require(one.duration > 0, f"profile.stages[{i}]", self.stages[i], valid)
        rates = any(one.rate > 0 for one in stages)
        require(rates, "profile.stages", self.stages, "stages of which one at least has a rate > 0")
        object.__setattr__(self, "stages", stages)

    @property
    def _stages(self) -> tuple[LoadStage, ...]:
        return tuple(LoadStage(*one) for one in self.stages)

    @property
    def rps(self) -> float | None:
        total = math.fsum(one.rate * one.duration for one in self._stages)
        return None if self.relative else total / self.ends_s[-1]

    @property
    def duration_s(self) -> float:
        return self.ends_s[-1]

    @property
    def ends_s(self) -> tuple[float, ...]:
        return tuple(math.fsum(one.duration for one in self._stages[: i + 1]) for i in range(len(self._stages)))

    def knots(self, duration_s: float) -> Knots:
        times = np.repeat([0.0, *self.ends_s], 2)[1:-1]
        return Knots(times, np.repeat([one.rate for one in self._stages], 2))

    def said(self, rates: Floats) -> str:
        found = rates[::2].tolist()
        if len(found) == 1:
            return f"{number(found[0])} requests/s in one stage"
        turns = [
            one
            for i, one in enumerate(found)
            if i in (0, len(found) - 1) or (one - found[i - 1]) * (found[i + 1] - one) < 0
        ]
        path = " → ".join(map(number, turns)) if len(turns) <= 4 else f"{number(min(found))} to {number(max(found))}"
        return f"{path} requests/s in {len(found)} stages"


@dataclass(frozen=True)
class Ramp(Profile):
    """The rate rises, or falls, from `start` to `end`, which are relative to each other: rps stays the mean, so that
    start=2 end=8 rps=5 are 2 to 8 requests/s. Raises InvalidInput for rates that are not valid."""

    start: float = 0.5
    """the rate at the beginning, relative to …"""
    end: float = 1.5
    """… that at the end"""
    shape: str = "linear"
    """linear, or exponential: by the same factor in equal times"""
    ramp_s: float | None = None
    """how long that takes, then it stays at the end; null: all the time"""

    def __post_init__(self) -> None:
        one_of("profile.shape", self.shape, SHAPES)
        least = "> 0 with profile.shape=exponential" if self.shape == "exponential" else ">= 0"
        for name in ("start", "end"):
            value = getattr(self, name)
            valid = is_number(value) and value >= 0 and (value > 0 or self.shape == "linear")
            require(valid, f"profile.{name}", value, f"a number {least}")
        require(self.start + self.end > 0, "profile.end", self.end, "a number > 0, or that of profile.start")
        if self.ramp_s is not None:
            positive("profile.ramp_s", self.ramp_s, "null or a number of seconds > 0")

    def knots(self, duration_s: float) -> Knots:
        over_s = duration_s if self.ramp_s is None else self.ramp_s
        require(over_s <= duration_s, "profile.ramp_s", over_s, f"at most duration_s={number(duration_s)}")
        share = np.linspace(0.0, 1.0, PIECES + 1 if self.shape == "exponential" else 2)
        if self.shape == "exponential":
            rates = self.start * (self.end / self.start) ** share
        else:
            rates = self.start + (self.end - self.start) * share
        times = share * over_s
        if over_s < duration_s:
            times, rates = np.append(times, duration_s), np.append(rates, self.end)
        return Knots(times, rates)

    def said(self, rates: Floats) -> str:
        return f"{number(rates[0])} → {number(rates[-1])} requests/s in a ramp"


@dataclass(frozen=True)
class Diurnal(Profile):
    """The rate goes up and down as a sine, in straight pieces of a 96th of a period. Raises InvalidInput for fields
    that are not valid."""

    amplitude: float = 0.5
    """of the mean: 0.5 is from half of it to one and a half times it"""
    period_s: float | None = None
    """a day; null: all the time of the run"""
    peak: float = 0.5
    """when in a period it is highest, as a share of that: 0.5 in its middle"""

    def __post_init__(self) -> None:
        for name in ("amplitude", "peak"):
            value = getattr(self, name)
            require(is_number(value) and 0 <= value <= 1, f"profile.{name}", value, "a number from 0 to 1")
        if self.period_s is not None:
            positive("profile.period_s", self.period_s, "null or a number of seconds > 0")

    def knots(self, duration_s: float) -> Knots:
        period_s = duration_s if self.period_s is None else self.period_s
        _few_enough("profile.period_s", period_s, duration_s, PIECES)
        times = np.append(_every(period_s / PIECES, 0.0, duration_s), duration_s)
        return Knots(times, 1 + self.amplitude * np.cos(2 * np.pi * (times / period_s - self.peak)))

    def said(self, rates: Floats) -> str:
        return f"{number(rates.min())} to {number(rates.max())} requests/s, diurnal"


@dataclass(frozen=True)
class Spikes(Profile):
    """Every `every_s` seconds the rate is `times` as high for `lasts_s`. Raises InvalidInput for fields that are not
    valid."""

    times: float = 5.0
    """the rate between spikes"""
    every_s: float = 60.0
    """from the beginning of a spike to that of the next"""
    lasts_s: float = 5.0
    """a spike"""
    first_s: float = 10.0
    """when the first one begins"""

    def __post_init__(self) -> None:
        positive("profile.times", self.times)
        positive("profile.every_s", self.every_s, "a number of seconds > 0")
        valid = is_number(self.lasts_s) and 0 < self.lasts_s < self.every_s
        require(valid, "profile.lasts_s", self.lasts_s, f"a number > 0 and below profile.every_s={self.every_s:g}")
        valid = is_number(self.first_s) and self.first_s >= 0
        require(valid, "profile.first_s", self.first_s, "a number of seconds >= 0")

    def knots(self, duration_s: float) -> Knots:
        valid = f"below duration_s={number(duration_s)}, so that there is a spike"
        require(self.first_s < duration_s, "profile.first_s", self.first_s, valid)
        _few_enough("profile.every_s", self.every_s, duration_s, 4)
        begins = _every(self.every_s, self.first_s, duration_s)
        return _steps(begins, begins + self.lasts_s, 1.0, self.times, duration_s)

    def said(self, rates: Floats) -> str:
        base = rates.min() if self.times >= 1 else rates.max()
        return f"{number(base)} requests/s with spikes of {number(base * self.times)}"


@dataclass(frozen=True)
class OnOff(Profile):
    """On for `on_s`, off for `off_s`, by turns, from on. Raises InvalidInput for fields that are not valid."""

    on_s: float = 10.0
    """how long it is on, and then …"""
    off_s: float = 10.0
    """… off"""
    low: float = 0.0
    """the rate when it is off, as a share of that when it is on"""

    def __post_init__(self) -> None:
        for name in ("on_s", "off_s"):
            positive(f"profile.{name}", getattr(self, name), "a number of seconds > 0")
        require(is_number(self.low) and 0 <= self.low <= 1, "profile.low", self.low, "a number from 0 to 1")

    def knots(self, duration_s: float) -> Knots:
        _few_enough("profile.on_s", self.on_s + self.off_s, duration_s, 4)
        begins = _every(self.on_s + self.off_s, 0.0, duration_s)
        return _steps(begins, begins + self.on_s, self.low, 1.0, duration_s)

    def said(self, rates: Floats) -> str:
        return f"{number(rates.max())} requests/s on, {number(rates.max() * self.low)} off"


def _every(step_s: float, first_s: float, duration_s: float) -> Floats:
    """Moments before the end."""
    found: Floats = first_s + step_s * np.arange(math.ceil((duration_s - first_s) / step_s), dtype=np.float64)
    return found


def _few_enough(name: str, value: float, duration_s: float, pieces: int) -> None:
    require(duration_s / value * pieces <= MOST_KNOTS, name, value, f"more, for duration_s={number(duration_s)}")


def _steps(begins: Floats, ends: Floats, below: float, above: float, duration_s: float) -> Knots:
    """`above` from each beginning to its end, `below` between them."""
    edges = np.minimum(np.column_stack([begins, ends]).ravel(), duration_s)
    times = np.concatenate(([0.0], np.repeat(edges, 2), [duration_s]))
    rates = np.concatenate(([below], np.tile([below, above, above, below], len(begins)), [below]))
    return Knots(times, rates)


# ---------------------------------------------------------------- what comes when
def inverse(curve: Knots, at: Floats) -> Floats:
    """When the integral of a curve of mean 1 is `at`, and no earlier moment at which requests come any more is: where
    the rate is 0 it is the end of that. Behind the curve the rate is 1."""
    times, rates = curve
    steps = np.diff(times)
    total = np.concatenate(([0.0], np.cumsum(steps * (rates[1:] + rates[:-1]) / 2)))
    total *= times[-1] / total[-1]
    piece = np.clip(np.searchsorted(total, at, side="right") - 1, 0, len(steps) - 1)
    rest, first = at - total[piece], rates[piece]
    slope = np.divide(rates[1:] - rates[:-1], steps, out=np.zeros(len(steps)), where=steps > 0)[piece]
    below = first + np.sqrt(np.maximum(first**2 + 2 * slope * rest, 0.0))
    into = np.divide(2 * rest, below, out=np.zeros(len(at)), where=below > 0)
    found: Floats = np.where(at < times[-1], times[piece] + np.minimum(into, steps[piece]), at)
    return found


def played(workload: Workload, profile: Profile, duration_s: float) -> Workload:
    """The same requests as the profile has them; those that come after others come so long after them as before.

    Of stages, each request is of the one in which it comes; one that comes after others, of that in which its session
    begins. Raises InvalidInput for a load that has stages of its own, or no time.
    """
    if workload.stage.any():
        raise InvalidInput("profile= is not valid with a load that has stages of its own; take profile=flat")
    dated = workload.dated
    if not workload.arrival_s[dated].any():
        raise InvalidInput("profile= does nothing where all come at one moment; take profile=flat")
    moved = inverse(profile.curve(duration_s), workload.arrival_s)
    moved[dated] = np.maximum.accumulate(moved[dated])  # whatever was rounded
    if not profile.ends_s:
        return workload.changed(arrival_s=moved)
    family = families(workload)
    begins = np.full(int(family.max()) + 1, np.inf)
    np.minimum.at(begins, family[dated], moved[dated])
    at = np.where(dated, moved, begins[family])
    stage = np.searchsorted(profile.ends_s[:-1], at, side="right").astype(np.int32)
    return workload.changed(arrival_s=moved, stage=stage, overlaps=np.ones(len(stage), np.int32))
