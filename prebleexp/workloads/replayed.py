"""Workloads that replay a trace: as it was recorded, a window of it at another rate, or its sessions at other times."""

from __future__ import annotations

import math
from abc import abstractmethod
from dataclasses import dataclass, fields, replace
from functools import lru_cache
from typing import Any, ClassVar, Self

import numpy as np

from prebleexp.checks import is_integer, is_number, one_of, require
from prebleexp.errors import InvalidInput
from prebleexp.sim.types import Floats, Workload
from prebleexp.workloads import files, plays, rescale
from prebleexp.workloads.base import WorkloadSource
from prebleexp.workloads.blocks import Prompts, joined
from prebleexp.workloads.few_shot import MOST_REQUESTS, random
from prebleexp.workloads.output_length import OutputLength
from prebleexp.workloads.reading import Understood, understood
from prebleexp.workloads.rescale import Choice
from prebleexp.workloads.rows import MOST
from prebleexp.workloads.streams import workload_of
from prebleexp.workloads.trace import Links, Trace

WINDOWS, TICKS = 1, 2
"""random streams, beside rescale's"""
LOADS = ("window", "recorded", "scaled", "poisson", "population")
WHOLE = ("recorded", "scaled")
"""loads of which a run has all of the trace"""
SAID = 1.0005
"""times the span, which is said with four digits, a window may last"""
MODES = ("open", "closed")
OF_LANES = {"lanes", "between_s"}
OF_CLOSED = {"gap_cap_s", "recorder_ttft_s", "recorder_tpot_s"}
OF_SCALED = {"shift_s"}
UNREAD = {"load", "mode", "compress", "limit", *OF_SCALED, *OF_LANES, *OF_CLOSED}
"""what the reading of a file does not depend on"""


