"""The command line: `python -m prebleexp`. Results on standard output, everything else on standard error.

Exit codes: 0 done, 1 some work failed, 2 bad input, 130 interrupted, 143 terminated.
"""

from __future__ import annotations

import gc
import os
import shlex
import signal
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, cast

from prebleexp import publish
from prebleexp.errors import InvalidInput, PrebleexpError, unknown

if TYPE_CHECKING:
    from hydra._internal.config_loader_impl import ConfigLoaderImpl
    from omegaconf import DictConfig

    from prebleexp.launch.session import Session


class _Terminated(KeyboardInterrupt):
    """SIGTERM. Like an interrupt, it must not be taken for a failure of the run that it hits."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return the exit code."""
    before = signal.signal(signal.SIGTERM, _terminate)
    try:
        code = _command(list(sys.argv[1:] if arguments is None else arguments))
        sys.stdout.flush()
        return code
    except InvalidInput as error:
        return _say(error, 2)
    except PrebleexpError as error:
        return _say(error, 1)
    except BrokenPipeError:
        # whoever read our output has seen enough; what Python would flush at exit must not fail again
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except _Terminated:
        return _say("terminated; finished runs are kept", 143)
    except KeyboardInterrupt:
        return _say("interrupted; finished runs are kept", 130)
    finally:
        signal.signal(signal.SIGTERM, before)


def _command(arguments: list[str]) -> int:
    first = arguments[0] if arguments else ""
    if first and first[0] not in "-+~" and "=" not in first:
        if first not in COMMANDS:
            raise InvalidInput(f"{unknown('command', first, COMMANDS)} Settings are written key=value.")
        return COMMANDS[first](arguments[1:])
    return _simulate(arguments)


def _simulate(arguments: list[str], survey: bool = False) -> int:
    """Run what the arguments say; with `survey` or --dry say what there would be to run."""
    from prebleexp.launch import options

    given = options.parse(arguments)
    if given.help:
        print(options.help_text())
        return 0
    if given.version:
        print(f"prebleexp {_version()}")
        return 0

    from hydra.types import RunMode

    from prebleexp.launch import configs
    from prebleexp.launch.messages import MULTIRUN, understood

    loader = configs.loader()
    if not (survey or given.dry or given.cfg or given.multirun) and not any(map(_may_ask_for_more, given.overrides)):
        return _run(loader, given.overrides, _line(arguments))
    lines = [*given.overrides, MULTIRUN] if given.multirun else given.overrides
    with understood(loader, lines):
        if given.cfg:
            return _show(loader, given)
        master = loader.load_configuration(configs.CONFIG, lines, RunMode.MULTIRUN)
    sweep = master.hydra.mode == RunMode.MULTIRUN
    if survey or given.dry:
        return _survey(loader, master if sweep else None, given)
    if sweep:
        return _sweep(loader, master, _line(arguments))
    return _run(loader, given.overrides, _line(arguments))


def _may_ask_for_more(override: str) -> bool:
    """Whether an override can make a sweep of a single run: to know it for sure takes as long as a run."""
    return override[:1] in ("+", "~") or override.startswith("hydra")


def _version() -> str:
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version("prebleexp")
    except PackageNotFoundError:
        return "(a source tree that was never installed)"


def _show(loader: ConfigLoaderImpl, given: Any) -> int:
    from hydra._internal.hydra import Hydra

    from prebleexp.launch import configs

    hydra = Hydra(task_name="prebleexp", config_loader=loader)
    hydra.show_cfg(configs.CONFIG, given.overrides, given.cfg, given.package, given.resolve)
    return 0


def _line(arguments: Sequence[str]) -> str:
    return f"python -m prebleexp {shlex.join(arguments)}"


def _run(loader: ConfigLoaderImpl, overrides: Sequence[str], command: str) -> int:
    """All replications of one configuration."""
    from prebleexp.launch import tables
    from prebleexp.launch.configure import job
    from prebleexp.launch.session import Session

    one = job(overrides, loader)
    session = Session(one.settings)
    session.run([one])
    if one.settings.output == "table":
        tables.metrics(session.runs)
    else:
        tables.write_rows(session.rows, one.settings.output)
    code = _finish(session)
    publish.load(session, "run", command)
    return code


def _sweep(loader: ConfigLoaderImpl, master: DictConfig, command: str) -> int:
    """Every combination of the values, by whichever sweeper is configured."""
    from prebleexp.launch import tables
    from prebleexp.launch.compose import plain
    from prebleexp.launch.configure import settings_of
    from prebleexp.launch.messages import understood
    from prebleexp.launch.session import Session

    with understood(loader, []):
        session = Session(settings_of(plain(master)))
    print(f"prebleexp: composing the jobs of sweep {session.settings.sweep}", file=sys.stderr, flush=True)
    _launch(loader, master, session)
    if session.settings.output == "table":
        tables.summary(session.axes, session.results, session.places)
    else:
        tables.write_rows(session.rows, session.settings.output)
    code = _finish(session)
    publish.load(session, session.settings.sweep, command)
    if session.settings.report != "none":
        print(publish.report(session, master, command), file=sys.stderr)
    return code


