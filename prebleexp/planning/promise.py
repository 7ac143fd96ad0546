"""What a plan is to keep, from a service level: one number of each run, and where it must be."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from prebleexp.errors import InvalidInput
from prebleexp.service.level import LIMITED, ServiceLevel

ALL = "all limits"
"""the name of the share of requests that keep each limit that there is"""


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
        if cls(level)._of_each and level.target is None:
            raise InvalidInput("slo.target=null: some limits are on each request, so say which share is to keep them")
        return cls(level)

    @property
    def _of_each(self) -> bool:
        """Whether requests are to be good, besides keeping the limits of shares."""
        return not self.level.promises or any(isinstance(getattr(self.level, name), float) for name in LIMITED)

    @property
    def _shares(self) -> set[float]:
        own = {self.level.target} if self._of_each and self.level.target is not None else set()
        return {promise.share for promise in self.level.promises} | own

    @property
    def strictest(self) -> float:
        return max(self._shares)

    @property
    def target(self) -> float:
        return self.strictest if len(self._shares) == 1 else 0.0

    def kept(self, metrics: Mapping[str, Any]) -> float:
        """By a run. Raises InvalidInput if nothing was promised to its requests, or none of them counts."""
        if not metrics["due_requests"]:
            raise InvalidInput(
                f"slo.warmup_s={self.level.warmup_s:g} leaves out all requests of a run; runs are longer with requests="
            )
        if metrics["slo_attainment"] is None:
            raise InvalidInput("slo=none promises nothing to plan for; set slo=PRESET, or a limit: slo.ttft_s=0.5")
        margins = [metrics["slo_margin"]] if self.level.promises else []
        if self._of_each:
            margins.append(metrics["slo_attainment"] - self.level.target)
        return float(min(margins)) + self.target

    def alone(self, metrics: Mapping[str, Any]) -> tuple[float, float] | None:
        """The ends of the interval of `kept` that a run's stream says on its own; None where it is too short."""
        ends = []
        for end in ("low", "high"):
            margins = [metrics[f"slo_margin_{end}"]] if self.level.promises else []
            if self._of_each:
                share = metrics[f"slo_attainment_{end}"]
                margins.append(None if share is None else share - self.level.target)
            if None in margins:
                return None
            ends.append(float(min(margins)) + self.target)
        return ends[0], ends[1]

    @property
    def count(self) -> int:
        """How many promises there are: each share counts, and so do the limits of all requests together."""
        return len(self.level.promises) + self._of_each

    @property
    def measure(self) -> str:
        """What `kept` is: "all limits" (of requests within all of them at once), "worst limit" (within the one that is
        nearest to being broken), or "margin" (of that one, to its own share)."""
        if len(self._shares) > 1:
            return "margin"
        return "worst limit" if self.count > 1 else ALL

    @property
    def label(self) -> str:
        """The label of an axis that shows how the promise is kept."""
        if len(self._shares) > 1:
            return "Margin to the promised shares, of the nearest to being broken"
        return f"Share of requests within {f'the {self.measure}' if self.count > 1 else ALL}"

    def verdict(self, kept: float, ends: tuple[float, float] | None = None) -> str:
        """ "keeps the promise: 97.0 % (93.1 % to 98.8 %) of requests are within all limits", with the `ends` of an
        interval of the share."""
        verb = "keeps" if kept >= self.target else "breaks"
        if len(self._shares) > 1:
            between = "" if ends is None else f" ({ends[0] * 100:+.1f} to {ends[1] * 100:+.1f})".replace("-", "−")
            return f"{verb} the promise by {abs(kept) * 100:.1f} points{between}"
        between = "" if ends is None else f" ({ends[0] * 100:.1f} % to {ends[1] * 100:.1f} %)"
        within = f"the {self.measure}" if self.count > 1 else ALL
        return f"{verb} the promise: {kept * 100:.1f} %{between} of requests are within {within}"

    @property
    def words(self) -> str:
        """ "99 % of requests within ttft 0.5 s and tpot 0.05 s" …"""
        said = []
        if self._of_each:
            limits = [_limit(name, one) for name in LIMITED if isinstance(one := getattr(self.level, name), float)]
            within = " and ".join(limits) or "the limits that they bring"
            said.append(f"{_percent(self.level.target or 0)} of requests within {within}")
        said += [f"{_percent(one.share)} within {_limit(one.name, one.most)}" for one in self.level.promises]
        return f"{', '.join(said[:-1])} and {said[-1]}" if len(said) > 1 and not self._of_each else ", ".join(said)


def _limit(name: str, most: float) -> str:
    of = name.removesuffix("_s").removesuffix("_slowdown")
    return f"{most:g} times the idle {of}" if name.endswith("slowdown") else f"{of} {most:g} s"


def _percent(share: float) -> str:
    return f"{share * 100:g} %"
