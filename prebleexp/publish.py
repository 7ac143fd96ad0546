"""Where the results of a command go: into the database, and into the report of its sweep."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

from prebleexp.errors import unknown

if TYPE_CHECKING:
    from omegaconf import DictConfig

    from prebleexp.launch.configure import Settings
    from prebleexp.launch.session import Session
    from prebleexp.report.drawings import Drawings
    from prebleexp.report.figures import Figure
    from prebleexp.report.page import Report

DATABASE = "prebleexp.duckdb"
MOST_NAMED = 5
"""hosts or commits"""


def check_figures(settings: Settings) -> None:
    """Raises InvalidInput if a sweep asks for a figure that does not exist: before it is run."""
    from prebleexp.report.measures import DRAWINGS

    for name in (settings.figure, *(one.draw for one in settings.figures)):
        if name not in DRAWINGS:
            raise unknown("figure", name, DRAWINGS)


def load(session: Session, name: str, command: str) -> None:
    """Bring the database up to what was run."""
    from prebleexp import store
    from prebleexp.launch.rows import stored_failure

    settings = session.settings
    database = settings.cache_dir / DATABASE
    if session.cache.read_only is not None:
        print(f"the database {database} stays as it is: {session.cache.read_only}", file=sys.stderr)
        return
    about, runs = session.experiment(name, settings.title or name, command)
    store.load(
        database,
        session.stored_rows,
        session.request_files,
        [stored_failure(result) for result in session.failed],
        store.Experiment(about, session.started, runs),
    )


def report(session: Session, master: DictConfig, command: str) -> Path:
    """Write the report of a sweep; returns the path of its page. Raises InvalidInput if the folder cannot be
    written."""
    from prebleexp.report import frame, page
    from prebleexp.report.drawings import Drawings

    folder = session.settings.reports_dir / session.settings.sweep
    drawings = Drawings(folder / ".drawn")
    with frame.into(folder):
        made = _report(session, master, command, drawings)
        drawings.prune()
    return page.write(folder, made)


def _report(session: Session, master: DictConfig, command: str, drawings: Drawings) -> Report:
    from omegaconf import OmegaConf, open_dict

    from prebleexp.launch.rows import failure
    from prebleexp.report.findings import findings
    from prebleexp.report.page import Report, Sweep

    settings = session.settings
    with open_dict(master):
        del master["hydra"]
    about = Sweep(
        name=settings.sweep,
        title=settings.title or settings.sweep,
        command=command,
        configuration=OmegaConf.to_yaml(master),
        axes=tuple(session.axes),
    )
    parts = session.rows_by_part if settings.parts else {}
    rows = [row | {"part": name} for name, of_part in parts.items() for row in of_part] if parts else session.rows
    return Report(
        about,
        rows,
        _figures(session, drawings),
        findings=findings(parts) if settings.findings else (),
        failures=[failure(result) for result in session.failed],
        provenance=_provenance(session),
        parts=settings.figures[0].parts if settings.figures else (),
    )


def _provenance(session: Session) -> dict[str, str]:
    """By which code, where and when the runs were computed; several of each where they came about in several."""
    found = [result.provenance for result in session.runs if result.error is None]
    values = {
        name: sorted({str(one[field]) for one in found if one.get(field) is not None})
        for name, field in (("git commit", "git_commit"), ("host", "host"), ("computed, UTC", "finished"))
    }
    dirty = any(one.get("git_dirty") for one in found)
    shown = {
        name: ", ".join(some[:MOST_NAMED]) + (" …" if len(some) > MOST_NAMED else "") for name, some in values.items()
    }
    times = values["computed, UTC"]
    if times:
        shown["computed, UTC"] = times[0] if len(times) == 1 else f"{times[0]} to {times[-1]}"
    if dirty:
        shown["git commit"] += " with changes that are not in it"
    return {name: text for name, text in shown.items() if text}


def _figures(session: Session, drawings: Drawings) -> list[Figure]:
    from prebleexp.report.figures import figure

    settings = session.settings
    if not settings.figures:
        return [figure(settings.figure, session.rows, session.axes, drawings=drawings)]
    parts = session.rows_by_part
    return [
        figure(
            one.draw,
            [row for part in one.parts for row in parts[part]],
            number=one.number,
            title=one.title,
            command=f"python -m prebleexp +sweeps={one.sweep}" if one.sweep else "",
            drawings=drawings,
        )
        for one in settings.figures
    ]
