"""Errors meant for people: one line that names the thing, the value and what is valid."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path


class PrebleexpError(Exception):
    """Work that failed. The command line prints the message alone and exits with 1."""


class InvalidInput(PrebleexpError):
    """Something the user gave is not valid. The command line prints the message alone and exits with 2."""


class NeverEnds(PrebleexpError):
    """A run in which nothing more comes to an end, though it goes on."""


class SeveralValues(InvalidInput):
    """A setting with several values where one is valid."""

    def __init__(self, setting: str, cure: str) -> None:
        super().__init__(f"{setting} has several values; {cure}")
        self.setting = setting
        """as it was given, `gpus=1,2`"""


class DoesNotFit(InvalidInput):
    """Hardware of which each part exists, but that cannot serve the model: too little memory, another number of GPUs,
    a precision that the GPU does not have."""


class TooLittleMemory(DoesNotFit):
    """The weights do not fit."""

    def __init__(self, said: str, model: str, gpus: str, precisions: Iterable[str]) -> None:
        super().__init__(said)
        self.model, self.gpus = model, gpus
        """the model in its precision, and how many GPUs of which kind"""
        self.precisions = tuple(dict.fromkeys(precisions))
        """in which it fits on GPUs of this kind"""


def significant(value: float, digits: int = 3) -> str:
    """A number in a message: so many significant digits, and all of those before the point: 3,700, not 3.7e+03."""
    return f"{value:,.0f}" if abs(value) >= 10**digits - 0.5 else f"{value:.{digits}g}"


LONG = 120
"""letters of a list behind which nobody finds a hint"""


def unknown(kind: str, name: str, valid: Iterable[str]) -> InvalidInput:
    """An `InvalidInput` for a name that is not one of `valid`; suggests the closest."""
    import difflib  # most commands have no wrong word

    names = sorted(valid)
    said = {one.lower(): one for one in names}
    turned = "_".join(reversed(name.lower().split("_")))  # p99_ttft is ttft_p99_s
    close = [
        *difflib.get_close_matches(name.lower(), said, n=1),
        *(one for one in said if name[2:] and name.lower() in one),
        *(difflib.get_close_matches(turned, said, n=1) if turned != name.lower() else ()),
    ]
    valid_ones = f"valid: {', '.join(names)}."
    if close and len(valid_ones) > LONG:
        return InvalidInput(f"unknown {kind} {name!r}. Did you mean {said[close[0]]!r}? V{valid_ones[1:]}")
    hint = f" Did you mean {said[close[0]]!r}?" if close else ""
    return InvalidInput(f"unknown {kind} {name!r}; {valid_ones}{hint}")


def unreadable(named: str, path: str | Path | None, error: Exception) -> InvalidInput:
    """An `InvalidInput` for a file, as it was named, that cannot be read. If it is not there, it says the name in its
    folder that is most like it, or where a relative path begins."""
    return InvalidInput(f"{named} cannot be read: {getattr(error, 'strerror', None) or error}{_instead(path, error)}")


def _instead(path: str | Path | None, error: Exception) -> str:
    import difflib

    wanted = Path(str(path)).expanduser()
    if not isinstance(error, FileNotFoundError):
        return ""
    try:
        beside = sorted(one.name for one in wanted.parent.iterdir())
    except OSError:
        beside = []
    if close := difflib.get_close_matches(wanted.name, beside, n=1):
        return f"; {close[0]} is there"
    return "" if wanted.is_absolute() else f"; relative paths begin at {Path.cwd()}"
