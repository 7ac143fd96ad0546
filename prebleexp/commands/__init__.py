"""A file for each command. Its `run(arguments)` does what the arguments say and returns the exit code; it raises
InvalidInput for what is not valid."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from importlib import import_module

NAMES = ("bench", "cache", "calibrate", "compare", "open", "predict", "sql", "status", "trace", "why")


def run(name: str, arguments: Sequence[str]) -> int:
    """One of `NAMES`."""
    found: int = import_module(f"{__name__}.{name}").run(arguments)
    return found


def line(*words: str) -> str:
    """What to type for the same again."""
    return f"python -m prebleexp {shlex.join(words)}"
