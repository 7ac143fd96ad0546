"""When requests came, whatever the unit and the zone in which a file has it."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from prebleexp.errors import significant
from prebleexp.sim.types import Floats, Longs
from prebleexp.workloads.columns import Columns, matching, named, plain
from prebleexp.workloads.dates import as_iso
from prebleexp.workloads.reading import WAY_OUT
from prebleexp.workloads.rows import NOTHING, ZONE, Records, Rows

UNITS = {"s": 1, "ms": 1_000, "us": 1_000_000, "ns": 1_000_000_000}
"""by name: so many are a second"""
CALLED = {"s": "seconds", "ms": "milliseconds", "us": "microseconds", "ns": "nanoseconds"}
EPOCH = (1.1e9, 2.6e9)
"""seconds since 1970 of 2004 to 2052: no clock that began with a recording, or a machine, is there"""
YEARS = (2004, 2052)
LATEST_S = 1e11
"""no clock shows it, and what counts otherwise does: of Windows and of .NET tenths of microseconds since 1601, or 1"""
DAY_S = 86_400
"""a clock that does not begin in 1970 begins less than so long before a recording"""
SLOW, FAST = 0.05, 100.0
"""requests a second, between which the usual unit is believed"""
SUFFIXES = {
    "ns": ("ns", "nanos", "nano", "nanoseconds", "unix_nano", "nsec"),
    "us": ("us", "micros", "micro", "microseconds", "usec"),
    "ms": ("ms", "millis", "milli", "milliseconds", "msec", "unix_ms", "epoch_ms"),
    "s": ("s", "sec", "secs", "seconds"),
}
"""how a field's name says its unit"""
FORMATS = (
    *("%d/%b/%Y:%H:%M:%S %z", "%Y-%m-%d %H:%M:%S,%f", "%Y-%m-%dT%H:%M:%S,%f"),
    *("%a, %d %b %Y %H:%M:%S %z", "%a, %d %b %Y %H:%M:%S GMT", "%a %b %d %H:%M:%S %Y"),
    *("%Y-%m-%d %H:%M:%S UTC", "%Y-%m-%d %H:%M:%S.%f UTC", "%Y-%m-%d %H:%M:%S GMT", "%Y-%m-%d %H:%M:%S.%f GMT"),
)
"""dates that are not ISO's: of web servers, of Python's logging, of mail, of C's ctime, of BigQuery"""
DIGITS = re.compile(r"(20\d\d)(0[1-9]|1[0-2])(0[1-9]|[12]\d|3[01])([01]\d|2[0-3])([0-5]\d)([0-5]\d)(\d{3}|\d{6})?")
"""a date and time of digits alone, down to seconds, milliseconds or microseconds, as 20240510093001250; no
unit has such times since 1970"""
CALENDAR = re.compile(r"\d{4}-\d\d-\d\d[T ]\d\d:|\d\d/[A-Z][a-z]{2}/\d{4}:|[A-Z][a-z]{2},? [\dA-Z]")
"""how a date and time begins: ISO's, a web server's, a mail's, C's"""
LONG = re.compile(r"(?:^|[_.])(minutes?|mins?|hours?|hrs?|days?)$")
"""how a field's name says a unit in which times are not read"""
COMMA = re.compile(r"-?\d+,\d+")
"""a number with a decimal comma, or with one between its thousands"""
WRITTEN = re.compile(r"(-?\d+(?:\.\d+)?)\s*(ns|us|µs|ms|s|min|h)")
"""a time with its unit, as 500ms"""
OF_WRITTEN = {**{unit: 1 / size for unit, size in UNITS.items()}, "µs": 1e-6, "min": 60.0, "h": 3600.0}
"""seconds"""
SUMMER_S = (-3600.0, -1800.0)
"""so far a clock without a zone goes back, with what passes meanwhile, where summer time ends"""
ANEW, NEAR = 8, 0.1
"""rows, and of these a share, from which on a clock that begins anew is told from rows that are out of order"""
MIXED = 5
"""one of so many steps goes back, where it is hardly a log"""
DATE = "a date and time, as 2024-05-10 00:00:01.25+00:00"


class Clock(NamedTuple):
    """Arrival times of a log's n rows, and how they were read."""

    seconds: Floats
    """(n,) from the first row on; earlier ones are negative"""
    says: str
    doubts: tuple[str, ...] = ()


