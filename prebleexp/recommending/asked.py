"""What a recommendation is asked for, besides what serves and what comes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from prebleexp.checks import is_integer, require
from prebleexp.cluster.replicas import MOST_GPUS
from prebleexp.errors import InvalidInput
from prebleexp.launch.asked_plan import REFUSED
from prebleexp.launch.parts import key_of
from prebleexp.planning.prices import KEY, Prices

MOST = "most_gpus"
LIKE = f"an integer from 1 to {MOST_GPUS}, or one for each kind of GPU, as {{h100: 16, h200: 8}}"
SEARCHED = ("gpus", "replicas", "cluster.groups")
"""keys that are the answer"""


@dataclass(frozen=True)
class Asked:
    """`most_gpus` of all kinds, or of each."""

    prices: Prices
    most_gpus: int | Mapping[str, int]
    split: bool
    """whether prompts may have replicas of their own"""
    tolerance: float
    seeds: int
    most_seeds: int
    requests: int | None

    def most_of(self, kind: str) -> int:
        """GPUs of a kind. Raises InvalidInput where nobody says."""
        if isinstance(self.most_gpus, int):
            return self.most_gpus
        if kind not in self.most_gpus:
            raise InvalidInput(f"{MOST} says nothing of {kind}; it has {', '.join(self.most_gpus)}")
        return self.most_gpus[kind]


def asked(lines: Sequence[str], values: Mapping[str, Any]) -> Asked:
    """What a command's own settings ask for. Raises InvalidInput for what is searched and yet given."""
    for line in lines:
        key = key_of(line)
        if key in SEARCHED:
            raise InvalidInput(f"{key}: that is searched; {MOST} says how many GPUs can be had")
        if key in REFUSED:
            raise InvalidInput(f"{key}: {REFUSED[key].replace('a plan', 'recommend')}")
    if values[KEY] is None:
        raise InvalidInput(
            f"{KEY}: what is cheapest depends on it; give one for each kind, as {{h100: 2.5, h200: 3.5}}"
        )
    most = values[MOST]
    each = list(most.values()) if isinstance(most, Mapping) else [most]
    require(bool(each) and all(is_integer(one, 1, MOST_GPUS) for one in each), MOST, most, LIKE)
    return Asked(
        prices=Prices(values[KEY]),
        most_gpus=most,
        split=not values["whole"],
        tolerance=values["tol"],
        seeds=values["seeds"],
        most_seeds=values["most_seeds"],
        requests=values["requests"],
    )
