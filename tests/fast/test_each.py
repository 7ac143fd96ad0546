"""A page that is about somebody's own router: against each other one, with what else differs."""

from __future__ import annotations

import pytest

from prebleexp.errors import InvalidInput
from prebleexp.report import ranked_by
from prebleexp.report.each import of_sweep
from prebleexp.report.explained import Level
from prebleexp.report.explained import sentence as why
from prebleexp.report.figures import figure
from prebleexp.report.measures import drawing
from prebleexp.report.summary import Row

METRIC = "ttft_p99_s"
AXES = ("policy", "rps")
FOUR = {"lmetric": 1.04, "marginal_delay": 1.0, "mine": 1.5, "round_robin": 1.62}
TWICE = {"lor": 1.0, "mine": 2.4, "random": 6.0}


def swept(levels: dict[str, float], seeds: int = 5) -> list[Row]:
    """A level for each router, at two rates; the slower a router is, the more of a prompt it computes."""
    return [
        {
            **{"gpus": 4, "rps": rate, "policy": name, "seed": seed, "n_finished": 10, "n_requests": 10},
            METRIC: level * (1 + rate / 100) * (1 + 0.01 * ((7 * seed + len(name)) % 5)),
            "computed_tokens_mean": 400 * level * (1 + 0.001 * seed),
            "computed_tokens_p99": 1114 * level * (1 + 0.001 * seed),
            "hit_ratio": 0.9 + 0.001 * seed,
        }
        for name, level in levels.items()
        for rate in (48.0, 160.0)
        for seed in range(seeds)
    ]


def said(levels: dict[str, float], about: str = "", seeds: int = 5) -> str:
    rows = swept(levels, seeds)
    how, _ = of_sweep(rows, AXES, drawing(METRIC), about)
    return figure(METRIC, rows, AXES, how=how).headline


def test_the_sentence_is_about_the_users_own_router_against_each_other_one() -> None:
    """It was "marginal_delay is 4 % faster than lmetric and 33 to 38 % faster than mine and round_robin"."""
    text = said(FOUR)
    assert text.startswith("mine is ")
    assert [name for name in FOUR if name in text] == list(FOUR)
    parts = text.removeprefix("mine is ").replace(" and ", ", ").rstrip(".").split(", ")
    assert [part.rpartition(" ")[2] for part in parts] == ["marginal_delay", "lmetric", "round_robin"]
    for part, level in zip(parts, (1.0, 1.04, 1.62), strict=True):
        size = float(part.split(" ")[0])
        assert size == pytest.approx(100 * abs(1.5 / level - 1), abs=2.5)
        assert ("slower" in part) == (level < 1.5)


def test_from_twice_as_long_on_it_says_times() -> None:
    assert said(TWICE) == "mine takes 2.4 × as long as lor; random takes 2.5 × as long as mine."


def test_a_difference_that_rounds_to_nothing_is_none() -> None:
    """ "sticky's attainment is 0.0 % lower than lor's, 0.0 % lower than llmd's …": 1 against 0.9996."""
    text = said({"llmd": 1.0, "marginal_delay": 1.0001, "mine": 1.0004, "random": 1.3}, seeds=1)
    assert text.startswith("mine is 21 % faster than random and within 0.05 % of llmd and marginal_delay.")
    assert "within 0.05 %" not in said({"lor": 1.0, "mine": 1.0004}), "chance leaves open more"


def test_any_line_may_be_named_and_one_that_is_not_there_is_refused() -> None:
    assert said(FOUR, "round_robin").startswith("round_robin is ")
    with pytest.raises(InvalidInput, match=r"unknown line in report.about: 'lore'; valid: e2, lor"):
        said({"lor": 1.0, "e2": 1.1}, "lore")
    assert said({"lor": 1.0, "e2": 1.1}).startswith("lor is "), "none is the user's, so the best"


def test_of_many_others_it_counts_who_is_better() -> None:
    names = ("lor", "e2", "random", "round_robin", "llmd", "lor_tokens")
    text = said({name: 1 + i / 10 for i, name in enumerate(names)} | {"mine": 1.25})
    assert text == (
        "Of 6 others, on average, mine is faster than 3 (round_robin, llmd and lor_tokens) and slower than 3 (lor, e2 "
        "and random)."
    )


