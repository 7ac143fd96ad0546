"""A benchmark at several rates, as a user measured it: its stages, under one router or several."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from prebleexp.errors import InvalidInput
from prebleexp.experiment.cell import Cell
from prebleexp.hardware import measurements
from prebleexp.sim.types import Workload

TOKENS = "output_tokens_per_s"
METRICS = (TOKENS, "ttft_mean_s", "ttft_p90_s", "tpot_mean_s", "latency_mean_s")
"""what may be known of a stage, by the names of `prebleexp.stages.Stage`"""
LEAST = 3
"""stages of a ladder"""


@dataclass(frozen=True)
class Rung:
    """A stage as it was measured."""

    name: str
    """such as 8/s"""
    rate: float
    """requests/s that were offered; infinite: not at a rate"""
    seen: Mapping[str, float]
    """by metric"""


@dataclass(frozen=True)
class Play:
    """A simulation that has a stage or several."""

    cell: Cell
    stream: Callable[[int], Workload]
    """of a seed"""
    rungs: tuple[Rung, ...]
    stages: tuple[int, ...] = ()
    """which of the run's each is; none: all of the run is one"""


@dataclass(frozen=True)
class Arm:
    """What was measured with one router: its plays, each of several rungs of rising load."""

    name: str
    plays: tuple[Play, ...]

    @property
    def rungs(self) -> tuple[Rung, ...]:
        return tuple(rung for play in self.plays for rung in play.rungs)


def is_ladder(path: Path) -> bool:
    """Whether a file is a CSV of stages, and not one of closed loops or steps."""
    return path.is_file() and path.suffix in (".csv", ".gz") and "rate_rps" in measurements.heads(path)


@dataclass(frozen=True)
class Table:
    """What a CSV of stages says."""

    arms: Mapping[str, tuple[Rung, ...]]
    """by their names, in the order of their rates; "" where there is no column arm"""
    experiment: str
    durations: tuple[float, ...]
    """seconds of each stage of the first arm; empty: it does not say"""


def read(path: Path, experiment: str | None = None, counted: float = 1.0) -> Table:
    """A CSV with rate_rps, any of `METRICS`, and perhaps experiment, arm and duration_s. `counted` is the share of the
    output tokens that the client counts. Raises InvalidInput, which names file, row and column, for what is not valid,
    and for several experiments of which none is chosen."""
    rows = measurements.read(path, ["rate_rps"])
    there = [name for name in METRICS if name in measurements.heads(path)]
    if not there:
        raise InvalidInput(f"{path} has no measured column; it must have one of {', '.join(METRICS)}")
    if not rows:
        raise InvalidInput(f"{path} has no rows; give a stage a row")
    known = list(dict.fromkeys(row.get("experiment", "") for _, row in rows))
    if experiment is None and len(known) > 1:
        raise InvalidInput(f"{path} has several experiments; choose one: experiment={' or '.join(known)}")
    taken = experiment if experiment is not None else (known or [""])[0]
    if taken not in known:
        raise InvalidInput(f"experiment={taken} is not in {path}; it has {', '.join(known)}")
    arms: dict[str, dict[float, Rung]] = {}
    durations: dict[str, dict[float, float]] = {}
    for at, row in rows:
        if row.get("experiment", "") != taken:
            continue
        rate, arm = measurements.number(at, row, "rate_rps"), row.get("arm", "")
        if rate in arms.setdefault(arm, {}):
            raise InvalidInput(f"{at}: rate_rps={rate:g} is there twice; give each stage once, or name its arm")
        seen = {name: measurements.number(at, row, name) for name in there if row[name]}
        if TOKENS in seen:
            seen[TOKENS] /= counted
        arms[arm][rate] = Rung(f"{rate:g}/s", rate, seen)
        if row.get("duration_s"):
            durations.setdefault(arm, {})[rate] = measurements.number(at, row, "duration_s")
    found = {arm: tuple(one for _, one in sorted(rungs.items())) for arm, rungs in arms.items()}
    first = next(iter(found))
    lasted = durations.get(first, {})
    whole = len(lasted) == len(found[first])
    return Table(found, taken, tuple(lasted[one.rate] for one in found[first]) if whole else ())


def check(arm: Arm) -> None:
    """Raises InvalidInput for a ladder of which nothing can be learnt."""
    known = [rung for rung in arm.rungs if rung.seen]
    if len(known) < LEAST:
        raise InvalidInput(
            f"{len(known)} stages are too few to fit: give {LEAST} or more, at rates from idle to overload; 6 are good"
        )


def upper(rungs: Sequence[Rung]) -> float:
    """The rate from which on a router's gain is said: that of the middle stage."""
    rates = sorted(rung.rate for rung in rungs if math.isfinite(rung.rate))
    return rates[len(rates) // 2] if rates else math.inf
