"""What recordings are made of, and how they are read and written."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

Columns = dict[str, npt.NDArray[Any]]


def load(path: Path) -> tuple[dict[str, Any], Columns]:
    with np.load(path, allow_pickle=False) as arrays:
        columns = dict(arrays)
    return json.loads(str(columns.pop("config"))), columns


def save(path: Path, config: dict[str, Any], columns: Columns) -> None:
    np.savez_compressed(path, config=np.array(json.dumps(config)), **columns)
