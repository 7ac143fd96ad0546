"""What one command runs, and what came out of it."""

from __future__ import annotations

import hashlib
import sys
import time
from collections.abc import Callable, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import fields
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from prebleexp import losses, offered, overload
from prebleexp.errors import DoesNotFit, InvalidInput, significant
from prebleexp.experiment import load, shape
from prebleexp.experiment.cache import Cache
from prebleexp.experiment.cell import Cell
from prebleexp.experiment.provenance import now, provenance
from prebleexp.experiment.results import Result, distinct, run_all
from prebleexp.launch.configure import Job, Settings, axes_of
from prebleexp.launch.loads import files_of
from prebleexp.launch.parts import Place
from prebleexp.launch.progress import Kept, Progress, runs_of
from prebleexp.launch.rows import Row, row, stored
from prebleexp.precision import Precision
from prebleexp.service.doubtful import doubts
from prebleexp.stages import NEEDS, Stage, of_requests

if TYPE_CHECKING:
    from omegaconf import DictConfig


def say_plan(runs: int, missing: int) -> None:
    """The first words of a command: what will be done, and what is there."""
    if missing:
        print(
            f"prebleexp: {runs - missing:,} of {runs:,} runs are in the cache, {missing:,} to compute", file=sys.stderr
        )


class Session:
    """Runs batches of jobs and collects their results. Hydra hands it to the launcher as the task function."""

    asks_on = False
    """whether what runs say decides which others are asked for"""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.axes: list[str] = []
        """the keys that were swept"""
        self.results: list[list[Result]] = []
        """for every job those of its replications"""
        self.places: list[Place] = []
        """for every job where it belongs, in a sweep of several parts"""
        self.seconds = 0.0
        self.started = now("milliseconds")  # of two short sweeps it is known which was later
        self.one_run = False
        """whether several seeds were asked for where nothing is drawn"""
        self.imprecise = 0
        """jobs whose means are not known as well as was asked for"""
        self.misfits: list[tuple[Sequence[str], DoesNotFit]] = []
        """jobs that were left out, by their overrides, and why they cannot serve"""
        self._kept = Kept(self.asks_on)

    @property
    def leaves_out(self) -> bool:
        """Whether jobs whose hardware cannot serve the model are left out, as long as there are others."""
        return False

    @property
    def job_dirs(self) -> bool:
        """Whether each job leaves a folder of records."""
        return self.settings.job_dirs

    def __call__(self, cfg: DictConfig) -> None:
        raise InvalidInput("hydra/launcher must be prebleexp: other launchers run jobs one by one")

    def run(self, jobs: Sequence[Job], axes: Sequence[str] = ()) -> list[list[Result]]:
        """Run the cells of `jobs` that the cache does not have; those that fail are among the results.

        Raises InvalidInput if settings differ between jobs, or if bad input is why not a single run succeeded.
        """
        self._refuse_differences(jobs)
        self.axes += [axis for axis in axes_of(axes) if axis not in self.axes]
        self.one_run |= any(job.several and not job.cells[0].draws for job in jobs)
        start = time.perf_counter()
        of_jobs = self._of_jobs([job.cells for job in jobs], self.settings.keep_requests)
        if self.settings.precision is not None:
            self._replicate(of_jobs, self.settings.precision)
        self.seconds += time.perf_counter() - start
        found = [result for results in of_jobs for result in results]
        bad = [result.error for result in found if result.error and result.error.type == InvalidInput.__name__]
        if found and len(bad) == len(found):  # such as a workload file that is malformed, which is seen when it is read
            raise InvalidInput(bad[0].message)
        self.results += of_jobs
        return of_jobs

    def _of_jobs(self, cells: Sequence[Sequence[Cell]], keep_requests: str) -> list[list[Result]]:
        results = iter(self._results([cell for of_job in cells for cell in of_job], keep_requests))
        return [[next(results) for _ in of_job] for of_job in cells]

    def _replicate(self, of_jobs: Sequence[list[Result]], precision: Precision) -> None:
        """Add replications to the results of each job until its mean is known well enough."""
        keep = "all" if self.settings.keep_requests == "all" else "none"
        for count in precision.looks[1:]:
            short = [of for of in of_jobs if of[0].cell.draws and _is_short(of, precision)]
            first = [results[0].cell for results in short]
            more = [
                [cell.with_seed(cell.seed + i) for i in range(len(results), count)]
                for cell, results in zip(first, short, strict=True)
            ]
            for results, added in zip(short, self._of_jobs(more, keep), strict=True):
                results += added
        self.imprecise += sum(of[0].cell.draws and _is_short(of, precision) for of in of_jobs)

    def _results(self, cells: Sequence[Cell], keep_requests: str) -> list[Result]:
        with Progress(len(cells)) as progress, self._kept.batch(len(cells), progress, self._say_plan) as on_plan:
            return self._run(cells, keep_requests, on_plan=on_plan, on_done=progress.advance)

    def _run(self, cells: Sequence[Cell], keep_requests: str, **told: Callable[..., object]) -> list[Result]:
        """As the settings say; `told` are `on_plan` and `on_done` of `run_all`."""
        return run_all(
            cells,
            self.cache,
            workers=self.settings.workers,
            backend=self.settings.backend,
            keep_requests=keep_requests,
            retry=self.settings.retry,
            time_limit_s=self.settings.time_limit_s,
            check=self.settings.check,
            **told,
        )

    def _say_plan(self, runs: int, missing: int) -> None:
        say_plan(runs, missing)

    @cached_property
    def cache(self) -> Cache:
        return Cache(self.settings.cache_dir)

    @cached_property
    def runs(self) -> list[Result]:
        """The results of all jobs, each distinct run once."""
        return list(distinct(result for of_job in self.results for result in of_job).values())

    @cached_property
    def rows(self) -> list[Row]:
        return [row(result) for result in self.runs if result.error is None]

    @property
    def stored_rows(self) -> list[Row]:
        """Rows of the runs that succeeded, as the database has them."""
        succeeded = (result for result in self.runs if result.error is None)
        return [stored(row, result) for row, result in zip(self.rows, succeeded, strict=True)]

    @cached_property
    def rows_by_part(self) -> dict[str, list[Row]]:
        """The rows of each part, with their variant and line."""
        found: dict[str, list[Row]] = {part.name: [] for part in self.settings.parts}
        for place, results in zip(self.places, self.results, strict=True):
            label = {"variant": place.variant, "line": place.line}
            found[place.part] += [row(result) | label for result in results if result.error is None]
        return found

    @property
    def asides(self) -> AbstractSet[str]:
        """Keys of runs that say what was asked besides, and which `compare` leaves out."""
        return frozenset()

    @property
    def failed(self) -> list[Result]:
        return [result for result in self.runs if result.error is not None]

    @property
    def all_cached(self) -> bool:
        return all(result.cached and result.error is None for result in self.runs)

    @property
    def stages(self) -> list[Stage]:
        """Of the first run whose requests are kept, if its load comes in stages."""
        return next(filter(None, map(self._stages_of, self.runs)), [])

    @property
    def by_line(self) -> dict[tuple[str, str], list[tuple[Cell, Row]]]:
        """By part and line the runs that succeeded, and their rows."""
        found: dict[tuple[str, str], list[tuple[Cell, Row]]] = {}
        for place, results in zip(self.places, self.results, strict=True):
            found[place.part, place.line] = [(one.cell, row(one)) for one in results if one.error is None]
        return found

    @property
    def ladders(self) -> dict[tuple[str, str], list[tuple[Cell, list[Stage]]]]:
        """By part and line the runs whose load comes in stages and whose requests are kept."""
        found: dict[tuple[str, str], list[tuple[Cell, list[Stage]]]] = {}
        for place, results in zip(self.places, self.results, strict=True):
            staged = [(result.cell, self._stages_of(result)) for result in results]
            found[place.part, place.line] = [(cell, stages) for cell, stages in staged if stages]
        return found

    def _stages_of(self, result: Result) -> list[Stage]:
        path = self.cache.requests_path(result.key)
        staged = result.cell.workload.staged or len(result.cell.profile.ends_s) > 1
        if not staged or result.error is not None or not path.is_file():
            return []
        import pyarrow.parquet as pq

        kept = pq.read_table(path, columns=list(NEEDS))
        return of_requests({name: kept[name].to_numpy() for name in NEEDS})

    @property
    def request_files(self) -> dict[str, Path]:
        """Where the requests of a run are, for those of which they were kept."""
        paths = {row["key"]: self.cache.requests_path(row["key"]) for row in self.rows}
        return {key: path for key, path in paths.items() if path.exists()}

    def experiment(self, name: str, title: str, command: str) -> tuple[Row, list[Row]]:
        """What was run, for the database: its row, and one for each run. The same name and the same runs are the same
        experiment."""
        keys = [result.key for result in self.runs]
        id = hashlib.sha256("\n".join([name, *sorted(keys)]).encode()).hexdigest()[:16]
        about = provenance(*(result.cell for result in self.runs))
        columns = {
            "id": id,
            "name": name,
            "title": title,
            "command": command,
            "n_runs": len(keys),
            "n_computed": sum(not result.cached and result.error is None for result in self.runs),
            "n_cached": sum(result.cached and result.error is None for result in self.runs),
            "n_failed": len(self.failed),
            "seconds": self.seconds,
            **{field: about[field] for field in ("prebleexp", "git_commit", "git_dirty", "host")},
        }
        asides = self.asides
        named: dict[tuple[str, ...], Row] = {}
        for i, results in enumerate(self.results):
            place = vars(self.places[i]) if self.places else {}
            for result in results:
                named[(result.key, *place.values())] = {"key": result.key, "aside": result.key in asides} | place
        return columns, list(named.values())

    def account(self) -> str:
        """How much was computed, in a line; in further ones, which requests were not served."""
        took = "; ".join([self.tally(), f"{self.seconds:.1f} s", *self.known()])
        return "\n".join([took, *(f"prebleexp: {one}" for one in self.losses())])

    def losses(self) -> list[str]:
        """Sentences: which requests were not served, and what of the hardware was left out."""
        return [*self._understood(), *losses.sentences(self._cells()), *self._left_out(), *self._kept_whole()]

    def _understood(self) -> list[str]:
        """What the files of workloads were taken for, where rates are others than recorded by how much, and whether
        anything was drawn."""
        cells = [results[0].cell for results in self.results]
        said = shape.one_recording(shape.repeated(one.cell for results in self.results for one in results))
        said += [line for cell in cells for line in files_of(cell)]
        said += [line for cell in _first_with_each(cells, "slo") for line in doubts(cell.slo)]
        if self.one_run:
            said.append("where nothing is drawn, as in a recording, all seeds are one run: there are no intervals")
        return list(dict.fromkeys(said))

    def _left_out(self) -> list[str]:
        cells = (results[0].cell for results in self.results)
        one = next((one for one in cells if not one.engine.has_frontend and any(one.hardware.frontend_s)), None)
        if one is None:
            return []
        fixed, each = one.hardware.frontend_s
        return [
            f"engine={one.names['engine']} leaves out the time before its queue that {one.hardware.title} has: "
            f"{significant(fixed * 1e3)} ms a request and {significant(each * 1e6)} µs a token of its prompt"
        ]

    def _kept_whole(self) -> list[str]:
        """What engines leave out of a model's layers, once for each engine."""
        found: dict[str, None] = {}
        cells = [results[0].cell for results in self.results]
        for cell in _first_with_each(cells, "engine", "cluster", "hardware"):
            cluster = cell.cluster
            sent = cluster.has_roles and cluster.protocol != "pull"
            moves = sent or cluster.peers.there or cluster.migrates or cell.kinds[0].hardware.stages > 1
            if words := cell.engine.leaves_out(cell.kinds[0].hardware.layer_kinds, moves):
                found[f"engine={cell.names['engine']} {words}"] = None
        return list(found)

    def _cells(self) -> list[tuple[str, list[Row]]]:
        """The metrics of each distinct configuration; those that sentences may name with their place on the
        axes."""
        found: dict[str, tuple[str, list[Row]]] = {}
        for i, results in enumerate(self.results):
            cell = results[0].cell
            about = load.asked(cell)
            rows = [{**one.metrics, **about} for one in results if one.metrics is not None]
            is_named = any(losses.unserved(rows).values()) or overload.share(rows) or offered.rate(rows)
            name = self._place(i) if is_named else ""
            found.setdefault(results[0].key, (name, rows))
        return list(found.values())

    def _place(self, i: int) -> str:
        columns = self.results[i][0].cell.columns() | (vars(self.places[i]) if self.places else {})
        axes = [axis for axis in self.axes if axis in columns] or ["gpus", "rps", "policy"]
        return " ".join(f"{axis}={columns[axis]}" for axis in axes)

    def tally(self) -> str:
        """How many runs were computed, were in the cache, and failed."""
        cached = sum(result.cached and result.error is None for result in self.runs)
        if cached == len(self.runs):
            return f"{runs_of(cached)}, all from the cache"
        computed = len(self.runs) - cached - len(self.failed)
        failed = f", {len(self.failed):,} failed" if self.failed else ""
        return f"{runs_of(len(self.runs))}: {computed:,} computed, {cached:,} from the cache{failed}"

    def known(self) -> list[str]:
        """How well means are known, if that was asked for, with all looks at them counted, unlike the intervals of the
        tables."""
        precision = self.settings.precision
        if precision is None:
            return []
        if self.imprecise:
            return [
                f"{self.imprecise} of {len(self.results)} means of {precision.metric} are not known to "
                f"{precision.ci:.1%} after {precision.most} replications"
            ]
        return [f"means of {precision.metric} are known to {precision.ci:.1%}"]

    def _refuse_differences(self, jobs: Sequence[Job]) -> None:
        """Settings are those of the command: most jobs share one object."""
        for settings in {id(job.settings): job.settings for job in jobs}.values():
            for name in (field.name for field in fields(Settings)):
                first, second = getattr(self.settings, name), getattr(settings, name)
                if first != second:
                    raise InvalidInput(
                        f"{name}={first} and {name}={second}: {name} must be the same for all cells of a sweep"
                    )


def _is_short(results: Sequence[Result], precision: Precision) -> bool:
    """Whether more replications are needed, and of use."""
    values = [result.metrics[precision.metric] for result in results if result.metrics is not None]
    known = [float(value) for value in values if value is not None]
    return len(known) == len(results) and not precision.reached(known)


def _first_with_each(cells: Sequence[Cell], *specs: str) -> list[Cell]:
    """Of cells that have the same objects there, one: most share them."""
    first: dict[tuple[int, ...], Cell] = {}
    for cell in cells:
        first.setdefault(tuple(id(getattr(cell, one)) for one in specs), cell)
    return list(first.values())
