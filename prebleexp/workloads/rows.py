"""The rows of a file as columns, from JSON lines, CSV or Parquet; what is not valid is named with its row."""

from __future__ import annotations

import io
import json
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import Any, cast

import numpy as np
import numpy.typing as npt

from prebleexp.checks import is_integer, is_number
from prebleexp.errors import InvalidInput
from prebleexp.sim.types import Floats, Longs
from prebleexp.workloads import files

MOST = 2**31 - 1
"""what a column of a workload holds"""
ZONE = r"(Z|[+-]\d\d:?\d\d)$"
"""how a time ends that has a time zone"""
Mask = npt.NDArray[np.bool_]


class Rows(ABC):
    """n rows. A row's number, in errors, is its line from 1 on; in a Parquet file its place from 1 on.

    All that is asked for raises InvalidInput, naming file, row and column, where values are not valid.
    """

    def __init__(self, path: str, count: int) -> None:
        self.path, self.count = path, count
        if not count:
            raise InvalidInput(f"{path}: there are no requests")

    def __len__(self) -> int:
        return self.count

    @abstractmethod
    def __contains__(self, name: object) -> bool:
        """Whether any row has it."""

    @abstractmethod
    def number(self, row: int) -> int:
        """What a row, from 0 on, is called."""

    @abstractmethod
    def values(self, name: str) -> Sequence[Any]:
        """The column as Python's objects, None where it is missing."""

    def integers(self, name: str, least: int = 0, most: int = MOST) -> Longs:
        """(n,) from `least` to `most`."""
        valid = f"an integer from {least} to {most}"
        column = self._array(name, np.int64, lambda value: is_integer(value, least, most), valid)
        self.refuse(name, (column < least) | (column > most), valid)
        return cast("Longs", column)

    def numbers(self, name: str, least: float = -math.inf, unit: str = "") -> Floats:
        """(n,) finite."""
        valid = f"a number{f' of {unit}' if unit else ''}{f' >= {least:g}' if least > -math.inf else ''}"
        column = self._array(name, np.float64, lambda value: is_number(value) and value >= least, valid)
        self.refuse(name, ~(np.isfinite(column) & (column >= least)), valid)
        return cast("Floats", column)

    def lists(self, name: str, valid: str) -> tuple[Longs, Longs]:
        """Of integers from 0 on: offsets, (n + 1,), and the elements of all of them."""
        offsets = np.zeros(len(self) + 1, np.int64)
        flat: list[int] = []
        for row, value in enumerate(self.values(name)):
            one: Any = parsed(value) if isinstance(value, str) else value
            fits = isinstance(one, list) and not set(map(type, one)) - {int}
            if not (fits and min(one, default=0) >= 0 and max(one, default=0) < 2**63):
                raise self.wrong(row, f"{name} is not valid; it must be {valid}")
            offsets[row + 1] = len(one)
            flat += one
        return np.cumsum(offsets), np.array(flat, np.int64)

    def texts(self, name: str) -> Sequence[str]:
        """(n,)."""
        column = self.values(name)
        for row, value in enumerate(column):
            if not isinstance(value, str):
                raise self.invalid(row, name, value, "a text")
        return column

    def codes(self, name: str) -> Longs:
        """(n,) integers from 0 on, equal where values are; −1 where there is none."""
        import pandas as pd

        found = pd.factorize(pd.Series(self.values(name)).replace("", None))[0]
        return cast("Longs", found.astype(np.int64))

    def seconds(self, name: str) -> Floats:
        """(n,) from the first row on: of numbers, which are seconds, or of dates with times. All of them, or none, have
        a time zone."""
        column = self.values(name)
        if not isinstance(next((one for one in column if one is not None), None), str):
            found = self.numbers(name, unit="seconds, or a date and time")
            return cast("Floats", found - found[0])
        import pandas as pd

        texts = pd.Series(self.texts(name), dtype=str)
        times = pd.to_datetime(texts, format="ISO8601", utc=True, errors="coerce")
        self.refuse(name, times.isna().to_numpy(), "a date and time, as 2024-05-10 00:00:01.25+00:00")
        zoned = texts.str.contains(ZONE.replace("(", "(?:", 1), regex=True).to_numpy(dtype=bool)
        says = "with a time zone, as that of the first row" if zoned[0] else "without a time zone, as the first row's"
        self.refuse(name, zoned != zoned[0], f"a time {says}")
        return since_first(times.to_numpy("datetime64[ns]"))

    def in_order(self, name: str, column: Floats) -> Floats:
        """The column, which must never decrease."""
        wrong = np.flatnonzero(np.diff(column) < 0)
        if len(wrong):
            row = int(wrong[0]) + 1
            before, value = self.shown(name, row - 1), self.shown(name, row)
            raise self.wrong(row, f"{name}={value} is not valid; it must be >= {before}, that of the row before it")
        return column

    def refuse(self, name: str, wrong: Mask, valid: str) -> None:
        """Raises InvalidInput, which names the first row that is wrong, if any is."""
        if wrong.any():
            row = int(np.argmax(wrong))
            raise self.wrong(row, f"{name}={self.shown(name, row)} is not valid; it must be {valid}")

    def invalid(self, row: int, name: str, value: object, valid: str) -> InvalidInput:
        if value is None:
            return self.wrong(row, f"there is no field {name}; it must be {valid}")
        return self.wrong(row, f"{name}={value!r} is not valid; it must be {valid}")

    def wrong(self, row: int, what: str) -> InvalidInput:
        """What to raise of a row, from 0 on."""
        return InvalidInput(f"{self.path}: row {self.number(row)}: {what}")

    def shown(self, name: str, row: int) -> object:
        """A value, as it is said in an error."""
        return repr(self.values(name)[row])

    def _array(self, name: str, kind: type[Any], fits: Callable[[Any], bool], valid: str) -> npt.NDArray[Any]:
        values = self.values(name)
        types = set(map(type, values))
        if types == {int} or (types <= {int, float} and kind is np.float64):
            try:
                return np.array(values, kind)
            except OverflowError:
                pass  # the row is named below
        row = next(row for row, value in enumerate(values) if not fits(value))
        raise self.invalid(row, name, values[row], valid)


