"""When the requests of a log came, under whatever name and in whatever form it has that."""

from __future__ import annotations

import numpy as np

from prebleexp.sim.types import Longs
from prebleexp.workloads import ended
from prebleexp.workloads.clock import SUFFIXES, Clock, arrival_of, clock, moments, unit_of
from prebleexp.workloads.columns import Columns, found, plain, set_column
from prebleexp.workloads.dates import joined
from prebleexp.workloads.repeated import Own
from prebleexp.workloads.rows import NOTHING, Rows

STEMS = (
    *("arrival_time", "arrived_at", "arrival_timestamp", "arrival", "request_arrival_time", "queued_time", "queued_at"),
    *("request_start", "request_start_time", "start_time", "started_at", "start_timestamp", "start", "sent_at"),
    *("start_utc", "request_created_at", "request_creation_time"),
    *("send_time", "request_timestamp", "timestamp", "ts", "time", "created", "created_at"),
    "create_time",
    *("datetime", "date", "event_time", "time_iso8601", "time_local", "time_generated", "tstamp", "request_date"),
    *("accept_date", "loki"),
)
TIMES = tuple(
    f"{stem}{end}" for stem in STEMS for end in ("", *(f"_{one}" for ends in SUFFIXES.values() for one in ends))
)
SECONDS = "msec"
"""nginx's, which are seconds with milliseconds behind the point"""


def came(rows: Rows, every: Rows, own: Own, columns: Columns, time_unit: str | None, outputs: Longs) -> Clock:
    """Of rows that are requests of their own, with (n,) `outputs` tokens; those that came with an earlier row of
    `every`, at its time."""
    starts = set_column(rows, columns, "arrival") or found(rows, TIMES)
    ends = ended.ended(rows, columns, starts, outputs)
    if ends is not None:
        told = None if plain(ends.name).endswith(SECONDS) else unit_of(plain(ends.name))
        return ends.came(clock_of(rows, ends.name, time_unit, told))
    name = arrival_of(rows, columns, TIMES)
    first, earlier = own.came, own.came < own.rows
    if earlier.any():
        times = every.optional(name)
        earlier &= np.array([times[row] not in NOTHING for row in first.tolist()], np.bool_)
        rows = every.taken(np.where(earlier, first, own.rows))
    found_clock = clock_of(rows, name, time_unit, unit_of(plain(name)))
    if earlier.any():
        many = f"{int(earlier.sum()):,} of {len(rows):,} requests, of the first row with their id"
        return found_clock._replace(says=f"{found_clock.says}; for {many}")
    more = ended.doubt(rows, name, "arrival" in columns, found_clock, outputs)
    return found_clock._replace(doubts=(*found_clock.doubts, *more))


def clock_of(rows: Rows, name: str, time_unit: str | None, told: str | None) -> Clock:
    """Of a field with times, whose name has told a unit."""
    rows, name = joined(rows, name)
    return moments(rows, name) or clock(rows, name, time_unit, "s", told=told)
