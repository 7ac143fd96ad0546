"""Routing as recorded."""

from __future__ import annotations

import hashlib
import io
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from prebleexp.errors import InvalidInput, unreadable
from prebleexp.policies.base import HOLD, Policy
from prebleexp.policies.candidates import is_candidate
from prebleexp.sim.records import View
from prebleexp.sim.types import Longs, Setup


@dataclass(frozen=True)
class Replay(Policy):
    """Request i goes to the i-th GPU of a file: column `gpu` of an .npz recording or of a run's requests as Parquet.
    While that GPU is known to be lost, or drained, it waits.

    Raises InvalidInput, naming the file, if it cannot be read, has no such column, or is too short for the workload.
    """

    path: str | None = None
    """relative to the current folder"""

    reads_lengths: ClassVar[bool] = False

    def __post_init__(self) -> None:
        if not isinstance(self.path, str) or not self.path:
            raise InvalidInput(
                f"policy.path={self.path} is not valid; replay needs policy.path=FILE (.npz or .parquet)"
            )

    def identity(self) -> dict[str, object]:
        """The file's contents stand for it."""
        return {"sha256": hashlib.sha256(self._bytes()).hexdigest()}

    def start(self, setup: Setup) -> Longs:
        assignments = self.assignments()
        if len(assignments) < setup.requests:
            raise InvalidInput(
                f"{self.path}: column gpu has {len(assignments)} rows; the workload has {setup.requests}"
            )
        return assignments

    def cannot_be_hosted(self) -> str:
        return "it says where the requests of one run went, and others come"

    def route(self, mine: Any, view: View, request: int, now: float) -> int:
        gpu = mine[request]
        if 0 <= gpu < len(view.sent) and not is_candidate(view.candidates, gpu):
            return HOLD
        return gpu

    def assignments(self) -> Longs:
        """(n,) GPUs; -1 where the recording ended before the request was sent."""
        data = self._bytes()
        try:
            column = _npz_column(data) if data[:2] == b"PK" else _parquet_column(data)
        except KeyError:
            raise InvalidInput(f"{self.path}: there is no column gpu") from None
        except (OSError, ValueError, zipfile.BadZipFile) as error:
            raise InvalidInput(
                f"{self.path}: not a readable .npz or .parquet file: {str(error).splitlines()[0]}"
            ) from None
        if column.ndim != 1 or not np.issubdtype(column.dtype, np.integer):
            raise InvalidInput(
                f"{self.path}: column gpu is {column.dtype} of {column.ndim} dimensions; it must be 1 of integers"
            )
        return np.asarray(column, np.int64)

    def _bytes(self) -> bytes:
        try:
            return Path(str(self.path)).read_bytes()
        except OSError as error:
            raise unreadable(f"policy.path={self.path}", self.path, error) from None


def _npz_column(data: bytes) -> Any:
    with np.load(io.BytesIO(data), allow_pickle=False) as arrays:
        return arrays["gpu"]


def _parquet_column(data: bytes) -> Any:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        return pq.read_table(pa.BufferReader(data)).column("gpu").to_numpy()
    except pa.ArrowInvalid as error:
        raise ValueError(str(error)) from None
