"""From a `_target_` and its fields to the object, strictly: dataclasses only, every name checked, each content once."""

from __future__ import annotations

import dataclasses
import importlib
import json
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

from prebleexp.checks import flag, is_integer, is_number, require
from prebleexp.errors import InvalidInput, unknown
from prebleexp.experiment.itself import once_of_itself


def build(group: str, name: str, config: object) -> Any:
    """The object that option `name` of a config group stands for. Equal contents give the same object.

    Raises InvalidInput, with the group and the option in its line, if the target cannot be imported, is no dataclass,
    or has other fields; passes on what the object itself says about its values.
    """
    if not isinstance(config, Mapping) or not isinstance(config.get("_target_"), str):
        raise InvalidInput(
            f"{group} {name!r} has no _target_; its YAML must name a dataclass, as _target_: module.Class"
        )
    return _build(group, name, json.dumps(config, default=str))


built = once_of_itself(build)
"""`build`, of a composition's node, which nobody changes: jobs share most of theirs"""


@cache
def _build(group: str, name: str, text: str) -> Any:
    values = json.loads(text)
    target = values.pop("_target_")
    kind = located(group, name, target)
    fields = {field.name: field for field in dataclasses.fields(kind) if field.init}
    for field in values:
        if field not in fields:
            raise unknown_field(group, name, field, list(fields))
    for field in fields.values():
        required = field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING
        if required and field.name not in values:
            raise InvalidInput(f"{group} {name!r} has no value for {field.name}; set {group}.{field.name}=...")
    try:
        made = kind(**{field: _made(field, value) for field, value in values.items()})
    except (TypeError, ValueError) as error:
        raise InvalidInput(f"{group} {name!r}: {error}") from error
    for field, value in values.items():  # what the class itself lets pass: compiled code would say less of it
        _check_type(f"{group}.{field}", str(getattr(fields[field].type, "__name__", fields[field].type)), value)
    return made


def _check_type(key: str, declared: str, value: Any) -> None:
    if value is None:  # a class says what it makes of nothing
        return
    if declared == "bool":
        flag(key, value)
    elif declared == "int":
        require(is_integer(value), key, value, "a whole number")
    elif declared == "float":
        require(is_number(value), key, value, "a number")


def unknown_field(group: str, name: str, field: str, valid: Sequence[str]) -> InvalidInput:
    """An error for a field that the option does not have."""
    if not valid:
        return InvalidInput(f"unknown key '{group}.{field}'; {group}={name} has no fields.")
    return unknown("key", f"{group}.{field}", [f"{group}.{one}" for one in valid])


def located(group: str, name: str, target: str) -> Any:
    """The dataclass of that path. Raises InvalidInput if it cannot be imported, or is none."""
    module, _, attribute = target.rpartition(".")
    try:
        kind = getattr(importlib.import_module(module), attribute)
    except Exception as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise InvalidInput(f"{group} {name!r}: its _target_ {target!r} cannot be imported: {reason}") from error
    if not (isinstance(kind, type) and dataclasses.is_dataclass(kind)):
        raise InvalidInput(f"{group} {name!r}: its _target_ {target!r} is not a dataclass")
    return kind


def _made(field: str, value: Any) -> Any:
    """A field's value: lists become tuples, and what names a class becomes an object of it."""
    if isinstance(value, list):
        return tuple(_made(field, one) for one in value)
    return build(field, field, value) if isinstance(value, dict) and "_target_" in value else value
