"""How many tokens a second a step makes, by its size, under the roofs of peak FLOP/s and peak bandwidth."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from prebleexp.report.answer import Answer
from prebleexp.report.canvas import POINTS
from prebleexp.report.draw import HEIGHT_IN, WIDTH_IN, Line, Scales, labels_fit, panel
from prebleexp.report.figures import Column, Data, Entry, Figure, Panel, Table
from prebleexp.report.palette import STYLES
from prebleexp.report.wording import slug

X, Y = "new tokens of a step", "tokens per second"


def roofline(title: str, support: str, curves: Mapping[str, Sequence[tuple[int, float]]]) -> Figure:
    """A figure of curves by name, each of (tokens, seconds)."""
    rates = {name: [(tokens, tokens / seconds) for tokens, seconds in curve] for name, curve in curves.items()}
    lines = [
        Line(name, style, tuple((float(tokens), rate, None) for tokens, rate in curve))
        for (name, curve), style in zip(rates.items(), STYLES, strict=False)
    ]
    labelled = labels_fit(list(curves))
    drawing = panel(
        lines, Scales.of(lines, log=True), name="roofline", title=title, description=support, labelled=labelled
    )
    rows = [(name, tokens, rate) for name, curve in rates.items() for tokens, rate in curve]
    heads = ("steps", X, Y)
    return Figure(
        name=slug(title),
        number="",
        title=title,
        command="",
        x=X,
        y=Y,
        answer=Answer(support),
        losses="",
        panels=(Panel("", drawing, WIDTH_IN * POINTS, HEIGHT_IN * POINTS),),
        paired=False,
        left_out=0,
        legend=() if labelled else tuple(Entry(line.name, line.style) for line in lines),
        caption=support,
        table=Table(
            tuple(Column(head, head != heads[0]) for head in heads),
            tuple((name, f"{tokens:,}", f"{rate:,.0f}") for name, tokens, rate in rows),
        ),
        data=Data(heads, tuple(rows)),
    )
