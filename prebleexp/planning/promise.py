"""What a plan is to keep, from a service level: one number of each run, and where it must be."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from prebleexp.errors import InvalidInput
from prebleexp.service.level import LIMITED, ServiceLevel

ALL = "all limits"
"""the name of the share of requests that keep each limit that there is"""
OF_RUN, AFTER_LOSS = "slo", "after_loss"
"""how metrics of all requests begin, and those of the requests due in the minute after a loss"""
MOST_DIGITS = 6
"""behind the point"""


@dataclass(frozen=True)
class ToKeep:
    """`target` is where `kept` must be. Of several promises `kept` is that of the one nearest to being broken: the
    least share if all are of one share, else the least margin, whose target is 0."""

    level: ServiceLevel

    @classmethod
    def of(cls, level: ServiceLevel) -> ToKeep:
        """Raises InvalidInput for a level that does not say of what which share is to be kept."""
        if not level.promises and level.target is None:
            raise InvalidInput("slo.target=null: a plan needs the share of requests to be good, as slo.target=0.9")
        if cls(level).has_target and level.target is None:
            raise InvalidInput("slo.target=null: some limits are on each request, so say which share is to keep them")
        return cls(level)

    @property
    def has_target(self) -> bool:
        """Whether some limits are on each request, so that `level.target` says which share is to be good."""
        return not self.level.promises or any(isinstance(getattr(self.level, name), float) for name in LIMITED)

    @property
    def _shares(self) -> set[float]:
        own = {self.level.target} if self.has_target and self.level.target is not None else set()
        return {promise.share for promise in self.level.promises} | own

    @property
    def strictest(self) -> float:
        return max(self._shares)

    @property
    def is_margin(self) -> bool:
        """Whether `kept` is the distance to a share, and not one."""
        return len(self._shares) > 1

    @property
    def target(self) -> float:
        return 0.0 if self.is_margin else self.strictest

    @property
    def nothing(self) -> float:
        """What `kept` is where no request is within a limit."""
        return self.target - self.strictest

    def kept(self, metrics: Mapping[str, Any]) -> float:
        """By a run. Raises InvalidInput if nothing was promised to its requests, or none of them counts."""
        if not metrics["due_requests"]:
            raise InvalidInput(
                f"slo.warmup_s={self.level.warmup_s:g} leaves out all requests of a run; runs are longer with requests="
            )
        if metrics["slo_attainment"] is None:
            raise InvalidInput("slo=none promises nothing to plan for; set slo=PRESET, or a limit: slo.ttft_s=0.5")
        kept = self._least(metrics, OF_RUN)
        assert kept is not None
        return kept

    def after_loss(self, metrics: Mapping[str, Any]) -> float | None:
        """What `kept` is of the requests due in the minute after a loss; None where there are none."""
        return self._least(metrics, AFTER_LOSS)

    def alone(self, metrics: Mapping[str, Any]) -> tuple[float, float] | None:
        """The ends of the interval of `kept` that a run's stream says on its own; None where it is too short."""
        return self._ends(metrics, OF_RUN)

    def alone_after_loss(self, metrics: Mapping[str, Any]) -> tuple[float, float] | None:
        """Those of `after_loss`."""
        return self._ends(metrics, AFTER_LOSS)

    def _ends(self, metrics: Mapping[str, Any], of: str) -> tuple[float, float] | None:
        low, high = (self._least(metrics, of, end) for end in ("_low", "_high"))
        return None if low is None or high is None else (low, high)

    def _least(self, metrics: Mapping[str, Any], of: str, end: str = "") -> float | None:
        """Of all promises; `of` is what metrics of the requests begin with, `end` how those of an interval's end do."""
        margins = [metrics[f"{of}_margin{end}"]] if self.level.promises else []
        if self.has_target:
            share = metrics[f"{of}_attainment{end}"]
            margins.append(None if share is None else share - self.level.target)
        return None if None in margins else float(min(margins)) + self.target

    @property
    def count(self) -> int:
        """How many promises there are: each share counts, and so do the limits of all requests together."""
        return len(self.level.promises) + self.has_target

    @property
    def measure(self) -> str:
        """What `kept` is: "all limits" (of requests within all of them at once), "worst limit" (within the one that is
        nearest to being broken), or "margin" (of that one, to its own share)."""
        if self.is_margin:
            return "margin"
        return "worst limit" if self.count > 1 else ALL

    @property
    def label(self) -> str:
        """The label of an axis that shows how the promise is kept."""
        if self.is_margin:
            return "Margin to the promised shares, of the nearest to being broken"
        return f"Share of requests within {self.within}"

    def verdict(self, kept: float, ends: tuple[float, float] | None = None) -> str:
        """ "keeps the promise: 97.0 % (93.1 % to 98.8 %) of requests are within all limits", with the `ends` of an
        interval of the share."""
        verb = "keeps" if kept >= self.target else "breaks"
        if self.is_margin:
            between = "" if ends is None else f" ({self.said(ends[0])} to {self.said(ends[1])})"
            return f"{verb} the promise by {self.said(kept).lstrip('+−')} points{between}"
        between = "" if ends is None else f" ({self.said(ends[0])} to {self.said(ends[1])})"
        return f"{verb} the promise: {self.said(kept)}{between} of requests are within {self.within}"

    @property
    def within(self) -> str:
        """ "all limits", or "the worst limit"."""
        return f"the {self.measure}" if self.count > 1 else ALL

    def said(self, kept: float, half_width: float | None = None) -> str:
        """ "95.2 %", "94.95 %" where 95 % is promised: with so many digits that it is on the side of the target that it
        is on, and never 100 % of what is not all. Of a margin points: "+1.2"."""
        target = round(self.target * 100, 9)
        for digits in range(1, MOST_DIGITS):
            most = math.inf if kept >= 1 or self.is_margin else 100 - 10.0**-digits
            shown = round(min(kept * 100, most), digits)
            if (shown >= target) == (kept >= self.target):
                break
        half = "" if half_width is None or not round(half_width * 100, digits) else f" ± {half_width * 100:.{digits}f}"
        sign, unit = ("+", "") if self.is_margin else ("", " %")
        return f"{shown:{sign}.{digits}f}{half}{unit}".replace("-", "−")

    @property
    def words(self) -> str:
        """ "99 % of requests within ttft 0.5 s and tpot 0.05 s" …"""
        said = []
        if self.has_target:
            limits = [_limit(name, one) for name in LIMITED if isinstance(one := getattr(self.level, name), float)]
            within = " and ".join(limits) or "the limits that they bring"
            said.append(f"{_percent(self.level.target or 0)} of requests within {within}")
        said += [f"{_percent(one.share)} within {_limit(one.name, one.most)}" for one in self.level.promises]
        return f"{', '.join(said[:-1])} and {said[-1]}" if len(said) > 1 and not self.has_target else ", ".join(said)


def _limit(name: str, most: float) -> str:
    of = name.removesuffix("_s").removesuffix("_slowdown")
    return f"{most:g} times the idle {of}" if name.endswith("slowdown") else f"{of} {most:g} s"


def _percent(share: float) -> str:
    return f"{share * 100:g} %"


def refuse_target(of: Sequence[ToKeep]) -> None:
    """Raises InvalidInput for a slo.target where each limit has a share of its own."""
    if not any(one.has_target for one in of):
        level = of[0].level
        name, share = level.promises[0].name, (level.target or 0.0) * 100
        raise InvalidInput(
            f"slo.target={level.target} does nothing here: each limit has a share of its own; say 'slo.{name}="
            f"{{p{share:g}: …}}' in its place"
        )
