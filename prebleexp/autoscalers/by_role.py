"""Pools of prompts and of outputs, each with a rule of its own."""

from __future__ import annotations

from dataclasses import dataclass

from prebleexp.autoscalers.base import FIXED, Autoscaler, Rule
from prebleexp.checks import require
from prebleexp.errors import InvalidInput


@dataclass(frozen=True)
class ByRole(Autoscaler):
    """Of each role a rule and its bounds. All of them look at the same times, as the controllers of one cluster do.

    Raises InvalidInput for rules that look at different intervals, and where GPUs have no roles.
    """

    prefill: Autoscaler = FIXED
    """of GPUs that compute prompts alone; `prebleexp.autoscalers.base.Autoscaler`: all are there all the time"""
    decode: Autoscaler = FIXED
    """of those that make outputs"""
    both: Autoscaler = FIXED
    """of those that do both"""

    def __post_init__(self) -> None:
        intervals = {rule.interval_s for rule in map(self.of_role, ("prefill", "decode", "both")) if rule is not None}
        valid = "the same for all roles"
        require(len(intervals) <= 1, "autoscaler: interval_s", ", ".join(map(str, sorted(intervals))), valid)

    @property
    def changes_nothing(self) -> bool:
        return all(one.changes_nothing for one in (self.prefill, self.decode, self.both))

    def of_role(self, role: str | None) -> Rule | None:
        if role is None:
            raise InvalidInput("autoscaler=by_role is not valid, since GPUs have no roles; take autoscaler=hpa")
        of: Autoscaler = getattr(self, role)
        return of.of_role(role)

    def check(self, gpus: int, role: str | None = None) -> None:
        rule = self.of_role(role)
        if rule is not None:
            rule.check(gpus, role)
