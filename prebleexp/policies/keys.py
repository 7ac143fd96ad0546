"""What routers that hash call workers, sessions and prefixes."""

from __future__ import annotations

from typing import Any

from prebleexp.errors import InvalidInput
from prebleexp.sim.types import Setup


def worker(gpu: int) -> str:
    """A worker's name, fixed, so that rings are the same in every run."""
    return f"worker-{gpu}"


def session(number: int) -> str:
    return f"session-{number}"


def sessions(policy: Any, setup: Setup) -> int:
    """How many sessions there are, numbered from 0. Raises InvalidInput if no request belongs to one."""
    count = setup.sessions
    if count == 0:
        name = type(policy).__name__
        raise InvalidInput(f"policy {name} routes by session, and no request of this workload is of one")
    return count


def prefix(segment: int, tokens: int) -> str:
    """What so many first tokens of a prompt are called, the last of which lies in this segment."""
    return f"prefix-{segment}-{tokens}"