def unit_of(name: str) -> str | None:
    """The unit that a field's plain name ends with."""
    for unit, ends in SUFFIXES.items():
        if any(re.search(rf"(?:^|[_.]){end}$", name) for end in ends):
            return unit
    return None


def clock(
    rows: Rows,
    name: str,
    given: str | None,
    usual: str,
    *,
    told: str | None = None,
    known: bool = False,
    least: float = -math.inf,
) -> Clock:
    """Of the column `name`, with numbers, numbers as texts, or dates.

    A number's unit is the one that is `given`; else the one that is `told` by the field's name; else, if it can only be
    a time since 1970, the one in which it is; else the `usual` one, which is `known` if the format says so. None is
    less than `least`. Raises InvalidInput, naming row and column, for what is not valid, or not of one kind.
    """
    values = rows.values(name)
    first = next((one for one in values if one is not None and one != ""), None)
    if given is None and DIGITS.fullmatch(str(first)):
        return _dated(_spelt_out(rows, name), name)
    if not isinstance(first, str) or _is_number(first):
        found = _counted(rows, name, given, usual, told, known)
        valid = f"a number of {CALLED[given or told or usual]} >= {least:g}"
        if least > -math.inf:
            rows.refuse(name, rows.exact_numbers(name, valid) < least, valid)
        return found
    if COMMA.fullmatch(first.strip()):
        found = clock(_with_points(rows, name), name, given, usual, told=told, known=known, least=least)
        return found._replace(says=f"{found.says}, with decimal commas")
    return _written(rows, name) if WRITTEN.fullmatch(first.strip()) else _dated(rows, name)


def moments(rows: Rows, name: str) -> Clock | None:
    """Of a column whose type is a time; None if it is none."""
    found = rows.timestamps(name)
    if found is None:
        return None
    zone, times = found
    _refuse_others(rows, name, times.astype("M8[Y]").astype(np.int64) + 1970)
    says = f"{name}, a time {f'in {zone}' if zone else 'without a time zone'}, from {_date(times.min())}"
    return Clock(since_first(times), says, () if zone else _goes_back(name, times))


def _counted(rows: Rows, name: str, given: str | None, usual: str, told: str | None, known: bool) -> Clock:
    valid = f"a number of {CALLED[given or told or usual]}, or {DATE}"
    if given is None and (long := LONG.search(plain(name))):
        said = f"{CALLED['s']} to {CALLED['ns']}; its name says {long[1]}: convert it, or, if that is not so, {WAY_OUT}"
        rows.refuse(name, np.ones(len(rows), np.bool_), said)
    column = rows.exact_numbers(name, valid)
    inside = {unit: _since_1970(column, size) for unit, size in UNITS.items()}
    epoch = next((unit for unit, where in inside.items() if where.all()), None)
    unit = given or told or epoch
    doubts: tuple[str, ...] = ()
    other = given is None and told is not None and epoch not in (None, told)
    if other and told is not None and float(column.min()) / UNITS[told] >= DAY_S:
        rows.refuse(
            name,
            np.ones(len(rows), np.bool_),
            f"{CALLED[told]}, as its name says; it is {CALLED[str(epoch)]} since 1970: {WAY_OUT}",
        )
    if unit is None:
        for one, where in inside.items():
            if where.any():
                odd = where if not where[0] else ~where
                was = f"{CALLED[one]} since 1970, as that of {'the first row' if where[0] else 'other rows'}"
                rows.refuse(name, odd if where[0] else ~where, f"{was}; or {WAY_OUT}")
        unit = usual
        late = column > LATEST_S * UNITS[unit]
        rows.refuse(name, late, f"{CALLED[unit]}, and no clock shows so many; {WAY_OUT}, or convert it")
        says = f"{name}, {CALLED[unit]}" + (", as the format has them" if known else " (assumed: nothing says so)")
        span = float(column.max() - column.min()) / UNITS[unit]
        if span > 0 and not SLOW <= len(rows) / span <= FAST:
            rate = f"{significant(len(rows) / span)} requests/s"
            doubts = (f"{name} in {CALLED[unit]} is {rate}; if it is in another unit, {WAY_OUT}",)
    else:
        why = "as set" if given else "as its name says" if told else ""
        if other:
            doubts = (f"{name} could be {CALLED[str(epoch)]} since 1970, and its name says another unit; {WAY_OUT}",)
        says = f"{name}, {CALLED[unit]}{f', {why}' if why else ''}"
    if epoch == unit:
        says += (
            f", since 1970 (UTC), from {_date(np.datetime64(round(float(column.min()) * 10**9 / UNITS[unit]), 'ns'))}"
        )
    seconds = ((column - column[0]) / UNITS[unit]).astype(np.float64)
    return Clock(seconds, says, (*doubts, *(() if epoch else _begins_anew(rows, name, seconds, column))))


