"""How contenders of a plan compare over the request streams that both have: ratios, order and words, by hand."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
import pytest

from prebleexp.launch import configure
from prebleexp.planning.answer import Answer
from prebleexp.planning.contender import Contender
from prebleexp.planning.paired import ratio
from prebleexp.planning.planned import Planned, best_first, ratio_of
from prebleexp.planning.trials import Bracket
from prebleexp.report import plan_ratios, planned
from tests.support.answers import answer, tried

T = 12.7062
"""Student's t of two seeds"""


def found(low: float, high: float, shares: Mapping[float, Sequence[float]]) -> Answer:
    """A search that ended in this bracket, after these shares of each seed."""
    bracket = Bracket(low, high, tuple(shares[low]), tuple(shares[high]))
    size = math.exp(bracket.crossing(0.9))
    return answer(size, bracket=bracket, curve=tried(shares), seeds=len(shares[low]))


def crossing(size: float, seeds: int = 2) -> Answer:
    """One of which each seed keeps 0.9 at this size."""
    return found(size / 1.1, size * 1.1, {size / 1.1: [0.94] * seeds, size * 1.1: [0.86] * seeds})


# ---------------------------------------------------------------- numbers
def test_the_ratio_is_that_of_the_estimates_and_pairs_seeds() -> None:
    """Streams that are hard are hard for both: the ratio is known far better than either."""
    shifts = [0.05 * float(np.random.default_rng(seed).normal()) for seed in range(10)]
    ends = [
        Bracket(10.0 * by, 11.0 * by, tuple(0.92 + s for s in shifts), tuple(0.88 + s for s in shifts))
        for by in (1.0, 1.3)
    ]
    middle, half = ratio(*(answer(1, bracket=one) for one in reversed(ends))) or (0.0, 1.0)
    assert middle == pytest.approx(math.log(1.3))
    assert half == pytest.approx(0, abs=1e-9)
    other = replace(ends[1], at_low=ends[1].at_low[::-1], at_high=ends[1].at_high[::-1])
    unpaired = ratio(answer(1, bracket=other), answer(1, bracket=ends[0]))
    assert unpaired is not None
    assert unpaired[1] > 0.1


@pytest.mark.parametrize(("shifts", "t"), [([0.01, -0.02, 0.005, 0.03, -0.01], 2.7764), ([0.01, -0.02], 12.7062)])
def test_the_jackknife_of_a_mean_is_its_usual_interval(shifts: list[float], t: float) -> None:
    """With one slope for all seeds the estimate is a mean, of which the jackknife says what Student's t does."""
    one = Bracket(10.0, 11.0, tuple(0.92 + s for s in shifts), tuple(0.88 + s for s in shifts))
    flat = Bracket(10.0, 11.0, (0.92,) * 5, (0.88,) * 5)
    middle, half = ratio(answer(1, bracket=one), answer(1, bracket=flat)) or (0.0, 0.0)
    slope = 0.04 / math.log(1.1)
    assert middle == pytest.approx(np.mean(shifts) / slope)
    assert half == pytest.approx(t * np.std(shifts, ddof=1) / math.sqrt(len(shifts)) / slope, rel=1e-4)
    single = replace(one, at_low=one.at_low[:1], at_high=one.at_high[:1])
    assert ratio(answer(1, bracket=single), answer(1, bracket=flat)) is None


EASY = [0.01, -0.01]
HARD = {
    10.0: [0.98 + s for s in EASY] + [0.90, 0.90],
    11.0: [0.94 + s for s in EASY] + [0.80, 0.80],
    12.0: [0.86 + s for s in EASY],
}
"""The search ends between 10 and 11, with four seeds; the first two keep the promise up to the middle of 11 and 12."""


def test_a_ratio_is_read_between_the_loads_that_common_seeds_cross() -> None:
    """The line through the bracket that the search of four seeds ended in gives 12.1 for the first two, as if 12 had
    not been tried with them."""
    middle, half = ratio(found(10.0, 11.0, HARD), crossing(8.0)) or (0.0, 0.0)
    assert math.exp(middle) == pytest.approx(math.sqrt(11 * 12) / 8)
    assert half == pytest.approx(T * 0.01 / (0.08 / math.log(12 / 11)), rel=1e-4)


def test_without_a_seed_it_may_cross_beyond_what_was_tried_and_then_the_slope_says_where() -> None:
    shares = {10.0: [0.93, 0.89], 11.0: [0.87, 0.83]}
    middle, half = ratio(found(10.0, 11.0, shares), crossing(8.0)) or (0.0, 0.0)
    slope = 0.06 / math.log(1.1)
    assert middle == pytest.approx(math.log(10 / 8) + 0.01 / slope)
    assert half == pytest.approx(T * 0.02 / slope, rel=1e-4)


def test_seeds_that_tell_nothing_together_are_left_out() -> None:
    """Three seeds of the one keep the promise wherever they were tried; two of them do not."""
    shares = {10.0: [0.94, 0.94, 0.94, 0.80], 11.0: [0.86, 0.86, 1.0, 0.80], 12.0: [0.80, 0.80]}
    one = found(10.0, 11.0, shares)
    three = crossing(8.0, seeds=3)
    middle, _ = ratio(one, three) or (0.0, 0.0)
    assert math.exp(middle) == pytest.approx(math.sqrt(110) / 8)


