"""`python -m prebleexp open [NAME]`: a report, or the list of all, in the browser."""

from __future__ import annotations

import webbrowser
from contextlib import suppress
from pathlib import Path

from prebleexp.commands.arguments import REPORTS_DIR, Command, Commands, Given
from prebleexp.errors import InvalidInput, unknown
from prebleexp.report import listing


def _open(given: Given) -> int:
    """Print the page's address and open it, where there is a browser; 0. Raises InvalidInput for an unknown report."""
    words, folder = given.words, given["reports_dir"]
    names = [one.name for one in listing.listed(folder)]
    if not names:
        raise InvalidInput(f"there is no report in {folder}; a sweep makes one")
    if words and words[0] not in names:
        raise unknown("report", words[0], names)
    page = folder / words[0] / listing.PAGE if words else _list(folder)
    print(page.absolute().as_uri(), flush=True)
    with suppress(webbrowser.Error):
        webbrowser.open(page.absolute().as_uri())
    return 0


def _list(folder: Path) -> Path:
    """As it is now; in a folder that cannot be written, as it was."""
    page = folder / listing.PAGE
    try:
        return listing.write(folder)
    except InvalidInput:
        if page.is_file():
            return page
        raise


COMMANDS: Commands = {
    "": Command(
        "a report, or the list of all, in the browser; prints its address",
        _open,
        "python -m prebleexp open first",
        words="[NAME]",
        takes="the name of one report",
        settings=(REPORTS_DIR,),
    )
}
