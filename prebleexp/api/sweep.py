"""`prebleexp.sweep`: many runs, from the cache or computed, and everything that they say."""

from __future__ import annotations

import shlex
import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any, Literal

from prebleexp import publish
from prebleexp.api import html
from prebleexp.api.compared import Compared, measured
from prebleexp.api.picture import Picture
from prebleexp.api.refusals import BY_SWEEP, refuse
from prebleexp.checks import one_of
from prebleexp.comparison import compare, metric_of
from prebleexp.errors import InvalidInput, unknown
from prebleexp.experiment.results import Result
from prebleexp.launch import overrides, rows, tables
from prebleexp.launch.multirun import Multirun
from prebleexp.launch.naming import named
from prebleexp.launch.parts import key_of
from prebleexp.launch.rows import Row
from prebleexp.launch.session import Session
from prebleexp.launch.usual import completed
from prebleexp.metrics import METRICS
from prebleexp.paper.figures import DRAWINGS
from prebleexp.report.figures import figure
from prebleexp.report.wording import plain

if TYPE_CHECKING:
    import pandas as pd

HALF_WIDTH = "_half_width_95"
LATENCY = "latency_against_rate"
"""the figure of a sweep without parts"""
AGAINST_RATE = "_against_rate"
"""ends the names of figures with the request rate along x"""
BASE_AXES = ("gpus", "rps", "policy")
"""of a sweep that has none"""


class Sweep:
    """What came of a sweep. Nothing is computed any more; requests are read when they are asked for."""

    def __init__(self, session: Session) -> None:
        self._session = session

    @property
    def axes(self) -> tuple[str, ...]:
        """The keys that were swept, in order; with several parts also "part" and "line"."""
        return tuple(self._session.axes)

    @property
    def failures(self) -> pd.DataFrame:
        """One row a run that failed: its key, its configuration, "error" and "traceback". No row if none did. The next
        sweep over them tries them again."""
        import pandas as pd

        found = [
            rows.failure(result) | {"traceback": result.error.traceback}
            for result in self._session.failed
            if result.error is not None
        ]
        return pd.DataFrame(found) if found else pd.DataFrame(columns=["key", "error", "traceback"])

    def frame(self, by: Literal["run", "cell"] = "run") -> pd.DataFrame:
        """One row a run that succeeded: its key, its configuration, its metrics (seconds and tokens; NaN where there is
        nothing to average), and how many seconds it took.

        With `by="cell"` one row a configuration: of each metric the mean over the seeds, under its name, and the
        half-width of the mean's 95 % interval as NAME_half_width_95 (NaN of a single seed); "seeds" says how many.
        """
        import pandas as pd

        one_of("by", by, ("run", "cell"))
        found = self._rows() if by == "run" else [self._mean(label, results) for label, results in self._cells()]
        frame = pd.DataFrame(found, columns=None if found else self._columns())
        numbers = (*METRICS, *(f"{metric}{HALF_WIDTH}" for metric in METRICS))
        empty = [name for name in numbers if name in frame and frame[name].dtype == object]
        return frame.astype(dict.fromkeys(empty, float))

    def requests(self) -> pd.DataFrame:
        """One row a request, of all runs that kept them: of each configuration the first seed, unless the sweep had
        keep_requests=all (or none).

        First the axes, "seed" and "key" of the run, then the columns of the table `requests` (docs/tables.md), in
        seconds and tokens; NaN where there is none. Raises InvalidInput if there are none.
        """
        import pandas as pd

        found = []
        for label, result in self._runs():
            file = self._session.cache.requests_path(result.key)
            if result.error is None and file.is_file():
                requests = pd.read_parquet(file)
                about = self._place(label, result) | {"seed": result.cell.seed, "key": result.key}
                found.append(pd.concat([pd.DataFrame(about, index=requests.index), requests], axis=1))
        if not found:
            raise InvalidInput("no requests were kept; sweep with keep_requests=first or all")
        return pd.concat(found, ignore_index=True)

    def figure(self, number: str | None = None, *, metric: str | None = None) -> Picture:
        """The figure of the sweep's page: shown by notebooks, and kept by its `save`.

        `number` says which, of a sweep that has several ("1A"); `metric` is drawn in its place, against the request
        rate. Raises InvalidInput for others.
        """
        settings, every = self._session.settings, self._rows()
        figures = {spec.number: spec for spec in settings.figures}
        if number is not None and number not in figures:
            raise unknown("figure", number, figures)
        name = metric and metric_of(metric)
        if not figures:
            return Picture(figure(name or LATENCY, every, self.axes))
        spec = figures[number] if number else next(iter(figures.values()))
        if name and not spec.draw.endswith(AGAINST_RATE):
            raise InvalidInput(f"figure {spec.number} is not drawn against the request rate, as {metric} would be")
        of_parts = [row for part in spec.parts for row in every if row["part"] == part]
        if name:
            return Picture(figure(name, of_parts, number=spec.number))
        how = DRAWINGS[spec.draw]
        return Picture(figure(spec.draw, of_parts, how=how, number=spec.number, title=spec.title))

    def compare(self, a: str, b: str, metric: str = "norm_latency_mean_s", **where: Any) -> Compared:
        """B against A, two policies or lines of this sweep, or two values of a setting, as "policy.weight=0.1": paired
        by configuration and seed, each difference with its 95 % interval.

        `where` takes the runs that have this value, or one of these: `gpus=8`, `rps=[16, 64]`. Raises InvalidInput for
        names that do not exist, and if nothing is common.
        """
        runs = list(self._runs())
        known = {name for label, result in runs for name in (*result.cell.columns(), *label)}
        for name in where:
            if name not in known:
                raise unknown("column", name, known)
        wanted = {name: value if isinstance(value, list | tuple) else [value] for name, value in where.items()}
        sides: dict[str, list[Result]] = {}
        for label, result in runs:
            columns = result.cell.columns() | label
            if all(columns.get(name) in values for name, values in wanted.items()):
                settings = {one for one in (a, b) if _has(columns, one)}
                for side in {columns["policy"], label.get("line", columns["policy"]), *settings}:
                    sides.setdefault(str(side), []).append(result)
        for side in (a, b):
            if side not in sides:
                name = side.partition("=")[0]
                values = dict.fromkeys(plain((result.cell.columns() | label).get(name)) for label, result in runs)
                if "=" in side and name in known:
                    raise unknown(name, side.partition("=")[2], values)
                raise unknown("policy or line", side, sides)
        ours, theirs = completed(*(measured(sides[one], self._session.cache) for one in (a, b)))
        return Compared(a, b, compare(ours, theirs, metric_of(metric)))

    def __repr__(self) -> str:
        return f"<prebleexp.Sweep {self._session.settings.sweep}: {self._session.tally()}>"

    def _repr_html_(self) -> str:
        session = self._session
        lines = [session.tally(), *session.known(), *session.losses()]
        if session.failed:
            lines.append("what failed, and why, is in .failures")
        heads, shown = tables.summarised(
            session.axes, session.results, session.places, session.settings.metrics, session.settings.prices
        )
        return "".join(map(html.paragraph, lines)) + html.table(heads, shown, ' in .frame(by="cell")')

    def _runs(self) -> Iterator[tuple[Row, Result]]:
        """Every distinct run, with the part, variant and line that it belongs to; several of these name it again."""
        session = self._session
        if not session.places:
            yield from (({}, result) for result in session.runs)
            return
        labelled = {
            (place, result.key): result
            for place, results in zip(session.places, session.results, strict=True)
            for result in results
        }
        yield from ((asdict(place), result) for (place, _), result in labelled.items())

    def _rows(self) -> list[Row]:
        return [label | rows.row(result) for label, result in self._runs() if result.error is None]

    def _cells(self) -> Iterator[tuple[Row, list[Result]]]:
        """Runs that differ in their seed alone."""
        found: dict[object, tuple[Row, list[Result]]] = {}
        for label, result in self._runs():
            cell = (replace(result.cell, seed=0), *label.values())
            found.setdefault(cell, (label, []))[1].append(result)
        yield from found.values()

    def _mean(self, label: Row, results: Sequence[Result]) -> Row:
        measured = [result.metrics for result in results if result.metrics is not None]
        columns = {name: value for name, value in results[0].cell.columns().items() if name != "seed"}
        row = label | columns | {"seeds": len(measured)}
        means = rows.means(measured, of_one=results[0].cell.draws_costs)
        for metric in METRICS:
            row[metric], row[f"{metric}{HALF_WIDTH}"] = means.get(metric) or (None, None)
        return row

    def _columns(self) -> list[str]:
        """Columns of a frame without rows."""
        label, failed = next(self._runs())
        return [*label, "key", *failed.cell.columns(), *METRICS, "seconds"]

    def _place(self, label: Row, result: Result) -> Row:
        columns = label | result.cell.columns()
        return {axis: columns[axis] for axis in self.axes if axis in columns} or {
            axis: columns[axis] for axis in BASE_AXES
        }


