"""The arrays that everything is made of."""

from __future__ import annotations

import sys
from math import prod
from typing import Any

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int32]
Longs = npt.NDArray[np.int64]

PART = 1 << 15
"""bytes that are written or left alone together: some pages"""

LARGE = 1 << 30

NOT_RESERVED = 0x4000 if sys.platform == "linux" else None
"""MAP_NORESERVE, which Python names from 3.13 on: Linux refuses more than the machine has, unless it is told that most
will not be written"""


def records(rows: int, dtype: np.dtype[Any]) -> Any:
    """An array of records, all zero: `rows[i].field` is one value, `rows.field` a column."""
    return np.zeros(rows, dtype).view(np.recarray)


def unset(shape: int | tuple[int, ...], dtype: np.dtype[Any]) -> Any:
    """Records that are written before they are read: to zero so many takes as long as a tenth of a short run. How many
    there can be may be far above how many there are, so from 1 GiB on no more memory is asked for than is written."""
    size = prod(shape if isinstance(shape, tuple) else (shape,)) * dtype.itemsize
    if size < LARGE or NOT_RESERVED is None:
        return np.empty(shape, dtype).view(np.recarray)
    import mmap

    memory = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | NOT_RESERVED)
    return np.frombuffer(memory, dtype).reshape(shape).view(np.recarray)


def ragged(offsets: Longs, rows: Longs) -> tuple[Longs, Longs]:
    """Some rows of a ragged array, of which row i is from `offsets[i]` to `offsets[i + 1]`: (rows + 1,) the offsets of
    these, one after the other, and which elements they have."""
    counts = np.diff(offsets)[rows]
    into = np.concatenate([[0], np.cumsum(counts)])
    return into, np.arange(into[-1]) + np.repeat(offsets[rows] - into[:-1], counts)


def copy_written(into: Any, column: Any) -> None:
    """Copy a column to the beginning of a longer one that is all zeros. What is zeros is not written there: so pages
    that nobody has written to yet still take no memory."""
    to, given = (one.view(np.ndarray).view(np.uint8) for one in (into, column))
    for start in range(0, len(given), PART):
        part = given[start : start + PART]
        if part.any():
            to[start : start + len(part)] = part


def move_up(column: Any, rows: int) -> None:
    """Move all but the last so many rows of a column to its end, in place; what stays where they were is left over.
    Zeros are not written where there are some."""
    whole = column.view(np.ndarray).view(np.uint8)
    shift = rows * column.itemsize
    end = len(whole) - shift
    while end > 0:
        start = max(0, end - PART)
        part, to = whole[start:end], whole[start + shift : end + shift]
        if part.any() or to.any():
            to[:] = part
        end = start
