"""Dates that are not ISO's, as spreadsheets, browsers and people write them, made ISO's.

Whether the day or the month comes first is told by the file: by a number above 12, by points (which only who has the
day first writes), or by the order of its rows. What it does not tell is refused."""

from __future__ import annotations

from typing import Any

import numpy as np

from prebleexp.workloads.columns import plain
from prebleexp.workloads.rows import Records, Rows

NUMBERS = (
    r"^\s*(?P<a>\d{1,4})(?P<between>[./-])(?P<b>\d{1,2})[./-](?P<c>\d{4}|\d{1,2})"
    r"[,T\s]+(?P<hour>\d{1,2}):(?P<minute>\d\d)(?::(?P<second>\d\d)(?:[.,](?P<part>\d{1,9}))?)?"
    r"\s*(?P<half>[AaPp]\.?\s?[Mm]\.?)?\s*(?P<zone>Z|UTC|GMT|[+-]\d\d:?\d\d)?\s*$"
)
"""three numbers and a time of day, of twelve or of twenty-four hours"""
BROWSER = r"^(?P<date>[A-Z][a-z]{2} [A-Z][a-z]{2} \d\d \d{4} \d\d:\d\d:\d\d) GMT(?P<zone>[+-]\d{4})(?: \(.*\))?$"
"""as JavaScript writes a date"""
NAMED = ("%b %d, %Y @ %H:%M:%S.%f", "%b %d, %Y, %I:%M:%S %p", "%b %d, %Y %I:%M:%S %p", "%d %b %Y %H:%M:%S")
"""with the months' names: Kibana's, and spreadsheets'"""
OF_DAY = r"^\s*(?P<hour>\d{1,2}):(?P<minute>\d\d):(?P<second>\d\d)(?:[.,](?P<part>\d{1,9}))?\s*$"
DAY = r"^\s*\d{1,4}[./-]\d{1,2}[./-]\d{1,4}\s*$"
HALF_A_DAY_S = 43_200
TELL = "say it as ISO 8601 does, as 2024-05-10 00:00:01"


def as_iso(rows: Rows, name: str, texts: Any) -> Any:
    """These (n,) texts of the column `name`, as ISO has them if they are of a form above; else as they are. Raises
    InvalidInput, naming the row, where days and months may be either, or times of day are of several days."""
    import pandas as pd

    if texts.str.fullmatch(BROWSER).all():
        found = texts.str.extract(BROWSER)
        dates = pd.to_datetime(found["date"], format="%a %b %d %Y %H:%M:%S", errors="coerce")
        return dates.dt.strftime("%Y-%m-%d %H:%M:%S") + found["zone"]
    for one in NAMED:
        dates = pd.to_datetime(texts, format=one, errors="coerce")
        if not dates.isna().any():
            return dates.dt.strftime("%Y-%m-%d %H:%M:%S.%f")
    if texts.str.fullmatch(OF_DAY).all():
        return _of_one_day(rows, name, texts)
    found = texts.str.extract(NUMBERS)
    if found["a"].isna().any():
        return texts
    year, month, day = _ordered(rows, name, found)
    clock = _clock(found).fillna("")
    zone = found["zone"].fillna("")
    return year.str.zfill(4) + "-" + month.str.zfill(2) + "-" + day.str.zfill(2) + " " + clock + zone


def _of_one_day(rows: Rows, name: str, texts: Any) -> Any:
    import pandas as pd

    found = texts.str.extract(OF_DAY)
    seconds = pd.to_timedelta(found["hour"] + ":" + found["minute"] + ":" + found["second"]).dt.total_seconds()
    back = np.concatenate(([False], np.diff(seconds) < -HALF_A_DAY_S))
    rows.refuse(name, back, "later than that of the row before, as it has no date: give times with their dates")
    return "2000-01-01 " + texts.str.strip().str.zfill(8).str.replace(",", ".")


def _clock(found: Any) -> Any:
    """Of twenty-four hours."""
    import pandas as pd

    hour = found["hour"].astype(int)
    half = found["half"].str.lower().str[0]
    hour = pd.Series(np.where(half.isna(), hour, hour % 12 + np.where(half == "p", 12, 0)), index=found.index)
    second = found["second"].fillna("00") + "." + found["part"].fillna("0")
    return hour.astype(str).str.zfill(2) + ":" + found["minute"] + ":" + second


def _ordered(rows: Rows, name: str, found: Any) -> tuple[Any, Any, Any]:
    """(n,) years, months and days."""
    a, b, c = found["a"], found["b"], found["c"]
    if (a.str.len() == 4).all():
        return a, b, c
    c = c.where(c.str.len() == 4, "20" + c.str.zfill(2))
    first, second = a.astype(int).to_numpy(), b.astype(int).to_numpy()
    day_first, month_first = bool((first > 12).any()), bool((second > 12).any())
    if day_first and month_first:
        rows.refuse(name, second > 12, f"a date with the day first, as that of other rows; {TELL}")
    if not (day_first or month_first):
        day_first = bool((found["between"] == ".").all())
        month_first = not day_first and bool((a + b == (a + b).iloc[0]).all())  # of one day, and either will do
    if not (day_first or month_first):
        ranks = [_rank(c, month, day, found) for month, day in ((b, a), (a, b))]
        day_first, month_first = (_is_in_order(one) for one in ranks)
        if day_first == month_first:
            either = f"a date that says what is the day: it may be the first number or the second; {TELL}"
            rows.refuse(name, np.ones(len(rows), np.bool_), either)
    return (c, b, a) if day_first else (c, a, b)


def _rank(year: Any, month: Any, day: Any, found: Any) -> Any:
    return (year + month.str.zfill(2) + day.str.zfill(2) + _clock(found)).to_numpy(dtype=str)


def _is_in_order(texts: Any) -> bool:
    return bool((texts[1:] >= texts[:-1]).all() or (texts[1:] <= texts[:-1]).all())


def joined(rows: Rows, name: str) -> tuple[Rows, str]:
    """The rows, and the field of times: if that has days, and another times of day, or the other way round, one of both
    together."""
    is_day, is_clock = _all(rows, name, DAY), _all(rows, name, OF_DAY)
    other = next((one for one in rows.names if plain(one) == ("time" if is_day else "date")), None)
    if not (is_day or is_clock) or other is None or not _all(rows, other, OF_DAY if is_day else DAY):
        return rows, name
    day, of_day = (name, other) if is_day else (other, name)
    both = f"{day} and {of_day}"
    texts = [f"{one} {two}" for one, two in zip(rows.optional(day), rows.optional(of_day), strict=True)]
    numbers = [rows.number(row) for row in range(len(rows))]
    return Records(rows.path, [{both: one} for one in texts], numbers), both


def _all(rows: Rows, name: str, form: str) -> bool:
    import re

    return all(re.match(form, str(value)) for value in rows.optional(name))
