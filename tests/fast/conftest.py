"""In which order the quick tests are run, and what they share."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from prebleexp.__main__ import main

FIRST = ("test_fidelity", "test_policies")
"""Two processes begin with these. What each compiles the other does not need: else one would wait."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """After these the files with the most tests, so that none is left over at the end. One process keeps the order that
    it is given."""
    if "PYTEST_XDIST_WORKER" not in os.environ:
        return
    counts: dict[str, int] = {}
    for item in items:
        counts[item.path.stem] = counts.get(item.path.stem, 0) + 1

    def place(item: pytest.Item) -> tuple[int, int]:
        name = item.path.stem
        return (FIRST.index(name) if name in FIRST else len(FIRST)), -counts[name]

    items.sort(key=place)


@pytest.fixture
def command(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> Callable[..., tuple[int, str, str]]:
    """The command line in an empty folder: exit code, output, errors."""
    monkeypatch.chdir(tmp_path)

    def typed(*arguments: str) -> tuple[int, str, str]:
        code = main(arguments)
        printed = capsys.readouterr()
        return code, printed.out, printed.err

    return typed
