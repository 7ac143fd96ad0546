"""How far each test is from each file of the package: by what it imports, and by what it chooses by name."""

from __future__ import annotations

import re
from collections import deque
from functools import cache
from pathlib import Path

from tests.support.places import ROOT

PACKAGE, TESTS, CONF = ROOT / "prebleexp", ROOT / "tests", ROOT / "conf"
_MODULE = re.compile(r"(prebleexp|tests|hydra_plugins)(\.\w+)*")
_IMPORT = re.compile(r"^ *from ([\w.]+) import (\([^)]*\)|.*)", re.MULTILINE)
_NAME = re.compile(r"(?:^|[(,])\s*(\w+)")
_DOTTED = re.compile(r"(?:^ *(?:from|import) |[\"'](?=\w+\.))((?:prebleexp|tests|hydra_plugins)[\w.]*)", re.MULTILINE)
"""what is imported, also by a program in a string, and what an engine compiles by its name; parsing takes eight
times as long"""
_CHOICE = re.compile(r"\b(\w+)=(\w+)")
_TARGET = re.compile(r"^_target_: (prebleexp[\w.]*)\.\w+$", re.MULTILINE)


@cache
def needed(file: Path) -> frozenset[Path]:
    """The files of this checkout that one needs directly: what it imports, and for a test what `policy=lor` names."""
    text = file.read_text(encoding="utf-8")
    found = set[Path]()
    if file.suffix == ".yaml":
        found |= {at for name in _TARGET.findall(text) if (at := _module(name))}
        return frozenset(found)
    for name, names in _IMPORT.findall(text):
        found |= {at for one in _NAME.findall(names) if (at := _module(f"{name}.{one}"))}
    found |= {at for name in _DOTTED.findall(text) if (at := _module(name))}
    if "import_module(f" in text:  # one of its folder, by name
        found |= set(file.parent.glob("*.py"))
    if file.is_relative_to(TESTS):
        found |= {at for group, name in _CHOICE.findall(text) if (at := CONF / group / f"{name}.yaml").is_file()}
    return frozenset(found - {file})


@cache
def _module(name: str) -> Path | None:
    """Where a module of this checkout is."""
    at = ROOT.joinpath(*name.split(".")) if _MODULE.fullmatch(name) else ROOT
    return next((one for one in (at.with_suffix(".py"), at / "__init__.py") if one.is_file()), None)


@cache
def modules() -> tuple[Path, ...]:
    """Of tests, all."""
    return tuple(sorted(TESTS.rglob("test_*.py")))


@cache
def needing() -> dict[Path, set[Path]]:
    """The files that need each file directly, of those that a test reaches."""
    found: dict[Path, set[Path]] = {one: set() for one in modules()}
    waiting = list(modules())
    while waiting:
        file = waiting.pop()
        for one in needed(file):
            if one not in found:
                found[one] = set()
                waiting.append(one)
            found[one].add(file)
    return found


def distances(changed: Path) -> dict[Path, int]:
    """How many imports lead from each test module to a file: 0 from itself. What tests share, and YAML, is a part of
    whoever needs it. Tests that do not reach it are left out."""
    found, queue = {changed: 0}, deque([changed])
    while queue:
        one = queue.popleft()
        step = int(one.is_relative_to(PACKAGE))
        for file in needing().get(one, ()):
            if file not in found or found[one] + step < found[file]:
                found[file] = found[one] + step
                queue.append(file) if step else queue.appendleft(file)
    return {test: found[test] for test in modules() if test in found}


def nearest(changed: list[Path]) -> list[Path]:
    """The test modules that any of these files may matter to, nearest first; of equally near ones first those that
    are called as the file or its folder is, and those that need the least else."""
    far = len(modules())
    best: dict[Path, int] = {}
    for one in changed:
        for test, distance in distances(one).items():
            best[test] = min(distance, best.get(test, far))
    own = {f"test_{name}" for one in changed for name in (one.stem, one.parent.name)}
    return sorted(best, key=lambda test: (best[test], test.stem not in own, len(needed(test)), test))
