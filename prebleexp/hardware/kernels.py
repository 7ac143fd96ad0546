"""How long a call of a kernel of attention takes, of one layer, against tables of measured calls.

A call that decodes, `batch` requests of `ctx` tokens each, takes

    launch + head · batch · kv_heads + √(read² + (token · ctx)²)

where `read` is its bytes at a share of the memory's bandwidth, or, as far as the cache still holds them from the call
before, faster: a benchmark repeats one call. `token` is how fast the blocks that read one request go
on. A call with a prefill too takes

    launch + tile · tiles + (work^2.5 + (token · longest)^2.5 + read^2.5)^(1/2.5)

Its tiles are 64 queries of a head each, and a decode is a tile by itself: `work` is what multiprocessors take to go
over the context of all tiles, each heads' anew.

Steps have of this the reading from memory alone (`Gpu.attention`): what a call adds beside it is in what a layer and a
request take, which were fitted to whole engines, and a step reads weights between two calls, so that no cache is warm.
With the launches, with `head`, or with such a norm in steps, closed loops come out as they do without
(docs/hardware.md).
"""

from __future__ import annotations

import csv
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from prebleexp.hardware import measurements
from prebleexp.hardware.equations import Array
from prebleexp.hardware.gpu import Gpu
from prebleexp.hardware.measurements import Sizes, number
from prebleexp.hardware.model import BYTES, KV_PRECISIONS
from prebleexp.hardware.parameters import MEASURED

FILE = "kernels.csv"
MUCH = 0.4e9
"""bytes: more than a step of the closed loops reads in a layer"""
TILE = 64
"""queries of a head that one block of a prefill has"""
SHARP = 8
"""how suddenly a cache that is read over and over gives nothing more where it is too small"""
MIXED_HEAD_DIM, MIXED_KV = 128, "bf16"
"""of a table that does not say"""
NORM = 2.5
"""of what a call with a prefill does at the same time: with 2 nine tenths are within 25.6 %, with 3 half within 8 %"""
OFTEN_CALLED = {"bfloat16": "bf16", "float16": "bf16", "fp8_e4m3": "fp8"}
DECODE_COLUMNS = ("gpu", "batch", "ctx", "kv_heads", "head_dim", "us")
"""that there must be, and kv or kv_dtype; a row of another phase than decode is left out"""
MIXED_COLUMNS = ("gpu", "heads", "kv_heads", "tp", "prefill_chunk", "kv_prefill", "n_decode", "kv_decode", "time_us")
"""likewise; heads are those of the model, over tp GPUs"""

DECODE, PREFILL, MIXED = "decode_attention", "prefill_attention", "mixed_attention"
"""kinds of calls"""
Key = tuple[str, str]
"""GPU, and the cache's precision"""


@dataclass(frozen=True)
class Kernel:
    """What kernels of a GPU and a precision of the cache take, as they were fitted: times in seconds."""

    launch: float
    unit: float
    """of a request's head of KV, or, beside a prefill, of a tile"""
    token: float
    """of each token of the longest request"""
    share: float
    """of the memory's bandwidth"""
    cache_bytes: float = 0.0
    """that stay in the cache from one call to the next; 0: none"""
    cache_gain: float = 0.0
    """by how much faster than memory it gives them, as a share: 1 is twice as fast"""
    work: float = 0.0
    """of a tile and a token, times multiprocessors"""


@dataclass(frozen=True)
class Calls:
    """Calls of kernels on one GPU with one precision of the cache; a row of each array is one."""

    heads: Array
    kv_heads: Array
    token_bytes: Array
    """of a token's KV, in one layer"""
    chunk: Array
    """new tokens of the prefill; 0: there is none"""
    before: Array
    """tokens that these find cached"""
    batch: Array
    """requests that decode"""
    ctx: Array
    """tokens of each"""
    seconds: Array

    def __len__(self) -> int:
        return len(self.seconds)

    def take(self, chosen: Any) -> Calls:
        return Calls(*(getattr(self, one.name)[chosen] for one in fields(self)))

    @property
    def bytes(self) -> Array:
        """Bytes of KV that each call's decodes read."""
        return self.batch * self.ctx * self.token_bytes


def decode_s(of: Calls, gpu: Gpu, kernel: Kernel) -> Array:
    """Seconds of each call that decodes alone."""
    seconds = of.bytes / (gpu.hbm_gb_s * 1e9 * kernel.share)
    if kernel.cache_bytes:
        missed = 1 / (1 + (kernel.cache_bytes / of.bytes) ** SHARP)
        seconds = seconds * (missed + (1 - missed) / (1 + kernel.cache_gain))
    reading: Array = np.hypot(seconds, kernel.token * of.ctx)
    return kernel.launch + kernel.unit * of.batch * of.kv_heads + reading


def mixed_s(of: Calls, gpu: Gpu, kernel: Kernel) -> Array:
    """Seconds of each call with a prefill, whether others decode or not."""
    tiles = of.heads * np.maximum(of.chunk / TILE, 1.0)
    over = tiles * (of.before + of.chunk / 2) + of.heads * of.batch * of.ctx
    longest = np.maximum(of.before + of.chunk, of.ctx)
    read = (of.bytes + (of.before + of.chunk) * of.token_bytes) / (gpu.hbm_gb_s * 1e9 * kernel.share)
    parts = (kernel.work / gpu.sms * over, kernel.token * longest, read)
    together = sum(part**NORM for part in parts) ** (1 / NORM)
    found: Array = kernel.launch + kernel.unit * (tiles + of.heads * of.batch) + together
    return found


