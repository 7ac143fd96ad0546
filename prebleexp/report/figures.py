"""The figures by name. Each makes drawings, a table and a sentence that states the result from the rows of a sweep."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

from markupsafe import Markup

from prebleexp import losses, unfound
from prebleexp.report import dots, draw, many
from prebleexp.report.answer import Answer
from prebleexp.report.canvas import POINTS
from prebleexp.report.dots import Dot, DotRow
from prebleexp.report.draw import Line, Scales, labels_fit
from prebleexp.report.drawings import Drawings
from prebleexp.report.measure import Measure
from prebleexp.report.measures import SAID, TUNED, Drawing, Others, drawing
from prebleexp.report.palette import STYLES, Style, styles
from prebleexp.report.summary import Layout, Point, Row, Value, grouped, layout, points
from prebleexp.report.wording import (
    axis_label,
    condition,
    conditions,
    interval,
    line_name,
    lower_first,
    percent,
    plain,
    slug,
)

MOST_PANELS = 24


@dataclass(frozen=True)
class Panel:
    title: str
    svg: Markup
    width: float
    """points, as `height`"""
    height: float


@dataclass(frozen=True)
class Entry:
    """An entry of a figure's legend: name and style."""

    name: str
    style: Style
    line: bool = True
    """a marker on a line, not alone"""


@dataclass(frozen=True)
class Column:
    """A table's column. `meaning` defines it, in the notes under the table; `formula` names a file of formulas/."""

    name: str
    numeric: bool
    meaning: str = ""
    formula: str = ""


@dataclass(frozen=True)
class Table:
    columns: tuple[Column, ...]
    rows: tuple[tuple[str, ...], ...]


@dataclass(frozen=True)
class Data:
    """The numbers of a table with all their digits, for programs; a row for every point."""

    columns: tuple[str, ...]
    rows: tuple[tuple[Value, ...], ...]


@dataclass(frozen=True)
class Figure:
    name: str
    """without letters that an id or a file cannot have"""
    number: str
    title: str
    command: str
    """makes this figure alone; empty where that is the page's own"""
    x: str
    y: str
    """empty where y has names"""
    answer: Answer
    losses: str
    """which requests the averages leave out; empty where there are none"""
    panels: tuple[Panel, ...]
    paired: bool
    """two variants side by side"""
    left_out: int
    """panels beyond `MOST_PANELS`, which only the table has"""
    legend: tuple[Entry, ...]
    """empty where the lines carry their names themselves"""
    caption: str
    table: Table
    data: Data

    @property
    def headline(self) -> str:
        return self.answer.sentence


def figure(
    name: str,
    rows: Sequence[Row],
    axes: Sequence[str] = (),
    *,
    how: Drawing | None = None,
    number: str = "",
    title: str = "",
    command: str = "",
    drawings: Drawings | None = None,
) -> Figure:
    """The figure of this name, or of a metric, or drawn as `how` says. `axes` are the swept keys in order; those of a
    sweep of several parts are known.

    `number` and `title` are what the report calls it, `command` makes it alone; `drawings` has what is drawn already.
    Raises InvalidInput for an unknown name.
    """
    how = how or drawing(name)
    own_name = slug(f"{name}{number and f'-{number}'}")
    rows = how.prepare(rows)
    where = how.where or layout(rows, axes or how.axes)
    found = points(rows, where, how.measure.metric)
    measure = how.measure.in_unit_of([point.interval[0] for point in found if point.interval])
    found = [replace(point, scale=measure.scale) for point in found]
    named = (where.line, *where.panels, where.x)
    by_panel = grouped(found, lambda point: tuple(point.at[axis] for axis in where.panels))
    titles = [conditions(members[0].at, where.panels) or "All runs" for members in by_panel.values()]
    shown: many.Shown = list(zip(titles, by_panel.values(), strict=True))
    if not how.main:
        shown = shown[:MOST_PANELS]
    if where.tunes and how.answer is SAID:
        how = replace(how, answer=TUNED)
    answer, drawn = how.answer(found, where, measure), measure
    if not how.dots and many.are_many(found, where, measure):
        shown, drawn = many.as_dots(shown, where, measure)
        how = replace(how, dots=True, answer=lambda *_: answer, note=f"{how.note} The best on the whole stands first.")
    make = _dots if how.dots else _curves
    panels, legend, caption = make(shown, how, where, drawn, own_name, drawings or Drawings())
    return Figure(
        name=own_name,
        number=number,
        title=title or f"{measure.title} {_over(found, where, measure.against)}",
        command=command,
        x=drawn.label if how.dots else axis_label(where.x),
        y="" if how.dots else measure.label,
        answer=answer,
        losses=losses.as_text(
            losses.sentences([(conditions(point.at, named), point.rows) for point in found]) + unfound.sentences(rows)
        ),
        panels=tuple(panels),
        paired="variant" in where.panels,
        left_out=0 if how.main else len(by_panel) - len(shown),
        legend=legend,
        caption=f"{caption}{how.note}",
        table=_table(found, where, measure, how.others),
        data=_data(found, where, measure, how.others),
    )


