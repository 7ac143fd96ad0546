"""Whether two outcomes are the same."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import fields

import numpy as np

from prebleexp.sim.types import Outcome


def assert_same(made: Outcome, other: Outcome, *, but: Iterable[str] = ()) -> None:
    """To the byte."""
    _equal(made, other, [one.name for one in fields(Outcome) if one.name not in but])


def assert_alike(made: Outcome, other: Outcome) -> None:
    """As two ways through the simulator have to be: the sum of gaps between tokens is of the same numbers, perhaps in
    another order."""
    assert_same(made, other, but=["gaps_sum_s"])
    np.testing.assert_allclose(made.gaps_sum_s, other.gaps_sum_s, rtol=1e-12, err_msg="gaps_sum_s")


def assert_of_oracle(made: Outcome, expected: Outcome) -> None:
    """Oracles count no gaps between tokens: `tests.support.streams` does."""
    _equal(made, expected, [one.name for one in fields(Outcome) if not one.name.startswith("gaps_")])


def _equal(made: Outcome, other: Outcome, names: Iterable[str]) -> None:
    for name in names:
        np.testing.assert_array_equal(getattr(made, name), getattr(other, name), err_msg=name, strict=True)
