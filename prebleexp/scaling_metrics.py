"""How the number of replicas went over a run, in numbers and in words: what an autoscaler changed, and how many there
were. A replica is what routers send to (the column `gpu` of requests): with tensor parallelism several GPUs.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from itertools import groupby, pairwise
from typing import Any, NamedTuple

from prebleexp.sim.history import SERVING, Decision, GpuState, History

Declared = tuple[str, str, Callable[[Any], int | None], str, str, str]


class Counts(NamedTuple):
    """How many replicas were in which state from a time on, in seconds from the start."""

    at_s: float
    of: Counter[GpuState]

    @property
    def ready(self) -> int:
        """That requests are sent to, slow ones too."""
        return sum(self.of[state] for state in SERVING)


def over_time(history: History) -> Iterator[Counts]:
    """One for each time at which a replica's state changed; none where no replica's ever did."""
    now: dict[int, GpuState] = {}
    for at_s, changes in groupby(history.gpu_states, lambda one: one.at_s):
        now |= {one.gpu: one.state for one in changes}
        yield Counts(at_s, Counter(now.values()))


def _changes(history: History) -> list[Decision]:
    """Decisions after which replicas were started or drained."""
    return [one for one in history.decisions if one.started or one.drained]


def scale_changes(history: History) -> int | None:
    """How often the autoscaler started or drained replicas; None without one."""
    return len(_changes(history)) if history.decisions else None


def scale_flips(history: History) -> int | None:
    """How often such a change was the other way than the one before; None without an autoscaler."""
    up = [one.started > one.drained for one in _changes(history)]
    return sum(before != after for before, after in pairwise(up)) if history.decisions else None


def ready(history: History, replicas: int, of: Callable[[list[int]], int]) -> int | None:
    """`of` how many of the run's `replicas` were ready at its times; None where nothing happens to them."""
    changed = history.gpu_states or history.decisions
    return None if not changed else of([one.ready for one in over_time(history)] or [replicas])


def most_wanted(history: History) -> int | None:
    """The most replicas that the autoscaler wanted in a run; None without one."""
    return max((one.wanted for one in history.decisions), default=None)


def sentence(history: History, replicas: int) -> str:
    """What became of the number of replicas; empty where nothing did."""
    most, least, count = ready(history, replicas, max), ready(history, replicas, min), scale_changes(history)
    if most is None:
        return ""
    there = f"most {most}, least {least}"
    if count is None:
        return f"the number of ready replicas changed: {there}"
    times = "never changed the number of replicas" if not count else "changed the number of replicas once"
    times = f"changed the number of replicas {count:,} times" if count > 1 else times
    flips = scale_flips(history)
    turned = f", {'once' if flips == 1 else f'{flips:,} times'} the other way than before" if flips else ""
    return f"the autoscaler {times}{turned}: {there} were ready, and it wanted {most_wanted(history)} at most"


_NONE = "Nothing without an autoscaler."
_READY = "replicas (with tensor parallelism several GPUs each) that were ready at a time, slow ones among them"
METRICS: tuple[Declared, ...] = (
    ("scale_changes", "changes by the autoscaler", lambda run: scale_changes(run.made.history), "times", "lower",
     f"How often the autoscaler looked and started or drained replicas. {_NONE}"),
    ("scale_flips", "changes of the autoscaler's mind", lambda run: scale_flips(run.made.history), "times", "lower",
     f"How many of those changes were up after one down, or down after one up. {_NONE}"),
    ("most_replicas", "most ready replicas", lambda run: ready(run.made.history, len(run.made.gpu_on_s), max),
     "replicas", "neither", f"The most {_READY}. Nothing where no autoscaler or fault changes that."),
    ("least_replicas", "fewest ready replicas", lambda run: ready(run.made.history, len(run.made.gpu_on_s), min),
     "replicas", "neither", f"The fewest {_READY}. Nothing likewise."),
    ("most_wanted", "most replicas that the autoscaler wanted", lambda run: most_wanted(run.made.history), "replicas",
     "neither", f"The most replicas that the autoscaler wanted at a look, within its bounds. {_NONE}"),
)  # fmt: skip
