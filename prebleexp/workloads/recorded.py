"""Requests as recorded in a file."""

from __future__ import annotations

import hashlib
import io
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from prebleexp.errors import InvalidInput, PrebleexpError, unreadable
from prebleexp.sim.types import COLUMNS, LINKS, OPTIONAL, Workload
from prebleexp.workloads.base import WorkloadSource
from prebleexp.workloads.output_length import OutputLength

FLOATS = ("arrival_s", *(name for name, absent in OPTIONAL.items() if isinstance(absent, float)))
KINDS: dict[str, type[Any]] = {"segment_offsets": np.int64, "after_offsets": np.int64} | dict.fromkeys(
    FLOATS, np.float64
)
"""of the others: int32"""
LISTS = ("segment_ids", "segment_tokens")
AFTER = "after"
"""in a Parquet file, the list of those that a request comes after"""


@dataclass(frozen=True)
class Recorded(WorkloadSource):
    """All requests of a file, in its order; its format is told from its first bytes.

    An .npz file has the arrays of a `Workload` under their names. A Parquet file has one row a request: arrival_s
    (float), prompt_tokens, output_tokens, max_new_tokens, prefix_group (integers), and segment_ids and segment_tokens
    as lists of integers of equal length; it has no segment_offsets. A file may have the further columns of a
    `Workload` too (session, turn, delay_s, …), and who comes after whom: in Parquet as lists of row numbers, `after`.
    `save` writes such a file. Other columns are ignored.

    Raises InvalidInput, naming the file and, if it can be read, the column and the row that are not valid.
    """

    path: str | None = None
    """relative to the current folder"""

    synthetic: ClassVar[bool] = False

    def __post_init__(self) -> None:
        if not isinstance(self.path, str) or not self.path:
            raise InvalidInput(
                f"workload.path={self.path} is not valid; recorded needs workload.path=FILE (.npz or .parquet)"
            )

    def identity(self) -> dict[str, object]:
        """The file's contents stand for it."""
        return {"sha256": hashlib.sha256(self._bytes()).hexdigest()}

    def draw(self, *, rps: float, duration_s: float, seed: int, output_length: OutputLength) -> Workload:
        """The recording; the arguments do not matter."""
        data = self._bytes()
        try:
            if data[:2] == b"PK":
                columns = _from_npz(data)
            elif data[:4] == b"PAR1":
                columns = _from_parquet(data)
            else:
                raise InvalidInput("neither an .npz nor a Parquet file")
            workload = Workload(**{name: _cast(name, column) for name, column in columns.items()})
        except InvalidInput as error:
            raise InvalidInput(f"{self.path}: {error}") from None
        if not len(workload):
            raise InvalidInput(f"{self.path}: there are no requests")
        return workload

    def _bytes(self) -> bytes:
        try:
            return Path(str(self.path)).read_bytes()
        except (OSError, ValueError) as error:
            raise unreadable(f"workload.path={self.path}", self.path, error) from None


