"""Prices against what they buy: a point for each that was measured, and the line of those than which none is both as
cheap and better."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import cycle
from typing import TYPE_CHECKING, Any

from markupsafe import Markup

from prebleexp.report.answer import Answer
from prebleexp.report.canvas import FONT_PT, POINTS, drawn, quiet
from prebleexp.report.figures import Column, Data, Entry, Figure, Panel, Table
from prebleexp.report.labels import Box, placed
from prebleexp.report.palette import INK, STYLES, Style
from prebleexp.report.wording import number, tick

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure as Canvas

LINE = STYLES[1]
"""of the front"""
WIDTH_IN, HEIGHT_IN = 3.55, 2.5
BOX = (0.17, 0.2, 0.79, 0.74)
MARKER_PT = 4.0
MOST_DEARER = 4.0
"""times the cheapest that keeps the promise, at most, a price is drawn"""


@dataclass(frozen=True)
class Priced:
    """A point of one panel. `half` is that of the interval of `value`."""

    name: str
    price: float
    value: float
    half: float | None
    keeps: bool
    """the promise"""
    kind: str
    """by which points are told apart"""
    label: str = ""
    """that stands at the point"""


@dataclass(frozen=True)
class Front:
    """A panel. `line` are the best of `points`, the cheapest first; `scale` makes numbers of an axis of values."""

    title: str
    points: Sequence[Priced]
    line: Sequence[Priced]
    scale: float = 1.0
    limit: float | None = None
    """that is promised, on the axis"""
    is_time: bool = False
    """on a logarithmic axis, as those that fail are many times as late"""


def figure(name: str, title: str, sentence: str, fronts: Sequence[Front]) -> Figure:
    """The figure with a panel for each front."""
    kinds = list(dict.fromkeys(one.kind for front in fronts for one in front.points))
    looks = dict(zip(kinds, cycle(style for style in STYLES if style is not LINE), strict=False))
    panels = tuple(
        Panel(one.title, _panel(f"{name}-{i}", one, looks, sentence), WIDTH_IN * POINTS, HEIGHT_IN * POINTS)
        for i, one in enumerate(fronts)
    )
    rows = [(front, one) for front in fronts for one in front.line]
    columns = (Column("of", numeric=False), Column("what", numeric=False), *(Column(head, True) for head in HEADS))
    table = tuple((front.title, one.name, number(one.price), _value(front, one)) for front, one in rows)
    has_bars = any(one.half for front in fronts for one in front.points)
    bars = " Bars are 95 % intervals over request streams." if has_bars else ""
    data = Data(
        ("of", "what", "price_per_hour", "value", "half_width", "on_front", "keeps_promise"),
        tuple(
            (front.title, one.name, one.price, one.value, one.half, one in front.line, one.keeps)
            for front in fronts
            for one in front.points
        ),
    )
    return Figure(
        name=name,
        number="",
        title=title,
        command="",
        x="price of an hour",
        y="",
        answer=Answer(sentence),
        losses="",
        panels=panels,
        paired=False,
        left_out=0,
        legend=tuple(Entry(kind, look, line=False) for kind, look in looks.items()),
        caption="Each point is a deployment of the last round: filled ones keep the promise, hollow ones do not. "
        "Numbers are those of the table of what to deploy. On the line are those than which none is both as cheap and "
        f"better.{bars}",
        table=Table(columns, table),
        data=data,
    )


HEADS = ("price of an hour", "value")


def _labels(points: Sequence[Priced], scale: float) -> list[tuple[float, float, str]]:
    """At each point that has one, the highest first; of points at one place together."""
    found: dict[tuple[float, float], list[str]] = {}
    for one in points:
        if one.label:
            found.setdefault((one.price, one.value * scale), []).append(one.label)
    said = [(*at, ", ".join(sorted(of, key=lambda label: (len(label), label)))) for at, of in found.items()]
    return sorted(said, key=lambda one: -one[1])


def _label(canvas: Canvas, axes: Axes, shown: Sequence[Priced], scale: float) -> None:
    """Write the labels of points beside them, where the axes are as they will be."""
    to_pt = POINTS / canvas.dpi
    inside = Box(*(end * to_pt for end in (0.0, axes.bbox.y0, canvas.bbox.x1, canvas.bbox.y1)))

    def at(x: float, y: float) -> tuple[float, float]:
        across, up = axes.transData.transform((x, y)) * to_pt
        return float(across), float(up)

    labels = [(*at(x, y), text) for x, y, text in _labels(shown, scale)]
    points = [at(one.price, one.value * scale) for one in shown]
    corners = placed(labels, points, inside, FONT_PT, MARKER_PT)
    for (_, _, text), corner in zip(labels, corners, strict=True):
        axes.annotate(text, corner, xycoords="figure points", va="bottom", color=INK[0])


def _value(front: Front, one: Priced) -> str:
    half = "" if one.half is None else f" ± {number(one.half * front.scale, 2)}"
    return f"{number(one.value * front.scale, 3 if front.limit is None else 4)}{half}"


def _panel(name: str, front: Front, looks: Mapping[str, Style], sentence: str) -> Markup:
    def draw(canvas: Canvas) -> None:
        from matplotlib import ticker

        axes = canvas.add_axes(BOX)
        enough = [one.price for one in front.points if one.keeps]
        reach = min(max(one.price for one in front.points), MOST_DEARER * min(enough, default=float("inf")))
        shown = [one for one in front.points if one.price <= reach]
        for one in shown:
            value = one.value * front.scale
            if one.half:
                ends = [value - one.half * front.scale, value + one.half * front.scale]
                axes.plot([one.price] * 2, ends, color=INK[0], linewidth=0.8)
            look = looks[one.kind]
            face = look.light if one.keeps else "none"
            axes.plot(
                [one.price], [value], marker=look.marker, markersize=MARKER_PT, color=look.light, markerfacecolor=face
            )
        line = [one for one in front.line if one.price <= reach]
        if line:
            values = [one.value * front.scale for one in line]
            style: Any = {"color": LINE.light, "linewidth": 1.4}
            axes.step([*(one.price for one in line), reach], [*values, values[-1]], where="post", **style)
        if front.limit is not None:
            axes.axhline(front.limit * front.scale, color=INK[0], linewidth=0.8, linestyle=(0, (3, 3)))
        axes.set(xlim=(0, 1.04 * reach))
        if front.is_time:
            axes.set_yscale("log")
        locators = (ticker.MaxNLocator(5), ticker.LogLocator(10, (1, 2, 5)) if front.is_time else ticker.MaxNLocator(5))
        for axis, locator in zip((axes.xaxis, axes.yaxis), locators, strict=True):
            axis.set_major_locator(locator)
            axis.set_major_formatter(ticker.FuncFormatter(lambda x, _: tick(x)))
        quiet(axes, "y")
        _label(canvas, axes, shown, front.scale)

    return drawn(draw, WIDTH_IN, HEIGHT_IN, name=name, title=front.title, description=sentence)
