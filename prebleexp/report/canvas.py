"""An empty drawing, and how it becomes part of a page. The same input gives the same bytes."""

from __future__ import annotations

import io
import re
import warnings
from collections.abc import Callable
from typing import TYPE_CHECKING

from markupsafe import Markup

from prebleexp.report.palette import GRID, INK, themed

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

FONT_PT = 9
LETTER_IN = 0.073
"""a generous width of a letter"""
POINTS = 72
"""of an inch"""


def drawn(
    draw: Callable[[Figure], None], width_in: float, height_in: float, *, name: str, title: str, description: str
) -> Markup:
    """An inline `<svg>` with a title and a description for those who do not see it; its ids start with `name`."""
    import seaborn as sns
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    fixed = {"svg.hashsalt": name, "svg.fonttype": "none", "text.parse_math": False, "font.size": FONT_PT}
    with rc_context(sns.axes_style("whitegrid") | fixed), warnings.catch_warnings():
        # a name may hold letters that matplotlib's font lacks; the browser, which draws the text, has others
        warnings.filterwarnings("ignore", message="(?s).*Glyph.*missing from font")
        figure = Figure(figsize=(width_in, height_in))
        draw(figure)
        file = io.StringIO()
        figure.savefig(
            file, format="svg", transparent=True, metadata=dict.fromkeys(("Date", "Creator", "Format", "Type"))
        )
    view = f"0 0 {width_in * POINTS:g} {height_in * POINTS:g}"
    return _inline(file.getvalue(), view, name, title, description)


def quiet(axes: Axes, values: str) -> None:
    """Axes without a frame, with thin lines across the axis `values`."""
    import seaborn as sns
    from matplotlib import ticker

    for axis in (axes.xaxis, axes.yaxis):
        axis.set_minor_locator(ticker.NullLocator())
    axes.tick_params(colors=INK[0], length=0, labelsize=FONT_PT)
    axes.grid(visible=False)
    axes.grid(visible=True, axis="y" if values == "y" else "x", color=GRID[0], linewidth=0.8)
    axes.spines["bottom"].set(color=INK[0], linewidth=0.8)
    sns.despine(ax=axes, left=True)


def _inline(svg: str, view: str, name: str, title: str, description: str) -> Markup:
    """matplotlib's file as an element of a page: no prologue, own ids, sized by the page, described."""
    drawing = svg[svg.index("<svg") :]
    drawing = re.sub(r'\b(id="|href="#|url\(#)', rf"\g<1>{name}-", drawing)
    body = drawing[drawing.index(">") + 1 :].strip()
    start = Markup(
        '<svg xmlns="http://www.w3.org/2000/svg" xmlns:xlink="http://www.w3.org/1999/xlink" viewBox="{}" role="img" '
        'aria-labelledby="{}-title {}-desc"><title id="{}-title">{}</title><desc id="{}-desc">{}</desc>'
    ).format(view, name, name, name, title, name, description)
    return start + Markup(themed(body))  # noqa: S704 - matplotlib escapes the names in it; a test sends hostile ones
