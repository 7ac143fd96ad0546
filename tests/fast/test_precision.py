"""Replications are added until a mean is known as well as was asked for, by a rule that keeps its promise."""

from __future__ import annotations

import csv
import math
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest

from prebleexp.__main__ import main
from prebleexp.intervals import mean_interval
from prebleexp.precision import Precision

METRIC = "norm_latency_mean_s"


def test_looks_double_up_to_the_most() -> None:
    assert Precision(0.05, METRIC, 100).looks == (5, 10, 20, 40, 80, 100)
    assert Precision(0.05, METRIC, 3).looks == (3,)
    assert Precision(0.05, METRIC, 5).looks == (5,)


def test_with_one_look_the_interval_is_the_usual_one() -> None:
    values = [1.0, 2.0, 4.0, 3.0, 2.5]
    assert Precision(0.05, METRIC, 5).half_width(values) == pytest.approx(mean_interval(values)[1], rel=1e-12)


def test_more_looks_need_wider_intervals() -> None:
    values = [1.0, 2.0, 4.0, 3.0, 2.5]
    assert Precision(0.05, METRIC, 100).half_width(values) > Precision(0.05, METRIC, 10).half_width(values)
    assert Precision(0.05, METRIC, 100).half_width([1.0]) == math.inf
    assert not Precision(0.5, METRIC, 100).reached([1.0])
    assert Precision(0.05, METRIC, 100).reached([2.0] * 5)


def missed(precision: Precision, half_width: Callable[[Sequence[float]], float | None], spread: float) -> float:
    """How often the interval at which one stops, the first that is narrow enough, does not hold the truth, which is
    1."""
    trials = 3000
    random = np.random.default_rng(7)
    wrong = 0
    for _ in range(trials):
        values = random.normal(1.0, spread, precision.most).tolist()
        for look in precision.looks:
            mean, width = sum(values[:look]) / look, half_width(values[:look]) or math.inf
            if width <= precision.ci * mean:
                wrong += abs(mean - 1.0) > width
                break
    return wrong / trials


@pytest.mark.slow
def test_the_promise_is_kept_where_the_naive_rule_breaks_it() -> None:
    precision = Precision(0.05, METRIC, 100)
    spreads = (0.05, 0.08, 0.12, 0.16, 0.2)
    ours = [missed(precision, precision.half_width, spread) for spread in spreads]
    naive = [missed(precision, lambda values: mean_interval(values)[1], spread) for spread in spreads]
    print(f"intervals that miss the mean: {max(ours):.1%}; the usual 95 % intervals: {max(naive):.1%}")
    assert max(ours) < 0.05 < max(naive)


def sweep(folder: Path, capsys: pytest.CaptureFixture[str], *more: str) -> tuple[dict[str, int], str]:
    """Replications for each rate, and what was said."""
    arguments = ["-m", "gpus=2", "policy=random", "rps=4,8", "duration_s=20", f"cache_dir={folder}", "report=none"]
    assert main([*arguments, "output=csv", *more]) == 0
    out, err = capsys.readouterr()
    seeds: dict[str, list[int]] = {}
    for row in csv.DictReader(out.splitlines()):
        seeds.setdefault(row["rps"], []).append(int(row["seed"]))
    assert all(found == list(range(len(found))) for found in seeds.values())
    return {rps: len(found) for rps, found in seeds.items()}, err


@pytest.mark.slow
def test_a_sweep_stops_where_it_is_precise(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    auto = ("replications=auto", "max_replications=40")
    made, said = sweep(tmp_path, capsys, *auto, "ci=0.1")
    assert all(count in (5, 10, 20, 40) for count in made.values())
    assert f"{sum(made.values())} computed, 0 from the cache" in said
    assert said.endswith("; means of norm_latency_mean_s are known to 10.0%\n")
    again, said = sweep(tmp_path, capsys, *auto, "ci=0.1")
    assert again == made
    assert "all from the cache" in said
    finer, said = sweep(tmp_path, capsys, *auto, "ci=0.001")
    assert set(finer.values()) == {40}
    assert f"{80 - sum(made.values())} computed, {sum(made.values())} from the cache" in said
    assert "2 of 2 means of norm_latency_mean_s are not known to 0.1% after 40 replications" in said
    kept = {path.stem for path in tmp_path.rglob("*.parquet")}
    assert len(kept) == 2, "only of the first seed of each"


@pytest.mark.parametrize(
    ("setting", "says"),
    [
        ("ci=0", "ci=0 is not valid; it must be a share of the mean, between 0 and 1"),
        ("ci=1.5", "ci=1.5 is not valid"),
        (
            "ci_metric=speed",
            "unknown metric in ci_metric: 'speed'; valid: acceptance_length, after_loss_attainment, after_loss_",
        ),
        ("max_replications=1", "max_replications=1 is not valid; it must be an integer from 2"),
        ("replications=car", "replications=car is not valid; it must be a number or auto"),
    ],
)
def test_bad_settings_are_one_line(setting: str, says: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["replications=auto", setting]) == 2
    assert capsys.readouterr().err.startswith(f"prebleexp: {says}")