EQUATIONS: dict[str, Callable[[Calls, Gpu, Kernel], Array]] = {DECODE: decode_s, PREFILL: mixed_s, MIXED: mixed_s}


def predicted(kind: str, key: Key, of: Calls, gpu: Gpu) -> Array:
    """Seconds of each call of a kind; where no such kernel was measured, of its reading from memory alone, and, of
    prefills, of their computing at the share of the peak that steps have."""
    kernel = shipped().get((kind if kind == DECODE else MIXED, *key))
    if kernel is not None:
        return EQUATIONS[kind](of, gpu, kernel)
    head_dim = of.token_bytes / (2 * BYTES[key[1]] * of.kv_heads)
    pairs = of.chunk * (of.before + of.chunk / 2)
    return of.bytes / gpu.reading(key[1])[0] + 4 * of.heads * head_dim * pairs / (0.6 * gpu.peak_flops("bf16"))


@cache
def shipped() -> dict[tuple[str, str, str], Kernel]:
    """By kind, GPU and precision of the cache."""
    with (MEASURED / FILE).open(newline="", encoding="utf-8") as file:
        names = [one.name for one in fields(Kernel)]
        return {
            (row["kind"], row["gpu"], row["kv"]): Kernel(**{name: float(row[name]) for name in names})
            for row in csv.DictReader(file)
        }


# ---------------------------------------------------------------- tables
def decodes(path: Path, sizes: Sizes) -> dict[Key, Calls]:
    """Calls that decode, of an attention.csv. Raises InvalidInput, which names file, row and column, for what cannot be
    a measurement; leaves out what is of a GPU that is not known."""
    found: dict[Key, list[tuple[float, ...]]] = {}
    for at, row in measurements.read(path, DECODE_COLUMNS):
        kv = _precision(row)
        if row.get("phase", "decode") == "decode" and row["gpu"] in sizes.gpus and kv in KV_PRECISIONS:
            batch, ctx, kv_heads, head_dim = (
                number(at, row, name, 1.0) for name in ("batch", "ctx", "kv_heads", "head_dim")
            )
            heads = number(at, row, "heads", 1.0, default=f"{kv_heads:g}")
            size = 2 * kv_heads * head_dim * BYTES[kv]
            seconds = number(at, row, "us") / 1e6
            found.setdefault((row["gpu"], kv), []).append((heads, kv_heads, size, 0.0, 0.0, batch, ctx, seconds))
    return {key: _calls(rows) for key, rows in found.items()}


def mixed(path: Path, sizes: Sizes) -> dict[Key, Calls]:
    """Likewise of a mixed_attention.csv, whose calls may have a prefill, or decodes, or both."""
    found: dict[Key, list[tuple[float, ...]]] = {}
    for at, row in measurements.read(path, MIXED_COLUMNS):
        kv = _precision(row) or MIXED_KV
        if row["gpu"] in sizes.gpus and kv in KV_PRECISIONS:
            tp = number(at, row, "tp", 1.0)
            heads, kv_heads = number(at, row, "heads", 1.0) / tp, max(1.0, number(at, row, "kv_heads", 1.0) / tp)
            head_dim = number(at, row, "head_dim", 1.0, default=str(MIXED_HEAD_DIM))
            lengths = [number(at, row, name, 0.0) for name in ("prefill_chunk", "kv_prefill", "n_decode", "kv_decode")]
            seconds = number(at, row, "time_us") / 1e6
            size = 2 * kv_heads * head_dim * BYTES[kv]
            found.setdefault((row["gpu"], kv), []).append((heads, kv_heads, size, *lengths, seconds))
    return {key: _calls(rows) for key, rows in found.items()}


def by_kind(*tables: Mapping[Key, Calls]) -> dict[tuple[str, str, str], Calls]:
    """Calls of all tables by kind, GPU and precision of the cache."""
    found: dict[tuple[str, str, str], Calls] = {}
    for table in tables:
        for key, of in table.items():
            alone = of.batch * of.ctx == 0
            kinds = {DECODE: (of.chunk == 0) & ~alone, PREFILL: (of.chunk > 0) & alone, MIXED: (of.chunk > 0) & ~alone}
            for kind, chosen in kinds.items():
                if chosen.any():
                    before, mine = found.get((kind, *key)), of.take(chosen)
                    found[kind, *key] = mine if before is None else joined(before, mine)
    return found


def joined(one: Calls, other: Calls) -> Calls:
    """The calls of both, one after the other."""
    return Calls(*(np.concatenate([getattr(one, f.name), getattr(other, f.name)]) for f in fields(Calls)))


def _calls(rows: list[tuple[float, ...]]) -> Calls:
    return Calls(*np.array(rows, dtype=np.float64).T)


def _precision(row: Mapping[str, str]) -> str:
    said = row.get("kv") or row.get("kv_dtype") or ""
    return OFTEN_CALLED.get(said, said)
