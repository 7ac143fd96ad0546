"""Single runs of real engines that others measured, each number beside the simulated one and the error that the support
sentence of the run states."""

from __future__ import annotations

import csv
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from prebleexp.hardware.parameters import Support
from prebleexp.hardware.uncertain import NINE_TENTHS, THEORY
from prebleexp.published.ladders import Error

FILE = Path(__file__).with_name("measured_cases.csv")
CASES = "cases"
OF_TTFT = "ttft_"
OF_STEPS = ("tpot_", "latency_", "output_tokens_per_s", "requests_per_s")
"""how metrics begin that are made of times of steps"""


@dataclass(frozen=True)
class Number:
    """What was measured of a line of a part of the sweep; of `over`, if it is given, so many times its."""

    part: str
    line: str
    metric: str
    measured: float
    over: str = ""


@dataclass(frozen=True)
class Compared:
    of: Number
    simulated: float
    stated: float
    """error that nine tenths of what was measured are within, as a share; NaN: nothing is said of such a number"""
    theory: bool
    """whether nothing like it was measured"""

    @property
    def off(self) -> float:
        """Relative error of the simulation: simulated / measured − 1; NaN where one is not known."""
        return self.simulated / self.of.measured - 1

    @property
    def within(self) -> bool | None:
        """Whether it is no farther off than is stated; None: nothing is."""
        return None if math.isnan(self.stated) else abs(self.off) <= self.stated


def read() -> list[Number]:
    """The published numbers that ship with the package."""
    with FILE.open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    return [Number(one["part"], one["line"], one["metric"], float(one["measured"]), one["over"]) for one in rows]


def compared(
    numbers: Sequence[Number], runs: Mapping[tuple[str, str], tuple[Support | None, Mapping[str, Any]]]
) -> list[Compared]:
    """Those of which there is a run. `runs`: by part and line what is known of its step times, and its metrics."""
    found = []
    for one in numbers:
        key, other = (one.part, one.line), (one.part, one.over)
        if key not in runs or (one.over and other not in runs):
            continue
        support, metrics = runs[key]
        value = float(metrics[one.metric]) / (float(runs[other][1][one.metric]) if one.over else 1.0)
        theory = support is None or math.isnan(support.median)
        found.append(Compared(one, value, math.nan if one.over else stated(support, one.metric), theory))
    return found


def stated(support: Support | None, metric: str) -> float:
    """The 90th percentile of errors, of TTFT for first tokens and else of TPOT; where nothing like it was measured, how
    far `hardware.uncertainty` draws step times apart. NaN for what is counted, not timed."""
    first = metric.startswith(OF_TTFT)
    if not first and not metric.startswith(OF_STEPS):
        return math.nan
    if support is None or math.isnan(support.p90):
        return NINE_TENTHS * THEORY
    return support.ttft_p90 if first else support.p90


def errors(of: Sequence[Compared]) -> list[Error]:
    """A row for each part and metric."""
    found: dict[tuple[str, str], list[float]] = {}
    for one in of:
        found.setdefault((one.of.part, one.of.metric), []).append(abs(one.off))
    return [Error(CASES, part, metric, len(off), *_quantiles(off)) for (part, metric), off in found.items()]


def _quantiles(off: Sequence[float]) -> tuple[float, float]:
    import numpy as np

    median, p90 = np.quantile(off, (0.5, 0.9))
    return float(median), float(p90)
