"""What all tests are run with."""

from __future__ import annotations

import contextlib
import gc
import importlib
import io
import os
import pickle  # copies configurations within this process; nothing is read from disk
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis.internal.conjecture import providers
from omegaconf import OmegaConf

pytest.register_assert_rewrite("tests.support")  # what does not hold there is told as it is in tests
from tests.support.quick_records import find_at_once  # noqa: E402, which is rewritten by now
from tests.support.sampled import THOROUGH, examples  # noqa: E402

ANY_SPEED = {"suppress_health_check": [HealthCheck.too_slow]}
"""examples may take what they take: a machine has other work"""
# the same examples: a commit passes or does not; for laws that do not say how many
settings.register_profile("all", **ANY_SPEED, derandomize=True, max_examples=examples(100, found=True))
settings.load_profile("all")
settings.register_profile("search", **ANY_SPEED)  # others in every run
settings.register_profile("found", **ANY_SPEED, phases=(Phase.explicit, Phase.generate))  # a wrong example is enough


def _lends_constants(path: str, is_local: Callable[[str], bool] = providers.is_local_module_file) -> bool:
    """Hypothesis takes some values from the source of whatever was imported by then, and has no setting for it. What
    that is depends on the tests before: an example of the whole run would not be there when a test runs alone."""
    return not settings.default.derandomize and is_local(path)


providers.is_local_module_file = _lends_constants

if os.environ.get("NUMBA_DISABLE_JIT", "0") != "0":
    find_at_once()

os.environ["NUMBA_DISABLE_ERROR_MESSAGE_HIGHLIGHTING"] = "1"  # it colours what it tries and throws away, too
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)  # hundreds of processes would each translate the whole package anew
sys.dont_write_bytecode = False  # and each worker all tests


@cache
def _parsed(text: str) -> bytes:
    return pickle.dumps(_load(io.StringIO(text)))


def _load_once(file: Any) -> Any:
    """Hydra reads the same files for each of hundreds of configurations. A text that was parsed is copied."""
    return pickle.loads(_parsed(Path(file).read_text("utf-8") if isinstance(file, str | Path) else file.read()))


_load, OmegaConf.load = OmegaConf.load, staticmethod(_load_once)  # type: ignore[method-assign]


class AtOnce:
    """Says what failed when it fails: a run that is ended early prints no summary."""

    def __init__(self, config: pytest.Config) -> None:
        self.plugins = config.pluginmanager

    @pytest.hookimpl(trylast=True)
    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        terminal = self.plugins.getplugin("terminalreporter")
        if report.failed and terminal is not None:
            terminal.write_line(f"\n{report.when} of {report.nodeid} failed:\n{report.longreprtext[-2_000:]}")


def pytest_configure(config: pytest.Config) -> None:
    from tests import uncompiled  # what it imports is rewritten by now

    for one in (AtOnce(config), *uncompiled.roles(config)):
        config.pluginmanager.register(one)


@pytest.hookimpl(tryfirst=True)
def pytest_collection(session: pytest.Session) -> None:
    """Workers import the same modules at once, and the first time whoever comes first translates one. So each begins
    elsewhere: they meet where the others have been, instead of all translating everything."""
    worker, workers = (os.environ.get(f"PYTEST_XDIST_WORKER{one}", "") for one in ("", "_COUNT"))
    if not worker:
        return
    root, here = session.config.rootpath, session.config.invocation_params.dir
    asked = [here / one.partition("::")[0] for one in session.config.args]
    files = [file for one in asked for file in (sorted(one.rglob("test_*.py")) if one.is_dir() else [one])]
    first = int(worker.removeprefix("gw")) * len(files) // int(workers)
    for file in files[first:]:
        with contextlib.suppress(Exception, pytest.skip.Exception):  # collection says what is wrong
            importlib.import_module(".".join(file.relative_to(root).with_suffix("").parts))


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Whoever runs a whole folder waits for what is quick; a file that is named is run with all that it has."""
    folders = any((config.invocation_params.dir / one.partition("::")[0]).is_dir() for one in config.args)
    if os.environ.get(THOROUGH) or not folders:
        return
    left_out = [one for one in items if one.get_closest_marker("thorough")]
    config.hook.pytest_deselected(items=left_out)
    out = set(left_out)
    items[:] = [one for one in items if one not in out]


def pytest_collection_finish() -> None:
    """What was imported and collected stays, and is not looked through again: that took a tenth of the time."""
    gc.freeze()
    gc.set_threshold(10_000, 20, 20)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--pictures", metavar="FOLDER", help="where screenshots go, such as docs/pictures")
