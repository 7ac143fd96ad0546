"""Libraries that only live runs need: `pip install 'prebleexp[live]'`, and `prebleexp[picker]` behind Envoy."""

from __future__ import annotations

from importlib.util import find_spec

from prebleexp.errors import InvalidInput

NEEDED = ("httptools", "msgspec")
"""uvloop is left out where there is none"""
OF_PICKERS = ("grpc", "grpc_health", "envoy.service")
"""Envoy's own wheel has a package `envoy` too, without messages"""


def check(*more: str) -> None:
    """Raises InvalidInput, saying what to install, if something is not there."""
    _check((*NEEDED, *more), "live runs need", "live")


def check_picker() -> None:
    """Raises InvalidInput, saying what to install, if something that an endpoint picker needs is not there."""
    check()
    _check(OF_PICKERS, "an endpoint picker needs", "picker")


def _check(names: tuple[str, ...], need: str, extra: str) -> None:
    for name in names:
        if not _is_there(name):
            raise InvalidInput(f"{need} {name}, which is not installed: pip install 'prebleexp[{extra}]'")


def _is_there(name: str) -> bool:
    try:
        return find_spec(name) is not None
    except ModuleNotFoundError:
        return False
