"""The arrays that everything is made of."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int32]
Longs = npt.NDArray[np.int64]


def records(rows: int, dtype: np.dtype[Any]) -> Any:
    """Zeroed records: `rows[i].field`, `rows.field`."""
    return np.zeros(rows, dtype).view(np.recarray)
