"""Routing ladders that others measured: read from a file, and held against the simulated stages."""

from __future__ import annotations

import csv
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from prebleexp.errors import InvalidInput, unreadable
from prebleexp.stages import Stage

FILE = "routing_ladders.csv"
SHIPPED = Path(__file__).parent
METRICS = ("output_tokens_per_s", "ttft_mean_s", "ttft_p90_s")
COLUMNS = ("experiment", "arm", "rate_rps", *METRICS)
ARMS = {
    "round_robin": ("round_robin",),
    "precise": ("precise",),
    "optimized": ("optimized", "optimized_affinity"),
}
"""of each the lines of the sweep that may be it: which of its two profiles the guide measured is not said"""
COUNTED = {"A_vllm_qwen3_32b": 0.937, "B_sglang_qwen3_32b": 0.937, "C_vllm_gpt_oss_120b": 1.0}
"""of each experiment the share of the output tokens that its client counts"""
TOKENS = "output_tokens_per_s"
GAINED = 40.0
"""requests/s from which on a router's gain is said"""
Published = Mapping[float, Mapping[str, float]]
"""by the rate of a stage what was published of it, by metric"""
Measured = Mapping[tuple[str, str], Published]
"""by experiment and arm"""
Simulated = Mapping[float, Mapping[str, list[float]]]
"""likewise of each stream of requests; tokens as the client counts them"""


@dataclass(frozen=True)
class Error:
    """How far an arm's stages are off: |simulated / published − 1|, of a mean over streams of requests."""

    experiment: str
    arm: str
    metric: str
    n: int
    """of stages"""
    median_error: float
    p90_error: float


def read(folder: Path = SHIPPED) -> Measured:
    """What was measured. Raises InvalidInput, naming file, line and value, for what is not valid."""
    path = folder / FILE
    try:
        with path.open(encoding="utf-8", newline="") as file:
            lines = csv.DictReader(file)
            names, rows = list(lines.fieldnames or ()), list(lines)
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise unreadable(str(path), path, error) from None
    for name in COLUMNS:
        if name not in names:
            raise InvalidInput(f"{path}: there is no column {name}; it must have {', '.join(COLUMNS)}")
    found: dict[tuple[str, str], dict[float, dict[str, float]]] = {}
    for number, row in enumerate(rows, 2):
        where = f"{path}, line {number}"
        for name, valid in (("experiment", COUNTED), ("arm", ARMS)):
            if row[name] not in valid:
                raise InvalidInput(f"{where}: {name}={row[name]} is not valid; it must be one of {', '.join(valid)}")
        ladder = found.setdefault((row["experiment"], row["arm"]), {})
        rate = _number(where, "rate_rps", row["rate_rps"])
        if rate in ladder:
            raise InvalidInput(f"{where}: rate_rps={rate:g} is there twice")
        ladder[rate] = {name: _number(where, name, row[name]) for name in METRICS if row[name]}
    if not found:
        raise InvalidInput(f"{path}: there are no rows")
    return {key: dict(sorted(ladder.items())) for key, ladder in found.items()}


def _number(where: str, name: str, text: str | None) -> float:
    try:
        value = float(text or "")
    except ValueError:
        value = math.nan
    if not 0 < value < math.inf:
        raise InvalidInput(f"{where}: {name}={text} is not valid; it must be a number > 0")
    return value


def check(measured: Measured, rates: Mapping[str, Sequence[float]]) -> None:
    """`rates`: of the stages that are simulated, by experiment. Raises InvalidInput for a stage that is not."""
    for (experiment, arm), published in measured.items():
        for rate in published:
            if rate not in rates[experiment]:
                what = f"{experiment}, {arm}: rate_rps={rate:g} is not valid"
                raise InvalidInput(f"{what}; it must be one of {', '.join(f'{one:g}' for one in rates[experiment])}")


def simulated(experiment: str, streams: Sequence[tuple[Sequence[float], Sequence[Stage]]]) -> Simulated:
    """`streams`: of each the rates of its stages, and what became of them."""
    found: dict[float, dict[str, list[float]]] = {}
    for rates, stages in streams:
        for rate, stage in zip(rates, stages, strict=True):
            of = found.setdefault(rate, {name: [] for name in METRICS})
            for name in METRICS:
                value = getattr(stage, name)
                share = COUNTED[experiment] if name == TOKENS else 1.0
                of[name].append(math.nan if value is None else share * value)
    return found


def off(published: Published, made: Simulated, metric: str) -> list[float]:
    """simulated / published − 1 of the stages that have it."""
    return [float(np.mean(made[rate][metric])) / of[metric] - 1 for rate, of in published.items() if metric in of]


def errors(experiment: str, line: str, published: Published, made: Simulated) -> list[Error]:
    """A row for each metric that was published."""
    found = []
    for metric in METRICS:
        far = np.abs(off(published, made, metric))
        if len(far):
            found.append(Error(experiment, line, metric, len(far), *map(float, np.quantile(far, (0.5, 0.9)))))
    return found


def gains(routed: Simulated, other: Simulated) -> list[float]:
    """Of each stream how many times the tokens/s of the other come, a mean over the stages of `GAINED`."""
    both = [np.divide(routed[rate][TOKENS], other[rate][TOKENS]) for rate in routed if rate >= GAINED and rate in other]
    return [float(one) for one in np.mean(both, axis=0)] if both else []
