"""A sweep over one setting has an answer, and many lines are dots in order."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from prebleexp.comparison import Measured, Verdict, compare
from prebleexp.metrics import DECLARED, NEITHER
from prebleexp.report import many
from prebleexp.report.figures import figure
from prebleexp.report.measures import drawing
from prebleexp.report.summary import Row, layout, points
from prebleexp.report.tuned import sentence

WEIGHTS = (0.1, 0.3, 1.0, 3.0, 10.0)
METRIC = "ttft_p99_s"


def swept(
    law: Callable[[float, float], float],
    rates: tuple[float, ...] = (24.0, 48.0, 72.0),
    noise: float = 0.02,
    seeds: int = 5,
) -> list[Row]:
    """Rows of a sweep over policy.weight, of which a law of weight and rate is the mean."""
    rng = np.random.default_rng(7)
    streams = {(rate, seed): 1 + 0.2 * rng.random() for rate in rates for seed in range(seeds)}
    return [
        {
            **{"gpus": 4, "rps": rate, "policy": "treemix", "policy.weight": weight, "seed": seed},
            METRIC: law(weight, rate) * streams[rate, seed] * (1 + noise * rng.standard_normal()),
            **{"n_finished": 10, "n_requests": 10},
        }
        for rate in rates
        for weight in WEIGHTS
        for seed in range(seeds)
    ]


def answer(rows: list[Row]) -> str:
    return figure(METRIC, rows, ("policy.weight", "rps")).headline


def test_the_setting_is_drawn_along_x_with_a_line_for_each_rate() -> None:
    rows = swept(lambda weight, rate: 1.0)
    where = layout(rows, ("policy.weight", "rps"))
    assert (where.x, where.line, where.panels, where.tunes) == ("policy.weight", "rps", (), True)
    found = figure(METRIC, rows, ("policy.weight", "rps"))
    assert (len(found.panels), found.x) == (1, "policy.weight")
    assert "24 requests/s" in found.panels[0].svg
    alone = layout([row for row in rows if row["rps"] == 24], ("policy.weight",))
    assert (alone.x, alone.line, alone.tunes) == ("policy.weight", "policy", True)


def test_a_best_value_at_the_edge_is_said_to_be_there_with_its_gain() -> None:
    said = answer(swept(lambda weight, rate: rate * (1 - 0.1 * np.log10(weight))))
    assert "policy.weight=10 is best with 24 requests/s, 48 requests/s and 72 requests/s" in said
    assert "It is still falling at the edge of what was tried: try more." in said
    gain = float(said.partition(" is best")[2].partition("token is ")[2].split(" ")[0])
    assert gain == pytest.approx(100 * (1 - 0.9 / 1.1), abs=2)
    assert " lower than with 0.1" in said
    assert " ± " in said


def test_a_best_value_within_is_not_at_the_edge_and_its_like_are_named() -> None:
    said = answer(swept(lambda weight, rate: 1 + 0.3 * abs(np.log10(weight / 1.2))))
    assert "policy.weight=1 is best" in said
    assert "edge" not in said
    flat = answer(swept(lambda weight, rate: 2.0 if weight < 0.2 else 1.0))
    assert "cannot be told from it" in flat


def test_values_are_told_apart_by_the_difference_over_all_places_as_compare_does() -> None:
    """At each rate 16 and 32 were undecided, so "16 cannot be told from it"; `compare` said 2.3 ± 1.6 % on average."""
    noise = {24.0: (0.01, 0.03, 0.02, -0.01, 0.05), 48.0: (0.04, -0.01, 0.01, 0.05, -0.02)}
    rows: list[Row] = [
        {
            **{"gpus": 4, "rps": rate, "policy": "treemix", "policy.weight": weight, "seed": seed},
            METRIC: {1.0: 2.0, 3.0: 1.0 + noise[rate][seed], 10.0: 1.0}[weight],
            **{"n_finished": 10, "n_requests": 10},
        }
        for rate in noise
        for weight in (1.0, 3.0, 10.0)
        for seed in range(5)
    ]
    where, measure = layout(rows, ("policy.weight", "rps")), drawing(METRIC).measure
    of = [[row for row in rows if row["policy.weight"] == weight] for weight in (3.0, 10.0)]
    sides = [
        [Measured({"policy.weight": r["policy.weight"], "rps": r["rps"]}, r["seed"], r, "") for r in side]
        for side in of
    ]
    found = compare(*sides, METRIC)
    assert found.overall is not None
    mean, half = found.overall
    assert half is not None
    assert abs(mean) > half, "on average it is decided"
    assert found.count(Verdict.UNDECIDED) == 2, "and nowhere else"
    said = sentence(points(rows, where, METRIC), where, measure)
    assert said.startswith("policy.weight=10 is best, or within the noise of the best, with 24 requests/s and 48")
    assert "It is still falling at the edge" in said
    assert (
        "Alone, these cannot be told from it: 3 with 24 requests/s and 3 with 48 requests/s (the 95 % interval of the "
        "paired differences has zero in it)."
    ) in said


def test_a_best_mean_within_the_noise_is_no_sure_lead() -> None:
    """It was "best, or within the noise of the best: 62 ± 103 % lower than with 1, within the noise"."""
    rng = np.random.default_rng(2)

    def law(weight: float, rate: float) -> float:
        return rate * (1 - 0.2 * np.log10(weight)) if rate == 24 else rate * float(rng.lognormal(0, 0.3))

    rows = swept(law, rates=(24.0, 72.0), seeds=3)
    for row in rows:
        if row["rps"] == 72.0:
            row[METRIC] *= float(rng.lognormal(0, 1.5))
    said = answer(rows)
    assert "has the best mean" in said
    assert ", but no sure lead: " in said
    assert "within the noise" not in said


def test_where_nothing_matters_that_is_said() -> None:
    said = answer(swept(lambda weight, rate: 1.0, noise=0.0))
    assert "policy.weight from 0.1 to 10 makes no difference to p99 time to first token" in said


def test_where_each_rate_has_another_best_value_each_is_named() -> None:
    said = answer(swept(lambda weight, rate: weight if rate < 30 else 1 / weight, rates=(24.0, 48.0)))
    assert said.startswith("No policy.weight is best everywhere: best is 0.1 with 24 requests/s and 10 with 48 req")


def test_more_is_better_where_it_is_and_one_seed_is_said() -> None:
    rows = [row | {"hit_ratio": row[METRIC]} for row in swept(lambda weight, rate: weight, seeds=1)]
    said = figure("hit_ratio", rows, ("policy.weight", "rps")).headline
    assert "policy.weight=10 is best" in said
    assert "still rising at the edge" in said
    assert "There is one seed per point" in said


def test_of_a_metric_of_which_neither_is_better_it_is_described() -> None:
    name = next(name for name, metric in DECLARED.items() if metric.better == NEITHER)
    rows = [row | {name: row[METRIC]} for row in swept(lambda weight, rate: weight)]
    where, measure = layout(rows, ("policy.weight", "rps")), drawing(name).measure
    assert " best" not in sentence(points(rows, where, name), where, measure)


def test_lines_of_several_policies_are_compared_as_before() -> None:
    rows = swept(lambda weight, rate: 1.0)
    both = [row | {"policy": name} for row in rows for name in ("lor", "treemix")]
    assert layout(both, ("policy", "policy.weight", "rps")).x == "rps"


# ---------------------------------------------------------------- many lines
NAMES = (
    "lor",
    "e2",
    "llmd",
    "mooncake",
    "random",
    "round_robin",
    "dynamo_kv",
    "vllm_cache_aware",
    "mine",
    "kubeai_chwbl",
)


def routers(count: int) -> list[Row]:
    """Each next one is 5 % slower than the one before."""
    rng = np.random.default_rng(3)
    streams = {(rate, seed): 1 + 0.3 * rng.random() for rate in (8.0, 16.0) for seed in range(4)}
    return [
        {
            **{"gpus": 4, "rps": rate, "policy": name, "seed": seed, "n_finished": 10, "n_requests": 10},
            METRIC: 1.05 ** ((i * 3) % count) * stream,
        }
        for i, name in enumerate(NAMES[:count])
        for (rate, seed), stream in streams.items()
    ]


def test_many_lines_are_dots_with_intervals_in_order_and_own_ones_are_marked() -> None:
    rows = routers(10)
    found = figure(METRIC, rows, ("policy", "rps"))
    svg = found.panels[0].svg
    order = sorted(range(10), key=lambda i: (i * 3) % 10)
    places = [svg.index(NAMES[i]) for i in order]
    assert places == sorted(places)
    assert f"mine{many.YOURS}" in svg
    assert f"e2{many.YOURS}" not in svg
    assert found.x == "P99 time to first token relative to lor (%, lower is better)"
    assert "lor" in found.headline
    assert [entry.name for entry in found.legend] == ["8 requests/s", "16 requests/s"]
    assert len(found.table.rows) == 20, "the table has the values themselves"


def test_differences_are_those_of_the_same_seeds() -> None:
    rows = routers(10)
    where, measure = layout(rows, ("policy", "rps")), drawing(METRIC).measure
    shown, drawn = many.as_dots([("", points(rows, where, METRIC))], where, measure)
    found = {point.at["policy"]: point.interval for _, members in shown for point in members}
    for i, name in enumerate(NAMES):
        mean, half = found[name if name != "mine" else f"mine{many.YOURS}"] or (0, 0)
        assert mean == pytest.approx(100 * (1.05 ** ((i * 3) % 10) - 1))
        assert half == pytest.approx(0, abs=100)
    assert drawn.unit == "%"


def test_few_lines_stay_lines() -> None:
    found = figure(METRIC, routers(8), ("policy", "rps"))
    assert found.x == "Request rate (requests/s)"
