"""Where the results of a command go: into the database, and into the report of its sweep."""

from __future__ import annotations

import hashlib
import shlex
import sys
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, cast

from prebleexp import sources
from prebleexp.errors import PrebleexpError, unknown

if TYPE_CHECKING:
    from omegaconf import DictConfig

    from prebleexp.experiment.history import Experiment
    from prebleexp.launch.configure import Settings
    from prebleexp.launch.parts import FigureSpec
    from prebleexp.launch.planner import Planner
    from prebleexp.launch.session import Session
    from prebleexp.report.drawings import Drawings
    from prebleexp.report.figures import Figure
    from prebleexp.report.page import Aside, Report
    from prebleexp.report.summary import Row

MOST_NAMED = 5
"""hosts or commits"""


def check_figures(settings: Settings) -> None:
    """Raises InvalidInput if a sweep asks for a figure that does not exist: before it is run."""
    if not settings.figures:
        return
    from prebleexp.paper.figures import DRAWINGS

    for figure in settings.figures:
        if figure.draw not in DRAWINGS:
            raise unknown("figure", figure.draw, DRAWINGS)


def load(session: Session, name: str, command: str) -> None:
    """Note what was run, and bring the database up to it. That costs no command its result: if it cannot be done now,
    a line says so, and a later command does it."""
    from prebleexp.experiment import history

    cache = session.cache
    if cache.read_only is not None:
        print(f"the database {cache.database} stays as it is: {cache.read_only}", file=sys.stderr)
        return
    about, runs = session.experiment(name, session.settings.title or name, command)
    try:
        noted = history.note(cache, history.Experiment(about, runs), session.started)
        if session.all_cached and not history.unlisted(cache) and cache.database.is_file():
            return  # the database has it, but for how often; who asks is told (indexing.refresh)
        _bring_up(session, noted)
    except PrebleexpError as error:
        print(f"prebleexp: {error}", file=sys.stderr)


def _bring_up(session: Session, noted: Experiment) -> None:
    from prebleexp import indexing, store
    from prebleexp.launch.rows import stored_failure

    failures = [stored_failure(result) for result in session.failed]
    try:
        indexing.bring_up(session.cache, [noted], session.stored_rows, session.request_files, failures)
    except store.Held:
        raise PrebleexpError(
            f"the database {session.cache.database} is open in another process; a later command brings it up to date"
        ) from None


def report(session: Session, master: DictConfig, command: str) -> tuple[Path, str]:
    """Write the report of a sweep; returns the path of its page, and the sentence that it begins with. Raises
    InvalidInput if the folder cannot be written."""
    from prebleexp.launch.progress import runs_of
    from prebleexp.report import frame, listing, page, ranked_by
    from prebleexp.report.drawings import Drawings

    folder = session.settings.reports_dir / session.settings.sweep
    unchanged = page.Unchanged(folder, made_of(session, _configuration(master), command))
    if unchanged and (known := listing.described(folder)):
        return folder / listing.PAGE, known.sentence
    drawings = Drawings(folder / page.DRAWN)
    with frame.into(folder), unchanged.after():
        made = _report(session, master, command, drawings)
        drawings.prune()
        written = page.write(folder, made)
        about, runs = session.experiment(session.settings.sweep, made.sweep.title, command)
        of = f"sweep of {runs_of(len({run['key'] for run in runs}))}"
        answer = ranked_by.answer(made.figures)
        listing.add(folder, listing.About(made.sweep.title, of, command, answer, about["id"]))
    return written, answer


def plan(made: Planner, name: str, command: str) -> Path:
    """Write the page of a plan; returns its path. Raises InvalidInput if the folder cannot be written."""
    from prebleexp.launch.progress import runs_of
    from prebleexp.report import frame, listing, page, plan_bars, plan_figure, plan_page, subject
    from prebleexp.report.page import Report, Sweep

    folder = made.settings.reports_dir / name
    unchanged = page.Unchanged(folder, made_of(made, made.configuration, command))
    if unchanged and listing.described(folder):
        return folder / listing.PAGE
    title = made.settings.title or _asks(made)
    of = subject.of([one.cell for one in made.found])
    about = Sweep(name, title, command, made.configuration, tuple(made.axes), "plan", of)
    with frame.into(folder), unchanged.after():
        figure, *others = plan_bars.figure(made.found), plan_figure.figure(made.found)
        asides = plan_page.asides(made.found, made.beside, made.left_out)
        report = Report(
            about,
            made.tried,
            [figure, *others],
            provenance=provenance_of(made),
            measure="slo_attainment",
            asides=asides,
            in_all=len(made.runs),
        )
        written = page.write(folder, report)
        noted, runs = made.experiment(name, title, command)
        of = f"plan of {runs_of(len({run['key'] for run in runs}))}"
        listing.add(folder, listing.About(title, of, command, figure.headline, noted["id"]))
    return written