def _with_points(rows: Rows, name: str) -> Rows:
    """With points for the decimal commas of a column. Raises InvalidInput where these may stand between thousands."""
    texts = [str(one) for one in rows.values(name)]
    if all(re.fullmatch(r"-?[1-9]\d{0,2},\d{3}", one.strip()) for one in texts):
        raise rows.wrong(
            0, f"{name}={texts[0]!r} is not valid; it must be a number with a point, as commas may be between thousands"
        )
    numbers = [rows.number(row) for row in range(len(rows))]
    return Records(rows.path, [{name: one.replace(",", ".")} for one in texts], numbers)


def _spelt_out(rows: Rows, name: str) -> Rows:
    """With dates in place of a column's digits. Raises InvalidInput where there are others."""
    found = [DIGITS.fullmatch(str(value)) for value in rows.values(name)]
    rows.refuse(name, np.array([one is None for one in found]), "a date of as many digits as that of the first row")
    texts = ["{}-{}-{} {}:{}:{}.{}".format(*one.groups("000")) for one in found if one is not None]
    return Records(rows.path, [{name: one} for one in texts], [rows.number(row) for row in range(len(rows))])


def _written(rows: Rows, name: str) -> Clock:
    """Of times that each have their unit."""
    found = [WRITTEN.fullmatch(str(value).strip()) for value in rows.values(name)]
    rows.refuse(name, np.array([one is None for one in found]), "a time with its unit, as that of the first row")
    seconds = np.array([float(one[1]) * OF_WRITTEN[one[2]] for one in found if one is not None])
    return Clock(seconds - seconds[0], f"{name}, with units beside its numbers")


def _dated(rows: Rows, name: str) -> Clock:
    import pandas as pd

    column = rows.values(name)
    for row, value in enumerate(column):
        if not isinstance(value, str):
            raise rows.invalid(row, name, value, f"a number of seconds, or {DATE}")
    texts = pd.Series(column, dtype=str)
    times = pd.to_datetime(texts, format="ISO8601", utc=True, errors="coerce")
    for other in FORMATS:
        if times.isna().all():
            times = pd.to_datetime(texts, format=other, utc=True, errors="coerce")
    if times.isna().all():
        texts = as_iso(rows, name, texts)
        times = pd.to_datetime(texts, format="ISO8601", utc=True, errors="coerce")
    rows.refuse(name, times.isna().to_numpy(), DATE)
    _refuse_others(rows, name, times.dt.year.to_numpy())
    zoned = texts.str.contains(ZONE, regex=True).to_numpy(dtype=bool)
    says = "with a time zone, as that of the first row" if zoned[0] else "without a time zone, as the first row's"
    rows.refuse(name, zoned != zoned[0], f"a time {says}")
    moments = times.to_numpy("datetime64[ns]")
    days = texts.str.fullmatch(r"\d{4}-?\d\d-?\d\d").all()
    doubts: tuple[str, ...] = (f"{name} has days and no times",) if days else ()
    if not zoned[0]:
        doubts += _goes_back(name, moments)
    zones = sorted({_zone(one) for one in texts.unique()[:10_000]}) if zoned[0] else []
    zone = f"in {' and '.join(zones)}" if len(zones) in (1, 2) else "in several time zones"
    says = f"{name}, a date and time {zone if zoned[0] else 'without a time zone'}, from {_date(moments.min())}"
    return Clock(since_first(moments), says, doubts)


def _refuse_others(rows: Rows, name: str, years: npt.NDArray[Any]) -> None:
    """Raises InvalidInput where dates of a log stand beside some of no log, as those that stand for nothing."""
    of_logs = (years >= YEARS[0]) & (years <= YEARS[1])
    if of_logs.any():
        rows.refuse(
            name, ~of_logs, f"a date from {YEARS[0]} to {YEARS[1]}, as that of other rows; leave out what has none"
        )


