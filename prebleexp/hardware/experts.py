"""How unevenly experts are asked for, and so the GPUs that have them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

from prebleexp.checks import is_number, not_valid

LAYERS = 256
"""over which the busiest GPU's load is averaged: each layer has its own popular experts"""
VALID = (
    "a number from 1, of the tokens that the busiest GPU gets over the mean; {zipf: exponent}, of how often experts "
    "are asked for; or {loads: [...]}, the tokens that each expert got, in the order in which GPUs have them"
)


@dataclass(frozen=True)
class Popularity:
    """Raises InvalidInput for what cannot be."""

    zipf: float | None = None
    """exponent of Zipf's law: the k-th expert of a layer is asked for as often as k to the power of minus this; which
    one is the k-th is drawn anew for each layer"""
    loads: tuple[float, ...] | None = None
    """tokens of each expert, as a server counts them"""

    def __post_init__(self) -> None:
        zipf, loads = self.zipf, self.loads
        if loads is not None:
            if not isinstance(loads, Sequence) or isinstance(loads, str):
                raise not_valid("hardware.expert_imbalance", {"loads": loads}, VALID)
            object.__setattr__(self, "loads", tuple(loads))
        counts = loads is not None and all(is_number(one) and one >= 0 for one in loads) and sum(loads) > 0
        power = zipf is not None and is_number(zipf) and zipf >= 0
        if counts == power:
            raise not_valid("hardware.expert_imbalance", {"zipf": zipf, "loads": loads}, VALID)

    @classmethod
    def of(cls, given: Any) -> float | Popularity:
        if isinstance(given, Popularity):
            return given
        if isinstance(given, Mapping) and given and set(given) <= {"zipf", "loads"}:
            return cls(**given)
        if not is_number(given) or given < 1:
            raise not_valid("hardware.expert_imbalance", given, VALID)
        return float(given)


@cache
def busiest(of: float | Popularity, experts: int, gpus: int) -> float:
    """How many times the mean the GPU gets that gets most, of so many with as many experts each. Raises InvalidInput if
    it would be more than all."""
    if isinstance(of, float):
        if of > gpus:
            valid = f"at most {gpus}, the GPUs that experts are spread over: the busiest one gets all then"
            raise not_valid("hardware.expert_imbalance", of, valid)
        return of
    if of.loads is not None:
        if len(of.loads) != experts:
            valid = f"of as many loads as there are experts, {experts}"
            raise not_valid("hardware.expert_imbalance", f"{len(of.loads)} loads", valid)
        of_gpus = np.asarray(of.loads, np.float64).reshape(gpus, -1).sum(axis=1)
        return float(of_gpus.max() / of_gpus.mean())
    shares = np.arange(1, experts + 1, dtype=np.float64) ** -float(of.zipf or 0.0)
    order = np.random.default_rng([experts, gpus])
    layers = np.stack([order.permutation(shares) for _ in range(LAYERS)]).reshape(LAYERS, gpus, -1).sum(axis=2)
    return float((layers.max(axis=1) / layers.mean(axis=1)).mean())
