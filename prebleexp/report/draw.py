"""One panel of lines with confidence bands, as SVG."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

from markupsafe import Markup

from prebleexp.report.canvas import LETTER_IN, drawn, quiet
from prebleexp.report.palette import INK, Style
from prebleexp.report.wording import tick

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

WIDTH_IN, HEIGHT_IN = 4.8, 3.0
LEFT_IN, BOTTOM_IN, TOP_IN = 0.5, 0.26, 0.12
LABEL_GAP_IN = 0.16
RULE_IN = 0.1
LABEL_LETTERS = 16
"""of a row of a direct label"""
MOST_LABEL_ROWS = int((HEIGHT_IN - BOTTOM_IN - TOP_IN) / LABEL_GAP_IN)
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
    def of(cls, lines: Sequence[Line], log: bool = False) -> Scales:
        """x is logarithmic where it spans a factor of 8, y where it spans more than a decade, or where `log` says so
        and it can be."""
        xs = sorted({x for line in lines for x, _, _ in line.points})
        means = [mean for line in lines for _, mean, _ in line.points if mean is not None]
        ends = [m + side * (h or 0) for line in lines for _, m, h in line.points if m is not None for side in (-1, 1)]
        x_log2 = len(xs) > 1 and xs[0] > 0 and xs[-1] / xs[0] >= 8
        if not xs:
            x_limits = (0.0, 1.0)
        elif len(xs) == 1:
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
        y_log = min(means) > 0 and (log or max(means) / min(means) > 10)
        if y_log:
            # bands may go on beyond the axis: one of few seeds is many times as long as the lines are apart
            return cls(tuple(xs), x_log2, x_limits, True, (min(means) / 1.3, min(max(ends), max(means) * 1.5) * 1.1))
        top = min(max(ends), 2 * max(means)) * 1.08 if max(means) > 0 else 1.0
        return cls(tuple(xs), x_log2, x_limits, False, (min(0.0, min(ends)), top))


@dataclass(frozen=True)
class Span:
    """An interval of the x axis, from `low` to `high`, and how it is drawn."""

    style: Style
    low: float
    high: float


@dataclass(frozen=True)
class Across:
    """A dashed line across a panel, such as a target, and what is marked on it."""

    y: float
    spans: tuple[Span, ...] = ()


def rows_of(name: str) -> list[str]:
    """A direct label, broken between words."""
    return textwrap.wrap(name, LABEL_LETTERS, break_long_words=False, break_on_hyphens=False) or [name]


def labels_fit(names: Sequence[str]) -> bool:
    """Whether lines can carry these names at their ends."""
    rows = [row for name in names for row in rows_of(name)]
    return len(rows) <= MOST_LABEL_ROWS and all(len(row) <= LABEL_LETTERS for row in rows)


def panel(
    lines: Sequence[Line],
    scales: Scales,
    *,
    name: str,
    title: str,
    description: str,
    labelled: bool,
    across: Across | None = None,
) -> Markup:
    """The drawing, for a page. `labelled` writes the lines' names at their ends."""

    def draw(figure: Figure) -> None:
        longest = max((len(row) for line in lines for row in rows_of(line.name)), default=0)
        right = 0.15 + (LETTER_IN * longest + RULE_IN if labelled else 0)
        box = (LEFT_IN / WIDTH_IN, BOTTOM_IN / HEIGHT_IN)
        axes = figure.add_axes((*box, 1 - box[0] - right / WIDTH_IN, 1 - box[1] - TOP_IN / HEIGHT_IN))
        _scale(axes, scales)
        for line in lines:
            _draw(axes, line, scales, min(0.14, 0.4 / len(lines)))
        if across is not None:
            axes.axhline(across.y, color=INK[0], linewidth=1, linestyle="--")
            for span in across.spans:
                ends = [span.low, span.high]
                axes.plot(ends, [across.y] * 2, color=span.style.light, linewidth=5, alpha=0.7, solid_capstyle="butt")
        if labelled:
            _label(figure, axes, lines, scales)

    return drawn(draw, WIDTH_IN, HEIGHT_IN, name=name, title=title, description=description)


