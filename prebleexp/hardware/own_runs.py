"""Parameters of one's own configuration from a few of its benchmarks, or from its steps: level 2 of hardware.md, fitted
about those that fit all measurements, or about those that ship for it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from prebleexp.checks import is_number
from prebleexp.errors import InvalidInput, significant
from prebleexp.hardware import bench_results, fitting, measurements, parameters
from prebleexp.hardware.equations import Array
from prebleexp.hardware.fitting import Design, Effect, Labelled
from prebleexp.hardware.measurements import ClosedLoops
from prebleexp.hardware.parameters import NAMES, Parameters
from prebleexp.hardware.steps import Steps
from prebleexp.hardware.verdict import score

LEAST = 4
"""benchmarks; 8 that differ in clients and lengths are good"""
LEAST_STEPS = 10
FOLDS = 5
SPREAD = {
    "f": 0.5,
    "v": 0.3,
    "e_c": 0.3,
    "e_xc": 0.5,
    "e_xm": 0.3,
    "t_req": 1.0,
    "e_kv": 0.3,
    "e_p": 0.3,
    "a0": 1.0,
    "a1": 1.0,
    "a2": 1.0,
}
"""how far each may leave what ships: standard deviations of logarithms"""
STEP_SPREAD = {name: spread for name, spread in SPREAD.items() if name not in ("a0", "a1", "a2")} | {
    "f": 3.0,  # as CUDA graphs they take next to nothing that is fixed
    "e_m": 0.2,
}
"""likewise, of what whole steps say"""
OF_STEPS = Design(tuple(Effect(name, (), spread) for name, spread in STEP_SPREAD.items()), 0.05, 0.12)
OWN = Design(tuple(Effect(name, (), spread) for name, spread in SPREAD.items()), 0.05, 0.12)
ONE = ("gpu", "engine", "model", "precision", "tp", "kv")
"""labels of which all rows have the same"""
OF_BENCHMARK = {"mean_tpot_ms": "tpot_ms", "mean_ttft_ms": "ttft_ms", "max_concurrency": "concurrency"}
"""keys of bench_serving's results, and the columns that they are"""
Rows = list[tuple[str, dict[str, str]]]


@dataclass(frozen=True)
class Calibrated:
    """A fit to measurements of one configuration. Errors are shares."""

    parameters: Parameters
    before: Array
    """errors of TPOT, or of steps, by what ships, …"""
    left_out: Array
    """… and of each by a fit to others"""
    ttft_left_out: Array
    """likewise of TTFT; NaN where it is not known"""
    score: float
    """by how much more likely what was left out is by fits to others than by what ships (`verdict.score`)"""


def calibrate(loops: ClosedLoops) -> Calibrated:
    """Raises InvalidInput for runs that are too few or not of one configuration."""
    if len(loops) < LEAST:
        raise InvalidInput(f"{len(loops)} runs are too few to fit: give {LEAST} or more; 8 are good")
    base = _base("runs", loops)
    shipped = fitting.Fit(OWN, base, tuple({} for _ in OWN.effects))
    tpot, ttft = np.empty(len(loops)), np.empty(len(loops))
    for row in range(len(loops)):
        one = np.arange(len(loops)) == row
        tpot[one], ttft[one] = fitting.fit(loops.take(~one), OWN, base).predict(loops.take(one))
    by_shipped = shipped.predict(loops)[0]
    return Calibrated(
        fitting.fit(loops, OWN, base).at(),
        np.abs(by_shipped / loops.tpot_s - 1),
        np.abs(tpot / loops.tpot_s - 1),
        np.abs(ttft / loops.ttft_s - 1),
        score(*(np.log(one / loops.tpot_s) / OWN.tpot for one in (by_shipped, tpot))),
    )


