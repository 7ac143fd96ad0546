"""The list of all reports, REPORTS/index.html, made of the about.json that each has beside its page."""

from __future__ import annotations

import json
import sys
from dataclasses import asdict, dataclass, fields
from datetime import UTC, datetime
from pathlib import Path

from prebleexp.errors import InvalidInput
from prebleexp.report import frame

PAGE = "index.html"
ABOUT = "about.json"


@dataclass(frozen=True)
class About:
    """What the list says of a report. None of it is trusted: it is shown as text."""

    title: str
    of: str
    """such as "sweep of 3,200 runs" """
    command: str = ""
    sentence: str = ""
    runs: str = ""
    """which: equal if they are the same"""


@dataclass(frozen=True)
class Listed:
    """A report as the list of all reports shows it."""

    name: str
    """of its folder"""
    about: About
    made: float
    """seconds since the epoch"""

    @property
    def when(self) -> str:
        return datetime.fromtimestamp(self.made, UTC).strftime("%Y-%m-%d %H:%M UTC")


def add(folder: Path, about: About) -> None:
    """After a report's page was written to its folder: list it, and say which other report it took the place of.

    A list that cannot be written is no reason to fail: a line says so.
    """
    before = described(folder)
    if before is not None and before.runs != about.runs and before.command != about.command:
        print(f"prebleexp: this takes the place of the report of a {before.of}: {before.command}", file=sys.stderr)
    try:
        frame.write(folder / ABOUT, json.dumps(asdict(about), indent=1, ensure_ascii=False) + "\n")
        write(folder.parent)
    except InvalidInput as error:
        print(f"prebleexp: the list of reports stays as it is: {error}", file=sys.stderr)


def write(reports: Path) -> Path:
    """Write the list, and return its path. Raises InvalidInput for a folder that cannot be written."""
    found = None
    while found != (found := listed(reports)):  # another process may have listed its own meanwhile, without ours
        frame.write(reports / PAGE, frame.render("reports.html.j2", reports=found))
    return reports / PAGE


def listed(reports: Path) -> list[Listed]:
    """All reports in a folder, the newest first."""
    found = []
    for page in reports.glob(f"*/{PAGE}"):
        try:
            made = page.stat().st_mtime
        except OSError:  # it was removed meanwhile
            continue
        name = page.parent.name
        found.append(Listed(name, described(page.parent) or About(name, "report"), made))
    return sorted(found, key=lambda one: (-one.made, one.name))


def described(folder: Path) -> About | None:
    """What the list says of a report; None where nothing can be read, as beside a page of before there was a list."""
    try:
        said = json.loads((folder / ABOUT).read_bytes())
        return About(**{one.name: str(said[one.name]) for one in fields(About)})
    except (OSError, ValueError, KeyError, TypeError):
        return None
