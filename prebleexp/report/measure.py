"""A quantity that a figure shows, in words and in a unit that suits its size."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import median

from prebleexp.metrics import DECLARED, HIGHER, LOWER, NEITHER


@dataclass(frozen=True)
class Measure:
    """`meaning` defines it in the notes under a table, `formula` names a file of formulas/. `scale` is what a value of
    the metric is multiplied by to be in `unit`."""

    metric: str
    words: str
    unit: str
    meaning: str
    better: str = LOWER
    formula: str = ""
    against: str = "request rate"
    scale: float = 1.0

    @property
    def short(self) -> str:
        return self.words.removeprefix("average ")

    @property
    def title(self) -> str:
        return f"{self.words[0].upper()}{self.words[1:]}"

    @property
    def label(self) -> str:
        """With its unit, and which direction is better."""
        return self._with([] if self.better == NEITHER else [f"{self.better} is better"])

    @property
    def with_unit(self) -> str:
        return self._with([])

    def _with(self, notes: list[str]) -> str:
        notes = notes if self.unit in self.words.split() else [self.unit, *notes]
        return f"{self.title} ({', '.join(notes)})" if notes else self.title

    @property
    def is_time(self) -> bool:
        """Whether less of it is faster."""
        return self.better == LOWER and self.unit.partition("/")[0] in ("s", "ms")

    @property
    def superlative(self) -> str:
        return "fastest" if self.is_time else {LOWER: "lowest", HIGHER: "highest"}.get(self.better, "first")

    def words_for(self, sign: int) -> str:
        """Of a difference below zero, or above."""
        return ("faster", "slower")[sign > 0] if self.is_time else ("lower", "higher")[sign > 0]

    def in_unit_of(self, values: Sequence[float]) -> Measure:
        """Milliseconds where most values are below half a second."""
        if self.unit.partition("/")[0] != "s" or not values or not 0 < median(values) < 0.5:
            return self
        return replace(self, unit=f"m{self.unit}", scale=1000.0)


def of_metric(name: str) -> Measure:
    """Any metric of a run. Its meaning does not name a unit, which may be another one."""
    metric = DECLARED[name]
    meaning = metric.meaning.replace(", in seconds,", "").replace(", in seconds per token,", "")
    return Measure(name, metric.words, metric.unit, meaning, metric.better)
