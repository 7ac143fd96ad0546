"""A cell's key: a hash of everything that can change its result, and of nothing else."""

from __future__ import annotations

import ast
import hashlib
import inspect
import json
import math
import sys
from collections.abc import Mapping
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any

from prebleexp.errors import InvalidInput
from prebleexp.experiment.cell import SPECS, Cell

FORMAT = 1
PACKAGE = Path(__file__).resolve().parent.parent
COMPUTES = ("sim", "policies", "workloads", "hardware", "metrics.py")
"""the parts of the package that determine results"""


def key(cell: Cell) -> str:
    """64 hexadecimal digits. Raises InvalidInput for values that have no canonical form."""
    return hashlib.sha256(canonical(content(cell)).encode()).hexdigest()


def content(cell: Cell) -> dict[str, object]:
    """What the key is a hash of."""
    own = {name: _own_source(getattr(cell, name).__class__) for name in SPECS}
    return {
        "format": FORMAT,
        "cell": cell.identity(),
        "code": code(),
        "own_code": {name: digest for name, digest in own.items() if digest},
    }


@cache
def code() -> dict[str, str]:
    """Digest of the package's sources that compute results, and the versions of the libraries that do."""
    return {"sources": sources_digest(), "numpy": version("numpy"), "numba": version("numba")}


@cache
def sources_digest() -> str:
    places = [PACKAGE / name for name in COMPUTES]
    files = [file for place in places for file in ([place] if place.is_file() else place.rglob("*.py"))]
    return _digest(files, PACKAGE)


def canonical(value: Any) -> str:
    """JSON in which equal values have equal text: sorted names, no spaces, 1.0 is 1."""
    return json.dumps(_normal(value, ""), sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False)


def differences(a: Any, b: Any, path: str = "") -> list[tuple[str, object, object]]:
    """The fields in which two JSON-able values differ: (path, in a, in b)."""
    if isinstance(a, Mapping) and isinstance(b, Mapping):
        found = []
        for name in sorted(a.keys() | b.keys()):
            found += differences(a.get(name), b.get(name), f"{path}.{name}" if path else name)
        return found
    return [] if canonical(a) == canonical(b) else [(path, a, b)]


def _normal(value: Any, path: str) -> Any:
    if isinstance(value, Mapping):
        return {str(name): _normal(one, f"{path}.{name}" if path else str(name)) for name, one in value.items()}
    if isinstance(value, list | tuple):
        return [_normal(one, f"{path}[{i}]") for i, one in enumerate(value)]
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, float) and math.isfinite(value):
        return int(value) if value.is_integer() else value
    raise InvalidInput(
        f"{path}={value!r} cannot be part of a configuration; it must be a finite number, text, true, false or null"
    )


@cache
def _own_source(kind: type[Any]) -> str | None:
    """Digest of the source of a class that is not this package's, and of the modules beside it that it imports."""
    module = sys.modules.get(kind.__module__)
    file = getattr(module, "__file__", None)
    if file is None:
        try:
            return hashlib.sha256(inspect.getsource(kind).encode()).hexdigest()
        except (OSError, TypeError):
            raise InvalidInput(f"{kind.__qualname__} has no source; define it in a Python file") from None
    path = Path(file).resolve()
    return None if path.is_relative_to(PACKAGE) else _digest(sorted(_with_neighbours(path)), path.parent)


def _with_neighbours(path: Path) -> set[Path]:
    found, waiting = set[Path](), [path]
    while waiting:
        one = waiting.pop()
        found.add(one)
        for node in ast.walk(ast.parse(one.read_bytes())):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            names += [node.module] if isinstance(node, ast.ImportFrom) and node.module else []
            beside = (one.parent / f"{name.split('.')[0]}.py" for name in names)
            waiting += [other for other in beside if other.is_file() and other not in found]
    return found


def _digest(files: list[Path], root: Path) -> str:
    digest = hashlib.sha256()
    for file in sorted(files):
        text = file.read_bytes()
        digest.update(f"{file.relative_to(root).as_posix()} {len(text)}\n".encode())
        digest.update(text)
    return digest.hexdigest()
