"""What a routing decision costs in time: a policy counts its work, and coefficients turn the counts into seconds."""

from __future__ import annotations

from dataclasses import dataclass, field, fields

from prebleexp.checks import is_number, one_of, require
from prebleexp.sources import Part

MODES = ("none", "recorded", "serial")


@dataclass(frozen=True)
class Overhead(Part):
    """Seconds of a decision = prediction_s + decision_s + what its work costs.

    none: routing takes no time and nothing is recorded. recorded: its time is recorded, and requests do not wait for
    it, as in the release (spec: e2-as-released, Q5). serial: one router serves requests first come, first served; it
    decides with what it sees when it takes a request up, and sends it when the decision has taken its time. A
    prediction comes before: the router can take a request up when it is there, and predictors do not wait for each
    other.

    Raises InvalidInput for other modes and for costs that are negative.
    """

    mode: str = "none"
    """none, recorded or serial"""
    decision_s: float = 0.0
    """each decision"""
    node_s: float = 0.0
    """each node of the router's prefix tree that it visits"""
    segment_s: float = 0.0
    """each segment of a prompt that it compares"""
    entry_s: float = 0.0
    """each entry of its window that it reads"""
    gpu_s: float = 0.0
    """each GPU that it scores"""
    prediction_s: float = 0.0
    """each prediction of an output's length; policies that hear of no prediction are charged too"""
    source: str = field(default="", metadata={"key": False})
    """where the numbers are from"""

    def __post_init__(self) -> None:
        one_of("overhead.mode", self.mode, MODES)
        for name in (one.name for one in fields(self) if one.name.endswith("_s")):
            value = getattr(self, name)
            require(is_number(value) and value >= 0, f"overhead.{name}", value, "a number of seconds >= 0")
            object.__setattr__(self, name, float(value))

    def identity(self) -> dict[str, object]:
        """Without overhead, what it would cost does not matter."""
        if self.mode == "none":
            return {"mode": "none"}
        return {one.name: getattr(self, one.name) for one in fields(self) if one.metadata.get("key", True)}

    @property
    def unit_s(self) -> tuple[float, float, float, float]:
        """In the order of `prebleexp.sim.records.NODES` … `GPUS`."""
        return (self.node_s, self.segment_s, self.entry_s, self.gpu_s)
