"""What is promised to users: limits on what a request may take, and for which share of requests they hold."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from functools import cached_property
from typing import Any

from prebleexp.checks import is_number, not_valid, require
from prebleexp.sources import Part

TIMES = ("ttft_s", "tpot_s", "latency_s")
SLOWDOWNS = ("ttft_slowdown", "tpot_slowdown", "latency_slowdown")
GAPS = ("gap_p99_s", "gap_top10_s")
LIMITED = (*TIMES, *GAPS, *SLOWDOWNS)
"""what limits are on"""
BY_SHARE = re.compile(r"p(\d{1,2}(\.\d+)?)")

Limit = float | tuple[tuple[str, float], ...] | None
"""of every request, or of shares of them: (("p50", 2.0), ("p99", 6.0))"""


@dataclass(frozen=True)
class Promise:
    """A share of the requests that is to be within a limit."""

    name: str
    """of `LIMITED`"""
    most: float
    share: float


@dataclass(frozen=True)
class ServiceLevel(Part):
    """Limits on each request: a number, which a request must keep to be good, or one for each of several shares of the
    requests, as {p50: 2, p99: 6}, which then are promises of their own. A workload's `slo_ttft_s` and `slo_tpot_s`
    stand in place of the limits here for requests that have them.

    Requests that were not served keep no limit, however few are asked for. Raises InvalidInput, naming the field, for
    values that are not valid.
    """

    ttft_s: Limit = None
    """time to first token"""
    tpot_s: Limit = None
    """time per output token; requests of one token keep any"""
    latency_s: Limit = None
    """from the time a request is due to its last token"""
    gap_p99_s: Limit = None
    """99th percentile of the gaps between a request's tokens; requests of one token keep any"""
    gap_top10_s: Limit = None
    """mean of the longest tenth of these gaps, as Mooncake's time between tokens; likewise"""
    ttft_slowdown: Limit = None
    """time to first token over that of the same request alone on an idle GPU with an empty prefix cache"""
    tpot_slowdown: Limit = None
    """time per output token, likewise"""
    latency_slowdown: Limit = None
    """latency, likewise"""
    target: float | None = field(default=None, metadata={"key": False})
    """the share of requests that is to be good, within all limits that are numbers; a run's metrics do not depend on
    it"""
    warmup_s: float = 0.0
    """requests due before this are served as all others and not counted: not in averages over requests either"""
    slowdown: bool = False
    """whether slowdowns are measured where they have no limit, too: it takes a run of all requests one by one"""
    alone_on: Part | None = None
    """the hardware of that idle GPU, as a `prebleexp.hardware.base.Hardware`, in YAML in what it differs from
    `hardware`, as {hardware/gpu: a100}; None: the run's own, of several kinds the first"""
    source: str = field(default="", metadata={"key": False})
    """where the numbers are from"""

    def __post_init__(self) -> None:
        for name in LIMITED:
            object.__setattr__(self, name, _limit(f"slo.{name}", getattr(self, name)))
        target, warmup = self.target, self.warmup_s
        valid = target is None or (is_number(target) and 0 < target < 1)
        require(valid, "slo.target", target, "a share of the requests, between 0 and 1, or null")
        require(is_number(warmup) and warmup >= 0, "slo.warmup_s", warmup, "a number of seconds >= 0")
        require(isinstance(self.slowdown, bool), "slo.slowdown", self.slowdown, "true or false")

    def identity(self) -> dict[str, object]:
        """Its fields, with all of the hardware that it names, if it does."""
        own = _kept(self)
        one = own.pop("alone_on")
        if one is None:
            return own
        kept = one.identity() if hasattr(one, "identity") else _kept(one)
        return own | {"alone_on": {"_target_": f"{type(one).__module__}.{type(one).__qualname__}", **kept}}

    def columns(self) -> dict[str, Any]:
        """What tables show: of hardware its title."""
        title = getattr(self.alone_on, "title", "")
        return _kept(self) | {"alone_on": title or (self.alone_on and type(self.alone_on).__name__)}

    @property
    def changes_nothing(self) -> bool:
        """Whether a run has the same metrics as without it."""
        return not (self.loosest or self.warmup_s or self.slowdown)

    @property
    def needs_unloaded(self) -> bool:
        """Whether it takes to know how requests do alone."""
        return self.slowdown or any(getattr(self, name) is not None for name in SLOWDOWNS)

    @property
    def needs_gaps(self) -> bool:
        """Whether it takes to know the gaps between the tokens of each request."""
        return any(getattr(self, name) is not None for name in GAPS)

    @property
    def without_limits(self) -> ServiceLevel:
        """The same requests count, and nothing is promised."""
        return ServiceLevel(warmup_s=self.warmup_s)

    @cached_property
    def promises(self) -> tuple[Promise, ...]:
        """One for each share that has a limit of its own."""
        return tuple(
            Promise(name, most, float(share[1:]) / 100)
            for name in LIMITED
            if isinstance(limit := getattr(self, name), tuple)
            for share, most in limit
        )

    @property
    def loosest(self) -> dict[str, float]:
        """The limits that good requests keep."""
        found = {}
        for name in LIMITED:
            limit = getattr(self, name)
            if limit is not None:
                found[name] = limit if isinstance(limit, float) else max(most for _, most in limit)
        return found


def _kept(spec: Any) -> dict[str, Any]:
    """The fields that a key knows."""
    return {one.name: getattr(spec, one.name) for one in fields(spec) if one.metadata.get("key", True)}


def _limit(name: str, value: Any) -> Limit:
    valid = "a number > 0, such a number for each of several shares, as {p50: 2, p99: 6}, or null"
    if value is None:
        return None
    if is_number(value) and value > 0:
        return float(value)
    pairs = list(value.items()) if isinstance(value, Mapping) else value
    if not isinstance(pairs, Sequence) or isinstance(pairs, str) or not pairs:
        raise not_valid(name, value, valid)
    found = {}
    for pair in pairs:
        known = isinstance(pair, Sequence) and len(pair) == 2 and isinstance(pair[0], str) and is_number(pair[1])
        if not known or not BY_SHARE.fullmatch(pair[0]) or float(pair[0][1:]) == 0 or pair[1] <= 0:
            raise not_valid(name, value, valid)
        found[pair[0]] = float(pair[1])
    return tuple(sorted(found.items(), key=lambda one: float(one[0][1:])))


NONE = ServiceLevel()
