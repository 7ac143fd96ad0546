"""The rows of a file as columns; what is not valid is named with its row."""

from __future__ import annotations

import json
import math
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import Any, cast

import numpy as np
import numpy.typing as npt

from prebleexp.checks import is_integer, is_number
from prebleexp.errors import InvalidInput
from prebleexp.sim.types import Floats, Longs

MOST = 2**31 - 1
"""what a column of a workload holds"""
ZONE = r"(?:[Zz]|GMT|UTC|[+-]\d\d:?\d\d|(?<=:\d\d)[+-]\d\d)$"
"""how a time ends that has a time zone"""
NOTHING = (None, "")
"""what stands where there is nothing"""
UNCOUNTED = (*NOTHING, "-")
"""… and where a proxy had no number to write"""
GROUPED = re.compile(r"-?\d{1,3}(\.\d{3})+")
"""a text that is twelve thousand in some countries, and twelve in others: 12.000"""
THOUSANDS = re.compile(r"[1-9]\d{0,2}([,'’ \u00a0\u202f])\d{3}(\1\d{3})*")
"""of a count, which has no decimals, what can be nothing else"""
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

    @property
    @abstractmethod
    def names(self) -> Sequence[str]:
        """The names of all columns, in the order of the file."""

    @abstractmethod
    def taken(self, rows: Longs) -> Rows:
        """These rows, numbers from 0 on, in this order."""

    def optional(self, name: str) -> Sequence[Any]:
        """The column, None also where a row lacks it."""
        return self.values(name)

    def keys(self, name: str) -> list[Any]:
        """The column, None where a row lacks it, as what can be looked up: lists as their texts."""
        return [repr(one) if isinstance(one, list | dict) else one for one in self.optional(name)]

    def timestamps(self, name: str) -> tuple[str | None, npt.NDArray[Any]] | None:
        """Of a column whose type is a time: its zone, and (n,) times in whole nanoseconds; None of another one."""
        return None

    def counts(self, name: str) -> Longs:
        """(n,) integers from 0 on, also of texts that are such; −1 where there is nothing."""
        valid = f"an integer from 0 to {MOST}"
        found = np.full(len(self), -1, np.int64)
        for row, value in enumerate(self.optional(name)):
            if value in UNCOUNTED or (isinstance(value, float) and math.isnan(value)):
                continue
            one = _count(value)
            if isinstance(one, float) and one.is_integer():
                one = int(one)
            if not is_integer(one, 0, MOST):
                raise self.invalid(row, name, value, valid)
            found[row] = one
        return found

    def exact_numbers(self, name: str, valid: str) -> npt.NDArray[Any]:
        """(n,) of integers, if all are; else of finite floating-point numbers. Texts may say them."""
        given = self.values(name)
        texts = isinstance(given[0], str)
        values = [_number(one) if isinstance(one, str) == texts else one for one in given]
        for row, value in enumerate(values):
            if not is_number(value) or abs(value) >= 2**63:
                raise self.invalid(row, name, given[row], valid)
        return np.array(values, np.int64 if set(map(type, values)) == {int} else np.float64)

    def integers(self, name: str, least: int = 0, most: int = MOST) -> Longs:
        """(n,) integers from `least` to `most`. Raises InvalidInput, naming the row, for what is none."""
        valid = f"an integer from {least} to {most}"
        column = self._array(name, np.int64, lambda value: is_integer(value, least, most), valid)
        self.refuse(name, (column < least) | (column > most), valid)
        return cast("Longs", column)

    def numbers(self, name: str, least: float = -math.inf, unit: str = "") -> Floats:
        """(n,) the numbers of a column, all finite."""
        valid = f"a number{f' of {unit}' if unit else ''}{f' >= {least:g}' if least > -math.inf else ''}"
        column = self._array(name, np.float64, lambda value: is_number(value) and value >= least, valid)
        self.refuse(name, ~(np.isfinite(column) & (column >= least)), valid)
        return cast("Floats", column)

    def lists(self, name: str, valid: str) -> tuple[Longs, Longs]:
        """Of integers or texts: offsets, (n + 1,), and of all elements numbers from 0 on, equal where these are.

        A row that has none has an empty list.
        """
        offsets = np.zeros(len(self) + 1, np.int64)
        flat: list[Any] = []
        for row, value in enumerate(self.optional(name)):
            one: Any = parsed(value) if isinstance(value, str) and value else value
            one = [] if one in NOTHING else one.tolist() if isinstance(one, np.ndarray) else one
            if not isinstance(one, list) or len(kinds := set(map(type, one))) > 1 or kinds - {int, str}:
                raise self.wrong(row, f"{name} is not valid; it must be {valid}")
            offsets[row + 1] = len(one)
            flat += one
        number: dict[Any, int] = {}
        return np.cumsum(offsets), np.array([number.setdefault(one, len(number)) for one in flat], np.int64)

    def texts(self, name: str) -> Sequence[str]:
        """(n,) the texts of a column. Raises InvalidInput, naming the row, for what is no text."""
        column = self.values(name)
        for row, value in enumerate(column):
            if not isinstance(value, str):
                raise self.invalid(row, name, value, "a text")
        return column

    def codes(self, name: str) -> Longs:
        """(n,) integers from 0 on, equal where values are; −1 where there is none, or the - of a proxy."""
        import pandas as pd

        found = pd.factorize(pd.Series(self.keys(name), dtype=object).replace(["", "-"], None))[0]
        return cast("Longs", found.astype(np.int64))

    def left_out(self, where: Mask, why: str) -> tuple[str, ...]:
        """What is said of rows that are left out, if there are any."""
        rows = np.flatnonzero(where)
        if not len(rows):
            return ()
        return (f"{len(rows):,} of {len(self):,} rows, {why} (the first is row {self.number(int(rows[0]))})",)

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
    """JSON objects: a line each, or the elements of an array."""

    def __init__(self, path: str, records: Sequence[Mapping[str, Any]], lines: Sequence[int]) -> None:
        super().__init__(path, len(records))
        self.records, self.lines = records, lines

    def __contains__(self, name: object) -> bool:
        return any(name in one for one in self.records)

    @cached_property
    def names(self) -> Sequence[str]:
        return list(dict.fromkeys(name for one in self.records for name in one))

    def number(self, row: int) -> int:
        return self.lines[row]

    def taken(self, rows: Longs) -> Records:
        order = rows.tolist()
        return Records(self.path, [self.records[row] for row in order], [self.lines[row] for row in order])

    def optional(self, name: str) -> Sequence[Any]:
        return [one.get(name) for one in self.records]

    def values(self, name: str) -> Sequence[Any]:
        column = [one.get(name) for one in self.records]
        missing = next((row for row, one in enumerate(self.records) if column[row] is None and name not in one), None)
        if missing is not None:
            raise self.wrong(missing, f"there is no field {name}; it must be in every row that is a request")
        return column


