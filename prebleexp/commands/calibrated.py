"""What `calibrate hardware` found, for programs (`output=json`), and which number it made worse."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, redirect_stdout
from dataclasses import asdict, dataclass, field
from typing import Any

from prebleexp.hardware import verdict

FARTHER = 0.01
"""of an error, as a share: what is no farther off than so much more is as it was"""


@dataclass(frozen=True)
class Stage:
    """A number that was measured, and how far off it is: simulated / measured − 1, or without a sign."""

    arm: str
    name: str
    """of a run or step its number, of a stage its rate"""
    metric: str
    measured: float | None
    before: float
    """by what ships"""
    after: float
    """by a fit to others; of an arm that was not fitted, by the fit"""
    fitted: bool = True
    """whether it is of what was fitted to"""

    def __str__(self) -> str:
        return f"{self.metric} of {self.name}, {100 * self.before:+.1f} → {100 * self.after:+.1f} %"


@dataclass
class Found:
    """All of it; filled in as it is found."""

    of: str = ""
    """what was fitted, in words"""
    support: str = ""
    """how well what ships is known"""
    factors: list[dict[str, Any]] = field(default_factory=list)
    stages: list[Stage] = field(default_factory=list)
    gains: list[dict[str, Any]] = field(default_factory=list)
    score: float | None = None
    verdict: str = ""
    file: str | None = None
    """that was written"""

    def judge(self, score: float) -> None:
        self.score, self.verdict = score, verdict.said(score)
        print(self.verdict)


def worst(stages: Sequence[Stage]) -> str:
    """The largest errors before and after, and how many are farther off than before, of which one by most: a median
    may hide it."""
    largest = [max(stages, key=lambda one, of=of: abs(getattr(one, of))) for of in ("before", "after")]  # type: ignore[misc]
    said = (
        f"the largest error is {100 * abs(largest[0].before):.1f} % ({largest[0].metric} of {largest[0].name}) by what "
        f"ships, {100 * abs(largest[1].after):.1f} % ({largest[1].metric} of {largest[1].name}) after"
    )
    farther = [one for one in stages if abs(one.after) > abs(one.before) + FARTHER]
    if not farther:
        return f"{said}; none of {len(stages)} is farther off than before"
    most = max(farther, key=lambda one: abs(one.after) - abs(one.before))
    return f"{said}; {len(farther)} of {len(stages)} are farther off than before, by most {most}"


@contextmanager
def printed(output: str) -> Iterator[Found]:
    """As a document on standard output, and what is said to people on standard error; or that alone."""
    found = Found()
    if output != "json":
        yield found
        return
    with redirect_stdout(sys.stderr):
        yield found
    json.dump(_plain(asdict(found)), sys.stdout, indent=1, allow_nan=False)
    sys.stdout.write("\n")


def _plain(value: Any) -> Any:
    """Numbers that are none are null."""
    if isinstance(value, dict):
        return {name: _plain(one) for name, one in value.items()}
    if isinstance(value, list):
        return [_plain(one) for one in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
