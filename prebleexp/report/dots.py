"""One panel of dots with confidence intervals, a row for each thing that is compared, as SVG."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from markupsafe import Markup

from prebleexp.report.canvas import LETTER_IN, drawn, quiet
from prebleexp.report.palette import GRID, INK, Style
from prebleexp.report.wording import tick

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

WIDTH_IN, ALONE_IN = 4.8, 5.6
"""of one of several panels, and of one that has all the room"""
ROW_IN, TEXT_IN, DOT_IN = 0.2, 0.155, 0.06
TOP_IN, BOTTOM_IN, RIGHT_IN = 0.08, 0.28, 0.2
NAME_LETTERS, ALONE_LETTERS = 27, 36
"""of a row's name; a longer one is broken between words"""
FAR = 2.5
"""an end that is so many times as far out as nine of ten dots are is beyond the axis, where an arrow has its number"""
ROOM = 0.55
"""of a row's height, for dots of one row above each other"""


@dataclass(frozen=True)
class Dot:
    value: float
    half_width: float | None
    style: Style
    span: tuple[float, float] | None = None
    """from the least to the greatest of what the dot is the mean of"""


@dataclass(frozen=True)
class DotRow:
    name: str
    dots: tuple[Dot, ...]


def limits(rows: Sequence[DotRow]) -> tuple[float, float]:
    """The ends of the axis, with 0 between them; but for few that are far away, all dots are between them."""
    dots = [dot for row in rows for dot in row.dots]
    ends = [dot.value + side * (dot.half_width or 0) for dot in dots for side in (-1, 1)]
    if not dots:
        return -1, 1
    distances = sorted(abs(dot.value) for dot in dots)
    usual = distances[math.ceil(0.9 * len(distances)) - 1]
    reach = FAR * usual if usual else max(abs(end) for end in ends) or 1
    low, high = max(min(0, *ends), -reach), min(max(0, *ends), reach)
    margin = 0.06 * (high - low) or 1
    return low - margin, high + margin


def panel(
    rows: Sequence[DotRow], ends: tuple[float, float], width: float, *, name: str, title: str, description: str
) -> Markup:
    """The drawing, for a page, `width` inches wide; `ends` are those of the axis."""
    height = height_in(rows, width)

    def draw(figure: Figure) -> None:
        names = [_broken(row.name, width) for row in rows]
        left = LETTER_IN * 0.94 * max((len(line) for lines in names for line in lines), default=0) + 0.12
        box = left / width, BOTTOM_IN / height
        size = 1 - box[0] - RIGHT_IN / width, 1 - box[1] - TOP_IN / height
        axes = figure.add_axes((*box, *size))
        places, total = _places(rows, width)
        axes.set(xlim=ends, ylim=(total, 0))
        _axes(axes, places, ["\n".join(lines) for lines in names])
        for row, (top, bottom) in zip(rows, places, strict=True):
            _draw(axes, row, (top + bottom) / 2, ROOM * min(bottom - top, 1.5 * ROW_IN), ends)

    return drawn(draw, width, height, name=name, title=title, description=description)


def width_in(panels: int) -> float:
    """Inches that each of so many panels is wide."""
    return ALONE_IN if panels == 1 else WIDTH_IN


def height_in(rows: Sequence[DotRow], width: float) -> float:
    """Inches that a panel of these rows is high."""
    return TOP_IN + BOTTOM_IN + _places(rows, width)[1]


def _broken(name: str, width: float) -> list[str]:
    return textwrap.wrap(name, ALONE_LETTERS if width == ALONE_IN else NAME_LETTERS) or [name]


def _places(rows: Sequence[DotRow], width: float) -> tuple[list[tuple[float, float]], float]:
    """Where each row starts and ends, in inches from the top, and how high all are."""
    places, top = [], 0.0
    for row in rows:
        bottom = top + max(ROW_IN, TEXT_IN * len(_broken(row.name, width)) + 0.1, DOT_IN * len(row.dots) + 0.06)
        places.append((top, bottom))
        top = bottom
    return places, top or ROW_IN


def _axes(axes: Axes, places: Sequence[tuple[float, float]], names: Sequence[str]) -> None:
    from matplotlib import ticker

    axes.xaxis.set_major_locator(ticker.MaxNLocator(5))
    axes.xaxis.set_major_formatter(ticker.FuncFormatter(lambda x, _: f"{'+' if x > 0 else ''}{tick(x)}"))
    axes.yaxis.set_major_locator(ticker.FixedLocator([(top + bottom) / 2 for top, bottom in places]))
    axes.yaxis.set_major_formatter(ticker.FixedFormatter(list(names)))
    quiet(axes, "x")
    axes.axvline(0, color=INK[0], linewidth=0.9)
    for _, bottom in places[:-1]:
        axes.axhline(bottom, color=GRID[0], linewidth=0.5)


def _draw(axes: Axes, row: DotRow, middle: float, room: float, ends: tuple[float, float]) -> None:
    for i, dot in enumerate(row.dots):
        rank = i / (len(row.dots) - 1) - 0.5 if len(row.dots) > 1 else 0.0
        y, colour = middle + rank * room, dot.style.light
        half = dot.half_width or 0.0
        for low, high, width, alpha in (
            (*(dot.span or (0, 0)), 0.8, 0.5),
            (dot.value - half, dot.value + half, 1.6, 1),
        ):
            x = [min(max(end, ends[0]), ends[1]) for end in (low, high)]
            axes.plot(x, [y, y], color=colour, linewidth=width, alpha=alpha, solid_capstyle="butt")
        if ends[0] <= dot.value <= ends[1]:
            axes.plot(
                [dot.value], [y], color=colour, marker=dot.style.marker, markersize=4.6, markeredgewidth=0, linestyle=""
            )
    _beyond(axes, row, middle, ends)


def _beyond(axes: Axes, row: DotRow, middle: float, ends: tuple[float, float]) -> None:
    """The numbers beyond each end of the axis."""
    for side, end in ((-1, ends[0]), (1, ends[1])):
        out = [dot for dot in row.dots if side * (dot.value - end) > 0]
        if out:
            values = ", ".join(f"{dot.value:+.0f}" for dot in out)
            arrow = f"{values} →" if side > 0 else f"← {values}"
            axes.text(
                end,
                middle,
                arrow.replace("-", "−"),
                color=out[0].style.light if len(out) == 1 else INK[0],
                horizontalalignment="right" if side > 0 else "left",
                verticalalignment="center_baseline",
            )
