"""Routers ranked over clusters: distances by hand, groups that cannot be told apart, words and reasons."""

from __future__ import annotations

import pytest

from prebleexp.report import clusters, orders
from prebleexp.report.drawings import Drawings
from prebleexp.report.figures import figure
from prebleexp.report.measures import DRAWINGS
from prebleexp.report.orders import kendall
from prebleexp.report.ranking import ALL, ranked, with_distance
from prebleexp.report.summary import Row

LATENCY = {
    ("ample", "near"): 1.0,
    ("ample", "far"): 1.2,
    ("scarce", "near"): 4.0,
    ("scarce", "far"): 2.0,
}


def rows(seeds: int = 4, noise: float = 0.001) -> list[Row]:
    """Two lines in two clusters; a third is `near` with noise; a fourth was not run in one of them."""
    found: list[Row] = []
    for seed in range(seeds):
        lines = {**LATENCY, **{(kind, "same"): LATENCY[kind, "near"] for kind in ("ample", "scarce")}}
        lines["ample", "only here"] = 0.5
        for (kind, line), latency in lines.items():
            shift = noise * (2 if seed % 2 else -1) if line == "same" else 0.0
            found.append(
                {
                    **{"part": kind, "variant": kind, "gpus": 8, "rps": 64, "line": line, "seed": seed},
                    **{
                        "norm_latency_mean_s": latency * (1 + shift) * (1 + 0.1 * seed),
                        "hit_ratio": 0.9 if line == "far" else 0.3,
                    },
                    **{"requests_max_over_mean": 1.1, "ttft_mean_s": latency, "ttft_p99_s": 2 * latency},
                    **{"n_finished": 10, "n_requests": 10},
                }
            )
    return found


def test_a_distance_is_the_geometric_mean_over_clusters_of_the_ratio_to_the_best_of_each() -> None:
    by = {(row["cluster"], row["line"], row["seed"]): row["distance"] for row in with_distance(rows())}
    assert by["ample", "near", 0] == 0, "the best of those that were run in all clusters"
    assert by["scarce", "far", 3] == pytest.approx(0)
    assert by[ALL, "near", 1] == pytest.approx(100 * (1 * 2) ** 0.5 - 100)
    assert by[ALL, "far", 1] == pytest.approx(100 * (1.2 * 1) ** 0.5 - 100)
    assert (ALL, "only here", 0) not in by, "it has not run in all clusters"


def test_lines_that_cannot_be_told_apart_have_one_rank() -> None:
    assert ranked({"a": {0: 1.0, 1: 1.2}, "b": {0: 1.2, 1: 1.0}, "c": {0: 9.0, 1: 9.1}}) == {
        "a": "1–2",
        "b": "1–2",
        "c": "3",
    }
    assert ranked({"a": {0: 1.0}, "b": {0: 2.0}}) == {"a": "1", "b": "2"}, "one seed: in order"
    assert {row["rank"] for row in with_distance(rows())} >= {"1. far", "2–3. near", "2–3. same"}


def test_many_comparisons_need_more_evidence() -> None:
    """What is apart from the first alone is not when twenty are compared with it."""
    first = dict.fromkeys(range(4), 0.0)
    other = {0: 0.4, 1: 1.0, 2: 1.2, 3: 0.8}
    assert ranked({"a": first, "b": other})["b"] == "2"
    many = {f"c{i}": {seed: value + 1e-3 * i for seed, value in other.items()} for i in range(20)}
    assert ranked({"a": first, **many})["c0"] == "1–21"


def test_the_page_says_who_is_first_and_why() -> None:
    made = figure("ranking", rows(), how=DRAWINGS["ranking"], drawings=Drawings())
    assert made.headline == (
        "Of 3 routers, far is the fastest over all clusters, 9.5 % above the best of each; the next, near, is at 41 % "
        "above the best of each; the last, same, at 41 % above the best of each."
    )
    assert made.answer.columns == ("ample", "scarce")
    (name, (ample, scarce)), *_ = made.answer.rows
    assert (name, ample.word, scarce.word) == ("1. far", "middling", "good")
    found = clusters.findings(rows())
    assert [one.short for one in found] == ["Is the order of ample that of the others?", "ample", "scarce"]
    assert found[2].sentences[0].startswith("far is the fastest, the best in each; near is at 2.0 times the best")
    assert found[2].sentences[1] == (
        "Why: far finds 90.0 % of prompt tokens in caches (same: 30.0 %), its busiest GPU gets 1.10 times the mean's "
        "requests (1.10) and a first token takes 2.00 s (4.00 s)."
    )


def test_orders_are_compared_by_the_pairs_of_lines_that_are_turned_round() -> None:
    assert kendall([1.0, 2.0, 3.0], [4.0, 5.0, 9.0]) == 1
    assert kendall([1.0, 2.0, 3.0], [9.0, 5.0, 4.0]) == -1
    assert kendall([1.0, 2.0, 3.0, 4.0], [2.0, 1.0, 3.0, 3.0]) == pytest.approx(3 / 6), "five pairs; one of them turned"
    order = clusters.findings(rows())[0]
    assert order.numbers["rank_correlation"]["scarce"][0] == pytest.approx(-1 / 3), "far is before both, not behind"
    assert order.sentences[1] == "First everywhere, or not to be told apart from the first: none."
    assert order.effects.rows[0][2] == "near and same"
    assert orders.sentence(order) == (
        "On scarce routers are in the order of ample with a rank correlation of −0.33 (1: the same, -1: reversed); "
        "first: near and same on ample; far on scarce."
    )
    one_kind = [row for row in rows() if row["part"] == "ample"]
    assert [one.short for one in clusters.findings(one_kind)] == ["ample"]


def test_without_a_line_in_all_clusters_there_is_nothing_to_rank() -> None:
    some = [row for row in rows() if (row["part"], row["line"]) in (("ample", "near"), ("scarce", "far"))]
    made = figure("ranking", some, how=DRAWINGS["ranking"], drawings=Drawings())
    assert made.headline == "No line has run in all clusters, so there is nothing to rank."


def test_one_seed_has_no_intervals_and_far_is_said_in_times() -> None:
    made = figure("ranking", rows(1), how=DRAWINGS["ranking"], drawings=Drawings())
    assert made.caption.startswith("One seed, so there are no intervals.")
    assert figure("ranking", rows(), how=DRAWINGS["ranking"], drawings=Drawings()).caption.startswith("Bars are 95 %")
    scarce = clusters.findings(rows(1))[-1].effects.rows
    assert [row[:3] for row in scarce if row[1] != "same"] == [("1", "far", "+0.0 %"), ("3", "near", "2.0 ×")]
