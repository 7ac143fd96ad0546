"""A spec as columns of a table: which option of its group it is, and its fields."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from typing import Any

from prebleexp.errors import InvalidInput
from prebleexp.experiment.itself import once_of_itself


def spec_columns(name: str, option: str, fields: Mapping[str, Any]) -> dict[str, Any]:
    """A spec as a table's columns: which option of its group, and its fields."""
    lists = (tuple, list, dict)
    texts = {key: json.dumps(value) if isinstance(value, lists) else value for key, value in fields.items()}
    return {name: option} | {f"{name}.{key}": value for key, value in texts.items()}


def columns_of(spec: Any) -> dict[str, Any]:
    """What tables show of a spec: its `columns()` if it has them, else what its key knows."""
    return dict(spec.columns()) if callable(getattr(spec, "columns", None)) else fields_of(spec)


def fields_of(spec: Any) -> dict[str, Any]:
    """What its key knows of a spec. Raises InvalidInput if it is no dataclass."""
    if not dataclasses.is_dataclass(spec):
        raise InvalidInput(f"{type(spec).__name__} is not a dataclass; a spec's fields are its configuration")
    return {one.name: getattr(spec, one.name) for one in dataclasses.fields(spec) if one.metadata.get("key", True)}


@once_of_itself
def columns_as(name: str, option: str, spec: Any) -> Mapping[str, Any]:
    """`spec_columns` of a spec."""
    return spec_columns(name, option, columns_of(spec))
