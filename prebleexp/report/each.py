"""One line against each of the others: the sentence of a page that is about somebody's own router, and a table of what
else differs."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial

from prebleexp.errors import unknown
from prebleexp.metrics import HIGHER, NEITHER
from prebleexp.report import explained, signed
from prebleexp.report.differences import Difference, on_average
from prebleexp.report.explained import LOOKED_AT, Level
from prebleexp.report.figures import Column, Table
from prebleexp.report.headline import (
    ONE_SEED,
    TIMES,
    Lines,
    clause,
    differences,
    headline,
    lines_of,
    others_of,
    ranked,
    ratio,
)
from prebleexp.report.many import is_own
from prebleexp.report.measure import Measure
from prebleexp.report.measures import SAID, Drawing, said
from prebleexp.report.page import Aside
from prebleexp.report.summary import Layout, Point, Row, Value, layout, points
from prebleexp.report.wording import NOTHING, condition, listed, number, plain, signed_percent

MOST_OWN = 2
"""of which there is a sentence each; where somebody tries more, the best are asked for"""
MOST = 5
"""others that a sentence has one by one; of more it counts those that are better and worse"""
RULE = (
    "A difference is of {} relative to the other, over the request streams that both had{}, with its 95 % interval. It "
    "is undecided where that has zero in it."
)
NEXT_TO = 0.0005
"""a difference of less everywhere is 0.0 %, which says neither that there is one nor that there is none"""
MEAN = ", the mean of {} loads"


def of_sweep(rows: Sequence[Row], axes: Sequence[str], how: Drawing, about: str) -> tuple[Drawing, list[Aside]]:
    """How a figure of a sweep over lines is drawn, whose sentence is about one of them: `about`, or if that is empty
    those policies that did not come with the package; and the tables of these, or of the best. Raises InvalidInput for
    a line that is not there."""
    where = layout(rows, axes)
    names = list(dict.fromkeys(plain(row.get(where.line)) for row in rows))
    if about and about not in names:
        raise unknown("line in report.about:", about, names)
    if how.answer is not SAID or where.tunes or where.line not in ("policy", "line"):
        return how, []
    found, own = points(rows, where, how.measure.metric), where.line == "policy"
    ones = [about] if about else [name for name in names if own and is_own(name)]
    if len(ones) > MOST_OWN:
        ones = []
    tables = (aside(one, found, where, how.measure) for one in ones or [best(found, where, how.measure)])
    asides = [one for one in tables if one is not None]
    return (replace(how, answer=said(partial(_all, ones))) if ones else how), asides


def _all(ones: Sequence[str], points: Sequence[Point], where: Layout, measure: Measure) -> str:
    texts = [sentence(one, points, where, measure) for one in ones]
    return " ".join(dict.fromkeys(texts))


def sentence(one: str, points: Sequence[Point], where: Layout, measure: Measure) -> str:
    """By how much this line is better or worse than each other one, the best of which stands first."""
    measured = [point for point in points if point.values]
    lines = lines_of(measured, where)
    if not _speaks(one, lines, where, measure) or signed.crosses_zero(measured):
        return headline(points, where, measure)
    others = [name for name in ranked(lines, measure.better) if name != one]
    varying = [axis for axis in where.panels if len({point.at[axis] for point in measured}) > 1]
    where = replace(where, panels=tuple(varying))
    said = _counted(one, others, lines, measure) if len(others) > MOST else _each(one, others, lines, where, measure)
    single = all(len(point.values) < 2 for point in measured)
    return " ".join([f"{said}.", *([ONE_SEED] if single else [])])


def best(points: Sequence[Point], where: Layout, measure: Measure) -> str:
    """The line that is best on the whole; empty where there are no two to compare."""
    lines = lines_of([point for point in points if point.values], where)
    return ranked(lines, measure.better)[0] if len(lines) > 1 and measure.better != NEITHER else ""


def aside(one: str, points: Sequence[Point], where: Layout, measure: Measure) -> Aside | None:
    """A table of this line and all others: how far they are apart on average, and what else differs; and a sentence of
    that, for the best of the others that is surely apart. None where there is nothing to compare."""
    lines = lines_of([point for point in points if point.values], where)
    if not _speaks(one, lines, where, measure):
        return None
    known = [name for name in LOOKED_AT if any(row.get(name) is not None for point in points for row in point.rows)]
    rows, why = [(one, NOTHING, NOTHING, *_levels(lines[one], known))], ""
    for other in [name for name in ranked(lines, measure.better) if name != one]:
        found = _difference(one, other, lines)
        places = [each for _, each in differences(lines, one, other, where)]
        rows.append((other, *_in_words(found, places, measure), *_levels(lines[other], known)))
        if found is not None and found.sure and found.half_width is not None and not why:
            apart = _apart(one, other, lines, [name for name in known if name != measure.metric])
            why = explained.sentence(one, other, (_sign(found) > 0) == (measure.better == HIGHER), apart)
    heads = (f"{one} is", f"{one} relative to it")
    numbers = (heads[1], *(explained.head(name) for name in known))
    columns = (Column(where.line, False), Column(heads[0], False), *(Column(head, True) for head in numbers))
    first = next(iter(lines[one].values()))
    several = len(lines[one]) > 1
    at = "" if several else f" at {condition(where.x, first.at[where.x])}"
    texts = [*([f"{why}."] if why else []), RULE.format(one, MEAN.format(len(lines[one])) if several else "")]
    return Aside(f"{one} against each other {where.line}, in {measure.short}{at}", texts, Table(columns, tuple(rows)))


def _in_words(found: Difference | None, places: Sequence[Difference], measure: Measure) -> tuple[str, str]:
    """What it is, and by how much on average. Where it surely is the one at some places and the other elsewhere, an
    average alone would mislead."""
    if found is None:
        return NOTHING, NOTHING
    signs = [_sign(each) for each in places if each.sure and each.half_width is not None]
    ways = [f"{measure.words_for(way)} at {signs.count(way)}" for way in dict.fromkeys(signs)]
    word = measure.words_for(_sign(found)) if found.sure and found.half_width is not None else "undecided"
    return ", ".join(ways) if len(ways) > 1 else word, signed_percent(found.relative, found.half_width)


def _speaks(one: str, lines: Lines, where: Layout, measure: Measure) -> bool:
    """Whether there is something to say of this line and of others."""
    return one in lines and len(lines) > 1 and measure.better != NEITHER and "variant" not in where.panels


def _pairs(one: str, other: str, lines: Lines) -> list[tuple[Point, Point]]:
    return [(point, lines[other][at]) for at, point in lines[one].items() if at in lines[other]]


def _difference(one: str, other: str, lines: Lines) -> Difference | None:
    """On average over all places of both."""
    found = on_average(_pairs(one, other, lines))
    return None if found is None else Difference("", one, other, *found)


def _sign(of: Difference) -> int:
    return 1 if of.relative > 0 else -1


def _each(one: str, others: Sequence[str], lines: Lines, where: Layout, measure: Measure) -> str:
    percents, times, next_to = [], [], []
    for other in others:
        found = differences(lines, one, other, where)
        if found and all(0 < abs(each.relative) + (each.half_width or 0) < NEXT_TO for _, each in found):
            next_to.append(other)
            continue
        far = ratio(lines, one, other)
        signs = {_sign(each) for _, each in found if each.sure}
        if measure.is_time and len(signs) == 1 and max(far, 1 / far) >= TIMES:
            times.append(_as_long(one, other, [each for _, each in found]))
        elif found:
            percents.append(clause(found, [other], where, measure))
    percents += [f"within {NEXT_TO * 100:g} % of {others_of(next_to, measure)}"] if next_to else []
    whose = one if measure.is_time else f"{one}'s {measure.short}"
    said = [f"{whose} is {listed(percents)}"] if percents else []
    return "; ".join([*said, *times]) or f"{one} has nothing in common with the others to be compared by"


def _as_long(one: str, other: str, found: Sequence[Difference]) -> str:
    """ "mine takes 2.0 to 3.1 × as long as e2", or the other way round."""
    slower = found[0].relative > 0
    ratios = [1 + each.relative if slower else 1 / (1 + each.relative) for each in found if each.relative > -1]
    ends = " to ".join(dict.fromkeys(number(each, 2) for each in (min(ratios), max(ratios))))
    first, second = (one, other) if slower else (other, one)
    return f"{first} takes {ends} × as long as {second}"


def _counted(one: str, others: Sequence[str], lines: Lines, measure: Measure) -> str:
    groups: dict[str, list[str]] = {"better": [], "worse": [], "undecided": []}
    better = 1 if measure.better == HIGHER else -1
    for other in others:
        found = _difference(one, other, lines)
        how = "undecided" if found is None or not found.sure else "better" if _sign(found) == better else "worse"
        groups[how].append(other)
    words = {"better": measure.words_for(better), "worse": measure.words_for(-better)}
    parts = [f"{words[how]} than {len(groups[how])} ({listed(groups[how])})" for how in words if groups[how]]
    if groups["undecided"]:
        parts.append(f"not to be told from {len(groups['undecided'])} ({listed(groups['undecided'])})")
    whose = one if measure.is_time else f"{one}'s {measure.short}"
    return f"Of {len(others)} others, on average, {whose} is {listed(parts)}"


def _levels(line: Mapping[tuple[Value, ...], Point], known: Sequence[str]) -> list[str]:
    """Means over all places."""
    return [explained.written(_mean(list(line.values()), name)) for name in known]


def _mean(points: Sequence[Point], metric: str) -> float | None:
    values = [found[0] for point in points if (found := point.interval_of(metric)) is not None]
    return math.fsum(values) / len(values) if values else None


def _apart(one: str, other: str, lines: Lines, known: Sequence[str]) -> list[Level]:
    """Of these metrics those in which the two surely differ."""
    made = []
    for name in known:
        pairs = [(replace(a, metric=name), replace(b, metric=name)) for a, b in _pairs(one, other, lines)]
        found = on_average(pairs)
        if found is not None and found[1] is not None and abs(found[0]) > found[1]:
            ours, theirs = _mean([a for a, _ in pairs], name), _mean([b for _, b in pairs], name)
            made.append(Level(name, ours or 0.0, theirs or 0.0))
    return made
