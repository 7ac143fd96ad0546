"""A recommendation as a page, and as files that deploy it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from prebleexp import publish
from prebleexp.launch.progress import runs_of
from prebleexp.recommending import page as pages
from prebleexp.recommending.candidates import Candidate
from prebleexp.recommending.deployment import files
from prebleexp.recommending.recommender import Recommender
from prebleexp.report import frame, listing, page
from prebleexp.report.page import Report, Sweep


def write(made: Recommender, shown: Sequence[Candidate], name: str, command: str) -> tuple[list[Path], Path | None]:
    """The folders that deploy what is `shown`, and the page; None where none is asked for. Raises InvalidInput if the
    folder cannot be written."""
    folder = made.settings.reports_dir / name
    deployed = files.write(folder / "deployments", shown)
    if made.settings.report == "none":
        return deployed, None
    unchanged = page.Unchanged(folder, publish.made_of(made, "", command))
    if unchanged and listing.described(folder):
        return deployed, folder / listing.PAGE
    title = made.settings.title or pages.title(made)
    about = Sweep(name, title, command, "", tuple(made.axes), "recommend")
    with frame.into(folder), unchanged.after():
        figure, asides = pages.figure(made), pages.asides(made, shown, deployed)
        provenance = publish.provenance_of(made)
        report = Report(about, made.last_rows, [figure], provenance=provenance, measure="slo_attainment", asides=asides)
        written = page.write(folder, report)
        noted, runs = made.experiment(name, title, command)
        of = f"recommendation of {runs_of(len({run['key'] for run in runs}))}"
        listing.add(folder, listing.About(title, of, command, figure.headline, noted["id"]))
    return deployed, written
