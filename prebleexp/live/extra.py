"""Libraries that only live runs need: `pip install 'prebleexp[live]'`."""

from __future__ import annotations

from importlib.util import find_spec

from prebleexp.errors import InvalidInput

NEEDED = ("httptools", "msgspec")
"""uvloop is left out where there is none"""


def check(*more: str) -> None:
    """Raises InvalidInput, saying what to install, if something is not there."""
    for name in (*NEEDED, *more):
        if find_spec(name) is None:
            raise InvalidInput(f"live runs need {name}, which is not installed: pip install 'prebleexp[live]'")
