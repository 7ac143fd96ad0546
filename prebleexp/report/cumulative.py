"""Distributions side by side: for each quantity a panel, in which a line says which share of values is no greater."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import numpy.typing as npt
from markupsafe import Markup

from prebleexp.report.answer import Answer
from prebleexp.report.canvas import POINTS, drawn, quiet
from prebleexp.report.figures import Data, Entry, Figure, Panel, Table
from prebleexp.report.palette import STYLES, Style
from prebleexp.report.wording import tick

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Canvas

WIDTH_IN, HEIGHT_IN = 3.5, 2.3
FROM_LOG = 8.0
"""times the least, from where on x is logarithmic: with less of a range no three round numbers would be on it"""
SHARES = np.linspace(0.0, 1.0, 101)
"""quantiles that a line goes through"""
Values = npt.NDArray[np.float64]


class Distribution(NamedTuple):
    """Of one quantity the values of each line by its name: finite, above 0, at least one of each."""

    title: str
    x: str
    lines: Mapping[str, Values]


def in_milliseconds(of: Distribution) -> Distribution:
    """What is in seconds."""
    return Distribution(of.title, "milliseconds", {name: 1e3 * values for name, values in of.lines.items()})


def figure(name: str, title: str, answer: Answer, of: Sequence[Distribution], caption: str, table: Table) -> Figure:
    """Lines of the same name have the same look in all panels."""
    names = list(dict.fromkeys(line for one in of for line in one.lines))
    looks = {line: STYLES[i % len(STYLES)] for i, line in enumerate(names)}
    panels = tuple(
        Panel(one.title, _drawing(f"{name}-{i}", one, looks), WIDTH_IN * POINTS, HEIGHT_IN * POINTS)
        for i, one in enumerate(of)
    )
    rows = tuple(
        (one.title, line, float(share), float(value))
        for one in of
        for line, values in one.lines.items()
        for share, value in zip(SHARES, np.quantile(values, SHARES), strict=True)
    )
    return Figure(
        name=name,
        number="",
        title=title,
        command="",
        x=of[0].x if of else "",
        y="share of requests",
        answer=answer,
        losses="",
        panels=panels,
        paired=False,
        left_out=0,
        legend=tuple(Entry(line, look) for line, look in looks.items()),
        caption=caption,
        table=table,
        data=Data(("quantity", "line", "share", "value"), rows),
    )


def _drawing(name: str, of: Distribution, looks: Mapping[str, Style]) -> Markup:
    def draw(canvas: Canvas) -> None:
        from matplotlib import ticker

        axes = canvas.add_axes((0.14, 0.12, 0.82, 0.83))
        ends = [np.quantile(values, (0, 1)) for values in of.lines.values()]
        decades = max(high for _, high in ends) / min(low for low, _ in ends) >= FROM_LOG
        axes.set(xscale="log" if decades else "linear", ylim=(0, 1))
        for line, values in of.lines.items():
            look = looks[line]
            axes.plot(np.quantile(values, SHARES), SHARES, color=look.light, linewidth=1.6)
            middle = np.quantile(values, (0.5, 0.9))
            axes.plot(middle, (0.5, 0.9), look.marker, color=look.light, markersize=5)
        round_log = ticker.LogLocator(10, subs=(1.0, 2.0, 5.0), numticks=7)
        axes.xaxis.set_major_locator(round_log if decades else ticker.MaxNLocator(4, steps=(1, 2, 2.5, 5, 10)))
        axes.xaxis.set_major_formatter(ticker.FuncFormatter(lambda x, _: tick(x)))
        axes.yaxis.set_major_formatter(ticker.FuncFormatter(lambda y, _: f"{y * 100:.0f} %"))
        quiet(axes, "y")

    return drawn(draw, WIDTH_IN, HEIGHT_IN, name=name, title=of.title, description=f"{of.title}: {', '.join(of.lines)}")
