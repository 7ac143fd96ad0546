"""A sweep as one batch: Hydra's grammar says which jobs, then all their cells are run by one call."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, cast

from hydra._internal.config_loader_impl import ConfigLoaderImpl
from hydra._internal.core_plugins.basic_sweeper import BasicSweeper
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.utils import JobReturn, JobStatus

from prebleexp.errors import InvalidInput, PrebleexpError
from prebleexp.experiment.results import Result
from prebleexp.launch import parts
from prebleexp.launch.compose import Composer, plain
from prebleexp.launch.configure import NUMBERS, job_of
from prebleexp.launch.messages import understood
from prebleexp.launch.rows import means
from prebleexp.launch.session import Session

if TYPE_CHECKING:
    from hydra_plugins.prebleexp_plugin import PrebleexpLauncher


def sweep(sweeper: BasicSweeper, arguments: Sequence[str]) -> Sequence[JobReturn]:
    """Launch every combination of the values in `arguments` and in the sweeper's `params`, which they override."""
    assert sweeper.hydra_context is not None
    assert sweeper.launcher is not None
    loader = sweeper.hydra_context.config_loader
    assert isinstance(loader, ConfigLoaderImpl)
    session = getattr(sweeper.launcher, "task_function", None)
    if isinstance(session, Session) and session.settings.parts:
        return _sweep_parts(cast("PrebleexpLauncher", sweeper.launcher), session, loader, arguments)
    lines = [f"{key}={value}" for key, value in sweeper.params.items()] + list(arguments)
    with understood(loader, lines):
        overrides = OverridesParser.create(config_loader=loader).parse_overrides(lines)
        for override in overrides:
            if override.is_interval_sweep():
                line = override.input_line
                raise InvalidInput(f"{line}: an interval has no list of values; use range(start,stop,step)")
        jobs = BasicSweeper.split_arguments(overrides, None)[0]
    if not jobs:
        raise InvalidInput(f"{' '.join(lines)}: there is nothing to sweep over; no value matches")
    return sweeper.launcher.launch(jobs, initial_job_idx=0)


def _sweep_parts(
    launcher: PrebleexpLauncher, session: Session, loader: ConfigLoaderImpl, arguments: Sequence[str]
) -> list[JobReturn]:
    """All parts of a sweep in one batch."""
    with understood(loader, arguments):
        shared = _without_sweep(launcher, loader, arguments)
        found = parts.jobs(session.settings.parts, shared, OverridesParser.create(config_loader=loader))
    session.places = [place for place, _ in found]
    jobs = launch(launcher, [overrides for _, overrides in found], {"sweep": plain(launcher.config)["sweep"]})
    session.axes = ["part", "line", *dict.fromkeys(key for part in session.settings.parts for key in part.params)]
    return jobs


def _without_sweep(launcher: PrebleexpLauncher, loader: ConfigLoaderImpl, arguments: Sequence[str]) -> list[str]:
    """The arguments with what the sweep's file sets written out in its place: it is a large file, and composing it for
    every distinct choice would take longer than all the rest. If it sets more than numbers, it stays."""
    rest = [line for line in arguments if not line.startswith("+sweeps=")]
    given = {parts.key_of(line) for line in rest}
    with_it, without = (
        plain(launcher.config),
        Composer(loader).compose([line for line in rest if "," not in line]).values,
    )
    changed = [key for key in without if key not in given and key != "sweep" and with_it[key] != without[key]]
    if with_it.keys() != without.keys() or not set(changed) <= set(NUMBERS):
        return list(arguments)
    return [*rest, *(f"{key}={with_it[key]}" for key in changed)]


def launch(
    launcher: PrebleexpLauncher, job_overrides: Sequence[Sequence[str]], common: Mapping[str, Any] | None = None
) -> list[JobReturn]:
    """Run jobs and return one `JobReturn` each: its metrics, means over its replications, or why it failed.

    `common` are top-level values of all jobs in place of those composed. Raises InvalidInput before anything is run if
    any of the jobs is not valid.
    """
    loader = launcher.hydra_context.config_loader
    assert isinstance(loader, ConfigLoaderImpl)
    composer = Composer(loader, list(launcher.config.hydra.overrides.hydra))
    jobs = []
    for overrides in job_overrides:
        with understood(loader, overrides):
            composition = composer.compose(overrides)
        composition.values.update(common or {})
        jobs.append(job_of(composition))
    if not isinstance(launcher.task_function, Session):
        raise InvalidInput("hydra/launcher=prebleexp runs cells of prebleexp, not other tasks")
    results = launcher.task_function.run(jobs, swept_keys(job_overrides))
    return [_returned(list(lines), of_job) for lines, of_job in zip(job_overrides, results, strict=True)]


def swept_keys(job_overrides: Sequence[Sequence[str]]) -> list[str]:
    """The keys that have more than one value, in the order in which they come."""
    values: dict[str, set[str]] = {}
    for overrides in job_overrides:
        for line in overrides:
            key, _, value = line.partition("=")
            values.setdefault(key.lstrip("+~").split("@")[0], set()).add(value)
    return [key for key, found in values.items() if len(found) > 1]


def _returned(overrides: list[str], results: Sequence[Result]) -> JobReturn:
    job = JobReturn(overrides=overrides, task_name="prebleexp", status=JobStatus.COMPLETED)
    failed = [result.error for result in results if result.error is not None]
    if failed:
        job.status = JobStatus.FAILED
        job.return_value = PrebleexpError(failed[0].message)
        return job
    rows = [result.metrics for result in results if result.metrics is not None]
    job.return_value = {metric: value and value[0] for metric, value in means(rows).items()}
    return job