def test_what_was_not_tried_is_not_known() -> None:
    without = {size: shares for size, shares in HARD.items() if size < 12}
    assert ratio(found(10.0, 11.0, without), crossing(8.0)) is None
    assert ratio(crossing(8.0), answer(9.0)) is None, "a search that did not end in a bracket"


def test_of_several_crossings_the_one_that_the_search_found_counts() -> None:
    shares = {size: [share, share] for size, share in ((5.0, 0.92), (6.0, 0.88), (10.0, 0.94), (11.0, 0.86))}
    middle, half = ratio(found(10.0, 11.0, shares), crossing(8.0)) or (0.0, 1.0)
    assert math.exp(middle) == pytest.approx(math.sqrt(110) / 8)
    assert half == pytest.approx(0, abs=1e-9)


def test_more_gpus_keep_more() -> None:
    one = found(10.0, 11.0, {10.0: [0.86, 0.86], 11.0: [0.94, 0.94]})
    other = found(8.0, 9.0, {8.0: [0.86, 0.86], 9.0: [0.94, 0.94]})
    assert (ratio(one, other) or (0.0,))[0] == pytest.approx(math.log(110 / 72) / 2)


# ---------------------------------------------------------------- order and words
def plan(of: Mapping[str, Answer]) -> list[Planned]:
    cell = configure.cells(["gpus=2", "slo.ttft_s=0.5", "slo.target=0.9"])[0]
    return [Planned(name, {"policy": name}, Contender(cell, "rps"), one) for name, one in of.items()]


EASIER = {
    10.0: [0.94 + s for s in EASY] + [1.0, 1.0],
    11.0: [0.86 + s for s in EASY] + [1.0, 1.0],
    12.0: [0.80, 0.80, 0.84, 0.84],
}
"""More than 11 on four seeds, since the last two are easy; the middle of 10 and 11 on the first two."""


def test_who_bears_more_on_easier_streams_alone_is_not_first() -> None:
    """By the loads that each found, `spill` would be, with 11.3 against 10.6."""
    of = plan({"spill": found(11.0, 12.0, EASIER), "steady": crossing(10.6), "slow": crossing(8.0)})
    assert of[0].load == pytest.approx(11 * (12 / 11) ** (3 / 11))
    assert [one.name for one in best_first(of)] == ["steady", "spill", "slow"]
    shown = plan_ratios.of_first(of)
    assert shown["spill"].startswith("0.989 (")
    assert shown["slow"] == "0.755 (0.755 to 0.755)"
    assert planned.sentence(of).endswith(
        "steady bears 1.32 (1.32 to 1.32) times as much as slow. spill cannot be told apart from steady."
    )
    (said,) = [one for one in planned.warnings(of) if "request streams" in one]
    assert said == (
        "contenders have 2 to 4 request streams: loads are over all that each has, ratios and the order over those "
        "that two have in common"
    )
    assert not plan_ratios.different_streams(of[1:])


def test_all_who_cannot_be_told_apart_from_the_first_are_counted() -> None:
    """It named two, and the others were taken for beaten."""
    wide = {f"r{i}": found(10.0, 11.0, {10.0: [0.97, 0.91 - i / 1000], 11.0: [0.87, 0.81]}) for i in range(6)}
    assert planned.sentence(plan(wide)).endswith("r1, r2, r3 and 2 more cannot be told apart from r0.")


def test_what_is_not_known_is_said() -> None:
    of = plan({"hard": found(10.0, 11.0, {10.0: HARD[10.0], 11.0: HARD[11.0]}), "slow": crossing(8.0)})
    assert plan_ratios.of_first(of) == {"slow": "not known"}
    assert planned.sentence(of).endswith(
        "how slow compares with hard is not known: the streams that both have crossed the target at no loads that were "
        "tried."
    )


def test_a_circle_has_a_first_too() -> None:
    """On two seeds c bears more than a, and a more than b; on three b more than c."""

    def of(two: float, three: float, seeds: int) -> Answer:
        """Straight in the logarithm; the first two seeds cross at `two`, the first three on average at `three`."""
        each = [two, two, three**3 / two**2, three][:seeds]
        shares = {size: [0.9 - 0.1 * math.log(size / at) for at in each] for size in (5.0, 20.0)}
        return found(5.0, 20.0, shares)

    made = plan({"a": of(11.0, 11.0, 2), "b": of(10.0, 11.5, 3), "c": of(12.0, 10.5, 4)})
    a, b, c = made
    pairs = [ratio_of(*two) for two in ((c, a), (a, b), (b, c))]
    assert [round(one.times, 3) for one in pairs if one] == [1.091, 1.1, 1.095]
    order = [one.name for one in best_first(made)]
    assert sorted(order) == ["a", "b", "c"]
    assert best_first(made[::-1])[0].name == order[0]
