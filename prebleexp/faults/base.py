"""What happens to the GPUs of a cluster in a run: when they go down, come up again, slow down or are drained."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from prebleexp.checks import is_number, one_of, positive, require
from prebleexp.sources import Part

DRAINS = ("finish", "requeue")
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

    A GPU that goes down loses its current step, its requests and its cache. Routers learn of it `detect_ms` later, and
    what they send there until then is lost too. From then on it is no candidate, and its requests follow `on_loss`. A
    GPU that comes up again first takes the seconds of its start; it is paid for meanwhile and serves no requests.
    Raises InvalidInput for other values.
    """

    detect_ms: float = 0.0
    """from when a GPU goes down until routers know"""
    on_loss: str = "retry"
    """retry: a lost request is routed again with its whole prompt, and its first token is the first that was shown;
    resume: the same, with the tokens that were shown appended to its prompt, so that only the rest is generated; fail:
    it ends"""

    drain: str = field(default="finish", kw_only=True)
    """finish: a GPU that is drained goes on with all that it has; requeue: requests that wait there and were never
    admitted are given back, to be routed again; which is no loss, and no retry"""
    drain_s: float | None = field(default=None, kw_only=True)
    """seconds after which what a drained GPU still has is lost, as routers know at once; null: it may take its time"""
    node_s: float = field(default=0.0, kw_only=True)
    """seconds until a GPU that is started has a machine, …"""
    image_s: float = field(default=0.0, kw_only=True)
    """… until that has the engine's image, …"""
    source_gb_s: float | None = field(default=None, kw_only=True)
    """… a second of the weights, from where they are kept, over PCIe at most; null: loading them takes no time …"""
    init_s: float = field(default=0.0, kw_only=True)
    """… and until the engine is warm: it compiles, and captures graphs. Nobody publishes it: 10 to 100 s"""

    def __post_init__(self) -> None:
        for name in ("node_s", "image_s", "init_s"):
            value = getattr(self, name)
            require(is_number(value) and 0 <= value < math.inf, f"faults.{name}", value, "a number of seconds >= 0")
        for name, what in (("drain_s", "a number of seconds > 0"), ("source_gb_s", "a number of GB a second > 0")):
            if getattr(self, name) is not None:
                positive(f"faults.{name}", getattr(self, name), f"{what}, or null")
        one_of("faults.drain", self.drain, DRAINS)
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

    @property
    def requeues(self) -> bool:
        return self.drain == "requeue"

    @property
    def limit_s(self) -> float:
        return math.inf if self.drain_s is None else self.drain_s

    def start_s(self, hardware: Any) -> float:
        """Seconds from when a GPU of this hardware is started until it may serve."""
        loading_s = 0.0 if self.source_gb_s is None else float(hardware.load_s(self.source_gb_s))
        return self.node_s + self.image_s + loading_s + self.init_s

    def check(self, gpus: int) -> None:
        """Raises InvalidInput if that cannot happen to so many GPUs. As in all that is simulated, one of these is a
        replica: with tensor parallelism, the GPUs that serve one copy of the model."""

    def of_replicas(self, gpus: Sequence[int]) -> Faults:
        """What happens to replicas that take so many GPUs each: the same, unless it is a matter of that number."""
        return self

    def events(self, gpus: int, duration_s: float, seed: int) -> Iterable[Event]:
        """Events of the run, in order of time."""
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
