"""A limit on how much worse the second side of a comparison may be: what fails a build."""

from __future__ import annotations

import math
from dataclasses import dataclass

from prebleexp.comparison import Cell, loses_more, metric_of
from prebleexp.errors import InvalidInput
from prebleexp.metrics import DECLARED, HIGHER, LOWER


@dataclass(frozen=True)
class Limit:
    """B may be so much higher than A, or lower where `share` is below zero."""

    metric: str
    share: float

    def exceeded_by(self, cell: Cell) -> bool:
        """Whether B is beyond the limit."""
        sign = math.copysign(1, self.share)
        if cell.difference is None:
            return cell.a == 0 and cell.b * sign > 0
        return cell.difference * sign > abs(self.share)

    def broken_by(self, cell: Cell) -> bool:
        """Whether B is beyond it and surely on that side of A, with the intervals of all cells at once. Of one seed the
        value decides, whatever the metric, since batches of its requests speak of other streams."""
        if not self.exceeded_by(cell):
            return False
        return cell.difference is None or cell.together is None or abs(cell.difference) > cell.together

    def evaded_by(self, cell: Cell) -> bool:
        """Whether B did not serve requests that A did, and so is not measured by them."""
        return loses_more(cell.runs[1], cell.runs[0], self.metric)


def limit_of(text: str) -> Limit:
    """A limit from "p99_ttft:+5%". Raises InvalidInput for what is not of that form, or forbids to get better."""
    name, _, share = text.partition(":")
    number = share.strip().removesuffix("%")
    try:
        value = float(number) / 100
    except ValueError:
        value = math.nan
    if not share.strip().endswith("%") or not math.isfinite(value) or number[:1] not in "+-":
        raise InvalidInput(f"fail_if={text} is not valid; it is like p99_ttft:+5% or hit_ratio:-2%")
    metric, sign = metric_of(name.strip()), -1 if number[0] == "-" else 1
    better = DECLARED[metric].better
    if better == (HIGHER if sign > 0 else LOWER):
        raise InvalidInput(
            f"fail_if={text} would fail what is better: of {metric} {better} is; write {name}:{'+-'[sign > 0]}…%"
        )
    return Limit(metric, math.copysign(value, sign))
