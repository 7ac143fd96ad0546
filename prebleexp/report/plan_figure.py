"""The figure of a plan: what is kept against what was tried, a line for each contender, with the target across."""

from __future__ import annotations

import math
from collections.abc import Sequence

from prebleexp.planning.answer import Spot
from prebleexp.planning.contender import GPUS
from prebleexp.planning.planned import NAMES, Planned, best_first
from prebleexp.report import draw, planned
from prebleexp.report.answer import Answer
from prebleexp.report.canvas import POINTS
from prebleexp.report.draw import Across, Line, Scales, Span, labels_fit
from prebleexp.report.figures import Data, Entry, Figure, Panel
from prebleexp.report.palette import styles
from prebleexp.report.plan_table import table
from prebleexp.report.wording import axis_label

NAME = "attainment"
AGAINST = {"rps": "request rate", "workload.lanes": "users", "gpus": "GPUs"}
MOST_TICKS = 10
DEEP = 5.0
"""times as far below the target as all is above it, y goes"""


def figure(found: Sequence[Planned]) -> Figure:
    """Made of all runs of these contenders."""
    order = best_first(found)
    first = order[0].contender
    looks = styles(one.name for one in order)
    to_keep, target = first.to_keep, order[0].answer.target
    lines = [
        Line(one.name, looks[one.name], tuple((spot.size, spot.kept, spot.half_width) for spot in one.answer.curve))
        for one in order
    ]
    labelled = labels_fit([line.name for line in lines])
    spans = (
        ()
        if first.searched == GPUS
        else tuple(
            Span(looks[one.name], one.answer.low, one.answer.high)
            for one in order
            if one.answer.low is not None and one.answer.high is not None
        )
    )
    sentence = planned.sentence(found)
    svg = draw.panel(
        lines,
        _scales(lines, target, to_keep.strictest, whole=first.searched == GPUS),
        name=NAME,
        title=f"{to_keep.label}, and the target",
        description=sentence,
        labelled=labelled,
        across=Across(target, spans),
    )
    x = axis_label(first.searched)
    return Figure(
        name=NAME,
        number="",
        title=f"What is kept against {AGAINST[first.searched]}",
        command="",
        x=x,
        y=to_keep.label,
        answer=Answer("What was kept of all that was tried, on the way to the answer."),
        losses="",
        panels=(Panel("", svg, draw.WIDTH_IN * POINTS, draw.HEIGHT_IN * POINTS),),
        paired=False,
        left_out=0,
        legend=() if labelled else tuple(Entry(name, look) for name, look in looks.items()),
        caption=_caption(order, target),
        table=table(found),
        data=_data(order),
    )


def _scales(lines: Sequence[Line], target: float, strictest: float, *, whole: bool) -> Scales:
    """Of y, where it matters: around the target. Of `whole` GPUs x has ticks at numbers that were tried."""
    usual = Scales.of(lines)
    above = max([1 - strictest, *(mean - target for line in lines for _, mean, _ in line.points if mean is not None)])
    tried = sorted({size for line in lines for size, *_ in line.points})
    ticks = _apart(tried, usual.x_limits) if whole else _ticks(usual.x_limits)
    return Scales(ticks, usual.x_log2, usual.x_limits, False, (target - DEEP * above, target + 1.15 * above))


def _apart(tried: Sequence[float], limits: tuple[float, float]) -> tuple[float, ...]:
    """Those whose numbers have room beside each other on a logarithmic axis."""
    room = math.log(limits[1] / max(limits[0], 1e-9)) / MOST_TICKS
    found: list[float] = []
    for size in tried:
        if not found or math.log(size / found[-1]) >= room:
            found.append(size)
    return tuple(found)


def _ticks(limits: tuple[float, float]) -> tuple[float, ...]:
    """1, 2, 5, 10 … within the limits, and more where that is few."""
    low, high = max(limits[0], 1e-9), limits[1]
    for steps in ((1, 2, 5), (1, 1.5, 2, 3, 5, 7), tuple(i / 10 for i in range(10, 100))):
        decades = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
        found = tuple(step * 10**decade for decade in decades for step in steps if low <= step * 10**decade <= high)
        if len(found) >= 4:
            return found[:: 1 + len(found) // 10]
    return found


def _caption(order: Sequence[Planned], target: float) -> str:
    seeds = sorted({spot.seeds for one in order for spot in one.answer.curve})
    count = str(seeds[0]) if len(seeds) == 1 else f"{seeds[0]} to {seeds[-1]}"
    if order[0].contender.is_recorded:
        return (
            f"Points are the recording itself. The dashed line is the target, {target:g}. What lies far below it is "
            "not drawn; the file has all."
        )
    spans = "" if order[0].contender.searched == GPUS else ", with the intervals of the answers on it"
    return (
        f"Points are means over {count} seeds, bands their 95 % confidence intervals. The dashed line is the target, "
        f"{target:g}{spans}. What lies far below it is not drawn; the file has all."
    )


def _data(order: Sequence[Planned]) -> Data:
    """A row for every point."""

    def row(one: Planned, spot: Spot) -> tuple[str | float | int | None, ...]:
        return one.name, spot.size, spot.kept, spot.half_width, spot.seeds, one.answer.counted

    columns = ("contender", NAMES[order[0].contender.searched], "kept", "half_width_95", "seeds", "requests_of_run")
    return Data(columns, tuple(row(one, spot) for one in order for spot in one.answer.curve))
