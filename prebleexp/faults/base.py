"""What happens to the GPUs of a cluster in a run: when they go down, come up again, slow down or are drained."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from prebleexp.checks import is_number, one_of, require
from prebleexp.sources import Part

ON_LOSS = ("retry", "resume", "fail")
EVENTS = ("down", "noticed", "up", "slow", "drain")
"""in the order of `prebleexp.sim.changes`"""


class Event(NamedTuple):
    """Something that happens to a GPU."""

    at_s: float
    gpu: int
    event: str
    factor: float = 1.0
    """of its speed, if it is slow"""


@dataclass(frozen=True)
class Faults(Part):
    """Nothing happens: the base of what says that something does, by `events`.

    A GPU that goes down loses its step in hand, its requests and its cache. Routers do not know it until `detect_ms`
    later, and what they send there is lost too. Then it is no candidate any more, and its requests follow `on_loss`.
    Raises InvalidInput for other values.
    """

    detect_ms: float = 0.0
    """from when a GPU goes down until routers know"""
    on_loss: str = "retry"
    """retry: a request that is lost is routed again, its whole prompt, and its first token is the first that was shown;
    resume: the same, with the tokens that were shown behind its prompt, so that only the rest is made; fail: that was
    its end"""

    def __post_init__(self) -> None:
        valid = is_number(self.detect_ms) and self.detect_ms >= 0
        require(valid, "faults.detect_ms", self.detect_ms, "a number of milliseconds >= 0")
        one_of("faults.on_loss", self.on_loss, ON_LOSS)

    @property
    def changes_nothing(self) -> bool:
        """Whether a run is the same without it."""
        return True

    @property
    def retries(self) -> bool:
        return self.on_loss != "fail"

    @property
    def resumes(self) -> bool:
        return self.on_loss == "resume"

    def check(self, gpus: int) -> None:
        """Raises InvalidInput if that cannot happen to so many GPUs."""

    def events(self, gpus: int, duration_s: float, seed: int) -> Iterable[Event]:
        """In order of time."""
        return ()

    def timeline(self, gpus: int, duration_s: float, seed: int) -> Any:
        """The same, and when routers hear of it: rows of `prebleexp.sim.changes.TIMELINE`."""
        from prebleexp.sim.changes import TIMELINE
        from prebleexp.sim.types import records

        rows = []
        for one in self.events(gpus, duration_s, seed):
            rows.append((one.at_s, one.gpu, EVENTS.index(one.event), one.factor))
            if one.event == "down":
                rows.append((one.at_s + self.detect_ms / 1e3, one.gpu, EVENTS.index("noticed"), 1.0))
        rows.sort(key=lambda row: row[0])
        made = records(len(rows), TIMELINE)
        made[:] = np.array(rows, TIMELINE)
        return made


NEVER = Faults()