@dataclass(frozen=True)
class Replayed(WorkloadSource):
    """Subclass it as a frozen dataclass that gives `read`, with `name` and `where`."""

    path: str | None = None
    """a file, relative to the current folder: JSON lines, CSV or Parquet, plain, .gz or .zst, told by its contents"""
    load: str | None = "window"
    """window: `duration_s` of it from a moment drawn by the seed, at `rps` on average over the whole trace, by thinning
    and superposition of whole sessions; recorded: all of it, whatever rps, duration_s and seed are; scaled: all of it,
    at `rps` on average and with its busy hours: sessions are left out, or come again up to `shift_s` later; poisson:
    its sessions, starting at random, `rps` requests a second on average; population: `lanes` users, each of which plays
    one session after the other, whatever rps is; null: recorded, and on the command line scaled where a rate is given,
    window where a duration is"""
    mode: str | None = None
    """open: a turn is sent at its recorded time; closed: a turn is sent after the answer before it and the recorded
    think time; null: closed for a population, and where the trace has no starts of later turns; else open"""
    shift_s: float = 60.0
    """scaled above its own rate: each copy of it starts up to so many seconds later. 60 s is long enough that its
    bursts do not all come at once. It is short against busy hours. Many minutes even out chance, as of independent
    users. They even out shorter busy times, too"""
    compress: float = 1.0
    """all recorded times are divided by this, think times too. With it, reuse at a given capacity does not fall as the
    load rises; with more sessions (load=window) it does"""
    limit: int | None = None
    """the first so many requests of the file; null: all"""
    max_new_tokens: int | None = None
    """generation is cut short after these; null: it is not"""
    gap_cap_s: float | None = None
    """closed: the longest think time, in simulated seconds (after `compress`); null: as recorded"""
    lanes: int = 64
    """population: how many play at a time"""
    between_s: float = 0.0
    """population: from the end of a session to the lane's next"""
    recorder_ttft_s: float | None = None
    """closed, for traces that have only starts: the recorder's own time to first token, …"""
    recorder_tpot_s: float | None = None
    """… and time per output token. The rest of the gap between the starts of two turns is the think time"""

    synthetic: ClassVar[bool] = False
    nested: ClassVar[bool] = True
    name: ClassVar[str]
    """the option in conf/workload/"""
    where: ClassVar[str]
    """to be had"""
    loads: ClassVar[tuple[str, ...]] = LOADS

    def __post_init__(self) -> None:
        if not isinstance(self.path, str) or not self.path:
            raise InvalidInput(
                f"workload.path={self.path} is not valid; {self.name} needs workload.path=FILE, {self.where}"
            )
        for name, options in (("load", self.loads), ("mode", MODES)):
            if getattr(self, name) is not None:
                one_of(f"workload.{name}", getattr(self, name), options)
        if self.load == "population" and self.mode == "open":
            raise InvalidInput(
                "workload.load=population needs workload.mode=closed: a lane waits for its answers; leave mode out"
            )
        valid = is_number(self.compress) and self.compress > 0
        require(valid, "workload.compress", self.compress, "a finite number > 0")
        for name in ("limit", "max_new_tokens"):
            value = getattr(self, name)
            valid = value is None or is_integer(value, 1, MOST)
            require(valid, f"workload.{name}", value, f"null or an integer from 1 to {MOST}")
        require(is_number(self.shift_s) and self.shift_s >= 0, "workload.shift_s", self.shift_s, "seconds >= 0")
        for name in ("gap_cap_s", "recorder_ttft_s", "recorder_tpot_s"):
            value = getattr(self, name)
            valid = value is None or (is_number(value) and value >= 0)
            require(valid, f"workload.{name}", value, "null or a number of seconds >= 0")
        plays.check(self.lanes, self.between_s)

    @abstractmethod
    def read(self) -> Trace:
        """The whole file. Raises InvalidInput, naming file and row, for what is not valid."""

    def starts(self, trace: Trace, seed: int) -> Floats:
        """(n,) when its requests start, before `compress`: as recorded, unless a trace needs something else."""
        return trace.start_s

    @property
    def users(self) -> int | None:
        return self.lanes if self.load == "population" else None

    def with_users(self, users: int) -> Self:
        return replace(self, lanes=users)

    @property
    def retimed_by(self) -> tuple[str, ...]:
        if self.load == "population":
            return ()
        return ("arrivals", "profile") if self.load == "poisson" else ("profile",)

    @property
    def in_sessions(self) -> bool:
        return self.is_closed(self.whole)

    @property
    def obeys(self) -> tuple[str, ...]:
        if self.load in (None, "recorded"):
            return ()
        if self.load == "scaled":
            return ("rps", "seed")
        return ("duration_s", "seed") if self.load == "population" else ("rps", "duration_s", "seed")

    def identity(self) -> dict[str, object]:
        """The file's contents stand for its path; what other loads and modes have does not matter."""
        without = {"path"}
        without |= set() if self.load == "population" else OF_LANES
        without |= set() if self.load == "scaled" else OF_SCALED
        without |= OF_CLOSED if self.mode == "open" else set()
        own = {one.name: getattr(self, one.name) for one in fields(self) if one.name not in without}
        return own | {"sha256": files.digest(self.path)}

    def trace(self, seed: int = 0) -> Trace:
        """What is replayed: `limit`, `compress` and `gap_cap_s` done. Raises InvalidInput as `read` does."""
        found = self.whole
        with np.errstate(over="ignore"):  # Workload refuses what is not finite
            found = replace(found, start_s=self.starts(found, seed) / self.compress)
        return replace(found, links=self._links(found)) if self.is_closed(found) else found

    def is_closed(self, trace: Trace) -> bool:
        """Whether turns wait for answers. Raises InvalidInput where they have to, and mode=open is asked for."""
        if self.mode == "open" and trace.closed:
            raise InvalidInput(
                f"workload.mode=open is not valid; {self.path} has no starts of requests that come after others: leave "
                "it out, or take closed"
            )
        return self.mode == "closed" or (self.mode is None and (trace.closed or self.load == "population"))

    @property
    def whole(self) -> Trace:
        """The file, but for the first so many requests, if there is a `limit`; nothing else done."""
        same: dict[str, Any] = {one.name: one.default for one in fields(self) if one.name in UNREAD}
        found = _read(replace(self, **same), files.digest(self.path))
        return _first(found, self.limit) if self.limit is not None and self.limit < len(found) else found

    @property
    def blocks_of(self) -> int:
        return self.whole.reading.block_tokens

    @property
    def understood(self) -> Understood:
        return understood(str(self.path), self.whole)

    @property
    def asked_models(self) -> tuple[str, ...]:
        return self.whole.reading.models

    @property
    def span_s(self) -> float:
        """Until the last request of the recording starts, in simulated seconds."""
        return self.whole.span_s / self.compress

    @property
    def recorded_rps(self) -> float | None:
        """Requests a second of the recording, in simulated time; None if it has no time."""
        whole = self.whole
        return len(whole) / self.span_s if whole.clocked and self.span_s else None

    @property
    def own_rps(self) -> float | None:
        return self.recorded_rps if self.load in (None, "recorded") else None

    def draw(self, *, rps: float, duration_s: float, seed: int, output_length: OutputLength) -> Workload:
        """The requests of a run. Raises InvalidInput, naming the file, if there are none in the window, or if the trace
        is shorter than that."""
        trace = self.trace(seed)
        closed = self.is_closed(trace)
        if self.load in (None, "recorded"):
            chosen = rescale.whole(trace)
        elif self.load == "population":
            trace = _joined(trace)
            chosen = plays.population(trace, self.lanes, self.between_s, duration_s, seed)
        else:
            duration_s = trace.span_s if self.load == "scaled" else duration_s
            if not rps * duration_s <= MOST_REQUESTS:
                raise InvalidInput(
                    f"rps={rps} for duration_s={duration_s} is not valid; that must be at most {MOST_REQUESTS:,} "
                    "requests"
                )
            draw = {"window": self._window, "scaled": self._scaled, "poisson": plays.poisson}[self.load]
            chosen = draw(trace, rps, duration_s, seed, closed)
        if not len(chosen):
            raise InvalidInput(
                f"rps={rps} for duration_s={duration_s} is not valid; what seed={seed} draws of {self.path} "
                "has no request: take a longer time"
            )
        return workload_of(trace, chosen, self.max_new_tokens, closed=closed)

    def _window(self, trace: Trace, rps: float, duration_s: float, seed: int, closed: bool) -> Choice:
        if not duration_s <= trace.span_s * SAID < math.inf:
            raise InvalidInput(
                f"duration_s={duration_s} is not valid; {self.path} lasts {trace.span_s:g} s: take less, or all of it "
                "with workload.load=recorded"
            )
        begin_s = _begin_s(trace.span_s, duration_s, seed)
        copies = rps * trace.span_s / len(trace)
        return rescale.superposed(trace, copies, seed, begin_s, begin_s + duration_s)

    def _scaled(self, trace: Trace, rps: float, duration_s: float, seed: int, closed: bool) -> Choice:
        if not 0 < trace.span_s < math.inf:
            raise InvalidInput(f"{self.path} has no times that a rate could be of; take workload.load=poisson")
        return rescale.superposed(trace, rps * trace.span_s / len(trace), seed, apart_s=min(self.shift_s, trace.span_s))

    def scaled(self, rps: float, seed: int) -> Choice:
        """What comes of all of it at this rate, whatever `load` is."""
        trace = self.trace(seed)
        return self._scaled(trace, rps, trace.span_s, seed, closed=False)

    def comes(self, seed: int, duration_s: float) -> int:
        """How many requests of the recording, in simulated time, start in the window that a seed draws."""
        start_s = self.starts(self.whole, seed) / self.compress
        begin_s = _begin_s(self.span_s, duration_s, seed)
        return int(np.count_nonzero((start_s >= begin_s) & (start_s < begin_s + duration_s)))

    def _links(self, trace: Trace) -> Links:
        """Those of a closed loop, in simulated seconds."""
        later, before, delay_s = trace.links or self._gaps(trace)
        delay_s = delay_s / (self.compress if trace.links else 1.0)
        return Links(later, before, delay_s if self.gap_cap_s is None else np.minimum(delay_s, self.gap_cap_s))

    def _gaps(self, trace: Trace) -> Links:
        """A turn comes after the one before it: what is left of the gap between their starts without the recorder's own
        service (spec: workloads, section 3)."""
        order = np.lexsort((trace.turn, trace.session))
        same = trace.session[order][1:] == trace.session[order][:-1]
        before, later = order[:-1][same], order[1:][same]
        if len(later) and (self.recorder_ttft_s is None or self.recorder_tpot_s is None):
            raise InvalidInput(
                f"workload.mode=closed of {self.name} needs workload.recorder_ttft_s and workload.recorder_tpot_s: "
                "the trace has starts of turns alone, and not how fast its own service answered"
            )
        served = (self.recorder_ttft_s or 0) + trace.output_tokens * (self.recorder_tpot_s or 0)
        delay_s = np.zeros(len(trace))
        delay_s[later] = np.maximum(trace.start_s[later] - trace.start_s[before] - served[before] / self.compress, 0)
        by_later = np.argsort(later, kind="stable")
        return Links(later[by_later], before[by_later], delay_s)


