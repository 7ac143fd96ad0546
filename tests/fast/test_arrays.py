"""Arrays that outgrow their room."""

from __future__ import annotations

import sys

import numpy as np
import pytest

from prebleexp.sim.arrays import PART, copy_written, move_up, records, unset

ROW = np.dtype([("one", np.int64), ("other", np.int32)], align=True)


@pytest.mark.uncompiled
def test_records_are_those_of_numpy_where_nothing_is_compiled() -> None:
    """There the tests have fields that are found sooner (`tests.support.quick_records`)."""
    rows = records(2, np.dtype([("count", np.int64), ("share", np.float64), ("free", np.int32, (3,)), ("of", ROW)]))
    row = rows[1]
    row.count, row.share, row.of.other = 3, 0.5, 4
    row.free[2] = 5
    assert rows.count.tolist() == [0, 3]
    assert rows[1].free.tolist() == [0, 0, 5]
    assert (row.share, row.of.other, rows[1:][0].count, rows["count"][1]) == (0.5, 4, 3, 3)
    assert row.dtype == rows.dtype
    assert not hasattr(row, "other")
    with pytest.raises((AttributeError, ValueError), match="other"):
        row.other = 1


@pytest.mark.parametrize("kind", [np.dtype(np.int32), np.dtype(np.float64), ROW])
@pytest.mark.parametrize("rows", [0, 1, PART // 16, 3 * PART + 7])
def test_what_is_copied_but_for_zeros_is_the_same(kind: np.dtype[np.void], rows: int) -> None:
    """Some parts are zeros, some are not, and one ends behind the last of them."""
    column = records(rows, kind) if kind.names else np.zeros(rows, kind)
    rng = np.random.default_rng(rows)
    for row in rng.integers(0, rows, min(rows, 3)):
        column[row : row + 2] = np.ones(1, kind)[0]
    longer = records(rows + 5, kind) if kind.names else np.zeros(rows + 5, kind)
    copy_written(longer, column)
    np.testing.assert_array_equal(longer[:rows], column)
    assert not longer[rows:].view(np.ndarray).view(np.uint8).any()


@pytest.mark.parametrize("kind", [np.dtype(np.int32), np.dtype(np.float64), ROW])
@pytest.mark.parametrize("rows", [1, 3, PART // 16 + 1, 3 * PART + 7])
@pytest.mark.parametrize("up", [0, 1, PART // 8, 5 * PART])
def test_what_moves_up_is_the_same_and_behind_is_nothing_else(kind: np.dtype[np.void], rows: int, up: int) -> None:
    """By less than a part and by more, with zeros where there were none, and the other way round."""
    column = records(rows + up, kind) if kind.names else np.zeros(rows + up, kind)
    rng = np.random.default_rng(rows)
    for row in rng.integers(0, rows + up, 5):
        column[row : row + 2] = np.ones(1, kind)[0]
    before = column.copy()
    move_up(column, up)
    np.testing.assert_array_equal(column[up:], before[:rows])
    still = min(rows, up)
    np.testing.assert_array_equal(column[:still], before[:still])


@pytest.mark.skipif(sys.platform != "linux", reason="other systems do not refuse it")
def test_what_is_not_written_takes_no_memory() -> None:
    """A terabyte of records for clusters of thousands of GPUs, where the machine has a hundredth of that."""
    rows = unset(1 << 37, np.dtype([("value", np.int64)]))
    rows[0].value, rows[-1].value = 1, 2
    assert (rows[0].value, rows[-1].value, rows.nbytes) == (1, 2, 1 << 40)
