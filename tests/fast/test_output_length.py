"""Output lengths: any discrete distribution, drawn by quantiles."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from prebleexp.errors import InvalidInput
from prebleexp.workloads.output_length import OutputLength

WEIGHTS = st.lists(st.tuples(st.integers(1, 2000), st.integers(0, 50)), min_size=1, max_size=6).filter(
    lambda pairs: sum(weight for _, weight in pairs) > 0
)


def distribution(pairs: list[tuple[int, int]]) -> OutputLength:
    total = sum(weight for _, weight in pairs)
    return OutputLength([length for length, _ in pairs], [weight / total for _, weight in pairs])  # type: ignore[arg-type]


def test_mean_and_variance_of_the_papers_mix() -> None:
    mix = OutputLength((1, 300), (0.5, 0.5))
    assert mix.mean == 150.5
    assert mix.variance == 149.5**2


def test_a_constant_has_no_variance() -> None:
    constant = OutputLength((150,), (1.0,))
    assert (constant.mean, constant.variance) == (150, 0)
    assert set(constant.draw(100, np.random.default_rng(0))) == {150}


@given(WEIGHTS, st.integers(0, 2**32))
def test_draws_are_int32_lengths_of_positive_probability(pairs: list[tuple[int, int]], seed: int) -> None:
    drawn = distribution(pairs).draw(50, np.random.default_rng(seed))
    assert drawn.dtype == np.int32
    assert drawn.shape == (50,)
    assert set(drawn.tolist()) <= {length for length, weight in pairs if weight}


@given(WEIGHTS)
def test_the_order_of_lengths_does_not_matter(pairs: list[tuple[int, int]]) -> None:
    forwards = distribution(pairs).draw(20, np.random.default_rng(7))
    backwards = distribution(pairs[::-1]).draw(20, np.random.default_rng(7))
    assert np.mean(forwards == backwards) > 0.9  # all but a draw within rounding of a step


@given(WEIGHTS, WEIGHTS)
def test_equal_generators_draw_equal_quantiles_of_different_distributions(
    one: list[tuple[int, int]], other: list[tuple[int, int]]
) -> None:
    first = distribution(one).draw(50, np.random.default_rng(3))
    second = distribution(other).draw(50, np.random.default_rng(3))
    order = np.lexsort((second, first))
    assert np.all(np.diff(first[order]) >= 0)
    assert np.all(np.diff(second[order]) >= 0)


def test_frequencies_agree_with_probabilities() -> None:
    n = 100_000
    drawn = OutputLength((1, 150, 300), (0.25, 0.5, 0.25)).draw(n, np.random.default_rng(0))
    for length, probability in ((1, 0.25), (150, 0.5), (300, 0.25)):
        assert np.mean(drawn == length) == pytest.approx(probability, abs=4 * np.sqrt(0.25 / n))


def test_decimal_fractions_sum_to_one() -> None:
    assert OutputLength(tuple(range(1, 11)), (0.1,) * 10).mean == pytest.approx(5.5)


def test_lists_become_tuples_so_that_it_can_be_a_key() -> None:
    made: Any = OutputLength([1, 2], [0.5, 0.5])  # type: ignore[arg-type]
    assert made.lengths == (1, 2)
    assert hash(made) == hash(OutputLength((1, 2), (0.5, 0.5)))


@pytest.mark.parametrize(
    ("lengths", "probabilities", "message"),
    [
        ([], [], "output_length.lengths=[] is not valid; it must be a list of numbers"),
        (5, [1], "output_length.lengths=5 is not valid; it must be a list of numbers"),
        ("12", [1], "output_length.lengths=12 is not valid; it must be a list of numbers"),
        ([1], [], "output_length.probabilities=[] is not valid; it must be a list of numbers"),
        ([1, 2], [1], "output_length has 2 lengths and 1 probabilities; there must be one for each"),
        ([0], [1], "output_length.lengths: 0 is not valid; it must be a whole number from 1 to 2147483647"),
        (
            [1, 1.5],
            [0.5, 0.5],
            "output_length.lengths: 1.5 is not valid; it must be a whole number from 1 to 2147483647",
        ),
        ([True], [1], "output_length.lengths: True is not valid; it must be a whole number from 1 to 2147483647"),
        (
            [2**31],
            [1],
            "output_length.lengths: 2147483648 is not valid; it must be a whole number from 1 to 2147483647",
        ),
        ([1, 2], [1.5, -0.5], "output_length.probabilities: 1.5 is not valid; it must be a number from 0 to 1"),
        ([1, 2], [0.5, -0.5], "output_length.probabilities: -0.5 is not valid; it must be a number from 0 to 1"),
        ([1], [float("nan")], "output_length.probabilities: nan is not valid; it must be a number from 0 to 1"),
        ([1], [10**400], f"output_length.probabilities: {10**400} is not valid; it must be a number from 0 to 1"),
        ([1], ["1"], "output_length.probabilities: 1 is not valid; it must be a number from 0 to 1"),
        ([1, 2], [0.5, 0.4], "output_length.probabilities sum to 0.9; they must sum to 1"),
        ([1], [1 - 2e-9], "output_length.probabilities sum to 0.999999998; they must sum to 1"),
    ],
)
def test_what_is_no_distribution_is_refused_in_one_line(lengths: Any, probabilities: Any, message: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        OutputLength(lengths, probabilities)
    assert str(caught.value) == message
