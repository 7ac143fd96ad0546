"""A pytest plug-in (`-p tests.minute`): after most of a minute no test begins, and those left out are named.

The minute is one of work, CPU-seconds of this process and of those that it waited for: on a busy machine it takes
longer, and has the same tests.
"""

from __future__ import annotations

import os

import pytest

MOST_S = 45
LEFT_OUT: dict[str, int] = {}
"""tests of each file"""


def spent_s() -> float:
    return sum(os.times()[:4])


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item) -> bool | None:
    if spent_s() < MOST_S:
        return None
    name = item.nodeid.partition("::")[0]
    LEFT_OUT[name] = LEFT_OUT.get(name, 0) + 1
    return True


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    if LEFT_OUT:
        terminalreporter.write_line(f"no time for {sum(LEFT_OUT.values())} tests: pytest {' '.join(LEFT_OUT)}")
