"""A cell's key: a hash of everything that can change its result, and of nothing else."""

from __future__ import annotations

import hashlib
import inspect
import json
import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import fields
from functools import cache, cached_property, lru_cache
from importlib.metadata import version
from operator import attrgetter
from typing import Any

from prebleexp import sources
from prebleexp.errors import InvalidInput
from prebleexp.experiment.cell import Cell, spec_identity
from prebleexp.experiment.itself import once_of_itself

FORMAT = 2
COMPUTES = (
    *(
        "sim",
        "engines",
        "policies",
        "workloads",
        "lengths",
        "overhead",
        "hardware",
        "autoscalers",
        "faults",
        "gateway",
        "service",
        "cluster",
        "warm",
        "warmed.py",
        "metrics.py",
        "step_metrics.py",
        "averages.py",
        "told.py",
    ),
    "experiment/unloaded.py",
    "experiment/warm_run.py",
    "experiment/warming.py",
)
"""the parts of the package that determine results"""

CONFIGURATION = attrgetter(*(one.name for one in fields(Cell) if one.compare and one.name != "seed"))
"""of a cell all but its seed"""


def key(cell: Cell) -> str:
    """64 hexadecimal digits. Raises InvalidInput for values that have no canonical form."""
    return digest(contents([cell])[0])


def digest(content: Mapping[str, object]) -> str:
    """The key of a cell with this content."""
    return hashlib.sha256(canonical(content).encode()).hexdigest()


def contents(cells: Iterable[Cell]) -> list[dict[str, object]]:
    """The content of each cell. Files that specs stand for are read once, as they are now; cells of the same objects
    differ in their seeds alone."""
    of = once_of_itself(cache(_spec_content))
    made: dict[tuple[int, ...], dict[str, object]] = {}
    return [_with_seed(made, cell, of) for cell in [*cells]]


def _with_seed(
    made: dict[tuple[int, ...], dict[str, object]], cell: Cell, of: Callable[[Any], dict[str, object]]
) -> dict[str, object]:
    """Its content, from that of another seed if there is one."""
    at = tuple(map(id, CONFIGURATION(cell)))
    if at not in made:
        made[at] = content(cell, of)
    found = made[at]
    of_cell: Any = found["cell"]
    return found if of_cell.get("seed", cell.seed) == cell.seed else {**found, "cell": {**of_cell, "seed": cell.seed}}


class _Normal(dict[str, Any]):
    """Is in normal form already, and has its text: many cells share their specs."""

    @cached_property
    def text(self) -> str:
        return _ENCODER.encode(self)


def _spec_content(spec: Any) -> dict[str, object]:
    return _Normal(_normal(spec_identity(spec), ""))


def content(cell: Cell, of: Callable[[Any], dict[str, object]] = spec_identity) -> dict[str, object]:
    """What the key is a hash of."""
    own = {name: _own_source(spec.__class__) for name, spec in cell.parts.items()}
    return {
        "format": FORMAT,
        "cell": cell.identity(of),
        "code": code(),
        "own_code": {name: source for name, source in own.items() if source},
    }


@cache
def code() -> dict[str, str]:
    """Digest of the package's sources that compute results, and the versions of the libraries that do."""
    return _Normal(sources=sources_digest(), numpy=version("numpy"), numba=version("numba"))


@cache
def sources_digest() -> str:
    places = [sources.PACKAGE / name for name in COMPUTES]
    return sources.digest(file for place in places for file in ([place] if place.is_file() else place.rglob("*.py")))


_ENCODER = json.JSONEncoder(sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False)


def canonical(value: Any, path: str = "") -> str:
    """JSON in which equal values have equal text: sorted names, no spaces, 1.0 is 1. Of what has its text already that
    is taken. `path`: where the value stands, for errors."""
    if isinstance(value, _Normal):
        return value.text
    if type(value) is not dict and not isinstance(value, Mapping):
        return str(value) if type(value) is int else _ENCODER.encode(_normal(value, path))
    named = {str(name): one for name, one in value.items()}
    at = f"{path}." if path else ""
    texts = [f"{_name(name)}:{canonical(named[name], at + name)}" for name in sorted(named)]
    return f"{{{','.join(texts)}}}"


@lru_cache(4_096)
def _name(name: str) -> str:
    return _ENCODER.encode(name)


def differences(a: Any, b: Any, path: str = "") -> list[tuple[str, object, object]]:
    """The fields in which two JSON-able values differ: (path, in a, in b)."""
    if isinstance(a, Mapping) and isinstance(b, Mapping):
        found = []
        for name in sorted(a.keys() | b.keys()):
            found += differences(a.get(name), b.get(name), f"{path}.{name}" if path else name)
        return found
    return [] if canonical(a) == canonical(b) else [(path, a, b)]


def _normal(value: Any, path: str) -> Any:
    if value is None or isinstance(value, _Normal | bool | int | str):
        return value
    if isinstance(value, Mapping):
        return {str(name): _normal(one, f"{path}.{name}" if path else str(name)) for name, one in value.items()}
    if isinstance(value, list | tuple):
        return [_normal(one, f"{path}[{i}]") for i, one in enumerate(value)]
    if isinstance(value, float) and math.isfinite(value):
        return int(value) if value.is_integer() else value
    raise InvalidInput(
        f"{path}={value!r} cannot be part of a configuration; it must be a finite number, text, true, false or null"
    )


@cache
def _own_source(kind: type[Any]) -> str | None:
    """Digest of the source of a class that is not this package's, and of its own modules that it imports."""
    place = sources.place_of(kind)
    if place is None:
        try:
            return hashlib.sha256(inspect.getsource(kind).encode()).hexdigest()
        except (OSError, TypeError):
            raise InvalidInput(f"{kind.__qualname__} has no source; define it in a Python file") from None
    return None if sources.is_own(place[0]) else sources.digest(sources.with_imports(*place))
