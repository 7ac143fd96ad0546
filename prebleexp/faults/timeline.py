"""What happens to GPUs as a list: this one goes down then."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from typing import Any

from prebleexp.checks import is_integer, is_number, one_of, require
from prebleexp.errors import InvalidInput, unknown
from prebleexp.faults.base import Event, Faults

STATES = {"down": ("up", "drained"), "up": ("down", "drained"), "slow": ("up", "drained"), "drain": ("up",)}
"""what a GPU must be for each event"""
BECOMES = {"down": "down", "up": "up", "drain": "drained"}


@dataclass(frozen=True)
class Timeline(Faults):
    """An event is as {at_s: 10, gpu: 0, event: down}. down: the GPU is lost. up: it is back, with a cold cache. slow,
    with factor: 0.5: its steps take twice as long from then on. drain: it gets no new requests, until it is up. Events
    of one time happen in the order of the list.

    Raises InvalidInput, naming the event, for a GPU that there is not, and for what cannot happen to it then, such as
    to come up while it is up.
    """

    happen: tuple[Any, ...] = ()
    """the events"""

    def __post_init__(self) -> None:
        super().__post_init__()
        require(isinstance(self.happen, tuple), "faults.happen", self.happen, "a list of events")
        object.__setattr__(
            self, "happen", tuple(_event(f"faults.happen[{i}]", one) for i, one in enumerate(self.happen))
        )
        are: dict[int, str] = {}
        for i, one in sorted(enumerate(self.happen), key=lambda row: row[1].at_s):
            state = are.get(one.gpu, "up")
            if state not in STATES[one.event]:
                raise InvalidInput(
                    f"faults.happen[{i}]: event={one.event} is not valid; GPU {one.gpu} is {state} at {one.at_s:g} s, "
                    f"and must be {' or '.join(STATES[one.event])}"
                )
            are[one.gpu] = BECOMES.get(one.event, state)

    @property
    def changes_nothing(self) -> bool:
        return not self.happen

    def identity(self) -> dict[str, object]:
        """The fields that are part of a run's key."""
        return {one.name: getattr(self, one.name) for one in fields(self)} | {"happen": self._plain()}

    def columns(self) -> dict[str, Any]:
        """The timeline's fields as columns of a table: its events, and how long a loss takes to be noticed, ms."""
        return self.identity()

    def _plain(self) -> list[dict[str, object]]:
        return [dict(zip(Event._fields, one, strict=True)) for one in self.happen]

    def check(self, gpus: int) -> None:
        for i, one in enumerate(self.happen):
            name = f"faults.happen[{i}]: gpu"
            require(one.gpu < gpus, name, one.gpu, f"an integer from 0 to {gpus - 1}, as there are {gpus} replicas")

    def events(self, gpus: int, duration_s: float, seed: int) -> Iterable[Event]:
        return sorted(self.happen, key=lambda one: one.at_s)


def _event(name: str, given: object) -> Event:
    if isinstance(given, Event):
        return given
    example = "an event such as {at_s: 10, gpu: 0, event: down}"
    require(isinstance(given, Mapping) and {"at_s", "gpu", "event"} <= set(given), name, given, example)
    assert isinstance(given, Mapping)
    for key in given:
        if key not in Event._fields:
            raise unknown(f"key in {name}:", str(key), Event._fields)
    event, factor = given["event"], given.get("factor", 1.0)
    one_of(f"{name}: event", event, tuple(STATES))
    valid = is_number(given["at_s"]) and given["at_s"] >= 0
    require(valid, f"{name}: at_s", given["at_s"], "a number of seconds >= 0")
    require(is_integer(given["gpu"], 0), f"{name}: gpu", given["gpu"], "an integer from 0 on")
    if event == "slow":
        require("factor" in given, f"{name}", given, "{…, event: slow, factor: 0.5}: it says how slow")
        require(is_number(factor) and factor > 0, f"{name}: factor", factor, "a number > 0, such as 0.5")
    else:
        require("factor" not in given or factor == 1, f"{name}: factor", factor, "that of an event slow")
    return Event(float(given["at_s"]), int(given["gpu"]), str(event), float(factor))
