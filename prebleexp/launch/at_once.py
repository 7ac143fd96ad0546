"""Configurations of plain words, composed without Hydra: importing it takes longer than all else of a cached run.

Hydra composes the options, once for all processes: what comes of it is kept (`written`); numbers and names are put in
place of what stood there. Everything else is left to Hydra: other words than these, folders of the user's own, and what
is not valid, of which it says why.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, Any

from prebleexp.errors import InvalidInput
from prebleexp.launch import places, written
from prebleexp.launch.groups import made_whole
from prebleexp.launch.written import Composition, Written

if TYPE_CHECKING:
    from prebleexp.launch.compose import Composer

KEY = r"[a-z][a-z_]*(?:[./][a-z][a-z_]*)*"
INTEGER, NUMBER, NAME = r"-?(?:0|[1-9][0-9]*)", r"-?(?:0|[1-9][0-9]*)\.[0-9]+", r"[a-z][a-z0-9_]*"
ONE = rf"(?:{INTEGER}|{NUMBER}|{NAME})"
WRITTEN = re.compile(rf"({KEY})=(?:({INTEGER})|({NUMBER})|({NAME}))")
LISTED = re.compile(rf"({KEY})=\[({ONE}(?:,{ONE})*)\]")
"""of Hydra's grammar what most people write, and what means the same in all of its versions"""
CHOSEN = re.compile(r"(\+(?:sweeps|variant))=([a-z][a-z0-9_]*)")
"""of groups of which none is chosen unless one says so"""
WORDS = {"true": True, "false": False, "null": None}
NUMBERS = ("nan", "inf")
"""names that Hydra takes for numbers"""
LINES_KEPT = 10_000
"""overrides that are remembered: those of a sweep's jobs come again and again"""

Structure = tuple[str, ...]
"""the overrides that choose an option"""


class _NotPlain(Exception):
    """Composing asks for more than is done here."""


class Plain:
    """Composes overrides of plain words, with the package's files as they are now."""

    def __init__(self) -> None:
        self._has_own = bool(places.own_groups())
        self._made_of = written.digest((places.CONFIG, *places.files()))
        self._bases: dict[Structure, Written | None] = {}

    @cached_property
    def composer(self) -> Composer:
        """Hydra's way."""
        from prebleexp.launch import configs
        from prebleexp.launch.compose import Composer

        return Composer(configs.loader())

    def composed(self, overrides: Sequence[str]) -> Composition | None:
        """What `Composer.compose` gives of the package's own configurations; None where that has to be asked."""
        apart = self._apart(overrides)
        known = None if apart is None else self._base(apart[0])
        values = None if apart is None or known is None else known.assigned(apart[1])
        if known is None or values is None:
            return None
        try:
            made_whole(values, overrides, _ask)
        except (_NotPlain, InvalidInput):
            return None
        return Composition(values, known.choices)

    def is_sweep(self, overrides: Sequence[str]) -> bool:
        """Whether options among these overrides, which are plain, say that they are a sweep."""
        apart = self._apart(overrides)
        known = None if apart is None else self._base(apart[0])
        return known is not None and known.multirun

    def _base(self, structure: Structure) -> Written | None:
        """What options make; None if they are not valid."""
        if structure not in self._bases:
            self._bases[structure] = written.kept(self._made_of, structure) or self._by_hydra(structure)
        return self._bases[structure]

    def _by_hydra(self, structure: Structure) -> Written | None:
        try:
            made = self.composer.base(structure)
        except Exception:  # who composes it all says why
            return None
        written.keep(self._made_of, structure, made)
        return made

    def _apart(self, overrides: Sequence[str]) -> tuple[Structure, list[tuple[str, Any]]] | None:
        """The overrides that choose an option, and the others as keys and values; None if not all are plain."""
        if self._has_own:
            return None
        options: dict[str, str] = {}
        values: list[tuple[str, Any]] = []
        for line in overrides:
            found = _read(line)
            if found is None or (found[0] and found[1] in options):
                return None
            is_option, key, value = found
            if is_option:
                options[key] = line
            else:
                values.append((key, value))
        return tuple(options.values()), values


@lru_cache(LINES_KEPT)
def _read(line: str) -> tuple[bool, str, Any] | None:
    """Whether an override chooses an option, its key and its value; None if it is not plain."""
    if chosen := CHOSEN.fullmatch(line):
        return True, chosen[1], chosen[2]
    if listed := LISTED.fullmatch(line):
        each = [_read(f"{listed[1]}={one}") for one in listed[2].split(",")]
        values = [one[2] for one in each if one is not None and not one[0]]
        return (False, listed[1], values) if len(values) == len(each) else None
    found = WRITTEN.fullmatch(line)
    if found is None or found[4] in NUMBERS:
        return None
    key, integer, number, name = found.groups()
    if not (places.HOME / "conf" / key).is_dir():
        return False, key, int(integer) if integer else float(number) if number else WORDS.get(name, name)
    return None if name is None or name in WORDS else (True, key, name)


def _ask(group: str, overrides: Sequence[str]) -> Mapping[str, Any]:
    raise _NotPlain
