"""Confidence intervals agree with the published tables of Student's distribution."""

from __future__ import annotations

import math
import statistics
import subprocess
import sys

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from prebleexp.intervals import mean_interval, t_quantile

# two-sided 95 % and 99 %: where there is a closed form, that; else from SciPy 1.14's stats.t.ppf
T_95 = {
    1: math.tan(0.475 * math.pi),
    2: 0.95 * math.sqrt(2 / (1 - 0.95**2)),
    3: 3.182446305,
    4: 2.776445105,
    5: 2.570581836,
    9: 2.262157163,
    10: 2.228138852,
    19: 2.093024054,
    29: 2.045229642,
    30: 2.042272456,
    99: 1.984216952,
    100: 1.983971519,
    1000: 1.962339081,
}


@pytest.mark.parametrize(("df", "t"), T_95.items())
def test_t_quantiles_are_those_of_the_tables(df: int, t: float) -> None:
    assert t_quantile(df) == pytest.approx(t, abs=1e-6)


@pytest.mark.parametrize(("df", "t"), {1: 63.656741162, 4: 4.604094871, 9: 3.249835544, 30: 2.749995654}.items())
def test_another_confidence_has_other_quantiles(df: int, t: float) -> None:
    assert t_quantile(df, 0.99) == pytest.approx(t, abs=1e-6)


def test_quantiles_fall_towards_those_of_the_normal_distribution() -> None:
    normal = statistics.NormalDist().inv_cdf(0.975)
    quantiles = [t_quantile(df) for df in range(1, 300)]
    assert quantiles == sorted(quantiles, reverse=True)
    assert normal < quantiles[-1] < normal + 0.01


def test_an_interval_by_hand() -> None:
    mean, half_width = mean_interval([1.0, 2.0, 3.0, 4.0, 5.0])
    assert mean == 3
    assert half_width == pytest.approx(2.776445105 * math.sqrt(2.5 / 5), abs=1e-6)


def test_one_value_has_no_interval_and_no_value_is_an_error() -> None:
    assert mean_interval([7.5]) == (7.5, None)
    with pytest.raises(ValueError, match="at least one value"):
        mean_interval([])


def test_equal_values_have_an_interval_of_width_zero() -> None:
    assert mean_interval([0.1] * 10) == (pytest.approx(0.1, rel=1e-15), pytest.approx(0, abs=1e-15))


samples = st.lists(st.floats(-1e6, 1e6), min_size=2, max_size=30)


@given(samples, st.randoms())
def test_the_order_of_the_replications_does_not_matter(values: list[float], random: object) -> None:
    shuffled = values.copy()
    random.shuffle(shuffled)  # type: ignore[attr-defined]
    assert mean_interval(shuffled) == mean_interval(values)


@given(samples, st.floats(0.001, 1000), st.floats(-1000, 1000))
def test_an_interval_scales_and_shifts_with_the_unit(values: list[float], scale: float, shift: float) -> None:
    assume(all(abs(value) > 1e-100 for value in values if value))  # squares of less are not numbers to 16 digits
    mean, half_width = mean_interval(values)
    scaled_mean, scaled_half_width = mean_interval([scale * value + shift for value in values])
    size = scale * max(map(abs, values)) + abs(shift) + 1e-300
    assert scaled_mean == pytest.approx(scale * mean + shift, abs=1e-12 * size)
    assert half_width is not None
    # rounding of the values themselves is multiplied by at most t(1) = 12.7
    assert scaled_half_width == pytest.approx(scale * half_width, abs=1e-12 * size, rel=1e-9)


def test_intervals_need_neither_scipy_nor_numpy() -> None:
    code = "import sys, prebleexp.intervals; sys.exit(bool({'scipy', 'numpy', 'pandas'} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
