"""The figures by name. Each makes drawings, a table and a sentence that states the result from the rows of a sweep."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from markupsafe import Markup

from prebleexp import losses
from prebleexp.report.draw import Line, Scales
from prebleexp.report.drawings import Drawings
from prebleexp.report.measures import Measure, drawing_of
from prebleexp.report.palette import Style, styles
from prebleexp.report.summary import Layout, Point, Row, Value, grouped, layout, points
from prebleexp.report.wording import axis_label, conditions, interval, percent, plain, slug

LABEL_LETTERS, LABEL_LINES = 14, 7
"""beyond these, names stand in a legend above the panels instead of at the lines' ends"""
MOST_PANELS = 24


@dataclass(frozen=True)
class Panel:
    title: str
    svg: Markup


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
    headline: str
    losses: str
    """which requests the averages leave out; empty where there are none"""
    panels: tuple[Panel, ...]
    paired: bool
    """two variants side by side"""
    left_out: int
    """panels beyond `MOST_PANELS`, which only the table has"""
    legend: tuple[tuple[str, Style], ...]
    """empty where the lines carry their names themselves"""
    caption: str
    table: Table
    data: Data


def figure(
    name: str,
    rows: Sequence[Row],
    axes: Sequence[str] = (),
    *,
    number: str = "",
    title: str = "",
    command: str = "",
    drawings: Drawings | None = None,
) -> Figure:
    """The figure of this name, or of a metric. `axes` are the swept keys in order; those of a sweep of several parts
    are known.

    `number` and `title` are what the report calls it, `command` makes it alone; `drawings` has what is drawn already.
    Raises InvalidInput for an unknown name.
    """
    drawing = drawing_of(name)
    own_name = slug(f"{name}{number and f'-{number}'}")
    measure = drawing.measure
    rows = drawing.prepare(rows)
    where = drawing.where or layout(rows, axes or drawing.axes)
    found = points(rows, where, measure.metric)
    looks = styles(plain(point.at[where.line]) for point in found)
    labelled = len(looks) <= LABEL_LINES and all(len(look) <= LABEL_LETTERS for look in looks)
    by_panel = grouped(found, lambda point: tuple(point.at[axis] for axis in where.panels))
    lines = [_lines(members, where, looks) for members in by_panel.values()]
    scales = Scales.of([line for panel_lines in lines for line in panel_lines]) if found else None
    panels: list[Panel] = []
    for members, drawn in list(zip(by_panel.values(), lines, strict=True))[:MOST_PANELS]:
        assert scales is not None
        panel_title = conditions(members[0].at, where.panels) or "All runs"
        svg = (drawings or Drawings()).panel(
            drawn,
            scales,
            name=f"{own_name.replace('_', '-')}-{len(panels) + 1}",
            title=f"{panel_title}: {measure.words} against {axis_label(where.x).lower()}",
            description=drawing.headline(members, where, measure.words.removeprefix("average "), measure.unit),
            labelled=labelled,
        )
        panels.append(Panel(panel_title, svg))
    against = measure.against if where.x == "rps" or not measure.against.startswith("request") else axis_label(where.x)
    return Figure(
        name=own_name,
        number=number,
        title=title or f"{measure.words[0].upper()}{measure.words[1:]} against {against}",
        command=command,
        x=axis_label(where.x),
        y=measure.label,
        headline=drawing.headline(found, where, measure.words.removeprefix("average "), measure.unit),
        losses=losses.as_text(losses.sentences([(_named(point, where), point.rows) for point in found])),
        panels=tuple(panels),
        paired="variant" in where.panels,
        left_out=max(0, len(by_panel) - MOST_PANELS),
        legend=() if labelled else tuple(looks.items()),
        caption=_caption(found, scales),
        table=_table(found, where, measure),
        data=_data(found, where, measure),
    )


def _lines(members: Sequence[Point], where: Layout, looks: dict[str, Style]) -> list[Line]:
    lines = []
    for (value,), line in grouped(members, lambda point: (point.at[where.line],)).items():
        name = plain(value)
        triples = ((float(p.at[where.x] or 0), *(p.interval or (None, None))) for p in line)
        lines.append(Line(name, looks[name], tuple(triples)))
    return lines


def _named(point: Point, where: Layout) -> str:
    return f"{plain(point.at[where.line])}, {conditions(point.at, (*where.panels, where.x))}"


def _caption(found: Sequence[Point], scales: Scales | None) -> str:
    if scales is None:
        return "Nothing to draw."
    seeds = sorted({len(point.rows) for point in found})
    if seeds == [1]:
        spread = "One seed per point, so there is no confidence band."
    else:
        count = str(seeds[0]) if len(seeds) == 1 else f"{seeds[0]} to {seeds[-1]}"
        spread = f"Lines are means over {count} seeds, bands their 95 % confidence intervals."
    logarithmic = [name for name, log in (("x", scales.x_log2), ("y", scales.y_log)) if log]
    if not logarithmic:
        return spread
    return f"{spread} {' and '.join(logarithmic)} {'is' if len(logarithmic) == 1 else 'are'} logarithmic."


def _table(found: Sequence[Point], where: Layout, measure: Measure) -> Table:
    axes = tuple(Column(axis, all(not isinstance(p.at[axis], str) for p in found)) for axis in where.axes)
    return Table(
        columns=(
            *axes,
            Column(f"{measure.words.removeprefix('average ')}, {measure.unit}", True, measure.meaning, measure.formula),
            Column(
                "seeds",
                True,
                "Independent runs, each with its own request stream, which all lines share. The bands, and the numbers "
                "behind ±, are 95 % confidence intervals of the mean over k seeds (Student's t):",
                "confidence_interval",
            ),
            Column(
                "TTFT p99, s",
                True,
                "Time to first token that 99 % of a run's requests stay below; mean over the seeds. Requests without a "
                "first token are not in it.",
            ),
            Column(
                "hit ratio", True, "Prompt tokens found in the prefix cache over all prompt tokens of all prefills."
            ),
            Column("finished", True, "Finished requests over all requests, over all seeds."),
        ),
        rows=tuple(
            (
                *(plain(point.at[axis]) for axis in where.axes),
                interval(point.interval),
                _seeds(point),
                interval(point.interval_of("ttft_p99_s")),
                interval(point.interval_of("hit_ratio")),
                percent(point.share("n_finished", "n_requests")),
            )
            for point in found
        ),
    )


def _data(found: Sequence[Point], where: Layout, measure: Measure) -> Data:
    measured = (measure.metric, "half_width_95", "seeds", "runs")
    others = ("ttft_p99_s", "ttft_p99_s_half_width_95", "hit_ratio", "hit_ratio_half_width_95", "finished")
    rows = (
        (
            *(point.at[axis] for axis in where.axes),
            *(point.interval or (None, None)),
            len(point.values),
            len(point.rows),
            *(point.interval_of("ttft_p99_s") or (None, None)),
            *(point.interval_of("hit_ratio") or (None, None)),
            point.share("n_finished", "n_requests"),
        )
        for point in found
    )
    return Data((*where.axes, *measured, *others), tuple(rows))


def _seeds(point: Point) -> str:
    runs, measured = len(point.rows), len(point.values)
    return str(runs) if runs == measured else f"{measured} of {runs}"
