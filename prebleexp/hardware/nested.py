"""What `hardware=composed` is composed of, from the mappings that YAML and command line give."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import MISSING, fields
from typing import Any

from prebleexp.checks import is_number, not_valid, require
from prebleexp.errors import InvalidInput, unknown
from prebleexp.hardware.domain import Domain
from prebleexp.hardware.parameters import NAMES, Given, Parameters, Support


def nested(name: str, kind: type[Any], value: Any) -> Any:
    """What a group's mapping stands for. Raises InvalidInput for one that is not of its fields."""
    if value is None and name in ("parameters", "evidence"):
        return None
    if isinstance(value, (kind, Given)):
        return value
    if not isinstance(value, Mapping):
        chosen = f"an option of its group, as hardware/{name}={value}" if name in ("gpu", "model") else "a mapping"
        raise not_valid(f"hardware.{name}", value, chosen)
    valid = {one.name: one for one in fields(kind)}
    for one in value:
        if one not in valid:
            raise unknown("key", f"hardware.{name}.{one}", [f"hardware.{name}.{each}" for each in valid])
    if kind is Parameters:
        return _given(name, {one: number for one, number in value.items() if number is not None})
    missing = next(iter(_required(kind) - set(value)), None)
    if missing is not None:
        raise InvalidInput(f"hardware.{name} has no value for {missing}; set hardware.{name}.{missing}=...")
    if kind is Support and isinstance(of := value.get("domain"), Mapping):
        value = {**value, "domain": nested("evidence.domain", Domain, of)}
    return kind(**{one: tuple(map(_row, each)) if isinstance(each, list) else each for one, each in value.items()})


def _given(name: str, value: Mapping[str, Any]) -> Parameters | Given | None:
    for one, number in value.items():
        share = one.startswith("e_")  # of a peak: at none of it a step never ends
        fine = is_number(number) and (number > 0 or (number == 0 and not share))
        require(fine, f"hardware.{name}.{one}", number, f"a number {'>' if share else '>='} 0, or null")
    numbers = {one: float(value[one]) for one in NAMES if one in value}
    if _required(Parameters) <= numbers.keys():
        return Parameters(**numbers)
    return Given(tuple(numbers.items())) if numbers else None


def _row(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value


def _required(kind: type[Any]) -> set[str]:
    return {one.name for one in fields(kind) if one.default is MISSING}
