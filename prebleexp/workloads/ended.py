"""Logs that say when a request was answered, and how long that took: it came so long before."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from prebleexp.checks import is_number
from prebleexp.errors import InvalidInput, significant
from prebleexp.sim.types import Floats, Longs
from prebleexp.workloads.clock import CALLED, OF_WRITTEN, UNITS, WRITTEN, Clock, is_of_a_calendar, unit_of
from prebleexp.workloads.columns import Columns, found, plain, set_column
from prebleexp.workloads.rows import Rows

ROLES = ("end", "took")
"""of workload.columns"""
ENDS = tuple(
    f"{stem}{end}"
    for stem in ("end_time", "ended_at", "finished_at", "finish_time", "completed_at", "completed_time", "end")
    for end in ("", "_unix_nano", *(f"_{unit}" for unit in UNITS))
)
TOOK = tuple(
    f"{stem}{end}"
    for stem in (
        *("request_duration", "total_duration", "duration", "request_latency", "e2e_latency", "end_to_end_latency"),
        *("latency", "response_time", "request_time", "total_time", "elapsed_time", "elapsed", "time_taken", "took"),
    )
    for end in ("", *(f"_{unit}" for unit in UNITS), "_seconds", "_millis")
)
OF_NGINX = ("msec", "time_iso8601", "time_local")
"""when it wrote a line, which is when the request of it was answered"""
NGINX_TOOK = "request_time"
"""in seconds"""
MAY_END = ("timestamp", "ts", "time", "datetime", "date", "event_time", "loki", "time_generated")
"""names of a time that may be either"""
USUAL = 50.0
"""tokens of an answer a second, of one request"""


class Ended(NamedTuple):
    name: str
    """of the field with ends"""
    took: str
    unit: str
    """of that"""
    seconds: Floats
    """(n,) that it took; 0 where a row says nothing"""

    def came(self, when: Clock) -> Clock:
        """Of a clock of the ends."""
        says = f"{when.says}, less {self.took}, {CALLED[self.unit]}"
        return when._replace(seconds=when.seconds - self.seconds, says=says)


def ended(rows: Rows, columns: Columns, starts: str | None, outputs: Longs) -> Ended | None:
    """What says when requests ended, where that was set, where no field `starts`, or where it is nginx that wrote the
    log. (n,) `outputs` tell the unit of a duration. Raises InvalidInput where an end was set without how long it took.
    """
    name = set_column(rows, columns, "end")
    took = set_column(rows, columns, "took") or found(rows, TOOK)
    if name is None:
        if "arrival" in columns:
            return None
        of_nginx = found(rows, OF_NGINX) if found(rows, (NGINX_TOOK,)) else None
        if of_nginx is not None and (starts is None or plain(starts).rpartition(".")[2] in OF_NGINX):
            name, took = of_nginx, found(rows, (NGINX_TOOK,))
        elif starts is None and (end := found(rows, ENDS)) is not None and is_of_a_calendar(rows, end):
            name = end
    if name is None:
        return None
    durations = None if took is None else _durations(rows, took, outputs)
    if took is None or durations is None:
        if "end" not in columns:
            return None
        raise InvalidInput(
            f"{rows.path}: workload.columns.end={name} is not valid without how long a request took: "
            "workload.columns={end: …, took: …}"
        )
    return Ended(name, took, *durations)


def doubt(rows: Rows, name: str, is_set: bool, when: Clock, outputs: Longs) -> tuple[str, ...]:
    """A doubt about a time that may be the end of a request, if taking off what it took changes the order. Of one that
    `is_set` the name must say so."""
    took = found(rows, TOOK)
    short = plain(name).rpartition(".")[2]
    known = short in (*ENDS, *OF_NGINX) or (not is_set and short.removesuffix(f"_{unit_of(short)}") in MAY_END)
    if took is None or not known:
        return ()
    durations = _durations(rows, took, outputs)
    if durations is None or durations.seconds.max() <= 0:
        return ()
    starts, ends = when.seconds - durations.seconds, when.seconds + durations.seconds
    order = np.argsort(when.seconds, kind="stable")
    by_end = bool((np.diff(ends) >= 0).all()) and not bool((np.diff(when.seconds) >= 0).all())
    if by_end or bool((np.diff(starts[order]) >= 0).all()):
        return ()
    usual = significant(float(np.median(durations.seconds)))
    return (
        f"{name} is taken for when requests came; if it is when they were answered, {took} (median {usual} s) earlier "
        f"they came: workload.columns={{end: {name}, took: {took}}}",
    )


class Took(NamedTuple):
    name: str
    seconds: Floats
    """(n,) 0 where a row says nothing"""


def took(rows: Rows, columns: Columns, outputs: Longs) -> Took | None:
    """How long requests took, where a field says that of any."""
    name = set_column(rows, columns, "took") or found(rows, TOOK)
    durations = None if name is None else _durations(rows, name, outputs)
    if name is None or durations is None or not (durations.seconds > 0).any():
        return None
    return Took(name, durations.seconds)


class _Durations(NamedTuple):
    unit: str
    seconds: Floats


def _durations(rows: Rows, name: str, outputs: Longs) -> _Durations | None:
    """Of numbers whose unit their name says, or the answers; or of texts that have it. None, if they are neither."""
    numbers = np.zeros(len(rows))
    written = False
    for row, value in enumerate(rows.optional(name)):
        if isinstance(value, str) and (text := WRITTEN.fullmatch(value.strip())):
            numbers[row], written = float(text[1]) * OF_WRITTEN[text[2]], True
        elif is_number(number := _number(value)):
            numbers[row] = number
        elif value not in (None, "", "-"):
            return None
    if written:
        return _Durations("s", numbers)
    unit = unit_of(plain(name)) or ("s" if plain(name).endswith(NGINX_TOOK) else _likely(numbers, outputs))
    return _Durations(unit, numbers / UNITS[unit])


def _number(value: object) -> object:
    try:
        return float(value) if isinstance(value, str) else value
    except ValueError:
        return None


def _likely(numbers: Floats, outputs: Longs) -> str:
    """The unit in which answers come about as fast as they do."""
    both = (numbers > 0) & (outputs > 0)
    pace = float(np.median(outputs[both] / numbers[both])) if both.any() else USUAL
    return min(UNITS, key=lambda unit: abs(np.log(pace * UNITS[unit] / USUAL)))
