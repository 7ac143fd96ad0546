"""Panels are drawn once: a report that is made again draws only what has changed."""

from __future__ import annotations

import hashlib
from functools import partial
from importlib.metadata import version
from pathlib import Path

from markupsafe import Markup

from prebleexp.experiment import durable

SOURCES = ("canvas.py", "dots.py", "draw.py", "palette.py", "wording.py")
LIBRARIES = ("matplotlib", "seaborn")


class Drawings:
    """Keeps panels in a folder, under a digest of all that they are drawn from; without one, draws every time."""

    def __init__(self, folder: Path | None = None) -> None:
        self.folder = folder
        self.drawn = 0
        """panels that were not there yet"""
        self._used: set[str] = set()
        self._code = hashlib.sha256()
        for name in SOURCES:
            self._code.update(Path(__file__).with_name(name).read_bytes())
        self._code.update(" ".join(version(library) for library in LIBRARIES).encode())

    def kept(self, draw: partial[Markup]) -> Markup:
        """What `draw` makes, where that was not made before of the same arguments, whose repr says all of them.

        Raises OSError if the folder cannot be written.
        """
        if self.folder is None:
            self.drawn += 1
            return draw()
        digest = self._code.copy()
        digest.update(repr((draw.func.__module__, draw.args, sorted(draw.keywords.items()))).encode())
        file = self.folder / f"{digest.hexdigest()}.svg"
        self._used.add(file.name)
        try:
            return Markup(file.read_text(encoding="utf-8"))  # noqa: S704 - as it was drawn
        except FileNotFoundError:
            self.drawn += 1
            svg = draw()
        self.folder.mkdir(parents=True, exist_ok=True)
        durable.write(file, svg.encode())
        return svg

    def prune(self) -> None:
        """Remove what this report does not show any more."""
        if self.folder is not None and self.folder.is_dir():
            for file in self.folder.glob("*.svg"):
                if file.name not in self._used:
                    file.unlink(missing_ok=True)
