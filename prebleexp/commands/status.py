"""`python -m prebleexp status …`: how much of a sweep is done, failed and missing; runs nothing."""

from __future__ import annotations

from collections.abc import Sequence

from prebleexp.commands import simulate


def run(arguments: Sequence[str]) -> int:
    return simulate.run(arguments, survey=True)