def _over(found: Sequence[Point], where: Layout, against: str = "request rate") -> str:
    """What a quantity is drawn against, `against` unless another axis is x; of a single x, where."""
    values = list(dict.fromkeys(point.at[where.x] for point in found))
    if len(values) == 1:
        return f"{'on' if where.x == 'gpus' else 'at'} {condition(where.x, values[0])}"
    known = where.x == "rps" or not against.startswith("request")
    return f"against {lower_first(against if known else axis_label(where.x))}"


def _curves(
    shown: many.Shown, how: Drawing, where: Layout, measure: Measure, name: str, drawings: Drawings
) -> tuple[list[Panel], tuple[Entry, ...], str]:
    """Panels of lines, the legend where the lines cannot carry their names, and the caption."""
    looks = styles(line_name(where.line, point.at[where.line]) for _, members in shown for point in members)
    lines = [_lines(members, where, looks) for _, members in shown]
    labelled = all(labels_fit([line.name for line in of_panel]) for of_panel in lines)
    if not labelled:
        lines = [_lines(members, where, looks, merged=False) for _, members in shown]
    # side by side two variants are compared: they share the ends of y, of which each number of GPUs has its own
    rows = grouped(range(len(shown)), lambda i: (_row(shown[i][1][0], where),))
    log = any(Scales.of([line for j in row for line in lines[j]]).y_log for row in rows.values())
    whole = Scales.of([line for of_panel in lines for line in of_panel], log)
    scales = {i: Scales.of([line for j in row for line in lines[j]], log) for row in rows.values() for i in row}
    panels = []
    for i, (title, members) in enumerate(shown):
        scale = replace(whole, y_log=scales[i].y_log, y_limits=scales[i].y_limits)
        make = partial(
            draw.panel,
            lines[i],
            scale,
            name=f"{name.replace('_', '-')}-{i + 1}",
            title=f"{title}: {measure.words} {_over(members, where)}",
            description=how.answer(members, where, measure).sentence,
            labelled=labelled,
        )
        svg = drawings.kept(make)
        panels.append(Panel(title, svg, draw.WIDTH_IN * POINTS, draw.HEIGHT_IN * POINTS))
    legend = () if labelled else tuple(Entry(one, look) for one, look in looks.items())
    return panels, legend, _caption(shown, replace(whole, y_log=log), 1 < len(rows) < len(shown))


def _row(point: Point, where: Layout) -> str:
    if "variant" not in where.panels:
        return ""
    return conditions(point.at, [axis for axis in where.panels if axis != "variant"])


def _lines(members: Sequence[Point], where: Layout, looks: dict[str, Style], *, merged: bool = True) -> list[Line]:
    """The lines of a panel; those that nobody could tell apart are one, with all their names."""
    lines: dict[object, Line] = {}
    for (value,), line in grouped(members, lambda point: (point.at[where.line],)).items():
        name = line_name(where.line, value)
        triples = tuple((float(p.at[where.x] or 0), *(p.interval or (None, None))) for p in line)
        key = tuple((x, m and f"{m:.3e}", m and h and round(h / m, 3)) for x, m, h in triples) if merged else name
        same = lines.get(key)
        lines[key] = replace(same, name=f"{same.name} = {name}") if same else Line(name, looks[name], triples)
    return list(lines.values())


def _dots(
    shown: many.Shown, how: Drawing, where: Layout, measure: Measure, name: str, drawings: Drawings
) -> tuple[list[Panel], tuple[Entry, ...], str]:
    """Panels of a row for each line with a dot for each x, the legend and the caption."""
    xs = list(dict.fromkeys(point.at[where.x] for _, members in shown for point in members))
    named = styles(plain(x) for x in xs) if where.x == "policy" else {}
    look = {x: named.get(plain(x), STYLES[i % len(STYLES)]) for i, x in enumerate(xs)}
    aside = grouped(
        [point for title, members in shown if how.main and title != how.main for point in members],
        lambda point: (point.at[where.line], point.at[where.x]),
    )

    def dot(point: Point) -> Dot:
        mean, half = point.interval or (math.nan, None)
        others = [p.interval[0] for p in aside.get((point.at[where.line], point.at[where.x]), ()) if p.interval]
        return Dot(mean, half, look[point.at[where.x]], (min(others), max(others)) if others else None)

    drawn = [(title, members) for title, members in shown if not how.main or title == how.main]
    rows = {
        title: [
            DotRow(condition(where.line, line), tuple(dot(point) for point in of_line if point.interval))
            for (line,), of_line in grouped(members, lambda point: (point.at[where.line],)).items()
        ]
        for title, members in drawn
    }
    said = [how.answer(members, where, measure).sentence for _, members in drawn]
    panels, caption = dot_panels(rows, said, measure, name, drawings)
    return panels, tuple(Entry(condition(where.x, x), look[x], line=False) for x in xs), caption