def test_one_seed_is_said() -> None:
    text = said(FOUR, seeds=1)
    assert text.endswith("There is one seed per point, so no interval: a difference may be chance.")
    rows = swept(FOUR, 1)
    (aside,) = of_sweep(rows, AXES, drawing(METRIC), "")[1]
    assert aside.table is not None
    assert {row[1] for row in aside.table.rows[1:]} == {"undecided"}
    assert len(aside.sentences) == 1


def test_a_table_has_each_other_one_with_what_else_differs() -> None:
    (aside,) = of_sweep(swept(FOUR), AXES, drawing(METRIC), "")[1]
    assert aside.title == "mine against each other policy, in p99 time to first token"
    assert aside.table is not None
    heads = [column.name for column in aside.table.columns]
    assert heads[:3] == ["policy", "mine is", "mine relative to it"]
    assert heads[3:] == ["tokens computed per request", "p99 of them", "hit ratio"]
    rows = {row[0]: row[1:] for row in aside.table.rows}
    assert list(rows) == ["mine", "marginal_delay", "lmetric", "round_robin"]
    assert [row[0] for row in rows.values()] == ["–", "slower", "slower", "faster"]
    assert rows["mine"][2:] == ("601", "1,674", "0.902")
    assert rows["marginal_delay"][2:4] == ("401", "1,116")
    assert aside.sentences[0] == (
        "mine and marginal_delay also surely differ in prompt tokens computed per request (601 against 401) and "
        "their p99 (1,674 against 1,116); that may be why, but does not prove it."
    )
    assert "zero in it" in aside.sentences[-1]


def test_who_is_faster_here_and_slower_there_is_said_to_be_both() -> None:
    """README's first page had lor "faster, by 15 %" than e2, which is faster at three of its four rates."""
    rows = swept({"lor": 1.0, "mine": 1.2})
    for row in rows:
        if row["policy"] == "mine" and row["rps"] == 160.0:
            row[METRIC] *= 0.5
    (aside,) = of_sweep(rows, AXES, drawing(METRIC), "mine")[1]
    assert aside.table is not None
    assert {row[0]: row[1] for row in aside.table.rows}["lor"] == "slower at 1, faster at 1"


def test_without_an_own_router_the_table_is_of_the_best() -> None:
    (aside,) = of_sweep(swept({"lor": 1.0, "e2": 1.2}), AXES, drawing(METRIC), "")[1]
    assert aside.title.startswith("lor against each other policy")
    assert not of_sweep(swept({"lor": 1.0}), AXES, drawing(METRIC), "")[1]


def test_what_else_differs_names_the_p99_in_full_where_it_stands_alone() -> None:
    assert why("a", "b", False, []) == ""
    text = why("a", "b", False, [Level("computed_tokens_p99", 3577.0, 1114.0), Level("hit_ratio", 0.878, 0.92)])
    assert (
        "also surely differ in p99 prompt tokens computed (3,577 against 1,114) and hit ratio (0.878 against 0.92"
        in text
    )


def test_what_was_promised_is_ranked_by_before_latency() -> None:
    """With limits set, "mine is 0.7 % faster" was all, though no request more was within them."""
    rows = [row | {"slo_attainment": 0.99, "norm_latency_mean_s": row[METRIC]} for row in swept(TWICE)]
    assert ranked_by.names((), rows) == ("slo_attainment", ranked_by.LATENCY)
    assert ranked_by.names((), swept(TWICE)) == (ranked_by.LATENCY,)
    assert ranked_by.names([METRIC], rows) == (METRIC,), "as asked"
    drawn = [
        figure(name, rows, AXES, how=of_sweep(rows, AXES, drawing(name), "")[0]) for name in ranked_by.names((), rows)
    ]
    assert ranked_by.answer(drawn) == (
        "mine's attainment is within the noise of lor's and within the noise of random's. In average normalised "
        "latency: mine takes 2.4 × as long as lor; random takes 2.5 × as long as mine."
    )
    assert ranked_by.answer(drawn[1:]) == drawn[1].headline
