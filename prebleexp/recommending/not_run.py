"""Designs of which nothing was run, in few lines: those that are left out for one reason share a line."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field

FITS = re.compile(r"^(?P<model>.+) does not fit on (?P<gpus>[^:;]+): ")
NEEDS = re.compile(r"^it takes (?P<least>[\d,]+) \S+ at least, and (?P<most>[\d,]+) can be had$")
PRECISION = re.compile(r"\bprecision=(\w+)")
SHOWN = 4
"""places a line names"""


@dataclass(frozen=True)
class LeftOut:
    """Of which nothing was run, and why."""

    what: str
    why: str
    designs: int
    title: str = ""
    """the model on its GPUs; empty: `why` names them, or `what`"""


@dataclass
class _Group:
    designs: int = 0
    at: dict[str, dict[str, None]] = field(default_factory=dict)
    """of each model its places"""
    cures: dict[str, None] = field(default_factory=dict)
    """precisions that would fit"""


def lines(left_out: Sequence[LeftOut]) -> list[str]:
    """One sentence, without its stop, for each kind of reason."""
    groups: dict[str, _Group] = {}
    for one in left_out:
        reason, model, place = _parts(one)
        group = groups.setdefault(reason, _Group())
        group.designs += one.designs
        group.at.setdefault(model, {})[place] = None
        group.cures |= dict.fromkeys(PRECISION.findall(one.why))
    return [_line(reason, group) for reason, group in groups.items()]


def _parts(one: LeftOut) -> tuple[str, str, str]:
    """The reason, the model with its precision, and the GPUs with what there is of numbers."""
    if found := FITS.match(one.why):
        return "the weights do not fit", found["model"], found["gpus"].upper()
    model, _, gpus = (one.title or one.what).partition(" on ")
    own, _, shared = one.why.rpartition(", more than ")
    if own:
        return f"one request alone takes more than {shared} ms for a token", model, f"{gpus.upper()} ({_ms(own)})"
    if found := NEEDS.match(one.why):
        return "they take more GPUs than can be had", model, f"{gpus.upper()} ({found['least']} of {found['most']})"
    return one.why, model, gpus.upper()


def _ms(said: str) -> str:
    found = re.search(r"[\d.,]+ ms", said)
    return found[0] if found else said


def _line(reason: str, group: _Group) -> str:
    said = [f"{model} on {_some(list(places))}" if any(places) else model for model, places in group.at.items()]
    line = f"{group.designs:,} designs were not run, as {reason}: {'; '.join(said)}"
    tried = {model.rpartition(" in ")[2] for model in group.at}
    cures = [one for one in group.cures if one not in tried]
    if cures:
        line += f"; on some of them hardware.precision={' or '.join(cures)} fits, which is tried if you name it"
    return line


def _some(places: Sequence[str]) -> str:
    more = [f"{len(places) - SHOWN:,} more"] if len(places) > SHOWN + 1 else []
    shown = [*places[: SHOWN if more else len(places)], *more]
    return f"{', '.join(shown[:-1])} and {shown[-1]}" if len(shown) > 1 else shown[0]
