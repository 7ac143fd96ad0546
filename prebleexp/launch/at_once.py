"""Configurations of plain words, composed without Hydra: importing it takes longer than all else of a cached run.

Hydra has composed the same options before, and what came of it is kept (`written`); numbers and names are put in place
of what stood there. Everything else is left to Hydra: other words than these, folders of the user's own, and what is
not valid, of which it says why.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from prebleexp.launch import places, written
from prebleexp.launch.groups import made_whole
from prebleexp.launch.written import Composition

if TYPE_CHECKING:
    from prebleexp.launch.compose import Composer

KEY = r"[a-z][a-z_]*(?:[./][a-z][a-z_]*)*"
INTEGER, NUMBER, NAME = r"-?(?:0|[1-9][0-9]*)", r"-?(?:0|[1-9][0-9]*)\.[0-9]+", r"[a-z][a-z0-9_]*"
WRITTEN = re.compile(rf"({KEY})=(?:({INTEGER})|({NUMBER})|({NAME}))")
"""of Hydra's grammar what most people write, and what means the same in all of its versions"""
WORDS = {"true": True, "false": False, "null": None}
NUMBERS = ("nan", "inf")
"""names that Hydra takes for numbers"""


class _NotPlain(Exception):
    """Composing asks for more than is done here."""


def composed(overrides: Sequence[str]) -> Composition | None:
    """What `Composer.compose` gives of the package's own configurations; None where that has to be asked."""
    apart = _apart(overrides)
    known = None if apart is None else written.kept(_made_of(), apart[0])
    if apart is None or known is None:
        return None
    values = known.assigned(apart[1])
    if values is None:
        return None
    try:
        made_whole(values, overrides, _ask)
    except _NotPlain:
        return None
    return Composition(values, known.choices)


def keep(composer: Composer, overrides: Sequence[str]) -> None:
    """For the next process, what a composer has made of the options among these overrides, if they are such as are
    composed here."""
    apart = _apart(overrides)
    if apart is not None and written.kept(_made_of(), apart[0]) is None:
        written.keep(_made_of(), apart[0], composer.base(apart[0]))


def _apart(overrides: Sequence[str]) -> tuple[tuple[str, ...], list[tuple[str, Any]]] | None:
    """The overrides that choose an option, and the others as keys and values; None if not all are plain."""
    if places.own_groups():
        return None
    options: dict[str, str] = {}
    values: list[tuple[str, Any]] = []
    for line in overrides:
        found = WRITTEN.fullmatch(line)
        if found is None or found[4] in NUMBERS:
            return None
        key, integer, number, name = found.groups()
        if not (places.HOME / "conf" / key).is_dir():
            value = int(integer) if integer else float(number) if number else WORDS.get(name, name)
            values.append((key, value))
        elif name is None or name in WORDS or key in options:
            return None
        else:
            options[key] = line
    return tuple(options.values()), values


def _made_of() -> object:
    return (places.CONFIG, *places.files())


def _ask(group: str, overrides: Sequence[str]) -> Mapping[str, Any]:
    raise _NotPlain
