"""How far lines are from the best of each cell: ratios, shares and words by hand, and where the first one loses."""

from __future__ import annotations

import math

import pytest

from prebleexp.report import mistakes
from prebleexp.report.drawings import Drawings
from prebleexp.report.figures import figure
from prebleexp.report.frontier import METRICS, quantile, ratios, with_shares
from prebleexp.report.measures import DRAWINGS
from prebleexp.report.summary import Row

CELLS = ("one", "two", "three", "four")
TIMES = {"steady": (1.0, 1.1, 1.0, 1.2), "sharp": (1.2, 1.0, 3.0, 1.0), "absent": (2.0, None, None, None)}
"""of each line its latency in each cell, times a second"""


def rows(seeds: int = 3) -> list[Row]:
    return [
        {
            **{"part": cell, "variant": cell, "gpus": 8, "rps": 64, "line": line, "seed": seed},
            **dict.fromkeys(METRICS, times * (1 + 0.1 * seed) * (1 + 1e-4 * (seed - 1) * (line == "sharp"))),
            **{"slo_attainment": 1 / times, "n_finished": 10, "n_requests": 10},
        }
        for line, each in TIMES.items()
        for cell, times in zip(CELLS, each, strict=True)
        if times is not None
        for seed in range(seeds)
    ]


def test_a_ratio_is_to_the_best_line_of_the_same_cell() -> None:
    by = {(one.line, one.cell[0], one.metric): one for one in ratios(rows())}
    assert by["steady", "two", METRICS[2]].mean == pytest.approx(1.1, rel=1e-4)
    assert by["steady", "two", METRICS[2]].best == "sharp"
    assert by["sharp", "three", METRICS[0]].mean == pytest.approx(3.0, rel=1e-4)
    assert by["absent", "one", METRICS[1]].mean == pytest.approx(2.0), "a line is judged where it has run"
    assert len(by) == len(METRICS) * 9


def test_a_quantile_is_one_of_the_values() -> None:
    assert [quantile([1.0, 2.0, 3.0, 4.0], share) for share in (0.5, 0.9, 1.0)] == [2.0, 4.0, 4.0]


def test_shares_are_of_all_cells_and_metrics() -> None:
    by = {(row["line"], row["share"], row["seed"]): row["doublings"] for row in with_shares(rows())}
    assert by["steady", "median", 1] == pytest.approx(0)
    assert by["steady", "worst", 1] == pytest.approx(math.log2(1.2))
    assert by["sharp", "worst", 1] == pytest.approx(math.log2(3.0), rel=1e-4)


def test_the_page_says_who_is_nearest_where_it_loses_and_to_whom() -> None:
    made = figure("frontier", rows(), how=DRAWINGS["frontier"], drawings=Drawings())
    assert made.headline == (
        "Of 3 routers, steady is the nearest to the best of each cell: 1.00 times in the median, 1.20 in 90 %, 1.20 at "
        "worst; the next, absent, 2.00 times in the median, 2.00 in 90 %, 2.00 at worst; the last, sharp, 1.00 times "
        "in the median, 3.00 in 90 %, 3.00 at worst."
    )
    everyone, losses = mistakes.findings(rows())
    assert everyone.sentences[0].startswith("steady is 1.072 times the best of each cell and metric in the geometric")
    assert "four, 8 GPUs, 64" in everyone.sentences[0]
    assert "where sharp is the best" in everyone.sentences[0]
    assert losses.sentences == ("steady is more than 5.0 % above the best in 2 of 4 cells, in some metric.",)
    assert [row[0].partition(",")[0] for row in losses.effects.rows] == ["four"] * 4 + ["two"] * 4
    assert {row[3] for row in losses.effects.rows} == {"sharp"}
    numbers = everyone.numbers["sharp"]
    assert numbers["first_better_worse"][METRICS[0]] == (2, 2)
    assert numbers["attained"]["as_good_as_the_best"] == 0.5
    assert numbers["largest"][METRICS[3]] == pytest.approx(3.0, rel=1e-4)


def test_without_runs_nothing_is_said() -> None:
    assert mistakes.findings([]) == []
    made = figure("frontier", [], how=DRAWINGS["frontier"], drawings=Drawings())
    assert made.headline == "No line has run in any cell."
