"""Matplotlib's markers as SVG paths, so that the explorer draws what the figures have."""

from __future__ import annotations

from functools import cache

DIGITS = 3


@cache
def outline(marker: str) -> str:
    """The path of a marker that is 2 wide, centred on 0, with y downwards."""
    from matplotlib.markers import MarkerStyle
    from matplotlib.path import Path
    from matplotlib.transforms import Affine2D

    letters = {Path.MOVETO: "M", Path.LINETO: "L", Path.CURVE3: "Q", Path.CURVE4: "C", Path.CLOSEPOLY: "Z"}
    style = MarkerStyle(marker)
    path = style.get_path().transformed(style.get_transform() + Affine2D().scale(2, -2))
    parts = []
    for ends, code in path.iter_segments(simplify=False):
        numbers = [] if code == Path.CLOSEPOLY else [f"{round(float(end), DIGITS) + 0.0:g}" for end in ends]
        parts.append(letters[code] + " ".join(numbers))
    return "".join(parts)