class Records(Rows):
    """JSON lines, an object each."""

    def __init__(self, path: str, records: Sequence[Mapping[str, Any]], lines: Sequence[int]) -> None:
        super().__init__(path, len(records))
        self.records, self.lines = records, lines

    @classmethod
    def parsed(cls, path: str, data: bytes) -> Records:
        lines = [(number, line) for number, line in enumerate(data.splitlines(), start=1) if line.strip()]
        return cls(path, [_record(path, *one) for one in lines], [number for number, _ in lines])

    def __contains__(self, name: object) -> bool:
        return any(name in one for one in self.records)

    def number(self, row: int) -> int:
        return self.lines[row]

    def values(self, name: str) -> Sequence[Any]:
        column = [one.get(name) for one in self.records]
        missing = next((row for row, one in enumerate(self.records) if column[row] is None and name not in one), None)
        if missing is not None:
            raise self.wrong(missing, f"there is no field {name}")
        return column


class Table(Rows):
    """Arrow's columns."""

    def __init__(self, path: str, table: Any, lines: Callable[[], Sequence[int]] | None = None) -> None:
        self.table, self._lines = table, lines
        super().__init__(path, table.num_rows)

    def __contains__(self, name: object) -> bool:
        return name in self.table.column_names

    def number(self, row: int) -> int:
        return row + 1 if self._lines is None else self._lines()[row]

    def column(self, name: str) -> Any:
        names = self.table.column_names
        if (count := names.count(name)) != 1:
            there = f"there are {count} columns {name}" if count else f"there is no column {name}"
            raise InvalidInput(f"{self.path}: {there}; it has {', '.join(names)}")
        return self.table.column(name)

    def values(self, name: str) -> Sequence[Any]:
        return cast("Sequence[Any]", self.column(name).to_pylist())

    def shown(self, name: str, row: int) -> object:
        value = self.column(name)[row].as_py()
        return "nothing" if value is None else value

    def invalid(self, row: int, name: str, value: object, valid: str) -> InvalidInput:
        return self.wrong(row, f"{name}={'nothing' if value is None else value} is not valid; it must be {valid}")

    def seconds(self, name: str) -> Floats:
        import pyarrow as pa

        column = self.column(name)
        self.refuse(name, column.is_null().to_numpy(), "a number of seconds, or a date and time")
        if not pa.types.is_timestamp(column.type):
            return super().seconds(name)
        return since_first(column.cast(pa.timestamp("ns", column.type.tz)).cast(pa.int64()).to_numpy().view("M8[ns]"))

    def _array(self, name: str, kind: type[Any], fits: Callable[[Any], bool], valid: str) -> npt.NDArray[Any]:
        import pyarrow as pa

        column = self.column(name)
        exact = pa.types.is_integer(column.type) and not pa.types.is_uint64(column.type)
        if not column.null_count and (exact or (kind is np.float64 and pa.types.is_floating(column.type))):
            return cast("npt.NDArray[Any]", column.to_numpy().astype(kind))
        values = [_number(one) for one in column.to_pylist()]
        wrong = next((row for row, value in enumerate(values) if not fits(value)), None)
        if wrong is not None:
            raise self.invalid(wrong, name, column[wrong].as_py(), valid)
        return np.array(values, kind)