def calibrate_steps(steps: Steps) -> Calibrated:
    """Fit step times to whole steps, and say how good they are by leaving out a fifth of these at a time. What
    a request takes beside the GPU (a0, a1) stays as it ships: no step says it."""
    if len(steps) < LEAST_STEPS:
        raise InvalidInput(f"{len(steps)} whole steps are too few to fit: give {LEAST_STEPS} or more")
    base = _base("steps", steps)
    left_out = np.empty(len(steps))
    for fold in range(FOLDS):
        chosen = np.arange(len(steps)) % FOLDS == fold
        given, rest = steps.take(chosen), steps.take(~chosen)
        left_out[chosen] = given.predict(fitting.fit_steps(rest, OF_STEPS, base).parameters(given))
    by_shipped = steps.predict({name: getattr(base, name) for name in NAMES})
    return Calibrated(
        fitting.fit_steps(steps, OF_STEPS, base).at(),
        np.abs(by_shipped / steps.seconds - 1),
        np.abs(left_out / steps.seconds - 1),
        np.full(len(steps), np.nan),
        score(*(np.log(one / steps.seconds) / OF_STEPS.tpot for one in (by_shipped, left_out))),
    )


def _base(what: str, rows: Labelled) -> Parameters:
    """The parameters that ship for the rows' configuration."""
    for name in ONE:
        found = list(dict.fromkeys(one for (one,) in rows.keys((name,))))
        if len(found) > 1:
            raise InvalidInput(
                f"the {what} are of several configurations: {name} is {', '.join(found)}; give one at a time"
            )
    gpu, engine, model, precision, version, tp = rows.keys((*fitting.CONFIGURATION, "version", "tp"))[0]
    return parameters.shipped_for((gpu, engine, model, precision), version, tp)


def read(path: Path, known: Mapping[str, str]) -> Rows:
    """Rows of a CSV with the columns of closed_loop.csv, or results of vLLM's or SGLang's bench_serving: a JSON file,
    one with a result a line, or a folder of them. `known` stands for columns that a table lacks, such as gpu."""
    if path.is_dir() and not bench_results.files(path):
        raise InvalidInput(f"{path} has no .json or .jsonl; give results of bench_serving, or a CSV")
    if bench_results.are_results(path):
        return [_result(at, one, known) for at, one in bench_results.read(path)]
    rows = measurements.read(path, [one for one in measurements.CLOSED_LOOP if one not in known])
    return [(at, {**known, **row}) for at, row in rows]


def _result(at: str, result: Mapping[str, Any], known: Mapping[str, str]) -> tuple[str, dict[str, str]]:
    """Lengths are what was sent and received, on average."""
    if result.get("max_concurrency") is None:
        raise InvalidInput(
            f"{at}: max_concurrency is missing; only benchmarks with a fixed number of clients can be used"
        )
    _check_clients(at, result)
    keys = (*OF_BENCHMARK, "total_input_tokens", "total_output_tokens")
    numbers = {name: bench_results.number(at, result, name) for name in keys}
    requests = bench_results.requests(at, result)
    row = {column: f"{numbers[name]:.10g}" for name, column in OF_BENCHMARK.items()}
    row["isl"] = f"{numbers['total_input_tokens'] / requests:.10g}"
    row["osl"] = f"{numbers['total_output_tokens'] / requests:.10g}"
    missing = next((one for one in measurements.CLOSED_LOOP if one not in row and one not in known), None)
    if missing is not None:
        raise InvalidInput(f"{at}: it does not say {missing}; set {SETTINGS[missing]}=")
    return at, {**known, **row}


def _check_clients(at: str, result: Mapping[str, Any]) -> None:
    """Raises InvalidInput where the cap on requests at a time was not the number of clients: requests came at a rate
    that was served, or most clients had nothing to do."""
    cap, rate = bench_results.number(at, result, "max_concurrency"), result.get("request_rate", "inf")
    if is_number(rate) and bench_results.clients(result) is None:
        raise InvalidInput(
            f"{at}: request_rate={rate:g} under max_concurrency={cap:g} is no fixed number of clients, as so much was "
            "served; run it with --request-rate inf"
        )
    busy = bench_results.busy(result)
    if busy is not None and busy < bench_results.BUSY * cap:
        raise InvalidInput(
            f"{at}: max_concurrency={cap:g} is not the number of clients, as {significant(busy)} requests were there "
            "on average; run it with fewer, or with more prompts"
        )


SETTINGS = {
    "gpu": "gpu",
    "engine": "engine",
    "model": "model",
    "weights": "precision",
    "tp": "tensor_parallel",
    "kv": "kv_precision",
}
"""columns that are the same in all rows, and the command's settings for them"""
