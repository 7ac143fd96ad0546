"""The page of a sweep, with its figures and numbers as files beside it."""

from __future__ import annotations

import platform
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

from prebleexp import sources
from prebleexp.experiment import durable
from prebleexp.losses import unserved
from prebleexp.report import explorer, export, frame
from prebleexp.report.figures import Column, Figure, Table
from prebleexp.report.finding import Finding
from prebleexp.report.methods import methods
from prebleexp.report.summary import REPLICATION, Row, Value
from prebleexp.report.wording import number, plain

DRAWN = ".drawn"
"""the folder beside a page with what it was made from"""
PACKAGES = ("prebleexp", "numpy", "numba", "matplotlib", "seaborn", "vl-convert-python")


COUNTED = {"plan": "runs of the search", "recommend": "runs of the last round"}
"""what of the runs of a command its page has, where that is not all of them"""


@dataclass(frozen=True)
class Sweep:
    """What a page is about. None of it is trusted: it is shown as text."""

    name: str
    title: str
    command: str
    """the exact command line that reproduces it"""
    configuration: str
    """the composed base configuration, as YAML"""
    axes: tuple[str, ...]
    """the swept keys, in order"""
    kind: str = "sweep"
    subject: str = ""
    """the model, GPUs, engine and workload, where the title does not say them"""


@dataclass(frozen=True)
class Aside:
    """What there is to say besides the answer."""

    title: str
    sentences: Sequence[str]
    table: Table | None = None
    is_caveat: bool = False


@dataclass(frozen=True)
class Report:
    """All that a page shows.

    `rows` hold "key", the cell's columns, the metrics and "seconds" of each run that succeeded; in a sweep of several
    parts also "part", "variant" and "line", once for each part that has it. `failures` hold the cell's columns and
    "error" of each that did not. `provenance` adds lines to the last section.
    """

    sweep: Sweep
    rows: Sequence[Row]
    figures: Sequence[Figure]
    findings: Sequence[Finding] = ()
    findings_title: str = "The claims one by one"
    note: str = ""
    """how the findings' effects are measured"""
    failures: Sequence[Row] = ()
    provenance: Mapping[str, Value] | None = None
    parts: Sequence[str] = ()
    """those that the explorer starts with"""
    measure: str = "norm_latency_mean_s"
    """likewise"""
    asides: Sequence[Aside] = ()
    in_all: int = 0
    """runs of the command, where the page does not have all of them"""


class Unchanged:
    """Whether a folder has the page of this digest, whole. What is written down last is removed first, so that a page
    that was never finished is none."""

    def __init__(self, folder: Path, digest: str) -> None:
        self._mark, self._digest = folder / DRAWN / "page", digest
        self._page = folder / "index.html"

    def __bool__(self) -> bool:
        try:
            return self._mark.read_text(encoding="utf-8") == self._digest and self._page.is_file()
        except OSError:
            return False

    @contextmanager
    def after(self) -> Iterator[None]:
        """A context in which the page is made: only if that ends well the page counts as up to date."""
        self._mark.unlink(missing_ok=True)
        yield
        self._mark.parent.mkdir(parents=True, exist_ok=True)
        durable.write(self._mark, self._digest.encode())


def write(folder: Path, report: Report) -> Path:
    """Write `folder`/index.html, report.json and figures/, and return the path of the page. Same report, same bytes.

    Raises InvalidInput for a folder that cannot be written.
    """
    with frame.into(folder):
        export.figures(folder / "figures", report.figures)
    page = frame.write(folder / "index.html", render(report))
    frame.write(folder / "report.json", numbers(report))
    return page


def numbers(report: Report) -> str:
    """All numbers of the page as JSON."""
    sweep = asdict(report.sweep)
    return export.report_json(sweep, report.figures, report.findings, report.failures, _provenance(report))


def render(report: Report) -> str:
    """The page of a report, as HTML."""
    runs = {str(row.get("key")): row for row in report.rows}
    return frame.render(
        "sweep.html.j2",
        scripts=("contents.js", "tables.js", *(explorer.SCRIPTS if report.rows else ())),
        charts=bool(report.rows),
        sweep=report.sweep,
        contents=_contents(report),
        figures=report.figures,
        findings=report.findings,
        asides=report.asides,
        findings_note=report.note,
        findings_title=report.findings_title,
        facts=_facts(list(runs.values()), report.failures, COUNTED.get(report.sweep.kind, "runs"), report.in_all),
        failures=_failures(report.failures, report.sweep.axes),
        methods=methods(list(runs.values())),
        provenance={name: plain(value) for name, value in _provenance(report).items()},
        files={one.name: [f"{one.name}.{kind}" for kind in export.FORMATS] for one in report.figures},
        runs=explorer.packed(report.rows, report.sweep.axes, report.measure, report.parts) if report.rows else "",
    )


def _contents(report: Report) -> list[tuple[str, str]]:
    """The sections of the page: ids and names."""
    of_first = ("findings", report.findings_title) if report.findings else ("numbers", "Numbers")
    figures = [(one.name, f"{one.number}. {one.title}" if one.number else one.title) for one in report.figures[1:]]
    explorer = [("explorer", "Explorer")] if report.rows else []
    failures = [("failures", "Runs that failed")] if report.failures else []
    last = [("methods", "Methods"), ("reproduce", "Reproduce it"), ("provenance", "Provenance")]
    return [("answer", "The answer"), of_first, *figures, *explorer, *failures, *last]


def _facts(rows: Sequence[Row], failures: Sequence[Row], counted: str, in_all: int = 0) -> list[tuple[str, str]]:
    requests = sum(int(row.get("n_requests") or 0) for row in rows)
    seeds = len({row.get("seed") for row in rows})
    facts = [
        (counted, f"{len(rows):,}"),
        *([("runs in all", f"{in_all:,}")] if in_all > len(rows) else []),
        ("seed" if seeds == 1 else "seeds", f"{seeds:,}"),
        ("requests simulated", f"{requests:,}"),
    ]
    seconds = [float(value) for row in rows if (value := row.get("seconds")) is not None]
    if seconds:
        facts.append(("time in the simulator", f"{number(sum(seconds))} s"))
    facts += [(f"requests {what}", f"{count:,}") for what, count in unserved(rows).items() if count]
    if failures:
        facts.append(("runs failed", f"{len(failures):,}"))
    return facts


def _failures(failures: Sequence[Row], axes: Sequence[str]) -> Table:
    """Which runs failed, by the swept axes and the seed, and why."""
    shown = [axis for axis in dict.fromkeys((*axes, "seed")) if any(axis in row for row in failures)]
    shown = [axis for axis in shown if axis not in REPLICATION or axis == "seed"]
    columns = (*(Column(axis, numeric=False) for axis in shown), Column("error", numeric=False))
    return Table(columns, tuple(tuple(plain(row.get(name.name)) for name in columns) for row in failures))


def _provenance(report: Report) -> dict[str, Value]:
    versions = {package: version for package in PACKAGES if (version := sources.version_of(package))}
    return {**(report.provenance or {}), **versions, "Python": platform.python_version()}
