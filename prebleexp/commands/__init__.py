"""A file for each command, which declares in `COMMANDS` what it takes and does (see `arguments`)."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from importlib import import_module
from typing import Any

NAMES = (
    *("bench", "bench-serve", "cache", "calibrate", "compare", "compare-bench", "composes", "hardware", "hindsight"),
    *(
        "live",
        "mock",
        "open",
        "pick",
        "plan",
        "predict",
        "published",
        "recommend",
        "route",
        "sql",
        "status",
        "trace",
        "why",
        "workload",
    ),
)


def module(name: str) -> Any:
    """The module of a command by its name in the shell, as "compare-bench". Raises ImportError for another."""
    return import_module(f"{__name__}.{name.replace('-', '_')}")


def run(name: str, words: Sequence[str]) -> int:
    """One of `NAMES`; returns the exit code. Raises InvalidInput for words that are not valid."""
    from prebleexp.commands import arguments
    from prebleexp.errors import SeveralValues

    try:
        return arguments.run(name, module(name).COMMANDS, words)
    except SeveralValues as error:  # only what runs a line has -m
        raise SeveralValues(error.setting, f"{name} is of one configuration: give one value at a time") from None


def line(*words: str) -> str:
    """What to type for the same again."""
    return f"python -m prebleexp {shlex.join(words)}"
