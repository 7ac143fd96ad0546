"""Which source files a module's meaning depends on: itself, what it imports, and so on. Keys of runs and folders of
machine code are made from the same files, so that neither outlives an edit of any of them.

A process goes on with what it has loaded, whatever becomes of the files: they count as they were when a `Part` of them
was defined, or when they were first asked about.
"""

from __future__ import annotations

import ast
import hashlib
import os
import re
import site
import sys
import sysconfig
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

PACKAGE = Path(__file__).resolve().parent
_TEXTS: dict[Path, bytes] = {}
"""somebody's own files as this process has them"""


class Part:
    """What a configuration may name a class of: a router, an engine, a workload."""

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        place = place_of(cls)
        if place is not None and not is_own(place[0]):
            with_imports(*place, anew=True)


def place_of(kind: type[Any]) -> tuple[Path, str | None] | None:
    """The file in which a class is defined, and the name that its module is imported by, if it is; None if there is no
    file."""
    module = sys.modules.get(kind.__module__)
    file = getattr(module, "__file__", None)
    spec = getattr(module, "__spec__", None)
    return None if file is None else (Path(file).resolve(), spec.name if spec else None)


def is_own(file: str | Path) -> bool:
    """Whether a file is this package's."""
    name = str(file)
    if name.startswith(f"{PACKAGE}{os.sep}") and ".." not in name:  # to resolve hundreds takes as long as to read them
        return True
    return _resolved(file).is_relative_to(PACKAGE)


@cache
def _resolved(file: str | Path) -> Path:
    """Every function that is compiled asks for it several times."""
    return Path(file).resolve()


def version_of(package: str) -> str | None:
    """The version that is installed; None for a source tree that was never installed."""
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version(package)
    except PackageNotFoundError:
        return None


def digest(files: Iterable[Path]) -> str:
    """Of the files' contents and of their names from the folder that holds them all."""
    found = hashlib.sha256()
    paths = sorted(files)
    root = _common_folder(paths)
    for file in paths:
        text = _text(file)
        found.update(f"{file.relative_to(root).as_posix()} {len(text)}\n".encode())
        found.update(text)
    return found.hexdigest()


def _text(file: Path) -> bytes:
    if is_own(file):
        return file.read_bytes()
    if file not in _TEXTS:
        _TEXTS[file] = file.read_bytes()
    return _TEXTS[file]


def _common_folder(files: list[Path]) -> Path:
    parts = [file.parent.parts for file in files]
    shared = 0
    while all(len(one) > shared and one[shared] == parts[0][shared] for one in parts):
        shared += 1
    return Path(*parts[0][:shared])


def with_imports(file: Path, module: str | None = None, anew: bool = False) -> set[Path]:
    """A module's file with those that it imports, they in turn and so on; but not this package's, and of what is
    installed only the module's own distribution.

    `module` is its full name, if it is imported by one: relative and absolute imports are looked up from where that is.
    `anew`: as they are by now.
    """
    name = module or file.stem
    root = file.parents[name.count(".") + (file.name == "__init__.py")]
    own = name.split(".")[0] if is_installed(root) else None
    places = [root, *(place for place in _places() if place != root)]
    found, waiting, met = set[Path](), [file], set[tuple[Path | None, tuple[str, ...]]]()
    while waiting:
        one = waiting.pop()
        if one in found:
            continue
        found.add(one)
        if anew:
            _TEXTS.pop(one, None)
        new = set(_imports(one)) - met  # what all import is looked for once
        met |= new
        for folder, imported in new:
            if folder is None and imported[0] == PACKAGE.name:
                continue  # this process has one already, whatever else lies on the path
            for place in [folder] if folder else places:
                if own and place == root and imported[0] != own:
                    continue
                waiting += [at for at in _files(place, imported) if not is_own(at)]
    return found


def own_imports(files: Iterable[Path]) -> set[Path]:
    """Some of the package's files with those of the package that they import, they in turn and so on."""
    found, waiting = set[Path](), list(files)
    while waiting:
        one = waiting.pop()
        if one not in found:
            found.add(one)
            waiting += _own_imports(one)
    return found


def taken_from_package(files: Iterable[Path]) -> set[Path]:
    """The package's files that somebody's own import, they in turn and so on."""
    names = {imported for file in files for _, imported in _imports(file) if imported[0] == PACKAGE.name}
    return own_imports({at for name in names for at in _files(PACKAGE.parent, name)})


@cache
def _own_imports(file: Path) -> tuple[Path, ...]:
    """Those it imports itself. By its text: to parse all of them takes longer than a run."""
    names = []
    for module, imported in _FROM.findall(file.read_text(encoding="utf-8")):
        names += [module, *(f"{module}.{name}" for name in re.findall(r"\w+", imported))]
    places = [PACKAGE.joinpath(*name.split(".")[1:]) for name in names]
    files = {file for place in places for file in (place.with_suffix(".py"), place / "__init__.py")}
    return tuple(one for one in sorted(files) if one.is_file())


_FROM = re.compile(r"^from (prebleexp[\w.]*) import (\([^)]*\)|[^\n]*)", re.MULTILINE)


def _files(place: Path, imported: tuple[str, ...]) -> Iterator[Path]:
    """The files that importing a name from a folder runs."""
    for depth in range(1, len(imported) + 1):
        at = place.joinpath(*imported[:depth])
        for file in (at.with_name(f"{at.name}.py"), at / "__init__.py"):
            if file.is_file():
                yield file.resolve()


def _places() -> list[Path]:
    """Folders of Python's path that are somebody's own."""
    return [place for place in {Path(entry or ".").resolve(): None for entry in sys.path} if not is_installed(place)]


@cache
def is_installed(folder: Path) -> bool:
    """Whether what is in a folder came with Python or was installed, and is nobody's to edit."""
    given = [sysconfig.get_paths()[name] for name in ("stdlib", "platstdlib", "purelib", "platlib")]
    places = [Path(one).resolve() for one in (*given, *site.getsitepackages(), site.getusersitepackages())]
    return folder.name in ("site-packages", "dist-packages") or any(folder.is_relative_to(one) for one in places)


def _imports(file: Path) -> Iterator[tuple[Path | None, tuple[str, ...]]]:
    """What a file imports: the folder from which names are looked up (None: Python's path), and the name's parts."""
    for level, parts in _statements(_text(file)):
        yield (file.parents[level - 1] if level else None), parts


@cache
def _statements(text: bytes) -> tuple[tuple[int, tuple[str, ...]], ...]:
    found: list[tuple[int, tuple[str, ...]]] = []
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            found += [(0, tuple(alias.name.split("."))) for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            module = tuple(node.module.split(".")) if node.module else ()
            found += [(node.level, (*module, alias.name)) for alias in node.names]
    return tuple(found)