def _launch(loader: ConfigLoaderImpl, master: DictConfig, session: Session) -> None:
    from hydra._internal.callbacks import Callbacks
    from hydra._internal.core_plugins.basic_sweeper import BasicSweeper
    from hydra.core.plugins import Plugins
    from hydra.errors import HydraException
    from hydra.types import HydraContext
    from omegaconf import OmegaConf

    from prebleexp.launch.messages import one_line
    from prebleexp.paper.figures import DRAWINGS

    for figure in session.settings.figures:
        if figure.draw not in DRAWINGS:
            raise unknown("figure", figure.draw, DRAWINGS)
    if master.hydra.runtime.choices["hydra/launcher"] != "prebleexp":
        raise InvalidInput(f"hydra/launcher={master.hydra.runtime.choices['hydra/launcher']}: it must be prebleexp")
    if master.hydra.sweep.dir.startswith("~"):  # as reports_dir may; other sweepers would make a folder of that name
        master.hydra.sweep.dir = str(Path(master.hydra.sweep.dir).expanduser())
    sweeper = Plugins.instance().instantiate_sweeper(
        hydra_context=HydraContext(config_loader=loader, callbacks=Callbacks(master)),
        task_function=session,
        config=master,
    )
    try:
        sweeper.sweep(cast(list[str], OmegaConf.to_container(master.hydra.overrides.task)))  # not resolved: a job's
    except (HydraException, ValueError) as error:
        if isinstance(sweeper, BasicSweeper):
            raise
        hint = "; it gets all metrics of a job, set objective=METRIC for one" if not session.settings.objective else ""
        name = master.hydra.runtime.choices["hydra/sweeper"]
        raise InvalidInput(f"hydra/sweeper={name}: {one_line(error)}{hint}") from error


def _survey(loader: ConfigLoaderImpl, master: DictConfig | None, given: Any) -> int:
    """What `_sweep`, or `_run`, would compute."""
    from prebleexp.launch.compose import plain
    from prebleexp.launch.configure import job, settings_of
    from prebleexp.launch.messages import understood
    from prebleexp.launch.survey import Survey

    if master is not None:
        with understood(loader, []):
            survey = Survey(settings_of(plain(master)))
        _launch(loader, master, survey)
    else:
        one = job(given.overrides, loader)
        survey = Survey(one.settings)
        survey.run([one])
    survey.show(listing=given.dry)
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


def _status(arguments: list[str]) -> int:
    return _simulate(arguments, survey=True)


def _bench(arguments: list[str]) -> int:
    from prebleexp import bench

    bench.main(arguments)
    return 0


def _calibrate(arguments: list[str]) -> int:
    from prebleexp import calibrate

    calibrate.main(arguments)
    return 0


def _cache(arguments: list[str]) -> int:
    from prebleexp.launch import cache_command

    return cache_command.run(arguments)


def _sql(arguments: list[str]) -> int:
    from prebleexp import sql

    return sql.run(arguments, publish.DATABASE)


def _compare(arguments: list[str]) -> int:
    from prebleexp import compare

    return compare.main(arguments, _line(["compare", *arguments]), publish.DATABASE)


def _predict(arguments: list[str]) -> int:
    from prebleexp.predict import command

    return command.run(arguments, _line(["predict", *arguments]))


def _trace(arguments: list[str]) -> int:
    from prebleexp import trace

    return trace.main(arguments, _line(["trace", *arguments]))


def _why(arguments: list[str]) -> int:
    return _cache(["why", *arguments])


COMMANDS: dict[str, Callable[[list[str]], int]] = {
    "bench": _bench,
    "cache": _cache,
    "calibrate": _calibrate,
    "compare": _compare,
    "predict": _predict,
    "sql": _sql,
    "status": _status,
    "trace": _trace,
    "why": _why,
}


def _say(message: object, code: int) -> int:
    print("prebleexp:", " ".join(str(message).split("\n")), file=sys.stderr)
    return code


def _terminate(signum: int, frame: object) -> None:
    raise _Terminated


def script() -> NoReturn:
    """The command, in a process of its own."""
    code = main()
    gc.freeze()  # else Python, going, looks all that was imported over for cycles: a tenth of a short command
    sys.exit(code)


if __name__ == "__main__":
    script()
