"""How a log says when a request came: (the field's name, what it holds)."""

from __future__ import annotations

import datetime
from collections.abc import Callable
from email.utils import format_datetime
from typing import Any

import numpy as np

from tests.support.odd_files.truth import EPOCH_S, UNITS, Truth

Written = tuple[str, Callable[[float], Any]]


def moment(at: float) -> datetime.datetime:
    return datetime.datetime.fromtimestamp(EPOCH_S + at, datetime.UTC)


def named_unit(of: Truth, rng: np.random.Generator) -> Written:
    unit = str(rng.choice(list(UNITS)))
    stem = str(rng.choice(["arrival_time", "start_time", "ts", "timestamp", "created"]))
    base = int(rng.choice([0, EPOCH_S]))
    return f"{stem}_{unit}", lambda at: round((base + at) * UNITS[unit]) if unit != "s" else base + at


def epoch(of: Truth, rng: np.random.Generator) -> Written:
    unit, text = str(rng.choice(list(UNITS))), rng.random() < 0.2
    name = str(rng.choice(["timestamp", "time", "created_at", "startTime", "arrived_at"]))

    def write(at: float) -> Any:
        value = EPOCH_S + at if unit == "s" else round((EPOCH_S + at) * UNITS[unit])
        return str(value) if text else value

    return name, write


def dated(of: Truth, rng: np.random.Generator) -> Written:
    zone = str(rng.choice(["", "Z", "+00:00", "+05:30"]))
    between = str(rng.choice(["T", " "]))
    name = str(rng.choice(["timestamp", "start_time", "datetime", "@timestamp"]))
    return name, lambda at: moment(at).strftime(f"%Y-%m-%d{between}%H:%M:%S.%f") + zone


def relative(of: Truth, rng: np.random.Generator) -> Written:
    """A number that says nothing of its unit."""
    of.untold = True
    unit = str(rng.choice(["s", "s", "ms", "us"]))
    return str(rng.choice(["timestamp", "time", "arrival"])), lambda at: at if unit == "s" else round(at * UNITS[unit])


def negative(of: Truth, rng: np.random.Generator) -> Written:
    """Seconds until the last one came."""
    last = of.start_s[-1]
    return str(rng.choice(["start_s", "ts_seconds"])), lambda at: at - last


def mixed_zones(of: Truth, rng: np.random.Generator) -> Written:
    def write(at: float) -> str:
        hours = int(at * 1000) % 5 - 2
        return moment(at).astimezone(datetime.timezone(datetime.timedelta(hours=hours))).isoformat()

    return "timestamp", write


def in_whole_seconds(of: Truth) -> None:
    of.start_s = [float(int(one)) for one in of.start_s]


def of_nginx(of: Truth, rng: np.random.Generator) -> Written:
    in_whole_seconds(of)
    return "time_local", lambda at: moment(at).strftime("%d/%b/%Y:%H:%M:%S +0000")


def of_python(of: Truth, rng: np.random.Generator) -> Written:
    return "timestamp", lambda at: moment(at).strftime("%Y-%m-%d %H:%M:%S,%f")[:-3]


def of_mail(of: Truth, rng: np.random.Generator) -> Written:
    in_whole_seconds(of)
    return "date", lambda at: format_datetime(moment(at), usegmt=True)


def of_mongo(of: Truth, rng: np.random.Generator) -> Written:
    of.strange = "a time within an object"
    kind = str(rng.choice(["$date", "seconds"]))
    return "created_at", lambda at: {kind: moment(at).isoformat() if kind == "$date" else EPOCH_S + at}


def american(of: Truth, rng: np.random.Generator) -> Written:
    of.strange = "a date that may be read in two ways"
    in_whole_seconds(of)
    return "timestamp", lambda at: moment(at).strftime("%m/%d/%Y %I:%M:%S %p")


def of_a_watch(of: Truth, rng: np.random.Generator) -> Written:
    of.strange = "a time of day"
    return str(rng.choice(["time", "timestamp"])), lambda at: moment(at).strftime("%H:%M:%S.%f")


def with_its_unit(of: Truth, rng: np.random.Generator) -> Written:
    of.strange = "a unit behind the number"
    return "start", lambda at: f"{at * 1000:.0f}ms" if int(at) % 2 else f"{at:.3f}s"


def excel(of: Truth, rng: np.random.Generator) -> Written:
    """Days since 1899."""
    of.strange, of.untold = "days", True
    return "timestamp", lambda at: 25569 + (EPOCH_S + at) / 86_400


TIMES = (
    *(named_unit, named_unit, epoch, epoch, dated, dated, relative, relative, negative, mixed_zones),
    *(of_nginx, of_python, of_mail, of_mongo, american, of_a_watch, with_its_unit, excel),
)
