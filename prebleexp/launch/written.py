"""What a composed configuration says, without Hydra's trees; of the package's own files it is kept on disk.

Hydra takes as long to compose it as a short command does besides, and most commands need no more than this of it. It is
kept as JSON beside the machine code, with what it was made of: the files as they are, this folder, and the versions of
Hydra and OmegaConf.
"""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from prebleexp import machine_code
from prebleexp.launch import places

COMPOSERS = {"hydra": "__init__.py", "omegaconf": "version.py"}
"""who composes, and the files that say their versions: to import what reads versions takes longer than to read these"""


@dataclass(frozen=True)
class Composition:
    """A job's configuration without Hydra's node, all interpolations resolved, and which option each group has."""

    values: dict[str, Any]
    choices: dict[str, str]


@dataclass(frozen=True)
class Written:
    """A composed tree before values are applied."""

    choices: dict[str, str]
    written: dict[str, Any]
    """the tree as dicts and lists, nothing resolved"""
    final: dict[str, Any]
    """its top-level keys under which nothing is interpolated or missing"""
    leaves: frozenset[str]
    """paths of values, and of lists, that are of no declared type and may be changed"""
    asks_hydra: bool
    """whether Hydra's node is interpolated somewhere"""
    multirun: bool
    """whether it says itself that it is a sweep"""

    def assigned(self, changes: Iterable[tuple[str, Any]]) -> dict[str, Any] | None:
        """The whole tree with plain values put in place of plain values, by their paths; None if that is not all that
        they change."""
        if len(self.final) < len(self.written):
            return None
        values = dict(self.final)
        for key, value in changes:
            if key not in self.leaves or not is_plain(value):
                return None
            *path, last = key.split(".")
            node = values
            for name in path:
                node[name] = node = dict(node[name])
            if isinstance(value, list) and isinstance(node[last], dict):  # is merged, which is an error
                return None
            node[last] = value
        return values


def is_plain(value: Any) -> bool:
    """Whether OmegaConf keeps a value just as it is."""
    if isinstance(value, str):
        return "${" not in value and value != "???"
    if isinstance(value, list):
        return all(map(is_plain, value))
    return value is None or isinstance(value, bool | int | float)


# ---------------------------------------------------------------- on disk
def digest(made_of: object) -> str:
    """Of what a composition is made of: the files, as the caller has them, and who composes."""
    return hashlib.sha256(repr((made_of, _composers())).encode()).hexdigest()


def keep(made_of: str, structure: Sequence[str], one: Written) -> None:
    """For the next process. A full disk is no reason to fail."""
    said = {
        "made_of": made_of,
        "choices": one.choices,
        "written": one.written,
        "final": list(one.final),
        "leaves": sorted(one.leaves),
        "asks_hydra": one.asks_hydra,
        "multirun": one.multirun,
    }
    place = _place(structure)
    with suppress(OSError, TypeError):
        text = json.dumps(said)
        if repr(json.loads(text)) != repr(said):  # a key that is no string, or a value that JSON has not
            return
        place.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile("w", dir=place.parent, delete=False, encoding="utf-8") as file:
            file.write(text)
        Path(file.name).replace(place)


def kept(made_of: str, structure: Sequence[str]) -> Written | None:
    """What was kept of these files as they are; None if nothing was, or if it cannot be read."""
    try:
        said = json.loads(_place(structure).read_text(encoding="utf-8"))
        if said["made_of"] != made_of:
            return None
        choices, written, leaves = said["choices"], said["written"], frozenset(said["leaves"])
        final = {key: written[key] for key in said["final"]}
        return Written(choices, written, final, leaves, said["asks_hydra"], said["multirun"])
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _place(structure: Sequence[str]) -> Path:
    """One file for each checkout and structure: an edit writes it anew."""
    name = hashlib.sha256(repr((str(places.HOME), *structure)).encode()).hexdigest()[:24]
    return machine_code.home() / "composed" / f"{name}.json"


@cache
def _composers() -> tuple[object, ...]:
    own = sorted(os.scandir(Path(__file__).parent), key=lambda one: one.name)
    files = [(one.name, one.stat().st_mtime_ns, one.stat().st_size) for one in own if one.is_file()]
    found = [(find_spec(name), file) for name, file in COMPOSERS.items()]
    versions = [Path(one.origin).with_name(file).read_bytes() for one, file in found if one and one.origin]
    return (*versions, *files)
