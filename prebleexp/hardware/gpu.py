"""A kind of GPU in the numbers of its vendor."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from prebleexp.checks import is_integer, is_number, require
from prebleexp.hardware.model import KV_PRECISIONS

UNMEASURED = (0.85, 1.5)
"""shares of the memory's bandwidth at which attention of decodes reads from memory and from cache, where no kernel of
the GPU was measured: between those of the others"""


@dataclass(frozen=True)
class Gpu:
    """One of conf/hardware/gpu/.

    Raises InvalidInput, naming the field, for values that cannot be."""

    name: str
    """as measurements call it"""
    bf16_tflops: float
    """dense peak"""
    fp8_tflops: float
    """likewise; 0: it has none"""
    fp4_tflops: float
    """likewise"""
    hbm_gb_s: float
    """bandwidth of its memory"""
    memory_gb: float
    """as its driver reports"""
    nvlink_gb_s: float = 0.0
    """one way; 0: none"""
    pcie_gb_s: float = 0.0
    """one way"""
    all_reduce: tuple[tuple[int, float, float], ...] = ()
    """rows (GPUs, µs, GB/s): an all-reduce of so many takes the µs, and its bytes at this rate; without one for a
    number of GPUs they cannot serve one copy of a model"""
    sms: int = 132
    """multiprocessors; those of an H100"""
    attention: tuple[tuple[str, float, float], ...] = ()
    """rows (precision of KV, share, GB/s), as kernels of decode attention were measured: the share of the memory's
    bandwidth that they reach, and the rate at which they read what the cache (L2) holds; without a row for a precision
    0.85 of that bandwidth, and 1.5 of it from the cache"""

    def __post_init__(self) -> None:
        require(isinstance(self.name, str) and bool(self.name), "hardware.gpu.name", self.name, "a name")
        for field in ("bf16_tflops", "hbm_gb_s", "memory_gb"):
            _number(self, field, least=1e-9)
        for field in ("fp8_tflops", "fp4_tflops", "nvlink_gb_s", "pcie_gb_s"):
            _number(self, field, least=0.0)
        rows = self.all_reduce
        valid = isinstance(rows, Sequence) and all(map(_is_link, rows))
        require(valid, "hardware.gpu.all_reduce", rows, "rows of (GPUs from 2, microseconds > 0, GB/s > 0)")
        links = tuple((int(gpus), float(us), float(rate)) for gpus, us, rate in rows)
        object.__setattr__(self, "all_reduce", links)
        require(is_integer(self.sms, 1), "hardware.gpu.sms", self.sms, "a number of multiprocessors from 1")
        valid = isinstance(self.attention, Sequence) and all(map(_is_reading, self.attention))
        require(valid, "hardware.gpu.attention", self.attention, "rows of (bf16 or fp8, a share from 0 to 1, GB/s > 0)")
        readings = tuple((precision, float(share), float(rate)) for precision, share, rate in self.attention)
        object.__setattr__(self, "attention", readings)

    @property
    def memory_gib(self) -> float:
        return self.memory_gb * 1e9 / 2**30

    @property
    def precisions(self) -> tuple[str, ...]:
        """In which it computes, or (int4) in which it can store weights that it computes with in BF16."""
        own = [name for name in ("fp8", "fp4") if self.peak_flops(name) > 0]
        return ("bf16", *own, "int4")

    @property
    def groups(self) -> tuple[int, ...]:
        """How many of them may serve one copy of a model."""
        return (1, *sorted(gpus for gpus, _, _ in self.all_reduce))

    def peak_flops(self, precision: str) -> float:
        """A second, for weights of this precision."""
        peaks = {"fp8": self.fp8_tflops, "fp4": self.fp4_tflops}
        return peaks.get(precision, self.bf16_tflops) * 1e12

    def reading(self, kv: str) -> tuple[float, float]:
        """Bytes a second at which attention of decodes reads KV of this precision from memory, and what was just read
        from the cache, which is never slower."""
        known = {precision: (share, rate * 1e9) for precision, share, rate in self.attention}
        memory = self.hbm_gb_s * 1e9
        share, cache = known.get(kv, (UNMEASURED[0], UNMEASURED[1] * memory))
        return share * memory, max(cache, share * memory)

    def link(self, gpus: int) -> tuple[float, float]:
        """Seconds, and bytes a second, of an all-reduce of so many."""
        return next((us * 1e-6, rate * 1e9) for count, us, rate in self.all_reduce if count == gpus)


def _number(gpu: Gpu, field: str, least: float) -> None:
    value = getattr(gpu, field)
    require(is_number(value) and value >= least, f"hardware.gpu.{field}", value, "a number > 0" if least else ">= 0")
    object.__setattr__(gpu, field, float(value))


def _is_reading(row: Any) -> bool:
    if not isinstance(row, Sequence) or len(row) != 3 or row[0] not in KV_PRECISIONS:
        return False
    return all(map(is_number, row[1:])) and 0 < row[1] <= 1 and row[2] > 0


def _is_link(row: Any) -> bool:
    if not isinstance(row, Sequence) or len(row) != 3:
        return False
    return is_integer(row[0], 2) and all(is_number(one) and one > 0 for one in row[1:])
