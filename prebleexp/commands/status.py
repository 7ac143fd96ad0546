"""`python -m prebleexp status …`: how much of a sweep is done, failed and missing; runs nothing."""

from __future__ import annotations

from prebleexp.commands import simulate
from prebleexp.commands.arguments import Command, Commands, Given


def _status(given: Given) -> int:
    return simulate.run(given.arguments, survey=True)


COMMANDS: Commands = {
    "": Command(
        "how much of a sweep, or of one configuration, is done, failed and missing, and how long the rest would take; "
        "runs nothing",
        _status,
        "python -m prebleexp status -m policy=lor,e2 rps=32,64 replications=10",
        others="what would be run, as without status: settings, +sweeps=NAME, -m and what else prebleexp --help says",
    )
}
