"""How well promises were kept, over all requests that were due: those that were not served have kept none."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from prebleexp.service.batches import between
from prebleexp.service.level import GAPS, SLOWDOWNS, TIMES, ServiceLevel
from prebleexp.sim.types import Floats, Outcome, State, Workload

Flags = npt.NDArray[np.bool_]
OWN = ("ttft_s", "tpot_s")
"""limits that a workload may give for each request, as slo_ttft_s"""
NEEDS = (
    *("state", "due_s", "ttft_s", "latency_s", "output_seen", "finish_s", "session"),
    *GAPS,
    *(f"slo_{name}" for name in OWN),
)


@dataclass(frozen=True)
class Unloaded:
    """How each request does alone on an idle GPU with an empty prefix cache, (n,) each; NaN if it is refused there."""

    ttft_s: Floats
    tpot_s: Floats
    latency_s: Floats


@dataclass(frozen=True)
class Attained:
    """What a run's requests took, against what was promised."""

    columns: Mapping[str, npt.NDArray[Any]]
    """`NEEDS`, (n,) each"""
    end_s: float
    """of the run"""
    gpus: int
    level: ServiceLevel
    unloaded: Unloaded | None
    after_loss: Flags | None = None
    """(n,) which requests were due in the minute after the first GPU was lost; None: nobody says"""

    @classmethod
    def of(
        cls,
        workload: Workload,
        made: Outcome,
        level: ServiceLevel,
        unloaded: Unloaded | None,
        gpus: int,
        after_loss: Flags | None = None,
    ) -> Attained:
        """Of a run that was just computed."""
        columns = {name: getattr(made if hasattr(made, name) else workload, name) for name in NEEDS}
        return cls(columns, made.end_s, gpus, level, unloaded, after_loss)

    @classmethod
    def of_kept(
        cls, requests: Mapping[str, npt.NDArray[Any]], end_s: float, gpus: int, level: ServiceLevel
    ) -> Attained:
        """Of the requests that the cache keeps of a run, by column, NaN where there is nothing. Not for limits on
        slowdowns."""
        columns = {name: requests[name] for name in NEEDS}
        return cls(columns, end_s, gpus, level, None)

    @cached_property
    def due(self) -> Flags:
        """Whether each request was due after the warm-up, so that it counts."""
        due_s = self.columns["due_s"]
        found: Flags = np.isfinite(due_s) & (due_s >= self.level.warmup_s)
        return found

    @property
    def count(self) -> int:
        return int(self.due.sum())

    @cached_property
    def finished(self) -> Flags:
        found: Flags = self.columns["state"] == State.FINISHED
        return found

    @cached_property
    def open(self) -> Flags:
        """Unfinished, and with a first token: they may finish yet."""
        state = self.columns["state"]
        served = (state == State.RUNNING) | (state == State.QUEUED)
        found: Flags = served & ~np.isnan(self.columns["ttft_s"])
        return found

    @cached_property
    def taken(self) -> dict[str, Floats]:
        """What each request took, by what limits are on; NaN where it took none, or has not finished it."""
        ttft_s, latency_s, tokens = (self.columns[name] for name in ("ttft_s", "latency_s", "output_seen"))
        latency_s = np.where(self.finished, latency_s, np.nan)
        tpot_s = np.divide(latency_s - ttft_s, tokens - 1, out=np.full(len(tokens), np.nan), where=tokens > 1)
        found: dict[str, Floats] = dict(zip(TIMES, (ttft_s, tpot_s, latency_s), strict=True))
        found |= {name: np.where(self.finished, self.columns[name], np.nan) for name in GAPS}
        if self.unloaded is not None:
            alone = self.unloaded
            for name, time in zip(SLOWDOWNS, TIMES, strict=True):
                base = getattr(alone, time)
                found[name] = np.divide(found[time], base, out=np.full(len(base), np.nan), where=base > 0)
        return found

    def keeps(self, limits: Mapping[str, float]) -> Flags:
        """Which requests are within all of these limits, or within their own where they have any. Of those that are
        unfinished the ones that can break none of them any more."""
        found: Flags = self.finished | self.open
        for name in dict.fromkeys((*limits, *(name for name in OWN if self._has_own(name)))):
            most = self._most(name, limits.get(name))
            taken = self.taken[name]
            none_taken = np.isnan(taken) & self.finished  # as of one token
            found = found & (np.isnan(most) | (taken <= most) | none_taken)
        return found

    def _has_own(self, name: str) -> bool:
        return not np.isnan(self.columns[f"slo_{name}"]).all()

    def _most(self, name: str, limit: float | None) -> Floats:
        """The limit of each request; NaN where it has none."""
        base = np.full(len(self.finished), np.nan if limit is None else limit)
        if name not in OWN:
            return base
        own = self.columns[f"slo_{name}"]
        return np.where(np.isnan(own), base, own)

    @cached_property
    def good(self) -> Flags | None:
        """(n,) which requests kept what was promised; None if nothing was."""
        promised = self.level.loosest or any(map(self._has_own, OWN))
        return self.keeps(self.level.loosest) if promised else None

    @cached_property
    def of_limits(self) -> dict[str, float | None]:
        """The metrics that other limits change."""
        per_s = self.per_s
        of_each = None if self.good is None else between(self.good[self._in_order(self.due)])
        return {
            **self._kept("slo", self.due),
            "slo_missed_batches": of_each and of_each.missed,
            "slo_missed_first": of_each and of_each.first,
            "slo_missed_worst": of_each and of_each.worst,
            **self._kept("after_loss", self.after_loss),
            "goodput_per_s": per_s,
            "goodput_per_gpu_s": None if per_s is None else per_s / self.gpus,
            "session_attainment": self.of_sessions,
        }

    @cached_property
    def _promised(self) -> dict[str, list[tuple[Flags, float]]]:
        """Of attainment and of margin: who kept a promise, (n,), and from which share it counts, for each promise."""
        by_share = [(self.keeps({one.name: one.most}), one.share) for one in self.level.promises]
        return {"attainment": [] if self.good is None else [(self.good, 0.0)], "margin": by_share}

    def decisive(self, what: str) -> Flags | None:
        """(n,) who kept the promise that attainment, or the margin, is of: of several the one that is nearest to being
        broken; None where there is none, or no request is due."""
        promised = self._promised[what] if self.count else []
        return min(promised, key=lambda one: float(one[0][self.due].mean()) - one[1], default=(None, 0.0))[0]

    def _kept(self, name: str, among: Flags | None) -> dict[str, float | None]:
        """Attainment and margin of these requests, and the ends of what their stream says of them on its own: each the
        least of all promises, None where there is none, or no request."""
        order = self._in_order(np.zeros(len(self.due), bool) if among is None else among)
        found: dict[str, float | None] = {}
        for what, promised in self._promised.items():
            kept = [(who[order], share) for who, share in promised if len(order)]
            ends = [(known, share) for who, share in kept if (known := between(who)) is not None]
            found[f"{name}_{what}"] = min((float(who.mean()) - share for who, share in kept), default=None)
            found[f"{name}_{what}_low"] = min((known.low - share for known, share in ends), default=None)
            found[f"{name}_{what}_high"] = min((known.high - share for known, share in ends), default=None)
        return found

    def _in_order(self, among: Flags) -> npt.NDArray[np.int64]:
        """These requests as they were due."""
        found = np.flatnonzero(among)
        return found[np.argsort(self.columns["due_s"][found], kind="stable")]

    @property
    def per_s(self) -> float | None:
        """Goodput: requests within all their limits per second, after the warm-up; None where no limits are set."""
        length_s = self.end_s - self.level.warmup_s
        return int((self.good & self.due).sum()) / length_s if self.good is not None and length_s > 0 else None

    @cached_property
    def _sessions(self) -> tuple[npt.NDArray[np.int64], Flags, Flags]:
        """Of each request of a session its session's number from 0 on; which requests these are; and which of the
        sessions count: all that is due of them is, and something is."""
        session, due_s = self.columns["session"], self.columns["due_s"]
        of_session: Flags = session >= 0
        _, number = np.unique(session[of_session], return_inverse=True)
        early = np.bincount(number, due_s[of_session] < self.level.warmup_s) > 0  # NaN, which is not due, is not early
        due = np.bincount(number, self.due[of_session]) > 0
        return number, of_session, due & ~early

    @property
    def of_sessions(self) -> float | None:
        """The share of sessions, of those that began in time to be counted, of which every request was good; one that
        did not come to its end was not."""
        if self.good is None or not (self.columns["session"] >= 0).any():
            return None
        number, of_session, count = self._sessions
        bad = np.bincount(number, ~self.good[of_session]) > 0
        return float((~bad[count]).mean()) if count.any() else None

    @property
    def session_s(self) -> Floats:
        """How long each session took that came to its end, from when its first request was due to its last token."""
        number, of_session, count = self._sessions
        if not count.any():
            return np.zeros(0)
        done = (np.bincount(number, ~self.finished[of_session]) == 0) & count
        first, last = np.full(len(count), np.inf), np.full(len(count), -np.inf)
        np.fmin.at(first, number, self.columns["due_s"][of_session])
        np.fmax.at(last, number, self.columns["finish_s"][of_session])
        found: Floats = (last - first)[done]
        return found
