"""Panels are drawn once: a report that is made again draws only what has changed."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path

from markupsafe import Markup

from prebleexp.experiment import durable
from prebleexp.report import draw
from prebleexp.report.draw import Line, Scales

SOURCES = ("draw.py", "palette.py", "wording.py")
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

    def panel(
        self, lines: Sequence[Line], scales: Scales, *, name: str, title: str, description: str, labelled: bool
    ) -> Markup:
        """As `draw.panel`. Raises OSError if the folder cannot be written."""

        def make() -> Markup:
            self.drawn += 1
            return draw.panel(lines, scales, name=name, title=title, description=description, labelled=labelled)

        if self.folder is None:
            return make()
        digest = self._code.copy()
        digest.update(repr((list(lines), scales, name, title, description, labelled)).encode())
        file = self.folder / f"{digest.hexdigest()}.svg"
        self._used.add(file.name)
        try:
            return Markup(file.read_text(encoding="utf-8"))  # noqa: S704 - as it was drawn
        except FileNotFoundError:
            svg = make()
        self.folder.mkdir(parents=True, exist_ok=True)
        durable.write(file, svg.encode())
        return svg

    def prune(self) -> None:
        """Remove what this report does not show any more."""
        if self.folder is not None and self.folder.is_dir():
            for file in self.folder.glob("*.svg"):
                if file.name not in self._used:
                    file.unlink(missing_ok=True)
