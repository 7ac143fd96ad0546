"""What a stream of requests looks like, as one picture: when requests come, how long they are, what a cache finds."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
from markupsafe import Markup

from prebleexp.described import Description, turn_gaps
from prebleexp.errors import significant, unknown
from prebleexp.experiment import durable
from prebleexp.report.canvas import drawn, quiet
from prebleexp.report.palette import STYLES, in_light_colours
from prebleexp.report.sheet import pdf, png
from prebleexp.report.wording import tick
from prebleexp.sim.types import Workload

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

WIDTH_IN, HEIGHT_IN = 8.6, 5.6
BINS = 120
"""of time"""
POINTS = 512
"""of a distribution"""
ENDINGS = (".svg", ".pdf", ".png")


def save(path: Path, workload: Workload, found: Description, title: str) -> None:
    """As the file's name says. Raises InvalidInput for another ending, OSError if it cannot be written."""
    if path.suffix not in ENDINGS:
        raise unknown("kind of file", path.suffix, ENDINGS)
    svg = picture(workload, found, title)
    durable.write(path, svg.encode() if path.suffix == ".svg" else pdf(svg) if path.suffix == ".pdf" else png(svg))


def picture(workload: Workload, found: Description, title: str) -> str:
    """A document of its own, on white. The same stream gives the same bytes."""

    def draw(figure: Figure) -> None:
        axes = figure.subplots(2, 2)
        _rate(axes[0][0], workload)
        lengths = {"input": workload.prompt_tokens, "output": workload.output_tokens}
        _distributions(axes[0][1], lengths, "tokens")
        _reuse(axes[1][0], found)
        times = {"start to start of turns": turn_gaps(workload), "answer to next turn": workload.delay_s}
        _distributions(axes[1][1], times, "seconds")
        figure.tight_layout()

    rate = significant(found.rate)
    said = f"{found.requests:,} requests, {rate} a second; an unlimited cache finds {found.unlimited:.1%}"
    body = drawn(draw, WIDTH_IN, HEIGHT_IN, name="stream", title=title, description=said)
    start = Markup('<svg style="background: white" width="{:g}" height="{:g}" ').format(72 * WIDTH_IN, 72 * HEIGHT_IN)
    return in_light_colours(start + body[len("<svg ") :]) + "\n"


def _rate(axes: Axes, workload: Workload) -> None:
    counts, edges = np.histogram(workload.arrival_s[workload.dated], bins=BINS)
    axes.stairs(counts / max(float(edges[1] - edges[0]), 1e-9), edges, color=STYLES[0].light)
    axes.set_ylim(0, None)
    _labelled(axes, "seconds", "requests/s")


def _distributions(axes: Axes, of: Mapping[str, npt.NDArray[np.number]], unit: str) -> None:
    shares = np.linspace(0, 1, POINTS)
    for style, (name, values) in zip(STYLES, of.items(), strict=False):
        if (some := values[values > 0]).size:
            axes.plot(np.quantile(some, shares), shares, color=style.light, label=name)
    axes.set_xscale("log")
    if axes.lines:
        axes.legend(frameon=False, loc="lower right")
    _labelled(axes, unit, "share of them that is less")


def _reuse(axes: Axes, found: Description) -> None:
    sizes = np.array([*found.reuse]) / 1e6
    axes.plot(
        sizes, [*found.reuse.values()], color=STYLES[0].light, marker=STYLES[0].marker, label="forgets the oldest"
    )
    axes.axhline(found.unlimited, color=STYLES[1].light, linestyle="--", label="forgets nothing")
    axes.set_xscale("log")
    axes.set_ylim(0, 1)
    axes.legend(frameon=False, loc="upper left")
    _labelled(axes, "million tokens of cache", "share of prompt tokens found")


def _labelled(axes: Axes, x: str, y: str) -> None:
    from matplotlib import ticker

    quiet(axes, "y")
    axes.set_xlabel(x)
    axes.set_ylabel(y)
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_formatter(ticker.FuncFormatter(lambda value, _: tick(value)))
