"""Whether a GPU and a model have the numbers that the parameters were fitted with, which measured/sizes.csv keeps."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterable
from dataclasses import fields
from functools import cache

from prebleexp.hardware.gpu import Gpu
from prebleexp.hardware.model import Model
from prebleexp.hardware.parameters import MEASURED

FILE = "sizes.csv"
BESIDE = ("name", "memory_gb", "nvlink_gb_s", "pcie_gb_s", "context_length", "chunked")
"""fields that no step's time depends on"""


def changed(one: Gpu | Model) -> str:
    """Its first number that is another, in words; empty: none is, or nothing was fitted with one of this name."""
    kind, known = type(one).__name__.lower(), _fitted().get((type(one).__name__.lower(), one.name), {})
    own = _numbers(one)
    field = next((name for name, value in known.items() if own[name] != value), "")
    return f"hardware.{kind}.{field} is {own[field]}, and {known[field]} in {one.name}" if field else ""


def sizes_csv(those: Iterable[Gpu | Model]) -> str:
    """Sizes of GPUs and models as CSV: kind, name, field, value."""
    file = io.StringIO()
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(("kind", "name", "field", "value"))
    for one in those:
        writer.writerows((type(one).__name__.lower(), one.name, field, value) for field, value in _numbers(one).items())
    return file.getvalue()


def _numbers(one: Gpu | Model) -> dict[str, str]:
    return {field.name: _text(getattr(one, field.name)) for field in fields(one) if field.name not in BESIDE}


def _text(value: object) -> str:
    return f"{float(value):.10g}" if isinstance(value, int | float) else json.dumps(value)


@cache
def _fitted() -> dict[tuple[str, str], dict[str, str]]:
    """The numbers that were fitted, by kind and name."""
    found: dict[tuple[str, str], dict[str, str]] = {}
    with (MEASURED / FILE).open(newline="", encoding="utf-8") as file:
        for row in csv.DictReader(file):
            found.setdefault((row["kind"], row["name"]), {})[row["field"]] = row["value"]
    return found