def _goes_back(name: str, moments: npt.NDArray[Any]) -> tuple[str, ...]:
    """A doubt about times without a zone, if they go back once, as a clock does where summer time ends."""
    steps = np.diff(since_first(moments))
    back = np.flatnonzero(steps < 0)
    if len(back) != 1 or not SUMMER_S[0] <= steps[back[0]] <= SUMMER_S[1]:
        return ()
    minutes = significant(-float(steps[back[0]]) / 60)
    return (
        f"{name} goes back once, by {minutes} minutes after row {back[0] + 1}, and has no time zone: if summer time "
        "ended there, give times with a zone, as rows are taken in order of time",
    )


def _begins_anew(rows: Rows, name: str, seconds: Floats, column: npt.NDArray[Any]) -> tuple[str, ...]:
    """A doubt about numbers that rise to the end of one recording, and then from the beginning of another; or that go
    up and down."""
    steps = np.diff(seconds)
    back = np.flatnonzero(steps < 0)
    if len(rows) >= ANEW and len(back) * MIXED >= len(rows):
        return (
            f"{name} is in no order: if its numbers are gaps between requests, and not when these came, add them up",
        )
    begins = back[seconds[back + 1] <= NEAR * seconds[back]] + 1
    begins = begins[(begins >= NEAR * len(rows)) & (begins <= (1 - NEAR) * len(rows))]
    if len(rows) < ANEW or not len(begins):
        return ()
    at, many = int(begins[0]), "once" if len(begins) == 1 else f"{len(begins):,} times"
    return (
        f"{name} begins anew {many}, with {column[at]:g} in row {rows.number(at)}: rows are taken in order of time; if "
        f"{'two' if len(begins) == 1 else 'several'} recordings stand one after the other, give each a file",
    )


def arrival_of(rows: Rows, columns: Columns, aliases: Sequence[str]) -> str:
    """The field that was set; else the first usual one that has times of a calendar, which a duration has not; else the
    first usual one. Raises InvalidInput if there is none."""
    first = named(rows, columns, "arrival", aliases)
    if "arrival" in columns or is_of_a_calendar(rows, first):
        return first
    others = (names for alias in aliases if (names := matching(rows, alias)))
    alone = (names[0] for names in others if len(names) == 1 or names[0].count(".") < names[1].count("."))
    return next((name for name in alone if is_of_a_calendar(rows, name)), first)


def is_of_a_calendar(rows: Rows, name: str) -> bool:
    """Whether it has dates with times of day, or numbers since 1970, and not the same one in all rows."""
    values = [one for one in rows.optional(name) if one not in NOTHING]
    if not values or (len(rows) > 1 and len(set(map(str, values))) == 1):
        return False
    first = values[0]
    if rows.timestamps(name) is not None:
        return True
    if isinstance(first, str) and not _is_number(first):
        return CALENDAR.match(first) is not None
    number = float(first) if isinstance(first, str | int | float) else 0.0
    return any(EPOCH[0] * size <= number <= EPOCH[1] * size for size in UNITS.values())


def in_order(seconds: Floats) -> tuple[Longs, Floats]:
    """(n,) rows in order of their times, and these from the earliest one on."""
    order = np.argsort(seconds, kind="stable")
    return order, seconds[order] - seconds[order[0]]


def _zone(text: str) -> str:
    found = re.search(ZONE, text)
    end = found.group() if found else ""
    return "UTC" if end in ("Z", "z", "GMT", "UTC") or not end.strip("+-0:") else end


def since_first(times: npt.NDArray[Any]) -> Floats:
    """(n,) seconds from the first element of times of whole nanoseconds."""
    found: Floats = (times - times[0]).astype(np.int64) / 1e9
    return found


def _since_1970(column: npt.NDArray[Any], size: int) -> npt.NDArray[np.bool_]:
    found: npt.NDArray[np.bool_] = (column >= EPOCH[0] * size) & (column <= EPOCH[1] * size)
    return found


def _is_number(text: str) -> bool:
    return re.fullmatch(r"\s*[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?\s*", text) is not None


def _date(time: Any) -> str:
    return str(np.datetime64(time, "ms")).replace("T", " ")