def capacity(made: Planner, command: str) -> tuple[Path, str]:
    """Write the page of a sweep of plans; returns its path, and the sentences that it begins with. Raises InvalidInput
    if the folder cannot be written."""
    from prebleexp.launch.progress import runs_of
    from prebleexp.report import capacity, frame, listing, page
    from prebleexp.report.drawings import Drawings
    from prebleexp.report.page import Report, Sweep

    settings = made.settings
    assert settings.plans is not None
    folder, title = settings.reports_dir / settings.sweep, settings.title or settings.sweep
    unchanged = page.Unchanged(folder, made_of(made, made.configuration, command))
    if unchanged and (known := listing.described(folder)):
        return folder / listing.PAGE, known.sentence
    drawings = Drawings(folder / page.DRAWN)
    found, base = capacity.by_workload(made.found), settings.plans.against
    about = Sweep(settings.sweep, title, command, made.configuration, tuple(made.axes))
    with frame.into(folder), unchanged.after():
        figure = capacity.figure(found, base, drawings)
        report = Report(
            about,
            made.tried,
            [figure],
            findings=capacity.findings(found, base),
            findings_title=capacity.TITLE,
            note=capacity.NOTE,
            provenance=provenance_of(made),
            measure="slo_attainment",
        )
        drawings.prune()
        written = page.write(folder, report)
        noted, runs = made.experiment(settings.sweep, title, command)
        of = f"plans of {runs_of(len({run['key'] for run in runs}))}"
        listing.add(folder, listing.About(title, of, command, figure.headline, noted["id"]))
    return written, figure.headline


def _asks(made: Planner) -> str:
    """The question of a plan."""
    from prebleexp.report import planned
    from prebleexp.report.wording import condition

    first = made.found[0].contender
    do = "does" if first.cell.gpus == 1 else "do"
    if first.is_recorded:
        return "How many GPUs does this recording take?"
    if first.searched == "gpus":
        return f"How many GPUs do {condition(first.load_key, first.load)} take?"
    if first.searched != "rps":
        return f"How many users {do} {planned.cluster(made.found)} bear?"
    return f"How large a load {do} {planned.cluster(made.found)} bear?"


def asked(session: Session) -> str:
    """What the sentence of a sweep is about: its metric, and what is the same in all runs."""
    from prebleexp.paper.figures import DRAWINGS
    from prebleexp.report import ranked_by, subject
    from prebleexp.report.measures import drawing

    settings = session.settings
    if settings.figures and not settings.metrics:
        how = DRAWINGS[settings.figures[0].draw]
    else:
        how = drawing(ranked_by.names(settings.metrics, session.rows)[0])
    words = "" if settings.findings else how.measure.words
    return ", ".join(filter(None, (words, subject.of([one.cell for one in session.runs]))))


def _configuration(master: DictConfig) -> str:
    from omegaconf import OmegaConf

    return OmegaConf.to_yaml(OmegaConf.create({name: master[name] for name in master if name != "hydra"}))


def made_of(session: Session, configuration: str, command: str) -> str:
    """A digest of all that a page says."""
    runs = [(one.key, one.error and one.error.message, sorted(one.provenance.items())) for one in session.runs]
    found = hashlib.sha256(repr((command, configuration, session.places, runs)).encode())
    code = (file for file in sources.PACKAGE.rglob("*") if file.suffix in (".py", ".j2", ".js", ".css"))
    found.update(sources.digest(code).encode())
    found.update(" ".join(version(library) for library in ("matplotlib", "seaborn", "vl-convert-python")).encode())
    return found.hexdigest()


