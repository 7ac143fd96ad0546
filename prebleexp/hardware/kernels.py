"""How long kernels of attention take to read what decodes look back at, against what GPUs say of them.

A row is one call of a kernel: `batch` requests of `ctx` tokens, of one layer. The equations have its reading alone: a
call's launch is a part of what a layer takes, so that calls which read little take longer than this says.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np

from prebleexp.hardware import measurements
from prebleexp.hardware.equations import Array
from prebleexp.hardware.measurements import Sizes, number
from prebleexp.hardware.model import BYTES, KV_PRECISIONS

COLUMNS = ("gpu", "batch", "ctx", "kv_heads", "head_dim", "us")
"""that there must be, and kv or kv_dtype; a row of another phase than decode is left out"""
MUCH = 0.4e9
"""bytes: more than a step of the closed loops reads in a layer"""
OFTEN_CALLED = {"bfloat16": "bf16", "float16": "bf16", "fp8_e4m3": "fp8"}

Key = tuple[str, str]
"""GPU, and the cache's precision"""


def decode_errors(path: Path, sizes: Sizes) -> dict[Key, tuple[Array, Array]]:
    """|predicted / measured − 1| of each decode, and the bytes that it reads, by GPU and precision of the cache. Raises
    InvalidInput, which names file, row and column, for what cannot be a measurement; leaves out what is of a GPU that
    is not known."""
    found: dict[Key, list[tuple[float, float]]] = {}
    for at, row in measurements.read(path, COLUMNS):
        kv = _precision(row)
        if row.get("phase", "decode") == "decode" and row["gpu"] in sizes.gpus and kv in KV_PRECISIONS:
            elements = 2.0
            for name in ("batch", "ctx", "kv_heads", "head_dim"):
                elements *= number(at, row, name, 1.0)
            size = elements * BYTES[kv]
            seconds = size / sizes.gpus[row["gpu"]].reading(kv)[0]
            off = abs(seconds * 1e6 / number(at, row, "us") - 1)
            found.setdefault((row["gpu"], kv), []).append((off, size))
    return {key: (np.array([one[0] for one in of]), np.array([one[1] for one in of])) for key, of in found.items()}


def _precision(row: Mapping[str, str]) -> str:
    said = row.get("kv") or row.get("kv_dtype") or ""
    return OFTEN_CALLED.get(said, said)
