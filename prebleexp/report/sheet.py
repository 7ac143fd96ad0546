"""A whole figure as one picture, for papers and slides: its panels side by side, with titles, axes and legend.

It is put together from the panels as they are on the page, and turned into PDF and PNG by vl-convert.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from math import ceil, sqrt

from markupsafe import Markup, escape

from prebleexp.report.canvas import POINTS
from prebleexp.report.figures import Entry, Figure
from prebleexp.report.palette import INK, in_light_colours

MARGIN, GAP, LINE = 12.0, 22.0, 15.0
"""points"""
MOST_COLUMNS = 4
FAMILY = "font-family: sans-serif"
FONT = f"{FAMILY}; font-size: 10px"
LETTER = 5.6
"""a generous width of a letter"""


def sheet(figure: Figure) -> str:
    """The figure as a standalone SVG document on white."""
    panels = len(figure.panels)
    wide = max((panel.width for panel in figure.panels), default=0.0)
    high = max((panel.height for panel in figure.panels), default=0.0)
    columns = 2 if figure.paired else min(MOST_COLUMNS, max(1, ceil(sqrt(panels))))
    lines_of_legend = list(_legend(figure.legend, columns * (wide + GAP)))
    top = MARGIN + LINE * (1.5 + len(lines_of_legend))
    height = top + ceil(panels / columns) * (high + LINE + GAP) + MARGIN
    width = 2 * MARGIN + columns * wide + (columns - 1) * GAP
    parts = [Markup('<text x="{}" y="{}" fill="{}">{}</text>').format(MARGIN, MARGIN + LINE, INK[0], figure.y)]
    parts += [
        Markup('<g transform="translate({} {})">{}</g>').format(MARGIN, MARGIN + LINE * (1.4 + row), line)
        for row, line in enumerate(lines_of_legend)
    ]
    for i, panel in enumerate(figure.panels):
        x = MARGIN + (i % columns) * (wide + GAP)
        y = top + (i // columns) * (high + LINE + GAP)
        place = Markup('<svg x="{}" y="{}" width="{}" height="{}" ').format(x, y + LINE, panel.width, panel.height)
        middle, under = x + panel.width / 2, y + LINE + panel.height + 8
        parts += [
            Markup('<text x="{}" y="{}" font-size="11">{}</text>').format(x, y + 10, panel.title),
            place + panel.svg[len("<svg ") :],
            Markup('<text x="{}" y="{}" fill="{}" text-anchor="middle">{}</text>').format(
                middle, under, INK[0], figure.x
            ),
        ]
    start = Markup(
        '<svg xmlns="http://www.w3.org/2000/svg" width="{}" height="{}" viewBox="0 0 {} {}" style="{}">'
        '<title>{}</title><desc>{}</desc><rect width="100%" height="100%" fill="white"/>'
    ).format(width, height, width, height, FONT, figure.title, figure.headline)
    whole = in_light_colours(start + Markup("").join(parts) + Markup("</svg>\n"))
    return re.sub(r"font-family: '[^;\"]*", FAMILY, whole)


def _legend(entries: tuple[Entry, ...], width: float) -> Iterator[Markup]:
    """Lines of swatches with names, broken where they are full."""
    line, x = Markup(""), 0.0
    for entry in entries:
        needed = 36 + LETTER * len(entry.name) + GAP
        if line and x + needed > width:
            yield line
            line, x = Markup(""), 0.0
        dash = Markup(' stroke-dasharray="7 4"') if entry.style.dashed else ""
        swatch = Markup('<line x1="0" y1="4" x2="28" y2="4" stroke-width="1.8"{}/>').format(dash) if entry.line else ""
        line += Markup(
            '<g transform="translate({} 4)" stroke="{}">{}<path d="{}" transform="translate(14 4) scale(3.5)" '
            'fill="{}" stroke="none"/></g>'
            '<text x="{}" y="11">{}</text>'
        ).format(x, entry.style.light, swatch, entry.style.outline, entry.style.light, x + 34, escape(entry.name))
        x += needed
    if line:
        yield line


def wide(svg: str, inches: float) -> str:
    """The drawing so many inches wide, and as much higher."""
    size = re.search(r'width="([\d.]+)" height="([\d.]+)"', svg)
    assert size is not None
    points = inches * POINTS
    height = float(size[2]) * points / float(size[1])
    return f'{svg[: size.start()]}width="{points:g}" height="{height:g}"{svg[size.end() :]}'


def pdf(svg: str) -> bytes:
    """The same bytes for the same drawing."""
    import vl_convert

    made = bytes(vl_convert.svg_to_pdf(svg))
    # what a page uses is listed in the order of a hash table, another one in each process; so are fonts, of which there
    # is therefore one
    return re.sub(rb"(?<=<<\n)(?: +/\w+ \d+ 0 R\n)+", lambda found: b"".join(sorted(found[0].splitlines(True))), made)


def png(svg: str) -> bytes:
    """One and a half pixels a point: 108 dots per inch."""
    import vl_convert

    return bytes(vl_convert.svg_to_png(svg, scale=1.5))
