"""One panel of lines with confidence bands, as SVG. The same input gives the same bytes."""

from __future__ import annotations

import io
import math
import re
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

from markupsafe import Markup

from prebleexp.report.palette import GRID, INK, Style, themed
from prebleexp.report.wording import number, plain

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

WIDTH_IN, HEIGHT_IN = 4.6, 3.3
LEFT_IN, BOTTOM_IN, TOP_IN = 0.52, 0.5, 0.12
LETTER_IN = 0.073
"""a generous width of a letter in a direct label"""
FONT_PT = 9
LABEL_GAP_IN = 0.16
RULE_IN = 0.1
LEAST_GAP = 0.03
"""between ticks of a linear axis, as a share of it"""


@dataclass(frozen=True)
class Line:
    """A line's name and look, and its (x, mean, half-width) by ascending x; a mean of None is a gap."""

    name: str
    style: Style
    points: tuple[tuple[float, float | None, float | None], ...]


@dataclass(frozen=True)
class Scales:
    """What the panels of a figure share, so that they can be compared."""

    x_ticks: tuple[float, ...]
    """none if the values are too close to each other to be written"""
    x_log2: bool
    x_limits: tuple[float, float]
    y_log: bool
    y_limits: tuple[float, float]

    @classmethod
    def of(cls, lines: Sequence[Line]) -> Scales:
        """x is logarithmic where it spans a factor of 8, y where it spans more than a decade."""
        xs = sorted({x for line in lines for x, _, _ in line.points})
        means = [mean for line in lines for _, mean, _ in line.points if mean is not None]
        ends = [m + side * (h or 0) for line in lines for _, m, h in line.points if m is not None for side in (-1, 1)]
        x_log2 = len(xs) > 1 and xs[0] > 0 and xs[-1] / xs[0] >= 8
        if len(xs) == 1:
            x_limits = (xs[0] - 1, xs[0] + 1)
        elif x_log2:
            x_limits = (xs[0] / 2**0.25, xs[-1] * 2**0.25)
        else:
            x_limits = (xs[0] - 0.05 * (xs[-1] - xs[0]), xs[-1] + 0.05 * (xs[-1] - xs[0]))
        closest = min((b - a for a, b in pairwise(xs)), default=0.0)
        if not x_log2 and closest < LEAST_GAP * (x_limits[1] - x_limits[0]) and len(xs) > 1:
            xs = []
        if not means:
            return cls(tuple(xs), x_log2, x_limits, False, (0, 1))
        y_log = min(means) > 0 and max(means) / min(means) > 10
        if y_log:
            # a band may reach below zero, where there is no logarithm: show it down to half the lowest mean
            low = max(min(ends), min(means) / 2)
            return cls(tuple(xs), x_log2, x_limits, True, (low / 1.2, max(ends) * 1.2))
        top = max(ends) * 1.08 if max(ends) > 0 else 1.0
        return cls(tuple(xs), x_log2, x_limits, False, (min(0.0, min(ends)), top))


def panel(lines: Sequence[Line], scales: Scales, *, name: str, title: str, description: str, labelled: bool) -> Markup:
    """An inline `<svg>` with a title and a description for those who do not see it; its ids start with `name`."""
    import seaborn as sns
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    fixed = {"svg.hashsalt": name, "svg.fonttype": "none", "text.parse_math": False, "font.size": FONT_PT}
    with rc_context(sns.axes_style("whitegrid") | fixed), warnings.catch_warnings():
        # a name may hold letters that matplotlib's font lacks; the browser, which draws the text, has others
        warnings.filterwarnings("ignore", message="(?s).*Glyph.*missing from font")
        figure = Figure(figsize=(WIDTH_IN, HEIGHT_IN))
        right = 0.15 + (LETTER_IN * max(len(line.name) for line in lines) + RULE_IN if labelled else 0)
        box = (LEFT_IN / WIDTH_IN, BOTTOM_IN / HEIGHT_IN)
        axes = figure.add_axes((*box, 1 - box[0] - right / WIDTH_IN, 1 - box[1] - TOP_IN / HEIGHT_IN))
        _scale(axes, scales)
        for line in lines:
            _draw(axes, line, scales)
        if labelled:
            _label(figure, axes, lines, scales)
        sns.despine(ax=axes, left=True)
        file = io.StringIO()
        figure.savefig(
            file, format="svg", transparent=True, metadata=dict.fromkeys(("Date", "Creator", "Format", "Type"))
        )
    return _inline(file.getvalue(), name, title, description)


def _scale(axes: Axes, scales: Scales) -> None:
    from matplotlib import ticker

    if scales.x_log2:
        axes.set_xscale("log", base=2)
    if scales.y_log:
        axes.set_yscale("log")
        decades = math.log10(scales.y_limits[1] / scales.y_limits[0])
        axes.yaxis.set_major_locator(ticker.LogLocator(subs=(1, 2, 5) if decades < 2.6 else (1,)))
    else:
        axes.yaxis.set_major_locator(ticker.MaxNLocator(5))
    axes.yaxis.set_major_formatter(ticker.FuncFormatter(lambda y, _: number(y) if y else "0"))
    if not scales.x_ticks:
        axes.xaxis.set_major_locator(ticker.MaxNLocator(6))
    elif len(scales.x_ticks) <= 12:
        axes.xaxis.set_major_locator(ticker.FixedLocator(list(scales.x_ticks)))
    axes.xaxis.set_major_formatter(ticker.FuncFormatter(lambda x, _: plain(float(f"{x:.6g}"))))
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_minor_locator(ticker.NullLocator())
    axes.set(xlim=scales.x_limits, ylim=scales.y_limits)
    axes.tick_params(colors=INK[0], length=0, labelsize=FONT_PT)
    axes.grid(visible=True, axis="y", color=GRID[0], linewidth=0.8)
    axes.grid(visible=False, axis="x")
    axes.spines["bottom"].set(color=INK[0], linewidth=0.8)


