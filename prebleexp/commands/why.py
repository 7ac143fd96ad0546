"""`python -m prebleexp why KEY KEY`: what differs between two cached runs."""

from __future__ import annotations

from collections.abc import Sequence

from prebleexp.commands import cache


def run(arguments: Sequence[str]) -> int:
    return cache.run(["why", *arguments])