def _begin_s(span_s: float, duration_s: float, seed: int) -> float:
    return float(random(seed, WINDOWS).random() * max(span_s - duration_s, 0.0))


@lru_cache(maxsize=2)
def _read(source: Replayed, digest: str) -> Trace:
    """Once for each contents of a file."""
    return source.read()


def _joined(trace: Trace) -> Trace:
    """In as few segments as there can be, since there will be many copies; traces with answers are so already."""
    if trace.answer is not None:
        return trace
    prompts, known = joined(trace.prompts)
    return replace(trace, prompts=prompts, public=None if trace.public is None else trace.public[known])


def _first(trace: Trace, n: int) -> Trace:
    offsets, ids, tokens = trace.prompts
    prompts = Prompts(offsets[: n + 1], ids[: offsets[n]], tokens[: offsets[n]])
    links = trace.links
    if links is not None:
        inside = links.later < n
        links = Links(links.later[inside], links.before[inside], links.delay_s[:n])
    return replace(
        trace,
        start_s=trace.start_s[:n],
        output_tokens=trace.output_tokens[:n],
        prompts=prompts,
        session=trace.session[:n],
        turn=trace.turn[:n],
        links=links,
        parent=None if trace.parent is None else trace.parent[:n],
        answer=None if trace.answer is None else trace.answer[:n],
        adapter=None if trace.adapter is None else trace.adapter[:n],
    )