class Csv(Table):
    """With a header."""

    def __init__(self, path: str, data: bytes) -> None:
        self.data = data
        super().__init__(path, _csv(path, data), lambda: self._numbers)

    @cached_property
    def _numbers(self) -> Sequence[int]:
        lines = [number for number, line in enumerate(io.BytesIO(self.data), start=1) if line.strip()]
        return lines[1:]


def rows_of(path: str | None) -> Rows:
    """Those of a file, plain, gzipped or packed with Zstandard; its format is told from its first bytes.

    Raises InvalidInput, naming the file, if it cannot be read, is damaged or holds no rows.
    """
    name, data = str(path), files.unpacked(path)
    if data.startswith(b"PAR1"):
        return Table(name, _parquet(name, data))
    text = data.lstrip()
    return Records.parsed(name, data) if not text or text[:1] in b"{[" or not _is_text(text) else Csv(name, data)


def since_first(times: npt.NDArray[Any]) -> Floats:
    """(n,) seconds from the first element of times of whole nanoseconds."""
    return cast("Floats", (times - times[0]).astype(np.int64) / 1e9)


def _is_text(data: bytes) -> bool:
    """Whether its first line is one of a CSV file's."""
    try:
        return data.split(b"\n", 1)[0].decode().isprintable() or b"\r" in data[:4096]
    except UnicodeDecodeError:
        return False


def _record(path: str, number: int, line: bytes) -> dict[str, Any]:
    try:
        record = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise InvalidInput(f"{path}: row {number}: not valid JSON: {error}") from None
    if not isinstance(record, dict):
        raise InvalidInput(f"{path}: row {number}: not a JSON object")
    return record


def parsed(text: str) -> object:
    """What a cell holds that is JSON; None if it is not."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def _number(value: object) -> object:
    """Of a text what it says, if that is a number; whole numbers as integers, as which columns with gaps lose them."""
    try:
        found = float(value) if isinstance(value, str) else value
    except ValueError:
        return None
    return int(found) if isinstance(found, float) and found.is_integer() else found


def _csv(path: str, data: bytes) -> Any:
    """Typed columns; where a later row is not of the first rows' type, texts, so that it can be named."""
    import pyarrow as pa
    from pyarrow import csv

    def read(**options: Any) -> Any:
        reading = csv.ReadOptions(use_threads=False)
        return csv.read_csv(pa.BufferReader(data), read_options=reading, convert_options=csv.ConvertOptions(**options))

    try:
        return read()
    except pa.ArrowException as error:
        names = data.lstrip().split(b"\n", 1)[0].decode(errors="replace").strip().split(",")
        try:
            return read(column_types={name.strip('"'): pa.string() for name in names})
        except pa.ArrowException:
            raise InvalidInput(f"{path}: not a CSV file that can be read: {str(error).splitlines()[0]}") from None


def _parquet(path: str, data: bytes) -> Any:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        return pq.read_table(pa.BufferReader(data))
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise InvalidInput(f"{path}: not a Parquet file that can be read: {reason}") from None
