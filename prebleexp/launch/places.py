"""Where configurations lie: the package's, and the user's in the current folder. Known without loading Hydra."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

CONFIG = "config"
PACKAGE = Path(__file__).resolve().parent.parent
"""its files are `${package:published/…}` in sweeps"""
HOME = PACKAGE if (PACKAGE / "conf").is_dir() else PACKAGE.parent
"""The folder that holds conf/ and sweeps/: the package in a wheel, else the checkout."""


def own_groups() -> list[Path]:
    """Config groups of the user, in the current folder."""
    here = Path.cwd()
    if here == HOME:
        return []
    groups = sorted(path for path in (here / "conf").iterdir() if path.is_dir()) if (here / "conf").is_dir() else []
    return [*groups, here / "sweeps"] if (here / "sweeps").is_dir() else groups


def files() -> Iterator[tuple[str, int, int, int]]:
    """Every file that a configuration may be made of, with what an edit changes."""
    for place in (HOME / "conf", HOME / "sweeps", *own_groups()):
        for folder, _, names in os.walk(place, followlinks=True):
            for name in names:
                with suppress(OSError):  # what editors leave beside a file may be gone by now, or point nowhere
                    at = os.stat(f"{folder}/{name}")  # noqa: PTH116 -- paths as objects take ten times as long
                    yield f"{folder}/{name}", at.st_mtime_ns, at.st_size, at.st_ino


def options(group: str) -> list[str]:
    """The names that may be chosen in a config group."""
    return sorted({file.stem for folder in _folders(group) for file in folder.glob("*.yaml")})


def words(group: str, name: str) -> str:
    """What an option is, by the first comment of its file: "Least outstanding requests: the GPU …"; empty where it has
    none. The user's own file comes first."""
    for folder in reversed(_folders(group)):
        file = folder / f"{name}.yaml"
        if file.is_file():
            first = file.read_text(encoding="utf-8").partition("\n")[0]
            return first.lstrip("# ").rstrip() if first.startswith("#") else ""
    return ""


def _folders(group: str) -> list[Path]:
    return [HOME / "conf" / group, HOME / group, *(one for one in own_groups() if one.name == group)]
