"""A sweep as one batch: Hydra's grammar says which jobs, then all their cells are run by one call."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from hydra._internal.config_loader_impl import ConfigLoaderImpl
from hydra._internal.core_plugins.basic_sweeper import BasicSweeper
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.utils import JobReturn, JobStatus
from hydra.types import TaskFunction
from omegaconf import DictConfig, OmegaConf

from prebleexp.errors import InvalidInput, PrebleexpError
from prebleexp.experiment.results import Result
from prebleexp.launch import globs, job_dirs, parts
from prebleexp.launch.compose import Composer, plain
from prebleexp.launch.configure import Job
from prebleexp.launch.jobs import Lines, Swept, axes_of_parts, check, fitting, of_parts
from prebleexp.launch.messages import understood
from prebleexp.launch.rows import means
from prebleexp.launch.session import Session
from prebleexp.launch.written import Composition

if TYPE_CHECKING:
    from hydra_plugins.prebleexp_plugin import PrebleexpLauncher


def takes(task_function: TaskFunction | None) -> bool:
    """Whether jobs of this task are run here; those of other applications are Hydra's own business."""
    return isinstance(task_function, Session)


class Batches:
    """The batches of jobs that one sweeper launches."""

    def __init__(self, session: Session, loader: ConfigLoaderImpl, config: DictConfig) -> None:
        self.session = session
        self.loader = loader
        self.config = config
        fixed = OmegaConf.to_container(config.hydra.overrides.hydra)  # not resolved: what they refer to is a job's
        self.composer = Composer(loader, cast(list[str], fixed))
        self._swept = Swept()

    def run(self, jobs: Sequence[Lines], first: int, common: Mapping[str, Any] | None = None) -> list[list[Result]]:
        """Run jobs, which are numbered from `first`, and return of each the results of its replications; where the
        session leaves out what does not fit, of each that does.

        `common` are top-level values of all jobs in place of those composed. Raises InvalidInput before anything is run
        if any of the jobs is not valid.
        """
        common = common or {}
        fitting = self.compose(jobs, first, common)
        folders: list[Path] = []
        if self.session.job_dirs:
            configurations = (self.composer.configuration(lines, first + i) for i, lines in enumerate(jobs))
            folders = [job_dirs.record(one, self.config, common) for one in configurations]
        check(self.session, fitting)
        results = self.session.run([job for _, job in fitting], self._swept.axes(jobs))
        for folder, of_job in zip(folders, results, strict=False):
            job_dirs.conclude(folder, of_job)
        return results

    def launch(self, jobs: Sequence[Lines], first: int) -> list[JobReturn]:
        """As `run`; one `JobReturn` each for the sweeper that asked: its objective or its metrics, as means over its
        replications, or why it failed."""
        results = self.run(jobs, first)
        objective = self.session.settings.objective
        misfits = [lines for lines, _ in self.session.misfits]
        ran = [lines for lines in jobs if lines not in misfits]
        return [_returned(list(lines), of_job, objective) for lines, of_job in zip(ran, results, strict=True)]

    def compose(
        self, jobs: Sequence[Lines], first: int = 0, common: Mapping[str, Any] | None = None
    ) -> list[tuple[Lines, Job]]:
        """Jobs, and what they say; raises as `fitting`."""
        return fitting(self.session, self._composed(jobs, first, common or {}))

    def _composed(
        self, jobs: Sequence[Lines], first: int, common: Mapping[str, Any]
    ) -> Iterator[tuple[Lines, Composition]]:
        for i, lines in enumerate(jobs):
            with understood(self.loader, lines):
                composition = self.composer.compose(lines, first + i)
            composition.values.update(common)
            yield lines, composition


def sweep(sweeper: BasicSweeper, arguments: Lines) -> list[Sequence[JobReturn]]:
    """Launch every combination of the values in `arguments` and in the sweeper's `params`, which they override; at
    most `max_batch_size` of them at a time, in one batch unless that is set."""
    batches = cast("PrebleexpLauncher", sweeper.launcher).batches
    if batches.session.job_dirs:
        folder = job_dirs.folder_of(batches.config)
        folder.mkdir(parents=True, exist_ok=True)
        OmegaConf.save(batches.config, folder / "multirun.yaml")
    if batches.session.settings.parts:
        _sweep_parts(batches, arguments)
        return []
    size = sweeper.max_batch_size
    if size is not None and (isinstance(size, bool) or not isinstance(size, int) or size < 1):
        raise InvalidInput(f"hydra.sweeper.max_batch_size={size} is not valid; it must be an integer from 1, or null")
    lines = [f"{key}={value}" for key, value in (sweeper.params or {}).items()] + list(arguments)
    with understood(batches.loader, lines):
        overrides = OverridesParser.create(config_loader=batches.loader).parse_overrides(lines)
        for override in overrides:
            if override.is_interval_sweep():
                line = override.input_line
                raise InvalidInput(f"{line}: an interval has no list of values; use range(start,stop,step)")
            globs.leave_out_what_needs_a_file(override, overrides, batches.loader)
        jobs = BasicSweeper.split_arguments(overrides, None)[0]
    if not jobs:
        raise InvalidInput(f"{' '.join(lines)}: there is nothing to sweep over; no value matches")
    size = size or len(jobs)
    if size < len(jobs):
        batches.compose(jobs)  # what is not valid is said before the first batch is run
    return [batches.launch(jobs[first : first + size], first) for first in range(0, len(jobs), size)]


def _sweep_parts(batches: Batches, arguments: Lines) -> None:
    """All parts of a sweep in one batch, of which nobody asks what the jobs return."""
    session, parser = batches.session, OverridesParser.create(config_loader=batches.loader)
    values = plain(batches.config)
    with understood(batches.loader, arguments):
        jobs = of_parts(session, arguments, values, batches.composer.compose, lambda line: parts.choices(line, parser))
    batches.run(jobs, 0, {"sweep": values["sweep"]})
    session.axes = axes_of_parts(session)


def _returned(overrides: list[str], results: Sequence[Result], objective: str | tuple[str, ...] | None) -> JobReturn:
    job = JobReturn(overrides=overrides, task_name="prebleexp", status=JobStatus.COMPLETED)
    failed = [result.error for result in results if result.error is not None]
    if failed:
        job.status, job.return_value = JobStatus.FAILED, PrebleexpError(failed[0].message)
        return job
    rows = [result.metrics for result in results if result.metrics is not None]
    metrics = {metric: value and value[0] for metric, value in means(rows).items()}
    names = [objective] if isinstance(objective, str) else list(objective or ())
    without = [name for name in names if metrics[name] is None]
    if without:
        reason = f"{' '.join(overrides)}: the objective {without[0]} has no value, there is nothing to average"
        job.status, job.return_value = JobStatus.FAILED, PrebleexpError(reason)
    elif objective is None:
        job.return_value = metrics
    else:
        values = [metrics[name] for name in names]
        job.return_value = values[0] if isinstance(objective, str) else values
    return job
