"""Sweeps of several parts: each its own product of values, all run as one batch and drawn in one report.

    sweep:
      parts:
        rates_released:
          variant: as released         # said beside its panels
          overrides: [+variant=released]
          params: {gpus: "4,8", rps: "1,2,4"}
          lines: {PREBLE: [policy=e2_released], LOR: [policy=lor]}
      figures:
        1A: {draw: latency_against_rate, title: …, parts: [rates_released]}

A line is a router with all that belongs to it. What the command line says holds for every part.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from itertools import product
from typing import TYPE_CHECKING, Any

from prebleexp.errors import InvalidInput, unknown

if TYPE_CHECKING:
    from hydra.core.override_parser.overrides_parser import OverridesParser


@dataclass(frozen=True)
class Part:
    """A product of values for each line."""

    name: str
    variant: str
    overrides: tuple[str, ...]
    params: Mapping[str, str]
    lines: Mapping[str, tuple[str, ...]]


@dataclass(frozen=True)
class FigureSpec:
    """A figure of the report: which function draws it, and from which parts."""

    number: str
    draw: str
    title: str
    parts: tuple[str, ...]
    sweep: str
    """the sweep that makes this figure alone"""


@dataclass(frozen=True)
class Place:
    """Where a job belongs in a sweep of parts."""

    part: str
    variant: str
    line: str


def parts_of(sweep: Mapping[str, Any]) -> tuple[Part, ...]:
    """The parts of a configuration's `sweep`. Raises InvalidInput for fields that are unknown or not of their kind."""
    found = []
    for name, given in _mapping("sweep.parts", sweep.get("parts")).items():
        where = f"sweep.parts.{name}"
        given = _fields(where, given, Part)
        params = _mapping(f"{where}.params", given.get("params"))
        lines = _mapping(f"{where}.lines", given.get("lines"))
        if not params or not lines:
            raise InvalidInput(f"{where} has no {'lines' if params else 'params'}; there must be one at least")
        found.append(
            Part(
                name=name,
                variant=str(given.get("variant", "")),
                overrides=_strings(f"{where}.overrides", given.get("overrides", [])),
                params={key: str(value) for key, value in params.items()},
                lines={label: _strings(f"{where}.lines.{label}", line) for label, line in lines.items()},
            )
        )
    return tuple(found)


def figures_of(sweep: Mapping[str, Any]) -> tuple[FigureSpec, ...]:
    """The figures of a configuration's `sweep`. Raises InvalidInput likewise, and for parts that do not exist."""
    parts = [part.name for part in parts_of(sweep)]
    found = []
    for number, given in _mapping("sweep.figures", sweep.get("figures")).items():
        if given is None:  # taken out by a sweep that is based on another
            continue
        where = f"sweep.figures.{number}"
        given = _fields(where, given, FigureSpec)
        names = _strings(f"{where}.parts", given.get("parts", []))
        for name in names:
            if name not in parts:
                raise unknown(f"part in {where}:", name, parts)
        if parts and not names:
            raise InvalidInput(f"{where} has no parts; there must be one at least")
        draw, title = str(given.get("draw", "")), str(given.get("title", number))
        found.append(FigureSpec(str(number), draw, title, names, str(given.get("sweep", ""))))
    return tuple(found)


def jobs(
    parts: Sequence[Part], arguments: Sequence[str], choices_of: Callable[[str], list[str]]
) -> list[tuple[Place, list[str]]]:
    """The overrides of every job, and where it belongs. `arguments` replace what a part says of the same key;
    `choices_of` is what an override stands for (`choices`).

    Raises InvalidInput if they set what tells lines apart.
    """
    given = {key_of(line) for line in arguments}
    found = []
    for part in parts:
        kept = [line for line in part.overrides if key_of(line) not in given]
        swept = [f"{key}={value}" for key, value in part.params.items() if key not in given]
        shared = [*arguments, *kept]
        for label, own in part.lines.items():
            for line in own:
                if key_of(line) in given:
                    raise InvalidInput(f"{key_of(line)} cannot be set: the lines of part {part.name} differ in it")
            place = Place(part.name, part.variant, label)
            of_each = [choices_of(line) for line in (*shared, *own, *swept)]
            found += [(place, list(job)) for job in product(*of_each)]
    return found


def choices(line: str, parser: OverridesParser) -> list[str]:
    """What an override stands for: itself, or one for each of its values."""
    override = parser.parse_override(line)
    if not override.is_sweep_override():
        return [line]
    if not override.is_discrete_sweep():
        raise InvalidInput(f"{line}: an interval has no list of values; use range(start,stop,step)")
    key = override.get_key_element()
    return [f"{key}={value}" for value in override.sweep_string_iterator()]


def key_of(line: str) -> str:
    """The key that an override sets."""
    return line.partition("=")[0].lstrip("+~").split("@")[0]


def _mapping(where: str, value: Any) -> dict[str, Any]:
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        raise InvalidInput(f"{where}={value} is not valid; it must be a mapping")
    return {str(key): one for key, one in value.items()}


def _fields(where: str, value: Any, kind: type) -> dict[str, Any]:
    given = _mapping(where, value)
    valid = [field.name for field in fields(kind) if field.name not in ("name", "number")]
    for name in given:
        if name not in valid:
            raise unknown(f"field of {where}", name, valid)
    return given


def _strings(where: str, value: Any) -> tuple[str, ...]:
    if isinstance(value, str) or not isinstance(value, Sequence) or not all(isinstance(one, str) for one in value):
        raise InvalidInput(f"{where}={value} is not valid; it must be a list of texts, such as [policy=lor]")
    return tuple(value)