def save(workload: Workload, path: str | Path) -> None:
    """Writes a Parquet file that `Recorded` reads, of all but predictions.

    Raises PrebleexpError, naming the file, if it cannot be written."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    offsets = pa.array(workload.segment_offsets)
    columns = {name: pa.array(getattr(workload, name)) for name in COLUMNS if name not in (*LISTS, "segment_offsets")}
    for name in LISTS:
        columns[name] = pa.LargeListArray.from_arrays(offsets, pa.array(getattr(workload, name)))
    for name, absent in OPTIONAL.items():
        if not np.array_equal(getattr(workload, name), np.full(len(workload), absent), equal_nan=name in FLOATS):
            columns[name] = pa.array(getattr(workload, name))
    if len(workload.after_ids):
        columns[AFTER] = pa.LargeListArray.from_arrays(pa.array(workload.after_offsets), pa.array(workload.after_ids))
    try:
        pq.write_table(pa.table(columns), path, compression="zstd")
    except OSError as error:
        raise PrebleexpError(f"{path} cannot be written: {error.strerror or str(error).splitlines()[0]}") from None


def _from_npz(data: bytes) -> Mapping[str, Any]:
    try:
        with np.load(io.BytesIO(data), allow_pickle=False) as arrays:
            _require(COLUMNS, arrays.files)
            if set(LINKS) & set(arrays.files):
                _require(LINKS, arrays.files)
            further = [name for name in (*OPTIONAL, *LINKS) if name in arrays.files]
            return {name: arrays[name] for name in (*COLUMNS, *further)}
    except InvalidInput:
        raise
    except Exception as error:  # zipfile, zlib and numpy raise some ten different kinds for damaged bytes
        raise _damaged("an .npz", error) from None


def _from_parquet(data: bytes) -> Mapping[str, Any]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    names = [name for name in COLUMNS if name != "segment_offsets"]
    try:
        file = pq.ParquetFile(pa.BufferReader(data))
        there = file.schema_arrow.names
        _require(names, there)
        further = [name for name in (*OPTIONAL, AFTER) if name in there]
        _require(further, there)
        table = file.read(columns=[*names, *further])
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
        raise _damaged("a Parquet", error) from None
    columns = {}
    for name in (*names, *further):
        column = table.column(name).combine_chunks()
        is_list = pa.types.is_list(column.type) or pa.types.is_large_list(column.type)
        if is_list != (name in (*LISTS, AFTER)):
            raise InvalidInput(f"column {name} is {column.type}; it must be {'numbers' if is_list else 'lists'}")
        _refuse_nulls(name, column)
        columns[name] = column
    sizes = [columns[name].value_lengths().to_numpy(zero_copy_only=False) for name in LISTS]
    if (unequal := np.flatnonzero(sizes[0] != sizes[1])).size:
        row = unequal[0]
        raise InvalidInput(
            f"column segment_tokens, row {row}: {sizes[1][row]} elements; segment_ids has {sizes[0][row]}"
        )
    counts = columns[AFTER].value_lengths().to_numpy(zero_copy_only=False) if AFTER in columns else None
    for name in {*LISTS, AFTER} & columns.keys():
        columns[name] = columns[name].flatten()
        _refuse_nulls(name, columns[name])
    if counts is not None:
        columns["after_ids"] = columns.pop(AFTER)
    arrays = {name: column.to_numpy(zero_copy_only=False) for name, column in columns.items()}
    offsets = {"segment_offsets": sizes[0]} | ({} if counts is None else {"after_offsets": counts})
    return arrays | {name: np.concatenate(([0], np.cumsum(each, dtype=np.int64))) for name, each in offsets.items()}


def _require(names: Iterable[str], there: list[str]) -> None:
    for name in names:
        if (count := there.count(name)) != 1:
            raise InvalidInput(f"there are {count} columns {name}" if count else f"there is no column {name}")


def _refuse_nulls(name: str, column: Any) -> None:
    if column.null_count:
        row = int(np.flatnonzero(column.is_null().to_numpy(zero_copy_only=False))[0])
        raise InvalidInput(f"column {name}, row {row}: null is not valid")


def _damaged(kind: str, error: Exception) -> InvalidInput:
    lines = str(error).splitlines()
    return InvalidInput(f"not {kind} file that can be read: {lines[0] if lines else type(error).__name__}")


def _cast(name: str, column: Any) -> Any:
    """As the type of the column of a `Workload`, every value unchanged."""
    kind = KINDS.get(name, np.int32)
    valid = "iu" if kind is not np.float64 else "iuf"
    if column.dtype.kind not in valid:
        raise InvalidInput(f"column {name} is {column.dtype}; it must be {'integers' if valid == 'iu' else 'numbers'}")
    if valid == "iu" and column.size:
        limits = np.iinfo(kind)
        if (outside := np.flatnonzero((column < limits.min) | (column > limits.max))).size:
            row = outside[0]
            raise InvalidInput(
                f"column {name}, row {row}: {column.flat[row]} is not valid; it must fit in {limits.bits} bits"
            )
    return column.astype(kind)
