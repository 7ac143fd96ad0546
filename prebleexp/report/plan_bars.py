"""The first figure of a plan: a bar for each contender, the best first, with its interval."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from typing import TYPE_CHECKING

from markupsafe import Markup

from prebleexp.planning.contender import GPUS
from prebleexp.planning.planned import NAMES, Planned, best_first
from prebleexp.report import planned, recorded_plan
from prebleexp.report.answer import Answer
from prebleexp.report.canvas import LETTER_IN, POINTS, drawn, quiet
from prebleexp.report.figures import Data, Figure, Panel
from prebleexp.report.palette import INK, STYLES
from prebleexp.report.plan_table import table
from prebleexp.report.wording import number, tick

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Canvas

NAME = "answers"
WIDTH_IN, ROW_IN, LINE_IN = 7.2, 0.3, 0.16
TOP_IN, BOTTOM_IN, RIGHT_IN = 0.06, 0.3, 1.7
NAME_LETTERS = 30
BAR = 0.55
"""of a row"""
MOST = 40
"""bars"""


def figure(found: Sequence[Planned]) -> Figure:
    """A bar with interval for each contender of a plan: GPUs, or the load that is borne."""
    order = [one for one in best_first(found) if one.answer.size is not None][:MOST]
    many = found[0].contender.searched == GPUS
    sentence = planned.sentence(found)
    width, height, svg = _panel(order, sentence) if order else (0.0, 0.0, None)
    return Figure(
        name=NAME,
        number="",
        title="GPUs that each needs" if many else "Load that each bears",
        command="",
        x="GPUs" if many else planned.unit(found[0].contender),
        y="",
        answer=Answer(sentence),
        losses="",
        panels=() if svg is None else (Panel("", svg, width * POINTS, height * POINTS),),
        paired=False,
        left_out=0,
        legend=(),
        caption=_caption(order),
        table=table(found),
        data=_data(order),
    )


def _panel(order: Sequence[Planned], sentence: str) -> tuple[float, float, Markup]:
    names = [textwrap.wrap(one.name, NAME_LETTERS) or [one.name] for one in order]
    rows = [max(ROW_IN, LINE_IN * len(lines) + 0.1) for lines in names]
    height = TOP_IN + BOTTOM_IN + sum(rows)

    def draw(canvas: Canvas) -> None:
        from matplotlib import ticker

        left = LETTER_IN * max(len(line) for lines in names for line in lines) + 0.12
        box = (left / WIDTH_IN, BOTTOM_IN / height)
        size = (1 - box[0] - RIGHT_IN / WIDTH_IN, 1 - box[1] - TOP_IN / height)
        axes = canvas.add_axes((*box, *size))
        middles = [sum(rows[:i]) + row / 2 for i, row in enumerate(rows)]
        reach = max(_ends(one)[1] for one in order)
        axes.set(xlim=(0, 1.02 * reach), ylim=(sum(rows), 0))
        axes.xaxis.set_major_locator(ticker.MaxNLocator(6, integer=order[0].contender.searched == GPUS))
        axes.xaxis.set_major_formatter(ticker.FuncFormatter(lambda x, _: tick(x)))
        axes.yaxis.set_major_locator(ticker.FixedLocator(middles))
        axes.yaxis.set_major_formatter(ticker.FixedFormatter(["\n".join(lines) for lines in names]))
        quiet(axes, "x")
        colour = STYLES[0].light
        for one, middle in zip(order, middles, strict=True):
            assert one.answer.size is not None
            low, high = _ends(one)
            axes.barh(middle, one.answer.size, height=BAR * ROW_IN, color=colour, alpha=0.55, linewidth=0)
            if _is_open(one):
                axes.annotate(
                    "",
                    (1.02 * reach, middle),
                    (low, middle),
                    arrowprops={"arrowstyle": "->", "color": INK[0], "linewidth": 1.4, "shrinkA": 0, "shrinkB": 0},
                )
                high = 1.02 * reach
            elif high > low:
                axes.plot([low, high], [middle, middle], color=INK[0], linewidth=1.4, solid_capstyle="butt")
            axes.text(
                max(high, one.answer.size) + 0.015 * reach,
                middle,
                said(one),
                color=INK[0],
                verticalalignment="center_baseline",
                clip_on=False,
            )

    title = "The answer of each contender, with its interval"
    return WIDTH_IN, height, drawn(draw, WIDTH_IN, height, name=NAME, title=title, description=sentence)


def _ends(one: Planned) -> tuple[float, float]:
    """Of its interval; of GPUs over several streams from those that are enough on average to the answer."""
    answer = one.answer
    size = answer.size or 0.0
    if one.contender.searched == GPUS and not one.contender.is_recorded:
        return answer.likely or size, size
    return size if answer.low is None else answer.low, size if answer.high is None else answer.high


def said(one: Planned) -> str:
    """An answer with its interval, as it stands beside its bar."""
    low, high = _ends(one)
    whole = one.contender.searched == GPUS
    size, *ends = (f"{value:g}" if whole else number(value) for value in (one.answer.size or 0.0, low, high))
    both = recorded_plan.ends(low, None) if _is_open(one) else f"{ends[0]} to {ends[1]}"
    return f"{planned.how(one)}{size}{f' ({both})' if high > low or _is_open(one) else ''}"


def _is_open(one: Planned) -> bool:
    """Whether its interval has no upper end."""
    return one.contender.is_recorded and one.answer.low is not None and one.answer.high is None


def _caption(order: Sequence[Planned]) -> str:
    if not order:
        return "No contender has an answer."
    if order[0].contender.is_recorded:
        return "Bars are the fewest GPUs for the recording, lines what others like it may need; an arrow has no end."
    if order[0].contender.searched == GPUS:
        return "Bars are the fewest GPUs that surely keep the promise; a line begins at those that do on average."
    return "Bars are the greatest load that keeps the promise on average over request streams, lines 95 % intervals."


def _data(order: Sequence[Planned]) -> Data:
    """A row for each."""
    searched = NAMES[order[0].contender.searched] if order else "size"
    rows = tuple((one.name, one.answer.size, *_ends(one), one.answer.verdict.value) for one in order)
    return Data(("contender", searched, "low", "high", "verdict"), rows)
