"""A quantity that a figure shows, in words and in a unit that suits its size."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import median

from prebleexp.metrics import DECLARED, HIGHER, LOWER, NEITHER, QUANTITIES, STATISTICS


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
        better = "" if self.better == NEITHER else f", {self.better} is better"
        return f"{self.title} ({self.unit}{better})"

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
    """Any metric of a run."""
    metric = DECLARED[name]
    words = f"{name[2:]} requests" if metric.unit == "requests" else name.replace("_", " ")
    for quantity in QUANTITIES:
        for short, statistic in STATISTICS.items():
            if name == f"{quantity.name}_{short}_s":
                what = quantity.meaning.partition(":")[0]
                what = what if quantity.name != "overhead" else "scheduling overhead"
                words = f"average {what}" if short == "mean" else f"{statistic.lower()} of {what}"
    return Measure(name, words, metric.unit, metric.meaning, metric.better)
