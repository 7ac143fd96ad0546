"""A figure of a sweep, to be shown and to be kept."""

from __future__ import annotations

import base64
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from html import escape
from pathlib import Path

from prebleexp.api import html
from prebleexp.checks import is_number, require
from prebleexp.errors import unknown
from prebleexp.experiment import durable
from prebleexp.report import export
from prebleexp.report.figures import Figure
from prebleexp.report.sheet import pdf, png, sheet, wide


@dataclass(frozen=True, repr=False, eq=False)
class Picture:
    """As on the page of a sweep: its panels, on white."""

    figure: Figure
    """what is drawn, and its numbers"""

    @cached_property
    def svg(self) -> str:
        """A document of its own. The same runs give the same bytes."""
        return sheet(self.figure)

    def save(self, path: str | Path, *, width: float | None = None) -> Path:
        """Write it as the file's name says: .svg, .pdf, .png, or its numbers as .csv or .tex (a table). A drawing is
        `width` inches wide, or as wide as it is. Raises InvalidInput for another ending or a width that is none,
        OSError if it cannot be written."""
        path = Path(path).expanduser()
        valid = width is None or (is_number(width) and width > 0)
        require(valid, "width", width, "a number of inches > 0")
        svg = self.svg if width is None else wide(self.svg, width)
        made: dict[str, Callable[[], bytes]] = {
            ".svg": lambda: svg.encode(),
            ".pdf": lambda: pdf(svg),
            ".png": lambda: png(svg),
            ".csv": lambda: export.comma_separated(self.figure).encode(),
            ".tex": lambda: export.latex(self.figure.table, self.figure.title).encode(),
        }
        if path.suffix not in made:
            raise unknown("kind of file", path.suffix, made)
        durable.write(path, made[path.suffix]())
        return path

    def __repr__(self) -> str:
        return f"<{': '.join(text for text in (self.figure.title, self.figure.headline) if text)}>"

    def _repr_html_(self) -> str:
        # as an image its ids and styles are its own, and no notebook takes it for a script
        data = base64.b64encode(self.svg.encode()).decode()
        image = f'<img alt="{escape(self.figure.title)}" src="data:image/svg+xml;base64,{data}">'
        said = (html.paragraph(text) for text in (self.figure.headline, self.figure.losses) if text)
        return f"{''.join(said)}{image}{html.paragraph(self.figure.caption)}"
