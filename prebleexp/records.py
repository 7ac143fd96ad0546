"""Records among the columns of keys, as people say them: a GPU by its name, groups of GPUs by what is in them."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any


def named(places: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Places whose values that are JSON are said in words, as far as these tell them apart. Of several records of one
    name each number in which they differ becomes a column of its own, as "hardware.gpu.hbm_gb_s"."""
    texts: dict[str, dict[str, None]] = {}
    for place in places:
        for column, value in place.items():
            if isinstance(value, str) and _read(value) is not None:
                texts.setdefault(column, {})[value] = None
    words = {column: _words(column, list(of)) for column, of in texts.items()}
    found = []
    for place in places:
        made: dict[str, Any] = {}
        for column, value in place.items():
            made |= words.get(column, {}).get(value, {column: value})
        found.append(made)
    return found


def columns(column: str, value: Any) -> dict[str, Any]:
    """A value and, of a record with a name, its numbers: what may be asked for."""
    record = _read(value) if isinstance(value, str) else None
    said = None if record is None else _said(record)
    if said is None:
        return {column: value}
    parts = record if isinstance(record, dict) and "name" in record else {}
    return {column: said} | {f"{column}.{name}": _value(one) for name, one in parts.items() if name != "name"}


def _words(column: str, texts: Sequence[str]) -> dict[str, dict[str, Any]]:
    """Of each of these records what stands for it."""
    wide = {text: columns(column, text) for text in texts}
    if len({of[column] for of in wide.values()}) == len(texts):
        return {text: {column: of[column]} for text, of in wide.items()}
    if not all(len(of) > 1 for of in wide.values()):  # words that do not tell them apart
        return {}
    differs = {
        part
        for one in wide.values()
        for other in wide.values()
        if one[column] == other[column]
        for part in {*one, *other}
        if one.get(part) != other.get(part)
    }
    kept = {column, *differs}
    return {text: {name: value for name, value in of.items() if name in kept} for text, of in wide.items()}


def _said(record: Any) -> str | None:
    """In words; None where what was written is such a list."""
    if isinstance(record, dict):
        return str(record["name"]) if "name" in record else _flow(record)
    if all(isinstance(one, dict) and {"gpus", "hardware"} <= one.keys() for one in record):
        return " + ".join(map(_group, record)) if record else None
    pairs = all(isinstance(one, list) and len(one) == 2 and isinstance(one[0], str) for one in record)
    return _flow(dict(record)) if record and pairs else None


def _group(one: Mapping[str, Any]) -> str:
    """ "4 h100 for prefill" """
    hardware = one["hardware"]
    name = hardware.get("gpu", {}).get("name") or str(hardware.get("_target_", "GPUs")).rpartition(".")[2]
    return " ".join(map(str, (one["gpus"], name, *(("for", one["role"]) if one.get("role") else ()))))


def _flow(record: Mapping[str, Any]) -> str:
    return "{" + ", ".join(f"{name}: {_value(one)}" for name, one in record.items()) + "}"


def _value(value: Any) -> Any:
    return json.dumps(value) if isinstance(value, list | dict) else value


@lru_cache(maxsize=1024)
def _read(text: str) -> Any:
    """None of what is no list and no record."""
    if not text.startswith(("{", "[")):
        return None
    try:
        return json.loads(text)
    except ValueError:
        return None
