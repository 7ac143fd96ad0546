"""Tests marked `uncompiled` are run by a second pytest that compiles nothing (NUMBA_DISABLE_JIT) and is asked for one
after the other: what one example on paper needs takes seconds to compile, and is through in milliseconds as plain
Python, where numpy raises if anything reads past an array's end. With `PREBLEEXP_THOROUGH`, as in .ci/run, they are
compiled.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import tempfile
from typing import Any

import pytest
from _pytest import runner

from tests.support.places import ROOT
from tests.support.sampled import THOROUGH

ASKED = "PREBLEEXP_TESTS_ASKED_FOR"
"""the number of the socket on which the second pytest hears what to run, and tells its reports"""


class First:
    """Has the marked tests run, and reports them as its own."""

    def __init__(self, config: pytest.Config) -> None:
        self.config = config
        self.second: subprocess.Popen[bytes] | None = None

    def pytest_runtest_protocol(self, item: pytest.Item, nextitem: pytest.Item | None) -> bool | None:
        if not is_marked(item):  # what is set up for it ends with it, if the next one runs elsewhere
            elsewhere = nextitem is not None and is_marked(nextitem)
            return runner.pytest_runtest_protocol(item, None) if elsewhere else None
        if self.second is None:
            self.begin({one.location[0] for one in item.session.items if is_marked(one)})
        following = nextitem.nodeid if nextitem is not None and is_marked(nextitem) else None
        print(json.dumps([item.nodeid, following]), file=self.asks, flush=True)
        told = json.loads(self.answers.readline() or "null") or [self.lost(item)]
        hook = item.ihook
        hook.pytest_runtest_logstart(nodeid=item.nodeid, location=item.location)
        for one in told:
            report = hook.pytest_report_from_serializable(config=self.config, data=one)
            hook.pytest_runtest_logreport(report=report)
        hook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)
        return True

    def begin(self, files: set[str]) -> None:
        here, there = socket.socketpair()
        with here, there:
            self.asks, self.answers = here.makefile("w"), here.makefile("r")
            environment = os.environ | {"NUMBA_DISABLE_JIT": "1", ASKED: str(there.fileno())}
            command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-n0", "-q", "-m", "uncompiled"]
            self.said = tempfile.TemporaryFile()  # noqa: SIM115, as long as the process
            self.second = subprocess.Popen(
                [*command, *sorted(files)],
                cwd=ROOT,
                env=environment,
                pass_fds=[there.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=self.said,
                stderr=self.said,
            )

    def lost(self, item: pytest.Item) -> Any:
        """The report of a test from which the second did not come back."""
        assert self.second is not None
        code = self.second.wait()
        self.said.seek(0)
        text = f"the tests that are not compiled ended with {code}:\n{self.said.read().decode(errors='replace')}"
        report = pytest.TestReport(item.nodeid, item.location, {}, "failed", text, "call")
        return item.ihook.pytest_report_to_serializable(config=self.config, report=report)

    def pytest_sessionfinish(self) -> None:
        if self.second is not None:
            self.asks.close()
            self.answers.close()
            self.second.wait()
            self.said.close()


class Second:
    """Runs what it is asked for."""

    def __init__(self, config: pytest.Config) -> None:
        self.config = config
        self.told: list[Any] = []

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        items = {item.nodeid: item for item in session.items}
        with socket.socket(fileno=int(os.environ.pop(ASKED))) as asked, asked.makefile("rw") as lines:
            while line := lines.readline():
                name, following = json.loads(line)
                self.told = []
                self.config.hook.pytest_runtest_protocol(item=items[name], nextitem=items.get(following))
                print(json.dumps(self.told), file=lines, flush=True)
        return True

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self.told.append(self.config.hook.pytest_report_to_serializable(config=self.config, report=report))


def is_marked(item: pytest.Item) -> bool:
    """A test of a module that is marked may say `uncompiled(False)`."""
    marker = item.get_closest_marker("uncompiled")
    return marker is not None and False not in marker.args


def roles(config: pytest.Config) -> list[object]:
    """What this process does about marked tests. In a debugger, or where nothing is compiled anyway, nothing."""
    if ASKED in os.environ:
        return [Second(config)]
    plain = os.environ.get("NUMBA_DISABLE_JIT", "0") != "0"
    return [] if os.environ.get(THOROUGH) or plain or config.option.usepdb else [First(config)]
