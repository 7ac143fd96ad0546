"""How many GPUs there are to be: an autoscaler looks at what they report, at intervals, and says how many it wants."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from prebleexp.checks import integer, one_of, positive, require
from prebleexp.errors import InvalidInput
from prebleexp.sources import Part

if TYPE_CHECKING:
    from prebleexp.sim.fleet import Fleet
    from prebleexp.sim.types import Setup

LOADS = ("in_flight", "queued", "kv_use")


@dataclass(frozen=True)
class Autoscaler(Part):
    """All GPUs are there from the beginning to the end."""

    @property
    def changes_nothing(self) -> bool:
        return True

    def check(self, gpus: int, role: str | None = None) -> None:
        """Raises InvalidInput if it cannot do with so many GPUs, of a role if they have one."""

    def of_role(self, role: str | None) -> Rule | None:
        """What says the number of GPUs of a role, or of all where they have none; None: nothing does."""
        return None


@dataclass(frozen=True)
class Rule(Autoscaler):
    """The base of those that say something, by `desired`. `gpus=` is how many there can be; with tensor
    parallelism it says how many replicas it wants, each of several GPUs, and `least` and `initial` are of replicas.

    Where GPUs have roles it says so of those of each by itself: `least` and `initial` are of a role (see
    `prebleexp.autoscalers.by_role` for rules that differ).

    More are started, the first ones that are off, in the time that `faults=` says; of less the last started are drained
    (`faults.drain`), those first that are not up yet. Raises InvalidInput for other values.
    """

    zero: ClassVar[bool] = False
    """whether it may want none"""

    interval_s: float = 15.0
    """between two times at which it looks"""
    least: int = 1
    """GPUs that it wants at least"""
    initial: int | None = None
    """GPUs at the beginning; null: as many as at least"""

    def __post_init__(self) -> None:
        positive("autoscaler.interval_s", self.interval_s, "a number of seconds > 0")
        integer("autoscaler.least", self.least, 0 if self.zero else 1, 2**16)
        if self.initial is not None:
            integer("autoscaler.initial", self.initial, self.least, 2**16)

    @property
    def changes_nothing(self) -> bool:
        return False

    @property
    def first(self) -> int:
        """Replicas that serve at time 0: `initial`, or the fewest where that is not given."""
        return self.least if self.initial is None else self.initial

    @property
    def memory_s(self) -> float:
        """How long what it saw makes a difference to what it wants: where nothing else happens for longer, and it
        changes nothing, it looks no more."""
        return 3600.0

    def of_role(self, role: str | None) -> Rule | None:
        return self

    def check(self, gpus: int, role: str | None = None) -> None:
        if self.first > gpus:
            wanted = f"autoscaler wants {self.first} replicas{f' for {role}' if role else ''} at the beginning"
            raise InvalidInput(f"{wanted}, and there can be {gpus}; take more GPUs")

    def start(self, setup: Setup) -> Any:
        """What it remembers in a run; it may change that."""
        raise NotImplementedError

    def desired(self, mine: Any, fleet: Fleet, now: float) -> int:
        """How many GPUs it wants; more than there can be are as many as there can be."""
        raise NotImplementedError


@dataclass(frozen=True)
class ByLoad(Rule):
    """Of rules that hold a load of each GPU to a target."""

    load: str = "in_flight"
    """of a GPU, on average: in_flight, requests that routers have sent and not heard the end of; queued, requests that
    wait there; kv_use, the share of its KV memory that is in use"""
    target: float = 16.0
    """what it is to be"""

    def __post_init__(self) -> None:
        super().__post_init__()
        one_of("autoscaler.load", self.load, LOADS)
        positive("autoscaler.target", self.target)
        valid = "at most 1, a share, with autoscaler.load=kv_use"
        require(self.load != "kv_use" or self.target <= 1, "autoscaler.target", self.target, valid)

    def of(self, fleet: Fleet) -> float:
        """That load; 0 where no GPU is up."""
        return float(getattr(fleet, self.load).mean()) if len(fleet.in_flight) else 0.0


FIXED = Autoscaler()
