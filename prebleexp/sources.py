"""Which source files a module's meaning depends on: itself, what it imports, and so on. Keys of runs and folders of
machine code are made from the same files, so that neither outlives an edit of any of them."""

from __future__ import annotations

import ast
import hashlib
import re
import site
import sys
import sysconfig
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path

PACKAGE = Path(__file__).resolve().parent


def is_own(file: str | Path) -> bool:
    """Whether a file is this package's."""
    return Path(file).resolve().is_relative_to(PACKAGE)


def digest(files: Iterable[Path]) -> str:
    """Of the files' contents and of their names from the folder that holds them all."""
    found = hashlib.sha256()
    paths = sorted(files)
    root = _common_folder(paths)
    for file in paths:
        text = file.read_bytes()
        found.update(f"{file.relative_to(root).as_posix()} {len(text)}\n".encode())
        found.update(text)
    return found.hexdigest()


def _common_folder(files: list[Path]) -> Path:
    parts = [file.parent.parts for file in files]
    shared = 0
    while all(len(one) > shared and one[shared] == parts[0][shared] for one in parts):
        shared += 1
    return Path(*parts[0][:shared])


def with_imports(file: Path, module: str | None = None) -> set[Path]:
    """A module's file with those that it imports, they in turn and so on; but not this package's, and of what is
    installed only the module's own distribution.

    `module` is its full name, if it is imported by one: relative and absolute imports are looked up from where that is.
    """
    name = module or file.stem
    root = file.parents[name.count(".") + (file.name == "__init__.py")]
    own = name.split(".")[0] if _is_installed(root) else None
    places = [root, *(place for place in _places() if place != root)]
    found, waiting = set[Path](), [file]
    while waiting:
        one = waiting.pop()
        if one in found:
            continue
        found.add(one)
        for folder, imported in _imports(one):
            for place in [folder] if folder else places:
                if own and place == root and imported[0] != own:
                    continue
                waiting += [at for at in _files(place, imported) if not is_own(at)]
    return found


def own_imports(file: Path) -> set[Path]:
    """One of the package's files with those of the package that it imports, they in turn and so on."""
    found, waiting = set[Path](), [file]
    while waiting:
        one = waiting.pop()
        if one not in found:
            found.add(one)
            waiting += _own_imports(one)
    return found


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
    return [place for place in {Path(entry or ".").resolve(): None for entry in sys.path} if not _is_installed(place)]


@cache
def _is_installed(folder: Path) -> bool:
    given = [sysconfig.get_paths()[name] for name in ("stdlib", "platstdlib", "purelib", "platlib")]
    places = [Path(one).resolve() for one in (*given, *site.getsitepackages(), site.getusersitepackages())]
    return folder.name in ("site-packages", "dist-packages") or any(folder.is_relative_to(one) for one in places)


def _imports(file: Path) -> Iterator[tuple[Path | None, tuple[str, ...]]]:
    """What a file imports: the folder from which names are looked up (None: Python's path), and the name's parts."""
    stamp = file.stat()
    for level, parts in _statements(file, stamp.st_mtime_ns, stamp.st_size):
        yield (file.parents[level - 1] if level else None), parts


@cache
def _statements(file: Path, changed: int, size: int) -> tuple[tuple[int, tuple[str, ...]], ...]:
    found: list[tuple[int, tuple[str, ...]]] = []
    for node in ast.walk(ast.parse(file.read_bytes())):
        if isinstance(node, ast.Import):
            found += [(0, tuple(alias.name.split("."))) for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            module = tuple(node.module.split(".")) if node.module else ()
            found += [(node.level, (*module, alias.name)) for alias in node.names]
    return tuple(found)
