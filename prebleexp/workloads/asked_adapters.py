"""Which LoRA adapter each request of a log asked for."""

from __future__ import annotations

import math

import numpy as np

from prebleexp.sim.types import Ints
from prebleexp.workloads.columns import Columns, found, set_column
from prebleexp.workloads.rows import Rows

USUAL = ("lora_adapter", "lora_name", "lora_request", "lora_id", "lora", "adapter_name", "adapter_id", "adapter")
BASE = ("", "0", "none", "null", "base")
"""what stands for the model alone, whatever its case, beside nothing at all"""


def asked(rows: Rows, columns: Columns) -> tuple[Ints | None, str]:
    """(n,) from 1 on, in the order in which they first come, and 0 for none; and what is said of that. None unless
    `columns` names the field."""
    name = set_column(rows, columns, "adapter")
    if name is None:
        return None, ""
    numbers: dict[str, int] = {}
    adapter = np.zeros(len(rows), np.int32)
    for row, value in enumerate(rows.optional(name)):
        text = "" if value is None or (isinstance(value, float) and math.isnan(value)) else str(value)
        if text.strip().lower() not in BASE:
            adapter[row] = numbers.setdefault(text, len(numbers) + 1)
    without = int((adapter == 0).sum())
    says = f"{name}, {len(numbers):,} of them" + (f", none in {without:,} of {len(rows):,} rows" if without else "")
    return adapter, says


def unread(rows: Rows, columns: Columns) -> list[str]:
    """That a log says adapters, where `columns` does not name the field."""
    if "adapter" in columns or (name := found(rows, USUAL)) is None:
        return []
    return [f"{name} seems to say LoRA adapters, and is not used; workload.columns={{adapter: {name}}} reads it"]