def _report(session: Session, master: DictConfig, command: str, drawings: Drawings) -> Report:
    from omegaconf import OmegaConf, open_dict

    from prebleexp.launch.rows import failure
    from prebleexp.paper import findings, on_hardware
    from prebleexp.report import cases, clusters, ladders, mistakes, orders, sessions, subject, survivors, together
    from prebleexp.report.page import Report, Sweep

    settings = session.settings
    given = cast("list[str]", OmegaConf.to_container(master.hydra.overrides.task))
    with open_dict(master):
        del master["hydra"]
    about = Sweep(
        name=settings.sweep,
        title=settings.title or settings.sweep,
        command=command,
        configuration=OmegaConf.to_yaml(master),
        axes=tuple(session.axes),
        subject="" if settings.parts else subject.of([one.cell for one in session.runs]),
    )
    parts = session.rows_by_part if settings.parts else {}
    rows = [row | {"part": name} for name, of_part in parts.items() for row in of_part] if parts else session.rows
    variants = {part.name.rpartition("_")[2]: part.variant for part in settings.parts}
    ranked = clusters.findings(rows) if settings.findings in ("clusters", "hardware") else []
    claims: list[findings.Judged] = []
    title, note, before = "Cluster by cluster", clusters.NOTE, ""
    if settings.findings == "claims":
        claims, title, note = findings.findings(parts, variants), "The claims one by one", findings.NOTE
    elif settings.findings == "hardware":
        claims = on_hardware.findings(parts, {part.name: part.variant for part in settings.parts})
        title, note = "The claims, and cluster by cluster", f"{findings.NOTE} {clusters.NOTE}"
        before = orders.sentence(ranked[0]) if ranked and ranked[0].name == orders.NAME else ""
    elif settings.findings == "ladders":
        ranked, title, note = ladders.findings(session.ladders), ladders.TITLE, ladders.NOTE
    elif settings.findings == "cases":
        ranked, title, note = cases.findings(session.by_line), cases.TITLE, cases.NOTE
    elif settings.findings == "sessions":
        ranked, note = sessions.findings(rows), sessions.NOTE
    elif settings.findings == "frontier":
        ranked, title, note = mistakes.findings(rows), mistakes.TITLE, mistakes.NOTE
    elif settings.findings == "survival":
        ranked, title, note = survivors.findings(rows), survivors.TITLE, survivors.NOTE
    elif settings.findings == "together":
        ranked, title, note = together.findings(rows), together.TITLE, together.NOTE
    overview = [findings.overview(claims, drawings, before)] if claims else []
    figures, asides = _figures(session, drawings, given, master["replications"])
    return Report(
        about,
        rows,
        [*overview, *figures],
        findings=[*claims, *ranked],
        findings_title=title,
        note=note,
        failures=[failure(result) for result in session.failed],
        provenance=provenance_of(session),
        parts=settings.figures[0].parts if settings.figures else (),
        asides=asides,
    )


def provenance_of(session: Session) -> dict[str, str]:
    """By which code, where and when the runs were computed; several of each where they came about in several."""
    from prebleexp.experiment.shape import one_recording, repeated
    from prebleexp.launch.loads import files_of

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
    cells = [result.cell for result in session.runs]
    files = dict.fromkeys([*one_recording(repeated(cells)), *(line for cell in cells for line in files_of(cell))])
    shown["requests read from"] = "; ".join(files)
    return {name: text for name, text in shown.items() if text}


def _figures(
    session: Session, drawings: Drawings, given: Sequence[str], replications: object
) -> tuple[list[Figure], Sequence[Aside]]:
    """Those of the sweep, and what there is to say besides the first."""
    from prebleexp.launch.naming import settings as settings_of
    from prebleexp.paper.figures import DRAWINGS
    from prebleexp.report import each, ranked_by
    from prebleexp.report.figures import figure
    from prebleexp.report.measures import drawing

    settings = session.settings
    if not settings.figures:
        names = ranked_by.names(settings.metrics, session.rows)
        of = [each.of_sweep(session.rows, session.axes, drawing(name), settings.about) for name in names]
        hows = zip(names, of, strict=True)
        drawn = [figure(name, session.rows, session.axes, how=how, drawings=drawings) for name, (how, _) in hows]
        return drawn, of[0][1]
    parts = session.rows_by_part if settings.parts else {}

    def rows_of(one: FigureSpec) -> list[Row]:
        return [row for part in one.parts for row in parts[part]] if one.parts else list(session.rows)

    if settings.metrics:
        return [figure(name, rows_of(settings.figures[0]), drawings=drawings) for name in settings.metrics], ()
    own = settings_of(given)

    def command(sweep: str) -> str:
        """Of a figure that a sweep of its own makes too, with the seeds and settings that it has here; else the
        page's."""
        if not sweep or f"+sweeps={sweep}" in given:
            return ""
        seeds = [] if any(line.startswith("replications=") for line in own) else [f"replications={replications}"]
        return f"python -m prebleexp {shlex.join([f'+sweeps={sweep}', *seeds, *own])}"

    found = [
        figure(
            one.draw,
            rows_of(one),
            how=DRAWINGS[one.draw],
            number=one.number,
            title=one.title,
            command=command(one.sweep),
            drawings=drawings,
        )
        for one in settings.figures
    ]
    return found, ()