def _scale(axes: Axes, scales: Scales) -> None:
    from matplotlib import ticker

    if scales.x_log2:
        axes.set_xscale("log", base=2)
    if scales.y_log:
        axes.set_yscale("log")
        decades = math.log10(scales.y_limits[1] / scales.y_limits[0])
        subs = (1, 1.5, 2, 3, 5, 7) if decades < 0.9 else (1, 2, 5) if decades < 2.6 else (1,)
        axes.yaxis.set_major_locator(ticker.LogLocator(subs=subs))
    else:
        axes.yaxis.set_major_locator(ticker.MaxNLocator(5))
    axes.yaxis.set_major_formatter(ticker.FuncFormatter(lambda y, _: tick(y)))
    if not scales.x_ticks:
        axes.xaxis.set_major_locator(ticker.MaxNLocator(6))
    elif len(scales.x_ticks) <= 12:
        axes.xaxis.set_major_locator(ticker.FixedLocator(list(scales.x_ticks)))
    axes.xaxis.set_major_formatter(ticker.FuncFormatter(lambda x, _: tick(x)))
    axes.set(xlim=scales.x_limits, ylim=scales.y_limits)
    quiet(axes, "y")


def _draw(axes: Axes, line: Line, scales: Scales, shade: float) -> None:
    """`shade` is the band's: the more there are, the lighter each."""
    nan = math.nan
    x = [x for x, _, _ in line.points]
    mean = [nan if mean is None else mean for _, mean, _ in line.points]
    half = [nan if half is None else half for _, _, half in line.points]
    low, high = zip(*(band(m, h, log=scales.y_log) for m, h in zip(mean, half, strict=True)), strict=True)
    colour = line.style.light
    axes.fill_between(x, low, high, color=colour, alpha=shade, linewidth=0)
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


def band(mean: float, half_width: float, *, log: bool) -> tuple[float, float]:
    """Its ends. On a log axis it is as long downwards as upwards: it may reach below zero, which is not on the axis."""
    return mean * mean / (mean + half_width) if log else mean - half_width, mean + half_width


def _measured(line: Line, i: int) -> bool:
    return 0 <= i < len(line.points) and line.points[i][1] is not None


def _label(figure: Figure, axes: Axes, lines: Sequence[Line], scales: Scales) -> None:
    """Each line's name at its end, moved apart where they would overlap, with a thin rule from end to name."""
    ends = [
        (line, *next(((x, m) for x, m, _ in reversed(line.points) if m is not None), (0.0, None))) for line in lines
    ]
    shown = [(line, x, mean) for line, x, mean in ends if mean is not None]
    to_inches = axes.transData + figure.dpi_scale_trans.inverted()
    rows = [(at, row) for at, (line, _, _) in enumerate(shown) for row in reversed(rows_of(line.name))]
    ends_in = [to_inches.transform((x, mean)) for _, x, mean in shown]
    heights = spread([float(ends_in[at][1]) for at, _ in rows], LABEL_GAP_IN, BOTTOM_IN, HEIGHT_IN - TOP_IN)
    edge = float(to_inches.transform((scales.x_limits[1], scales.y_limits[1]))[0])
    for at, (line, _, _) in enumerate(shown):
        own = [height for height, (of, _) in zip(heights, rows, strict=True) if of == at]
        start, middle = ends_in[at], sum(own) / len(own)
        rule = [(start[0] + 0.05) / WIDTH_IN, (edge + RULE_IN) / WIDTH_IN], [start[1] / HEIGHT_IN, middle / HEIGHT_IN]
        figure.add_artist(_line2d(rule, line.style.light))
    for (at, row), height in zip(rows, heights, strict=True):
        figure.text(
            (edge + RULE_IN + 0.03) / WIDTH_IN,
            height / HEIGHT_IN,
            row,
            color=shown[at][0].style.light,
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
