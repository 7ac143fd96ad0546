"""What PREBLE fitted in early 2024: a step's cost as curves for one model on one GPU each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from prebleexp.checks import is_integer, is_number, require
from prebleexp.errors import InvalidInput
from prebleexp.hardware.base import Hardware

if TYPE_CHECKING:
    from prebleexp.hardware.preble_step import StepCost

MOST_TOGETHER = 64
"""GPUs that serve one copy of a model"""


@dataclass(frozen=True)
class PrebleFit(Hardware):
    """Coefficients of the step cost; milliseconds and tokens.

    For B running requests decode = (linear(B) + attention) / efficiency; for a batch of requests
    prefill = (linear(new) + attention + Σ over its requests) / efficiency.

    Raises InvalidInput, naming the field, for values that cannot be a cost.
    """

    compiles: ClassVar[str] = "prebleexp.hardware.preble_step"

    linear: tuple[tuple[float, float, float, float], ...]
    """rows (from, constant, per token, per token²): linear layers for this many tokens in the batch or more; from
    in descending order, the last 0"""
    attention: tuple[float, float, float, float]
    """(flat up to, flat, constant, per token): memory-bound attention over the context tokens of the batch"""
    shared: tuple[float, float]
    """attention is halved if distinct KV tokens per request, and distinct KV tokens times requests, are at most
    these"""
    request: tuple[float, float, float, float, float]
    """(from, constant, per new token, per token of length, per new · length): what a request adds to its prefill
    if new · length is at least the first"""
    efficiency: float
    """by which all is divided"""
    kv_tokens: int
    """tokens of KV that fit beside the weights, per GPU (or group of GPUs that serve one copy)"""
    context_length: int = 32768
    """new tokens that one prefill takes at most, or a sixth of kv_tokens if that is more"""
    prefill_batch: bool = True
    """false: the sum over requests is all that a prefill costs"""
    gpu: str = ""
    """its kind, such as a100, by which engines choose their defaults; empty: not known"""
    gpu_memory_gib: float = 0.0
    """memory of one of them, likewise; 0: not known"""
    tensor_parallel: int = 1
    """GPUs that serve one copy of the model, a replica, whose costs these are; `gpus` counts them all"""
    source: str = field(default="", metadata={"key": False})
    """where the numbers are from"""
    support: str = field(default="", metadata={"key": False})
    """how far its step times can be believed"""

    def __post_init__(self) -> None:
        rows = tuple(_numbers(f"linear[{i}]", row, 4) for i, row in enumerate(self.linear))
        object.__setattr__(self, "linear", rows)
        for name, size in (("attention", 4), ("shared", 2), ("request", 5)):
            object.__setattr__(self, name, _numbers(name, getattr(self, name), size))
        starts = [row[0] for row in rows]
        if not starts or starts[-1] != 0 or starts != sorted(set(starts), reverse=True):
            raise InvalidInput(
                f"hardware.linear starts at {starts} tokens; it must be in descending order and end with 0"
            )
        valid = is_number(self.efficiency) and self.efficiency > 0
        require(valid, "hardware.efficiency", self.efficiency, "a number > 0")
        for name in ("kv_tokens", "context_length"):
            value = getattr(self, name)
            require(is_integer(value, 1, 2**31 - 1), f"hardware.{name}", value, "a positive number of tokens")
        valid = is_integer(self.tensor_parallel, 1, MOST_TOGETHER)
        require(valid, "hardware.tensor_parallel", self.tensor_parallel, f"an integer from 1 to {MOST_TOGETHER}")
        require(isinstance(self.gpu, str), "hardware.gpu", self.gpu, "a name")
        memory = self.gpu_memory_gib
        require(is_number(memory) and memory >= 0, "hardware.gpu_memory_gib", memory, "a number >= 0")

    def identity(self) -> dict[str, object]:
        """What its key knows: the number of GPUs, which was not said of one, only where it is another."""
        kept = {one.name: getattr(self, one.name) for one in fields(self) if one.metadata.get("key", True)}
        return {name: value for name, value in kept.items() if (name, value) != ("tensor_parallel", 1)}

    @property
    def gpu_name(self) -> str:
        return self.gpu

    @property
    def gpus_per_replica(self) -> int:
        return self.tensor_parallel

    def start(self) -> StepCost:
        """The coefficients as the kernels read them."""
        from prebleexp.hardware.preble_step import StepCost

        return StepCost(
            np.array(self.linear, dtype=np.float64),
            *self.attention,
            *self.shared,
            *self.request,
            float(self.prefill_batch),
            float(self.efficiency),
        )


def _numbers(name: str, values: Any, size: int) -> tuple[float, ...]:
    valid = isinstance(values, Sequence) and len(values) == size and all(map(is_number, values))
    require(valid, f"hardware.{name}", values, f"{size} numbers")
    return tuple(map(float, values))