def _draw(axes: Axes, line: Line, scales: Scales) -> None:
    nan = math.nan
    x = [x for x, _, _ in line.points]
    mean = [nan if mean is None else mean for _, mean, _ in line.points]
    half = [nan if half is None else half for _, _, half in line.points]
    floor = scales.y_limits[0] if scales.y_log else -math.inf
    low = [nan if math.isnan(h) else max(m - h, floor) for m, h in zip(mean, half, strict=True)]
    high = [m + h for m, h in zip(mean, half, strict=True)]
    colour = line.style.light
    axes.fill_between(x, low, high, color=colour, alpha=0.2, linewidth=0)
    alone = [i for i in range(len(x)) if not any(_measured(line, j) for j in (i - 1, i + 1)) and _measured(line, i)]
    for i in alone:  # a band needs two points: a point between gaps has a bar
        if not math.isnan(half[i]):
            axes.plot([x[i]] * 2, [low[i], high[i]], color=colour, alpha=0.45, linewidth=3, solid_capstyle="butt")
    axes.plot(
        x,
        mean,
        color=colour,
        linewidth=1.8,
        linestyle="--" if line.style.dashed else "-",
        marker=line.style.marker,
        markersize=4.5,
        markeredgewidth=0,
    )


def _measured(line: Line, i: int) -> bool:
    return 0 <= i < len(line.points) and line.points[i][1] is not None


def _label(figure: Figure, axes: Axes, lines: Sequence[Line], scales: Scales) -> None:
    """Each line's name at its end, moved apart where they would overlap, with a thin rule from end to name."""
    ends = [
        (line, *next(((x, m) for x, m, _ in reversed(line.points) if m is not None), (0.0, None))) for line in lines
    ]
    shown = [(line, x, mean) for line, x, mean in ends if mean is not None]
    to_inches = axes.transData + figure.dpi_scale_trans.inverted()
    heights = [float(to_inches.transform((x, mean))[1]) for _, x, mean in shown]
    edge = float(to_inches.transform((scales.x_limits[1], scales.y_limits[1]))[0])
    for (line, x, mean), y in zip(shown, spread(heights, LABEL_GAP_IN, BOTTOM_IN, HEIGHT_IN - TOP_IN), strict=True):
        start = to_inches.transform((x, mean))
        rule = [(start[0] + 0.05) / WIDTH_IN, (edge + RULE_IN) / WIDTH_IN], [start[1] / HEIGHT_IN, y / HEIGHT_IN]
        figure.add_artist(_line2d(rule, line.style.light))
        figure.text(
            (edge + RULE_IN + 0.03) / WIDTH_IN,
            y / HEIGHT_IN,
            line.name,
            color=line.style.light,
            verticalalignment="center_baseline",
        )


def _line2d(ends: tuple[list[float], list[float]], colour: str):  # type: ignore[no-untyped-def]
    from matplotlib.lines import Line2D

    return Line2D(*ends, color=colour, linewidth=0.7, alpha=0.6)


def spread(positions: Sequence[float], gap: float, low: float, high: float) -> list[float]:
    """The positions moved apart so that neighbours keep this gap, in their order, between low and high if they fit.

    The squares of the moves are least: runs of labels that push each other share their displacement (pool adjacent
    violators).
    """
    order = sorted(range(len(positions)), key=lambda i: positions[i])
    # subtracting i * gap turns "at least a gap apart" into "never decreasing"
    blocks: list[list[float]] = []
    for rank, i in enumerate(order):
        blocks.append([positions[i] - rank * gap])
        while len(blocks) > 1 and _mean(blocks[-2]) >= _mean(blocks[-1]):
            blocks[-2:] = [blocks[-2] + blocks[-1]]
    levels = [_mean(block) for block in blocks for _ in block]
    ceiling = max(low, high - (len(positions) - 1) * gap)
    placed = {
        i: min(max(level, low), ceiling) + rank * gap for rank, (i, level) in enumerate(zip(order, levels, strict=True))
    }
    return [placed[i] for i in range(len(positions))]


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)


def _inline(svg: str, name: str, title: str, description: str) -> Markup:
    """matplotlib's file as an element of a page: no prologue, own ids, sized by the page, described."""
    drawing = svg[svg.index("<svg") :]
    drawing = re.sub(r'\b(id="|href="#|url\(#)', rf"\g<1>{name}-", drawing)
    view = f"0 0 {WIDTH_IN * 72:g} {HEIGHT_IN * 72:g}"
    body = drawing[drawing.index(">") + 1 :].strip()
    start = Markup(
        '<svg xmlns="http://www.w3.org/2000/svg" xmlns:xlink="http://www.w3.org/1999/xlink" viewBox="{}" role="img" '
        'aria-labelledby="{}-title {}-desc"><title id="{}-title">{}</title><desc id="{}-desc">{}</desc>'
    ).format(view, name, name, name, title, name, description)
    return start + Markup(themed(body))  # noqa: S704 - matplotlib escapes the names in it; a test sends hostile ones
