"""The result of a sweep in one or two sentences, computed from its points."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from prebleexp.intervals import mean_interval
from prebleexp.report.summary import Layout, Point, grouped
from prebleexp.report.wording import condition, conditions, interval, listed, plain

MANY = 4
"""more panels than this are counted, not named"""


@dataclass(frozen=True)
class Lead:
    """The lowest line of a panel at its largest x. `behind` is the next one, if the seeds cannot tell the two apart."""

    where: str
    """the panel in words"""
    x: str
    best: Point
    name: str
    behind: str | None
    alone: bool


def leads(points: Sequence[Point], where: Layout) -> list[Lead]:
    """A lead per panel, of points sorted as `summary.points` does; none for a panel without a single value."""
    found = []
    measured = (point for point in points if point.values)
    for panel in grouped(measured, lambda point: tuple(point.at[axis] for axis in where.panels)).values():
        x = panel[-1].at[where.x]
        ranked = sorted((p for p in panel if p.at[where.x] == x), key=lambda p: p.interval or (0, None))
        best, others = ranked[0], ranked[1:]
        behind = plain(others[0].at[where.line]) if others and not _apart(best, others[0]) else None
        name, place = plain(best.at[where.line]), conditions(best.at, where.panels)
        found.append(Lead(place, condition(where.x, x), best, name, behind, not others))
    return found


def headline(points: Sequence[Point], where: Layout, metric: str, unit: str) -> str:
    """Who has the lowest `metric` where x is largest, panel by panel, and whether that is sure."""
    found = leads(points, where)
    if not points:
        return "No run of this sweep succeeded, so there is nothing to compare."
    if not found:
        return f"No request of this sweep came far enough to have a {metric}."
    at = listed(list(dict.fromkeys(lead.x for lead in found)))
    names = Counter(lead.name for lead in found)
    if all(lead.alone for lead in found) and len(names) == 1:
        start = f"At {at}, {found[0].name} has an average {metric} of "
    elif len(names) == 1:
        start = f"At {at}, {found[0].name} has the lowest average {metric}: "
    else:
        start = f"At {at}, the lowest average {metric} is "
    if len(found) > MANY:
        return _counted(at, names, metric, len(found)) + _doubt(found)
    whose = "" if len(names) == 1 else "{name}'s "
    parts = [f"{whose.format(name=lead.name)}{interval(lead.best.interval)} {unit}{_on(lead.where)}" for lead in found]
    return f"{start}{listed(parts)}.{_doubt(found)}"


def _counted(at: str, names: Counter[str], metric: str, panels: int) -> str:
    counts = [f"{name} in {count}" for name, count in names.most_common()]
    return f"At {at}, the lowest average {metric} in {panels} panels: {listed(counts)}."


def _doubt(found: Sequence[Lead]) -> str:
    unsure = [lead for lead in found if lead.behind is not None]
    if all(len(lead.best.values) < 2 for lead in found):
        return " There is one seed per point, so no interval: a difference may be chance."
    if not unsure:
        return ""
    if len(unsure) > MANY:
        return f" In {len(unsure)} of the panels the lead over the next one is within the noise."
    parts = [f"over {lead.behind}{_on(lead.where)}" for lead in unsure]
    return f" Within the noise: its lead {listed(parts)}." if len(found) > 1 else f" Its lead {parts[0]} is noise."


def _on(where: str) -> str:
    return f" {'on' if where[:1].isdigit() else 'with'} {where}" if where else ""


def _apart(best: Point, other: Point) -> bool:
    """Whether the 95 % interval of the paired differences over common seeds leaves out zero."""
    common = [seed for seed in best.values if seed in other.values]
    if len(common) < 2:
        return False
    mean, half_width = mean_interval([other.values[seed] - best.values[seed] for seed in common])
    return half_width is not None and mean > half_width
