"""What one command runs, and what came out of it."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import fields
from functools import cached_property
from pathlib import Path

from omegaconf import DictConfig

from prebleexp.errors import InvalidInput
from prebleexp.experiment.cache import Cache
from prebleexp.experiment.cell import Cell
from prebleexp.experiment.results import Result, run_all
from prebleexp.launch.configure import Job, Settings
from prebleexp.launch.parts import Place
from prebleexp.launch.progress import Progress
from prebleexp.launch.rows import Row, row


class Session:
    """Runs batches of jobs and collects their results. Hydra hands it to the launcher as the task function."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.axes: list[str] = []
        """the keys that were swept"""
        self.results: list[list[Result]] = []
        """for every job those of its replications"""
        self.places: list[Place] = []
        """for every job where it belongs, in a sweep of several parts"""
        self.seconds = 0.0

    def __call__(self, cfg: DictConfig) -> None:
        raise InvalidInput("hydra/launcher must be prebleexp: other launchers run jobs one by one")

    def run(self, jobs: Sequence[Job], axes: Sequence[str] = ()) -> list[list[Result]]:
        """Run the cells of `jobs` that the cache does not have; those that fail are among the results.

        Raises InvalidInput if settings differ between jobs, or if bad input is why not a single run succeeded.
        """
        for job in jobs:
            self._refuse_difference(job.settings)
        self.axes += [axis for axis in axes if axis not in self.axes]
        start = time.perf_counter()
        cells = [cell for job in jobs for cell in job.cells]
        found = self._results(cells)
        self.seconds += time.perf_counter() - start
        bad = [result.error for result in found if result.error and result.error.type == InvalidInput.__name__]
        if found and len(bad) == len(found):  # such as a workload file that is malformed, which is seen when it is read
            raise InvalidInput(bad[0].message)
        results = iter(found)
        of_jobs = [[next(results) for _ in job.cells] for job in jobs]
        self.results += of_jobs
        return of_jobs

    def _results(self, cells: Sequence[Cell]) -> list[Result]:
        with Progress(len(cells)) as progress:
            return run_all(
                cells,
                self.cache,
                workers=self.settings.workers,
                backend=self.settings.backend,
                keep_requests=self.settings.keep_requests,
                retry=self.settings.retry,
                time_limit_s=self.settings.time_limit_s,
                on_done=progress.advance,
            )

    @cached_property
    def cache(self) -> Cache:
        return Cache(self.settings.cache_dir)

    @cached_property
    def runs(self) -> list[Result]:
        """Every distinct run once."""
        return list({result.key: result for of_job in self.results for result in of_job}.values())

    @cached_property
    def rows(self) -> list[Row]:
        return [row(result) for result in self.runs if result.error is None]

    @property
    def rows_by_part(self) -> dict[str, list[Row]]:
        """The rows of each part, with their variant and line."""
        found: dict[str, list[Row]] = {part.name: [] for part in self.settings.parts}
        for place, results in zip(self.places, self.results, strict=True):
            label = {"variant": place.variant, "line": place.line}
            found[place.part] += [row(result) | label for result in results if result.error is None]
        return found

    @property
    def failed(self) -> list[Result]:
        return [result for result in self.runs if result.error is not None]

    @property
    def request_files(self) -> dict[str, Path]:
        """Where the requests of a run are, for those of which they were kept."""
        paths = {row["key"]: self.cache.requests_path(row["key"]) for row in self.rows}
        return {key: path for key, path in paths.items() if path.exists()}

    def account(self) -> str:
        """How much was computed, in a line."""
        cached = sum(result.cached for result in self.runs)
        computed = len(self.runs) - cached - len(self.failed)
        if cached == len(self.runs):
            return f"{_runs(cached)}, all from the cache; {self.seconds:.1f} s"
        failed = f", {len(self.failed):,} failed" if self.failed else ""
        return (
            f"{_runs(len(self.runs))}: {computed:,} computed, {cached:,} from the cache{failed}; {self.seconds:.1f} s"
        )

    def _refuse_difference(self, settings: Settings) -> None:
        for name in (field.name for field in fields(Settings)):
            first, second = getattr(self.settings, name), getattr(settings, name)
            if first != second:
                raise InvalidInput(
                    f"{name}={first} and {name}={second}: {name} must be the same for all cells of a sweep"
                )


def _runs(count: int) -> str:
    return f"{count:,} run" if count == 1 else f"{count:,} runs"