def dot_panels(
    rows: Mapping[str, Sequence[DotRow]], said: Sequence[str], measure: Measure, name: str, drawings: Drawings
) -> tuple[list[Panel], str]:
    """Panels by title, with the same axis, and the caption. `said` describes each."""
    ends = dots.limits([row for of_panel in rows.values() for row in of_panel])
    width = dots.width_in(len(rows))
    panels = []
    for i, ((title, of_panel), text) in enumerate(zip(rows.items(), said, strict=True)):
        make = partial(
            dots.panel,
            of_panel,
            ends,
            width,
            name=f"{name.replace('_', '-')}-{i + 1}",
            title=f"{title}: {measure.words}",
            description=text,
        )
        panels.append(Panel(title, drawings.kept(make), width * POINTS, dots.height_in(of_panel, width) * POINTS))
    out = any(not ends[0] <= dot.value <= ends[1] for of_panel in rows.values() for row in of_panel for dot in row.dots)
    far = " An arrow has the number of a dot that lies beyond the axis." if out else ""
    known = any(dot.half_width is not None for of_panel in rows.values() for row in of_panel for dot in row.dots)
    bars = "Bars are 95 % confidence intervals over seeds." if known else "One seed, so there are no intervals."
    return panels, f"{bars}{far}"


def _caption(shown: many.Shown, scales: Scales, by_row: bool) -> str:
    if not shown:
        return "Nothing to draw."
    seeds = sorted({len(point.rows) for _, members in shown for point in members})
    if seeds == [1]:
        said = ["One seed per point, so there is no confidence band."]
    else:
        count = str(seeds[0]) if len(seeds) == 1 else f"{seeds[0]} to {seeds[-1]}"
        bands = "their 95 % confidence intervals"
        if any(point.draws_costs for _, members in shown for point in members):
            bands = "the 95 % intervals of one more draw of step times"
        said = [f"Lines are means over {count} seeds, bands {bands}."]
    axes = [name for name, log in (("x", scales.x_log2), ("y", scales.y_log)) if log]
    if axes:
        said.append(f"{' and '.join(axes)} {'is' if len(axes) == 1 else 'are'} logarithmic.")
    if by_row:
        said.append("Panels side by side have the same y axis.")
    return " ".join(said)


def _table(found: Sequence[Point], where: Layout, measure: Measure, others: Others) -> Table:
    axes = tuple(Column(axis, all(not isinstance(p.at[axis], str) for p in found)) for axis in where.axes)
    others = {metric: words for metric, words in others.items() if metric != measure.metric}
    return Table(
        columns=(
            *axes,
            Column(f"{measure.short}, {measure.unit}", True, measure.meaning, measure.formula),
            Column(
                "seeds",
                True,
                "Independent runs, each with its own request stream, which all lines share. The bands, and the numbers "
                "behind ±, are 95 % confidence intervals of the mean over k seeds (Student's t):",
                "confidence_interval",
            ),
            *(Column(words, True, meaning) for words, meaning in others.values()),
            Column("finished", True, "Finished requests over all requests, over all seeds."),
        ),
        rows=tuple(
            (
                *(plain(point.at[axis]) for axis in where.axes),
                interval(point.interval),
                point.seeds,
                *(interval(point.interval_of(metric)) for metric in others),
                percent(point.share("n_finished", "n_requests")),
            )
            for point in found
        ),
    )


def _data(found: Sequence[Point], where: Layout, measure: Measure, others: Others) -> Data:
    measured = (measure.metric, "half_width_95", "seeds", "runs")
    shown = [metric for metric in others if metric != measure.metric]
    names = [name for metric in shown for name in (metric, f"{metric}_half_width_95")]
    rows = (
        (
            *(point.at[axis] for axis in where.axes),
            *(point.interval_of(point.metric) or (None, None)),
            len(point.values),
            len(point.rows),
            *(number for metric in shown for number in point.interval_of(metric) or (None, None)),
            point.share("n_finished", "n_requests"),
        )
        for point in found
    )
    return Data((*where.axes, *measured, *names, "finished"), tuple(rows))