def sweep(*given: str | Sequence[str] | Mapping[str, Any], **settings: Any) -> Sweep:
    """Simulate every combination of values, and return what came of it.

        sweep(policy=["lor", "e2"], gpus=[4, 8], rps=[16, 64], replications=5)
        sweep({"policy": "e2", "policy.window_s": [60, 180]}, rps=[16, 64])
        sweep("+sweeps=fig1a", "replications=2")

    A list, tuple, range or array is the values of an axis (a list as a value is written in another: `[[1, 300]]`);
    strings are overrides as on the command line, whose sweeps these are: same keys, same cache, same row in the
    database. What is in the cache is not computed; a sweep that was interrupted goes on where it was. Policies are
    named: objects are for `run`.

    Raises InvalidInput, before anything is run, for names that do not exist, values that are not valid and settings
    that mean nothing here. A run that fails stops nothing: see `Sweep.failures`.
    """
    lines = [line for one in (*given, settings) for line in overrides.lines(one)]
    refuse(lines, BY_SWEEP)
    keys = [key_of(line) for line in lines]
    for key in keys:
        if keys.count(key) > 1:
            raise InvalidInput(f"{key} is set twice")
    multirun = Multirun.of(named(lines))
    publish.check_figures(multirun.settings)
    session = Session(multirun.settings)
    multirun.launch(session)
    with _LOADING:
        publish.load(session, session.settings.sweep, f"python -m prebleexp -m {shlex.join(lines)}")
    return Sweep(session)


_LOADING = threading.Lock()
"""two threads of a process do not write the database at once"""


def _has(columns: Mapping[str, Any], setting: str) -> bool:
    """Whether a run has this value, as "policy.weight=0.1"."""
    name, equals, value = setting.partition("=")
    return bool(equals) and name in columns and plain(columns[name]) == value