class Table(Rows):
    """Rows of a Parquet or CSV file, read as an Arrow table."""

    def __init__(self, path: str, table: Any, lines: Callable[[], Sequence[int]] | None = None) -> None:
        self.table, self._lines = table, lines
        super().__init__(path, table.num_rows)

    def __contains__(self, name: object) -> bool:
        return name in self.table.column_names

    def number(self, row: int) -> int:
        return row + 1 if self._lines is None else self._lines()[row]

    @property
    def names(self) -> Sequence[str]:
        return list(self.table.column_names)

    def taken(self, rows: Longs) -> Table:
        numbers = [self.number(row) for row in rows.tolist()] if self._lines is not None else (rows + 1).tolist()
        return Table(self.path, self.table.take(rows), lambda: numbers)

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

    def timestamps(self, name: str) -> tuple[str | None, npt.NDArray[Any]] | None:
        import pyarrow as pa

        column = self.column(name)
        if not pa.types.is_timestamp(column.type):
            return None
        self.refuse(name, column.is_null().to_numpy(), "a number of seconds, or a date and time")
        return column.type.tz, column.cast(pa.timestamp("ns", column.type.tz)).cast(pa.int64()).to_numpy().view(
            "M8[ns]"
        )

    def exact_numbers(self, name: str, valid: str) -> npt.NDArray[Any]:
        import pyarrow as pa

        column = self.column(name)
        exact = pa.types.is_integer(column.type) and not pa.types.is_uint64(column.type)
        if not column.null_count and (exact or pa.types.is_floating(column.type)):
            found = column.to_numpy()
            self.refuse(name, ~np.isfinite(found), valid)
            return cast("npt.NDArray[Any]", found.astype(np.int64 if exact else np.float64))
        return super().exact_numbers(name, valid)

    def counts(self, name: str) -> Longs:
        import pyarrow as pa

        column = self.column(name)
        if pa.types.is_integer(column.type) and not column.null_count:
            return self.integers(name)
        return super().counts(name)

    def _array(self, name: str, kind: type[Any], fits: Callable[[Any], bool], valid: str) -> npt.NDArray[Any]:
        import pyarrow as pa

        column = self.column(name)
        exact = pa.types.is_integer(column.type) and not pa.types.is_uint64(column.type)
        if not column.null_count and (exact or (kind is np.float64 and pa.types.is_floating(column.type))):
            return cast("npt.NDArray[Any]", column.to_numpy().astype(kind))
        values = [(_count if kind is np.int64 else _number)(one) for one in column.to_pylist()]
        wrong = next((row for row, value in enumerate(values) if not fits(value)), None)
        if wrong is not None:
            raise self.invalid(wrong, name, column[wrong].as_py(), valid)
        return np.array(values, kind)


def parsed(text: str) -> object:
    """What a cell holds that is JSON; None if it is not."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def _count(value: object) -> object:
    """Of a text that may be one, as 12,000: none where it has a point that may stand between thousands."""
    if isinstance(value, str) and THOUSANDS.fullmatch(value.strip()):
        return int(re.sub(r"\D", "", value))
    return None if isinstance(value, str) and GROUPED.fullmatch(value.strip()) else _number(value)


def _number(value: object) -> object:
    """Of a text what it says, if that is a number; whole numbers as integers, as which columns with gaps lose them."""
    try:
        found = float(value) if isinstance(value, str) else value
    except ValueError:
        return None
    return int(found) if isinstance(found, float) and found.is_integer() else found
