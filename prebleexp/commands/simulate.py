"""Simulate: one configuration, or a sweep over many; the command without a name."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from prebleexp import publish, sources
from prebleexp.commands import line
from prebleexp.errors import InvalidInput
from prebleexp.waiting import waiting

if TYPE_CHECKING:
    from prebleexp.launch.configs import Loader
    from prebleexp.launch.configure import Job, Settings
    from prebleexp.launch.multirun import Multirun
    from prebleexp.launch.plain_sweep import PlainSweep
    from prebleexp.launch.session import Session


def run(arguments: Sequence[str], survey: bool = False) -> int:
    """Run what the arguments say; with `survey` or --dry say what there would be to run."""
    from prebleexp.commands import options

    given = options.parse(arguments)
    if given.help:
        print(options.help_text())
        return 0
    if given.version:
        print(f"prebleexp {sources.version_of('prebleexp') or '(a source tree that was never installed)'}")
        return 0

    from prebleexp.launch import places

    asks_hydra = given.cfg or given.info or given.shell_completion
    plain = not (survey or given.dry or given.multirun or asks_hydra or given.config_name != places.CONFIG)
    plain = plain and not any(map(_may_ask_for_more, given.overrides))
    if plain and given.config_dir is None:
        from prebleexp.launch.configure import job_of_command

        return _run(job_of_command(given.overrides), given.overrides, line(*arguments))
    may_be_sweep = given.multirun or any(one.startswith("+sweeps=") for one in given.overrides)
    if may_be_sweep and not asks_hydra and given.config_dir is None and given.config_name == places.CONFIG:
        from prebleexp.launch.plain_sweep import PlainSweep

        if (known := PlainSweep.of(given.overrides, given.multirun)) is not None:
            return _of_sweep(known, given, survey, line(*arguments))

    from hydra.types import RunMode

    from prebleexp.launch import configs, naming
    from prebleexp.launch.configure import job
    from prebleexp.launch.messages import MULTIRUN, understood
    from prebleexp.launch.multirun import Multirun

    loader = configs.loader(given.config_dir, given.config_name)
    if plain:
        return _run(job(given.overrides, loader), given.overrides, line(*arguments))
    lines = naming.named(given.overrides) + ([MULTIRUN] if given.multirun else [])
    with understood(loader, lines):
        if asks_hydra:
            return _of_hydra(loader, given)
        master = loader.load_configuration(loader.primary, lines, RunMode.MULTIRUN)
    sweep = Multirun(loader, master) if master.hydra.mode == RunMode.MULTIRUN else None
    if sweep is not None and sweep.settings.plans is not None:
        from prebleexp.commands import plan

        _refuse_one_runs_output(sweep.settings)
        if survey or given.dry:
            return plan.sweep_survey(sweep, given.overrides)
        return plan.sweep(sweep, given.overrides, line(*arguments))
    if sweep is not None:
        return _of_sweep(sweep, given, survey, line(*arguments))
    one = job(given.overrides, loader)
    if survey or given.dry:
        return _survey(one.settings, lambda session: session.run([one]), given.dry)
    return _run(one, given.overrides, line(*arguments))


def _may_ask_for_more(override: str) -> bool:
    """Whether an override can make a sweep of a single run: to know it for sure takes as long as a run."""
    return override[:1] in ("+", "~") or override.startswith("hydra")


def _of_hydra(loader: Loader, given: Any) -> int:
    """What Hydra knows of a configuration, and does for shells."""
    from hydra._internal.hydra import Hydra

    hydra = Hydra(task_name="prebleexp", config_loader=loader)
    if given.cfg:
        hydra.show_cfg(loader.primary, given.overrides, given.cfg, given.package, given.resolve)
    elif given.info:
        hydra.show_info(given.info, loader.primary, given.overrides)
    else:
        try:
            hydra.shell_completion(loader.primary, given.overrides)
        except ValueError as error:
            raise InvalidInput(f"--shell-completion: {' '.join(str(error).split())}") from None
    return 0


def _run(one: Job, overrides: Sequence[str], command: str) -> int:
    """Run all replications of one configuration, which the overrides say."""
    from prebleexp.launch import idle, priced, tables
    from prebleexp.launch.session import Session

    if one.settings.output == "vllm_bench":
        from prebleexp.commands import as_vllm_bench

        return as_vllm_bench.show(one)
    session = Session(one.settings)
    session.run([one])
    if one.settings.output == "table":
        tables.metrics(session.runs)
        if one.settings.prices is not None and (said := priced.sentence(one.settings.prices, session.runs)):
            print(said)
        tables.stages(session.stages)
    else:
        tables.write_rows(priced.rows(one.settings.prices, session.rows, session.runs), one.settings.output)
    code = _finish(session)
    for sentence in idle.sentences(overrides, one.cells[0]):
        print(f"prebleexp: {sentence}", file=sys.stderr)
    publish.load(session, "run", command)
    return code


def _of_sweep(sweep: Multirun | PlainSweep, given: Any, survey: bool, command: str) -> int:
    _refuse_one_runs_output(sweep.settings)
    if survey or given.dry:
        return _survey(sweep.settings, lambda session: _launch(sweep, session), given.dry)
    return _sweep(sweep, command)


def _refuse_one_runs_output(settings: Settings) -> None:
    if settings.output == "vllm_bench":
        raise InvalidInput("output=vllm_bench is not valid for a sweep; it is the result of one run: leave -m out")


def _sweep(sweep: Multirun | PlainSweep, command: str) -> int:
    """Every combination of the values, by whichever sweeper is configured."""
    from prebleexp.launch import priced, tables
    from prebleexp.launch.session import Session

    settings = sweep.settings
    session = Session(settings)
    print(f"prebleexp: composing the jobs of sweep {settings.sweep}", file=sys.stderr, flush=True)
    _launch(sweep, session)
    if settings.output == "table":
        page = settings.reports_dir / settings.sweep / "index.html" if settings.report != "none" else None
        tables.summary(session.axes, session.results, session.places, page, settings.metrics, settings.prices)
    else:
        tables.write_rows(priced.rows(settings.prices, session.rows, session.runs), settings.output)
    code = _finish(session)
    with waiting("bringing the database up to date"):
        publish.load(session, settings.sweep, command)
    if settings.report != "none":
        with waiting(f"drawing the report {settings.sweep}"):
            made, answer = publish.report(session, sweep.master, command)
        said = ": ".join(filter(None, (publish.asked(session), answer)))
        tables.say(said)
        print(tables.address(made), file=sys.stderr)
    return code


def _launch(sweep: Multirun | PlainSweep, session: Session) -> None:
    publish.check_figures(sweep.settings)
    sweep.launch(session)


def _survey(settings: Settings, launch: Callable[[Session], object], listing: bool) -> int:
    """What `_sweep`, or `_run`, would compute."""
    from prebleexp.launch.survey import Survey

    survey = Survey(settings)
    launch(survey)
    survey.show(listing)
    print(survey.outlook(), file=sys.stderr)
    return 0


def _finish(session: Session) -> int:
    """Say on standard error how much was computed and what failed."""
    from prebleexp.launch import tables

    print(session.account(), file=sys.stderr)
    if not session.failed:
        return 0
    tables.failures(session.failed, session.axes)
    return 1
