"""What clusters carry, as others published it: requests/s of one, or how many times those of another."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from prebleexp.published.ladders import Error

SAME_POWER = "{} at the same power {}"


@dataclass(frozen=True)
class Claim:
    """`line` carries `published` times what `over` does, or requests/s a GPU of `gpus`; both are lines of `variant`."""

    variant: str
    line: str
    published: float
    over: str = ""
    gpus: int = 1


def _pools(served: str) -> tuple[Claim, ...]:
    """Splitwise (ISCA 2024): pools of A100s over H100s that each do both, and over A100s that do, of the same power."""
    return tuple(
        Claim(SAME_POWER.format(trace, served), "AA", times, over)
        for trace in ("conversations", "code")
        for over, times in (("H100", 1.4), ("A100", 2.35))
    )


CLAIMS = {
    "splitwise": (*_pools("in Splitwise's simulator"), *_pools("under vLLM")),
    # OSDI 2024: of its own simulator, prompts on two A100s and outputs on one
    "distserve": (Claim("DistServe's check (200 ms to the first token)", "P TP 2 + D TP 1", 1.56, gpus=3),),
}
"""by experiment, which sweep published_… simulates"""


def errors(experiment: str, carried: Mapping[tuple[str, str], float]) -> list[Error]:
    """A row for each claim. `carried`: requests/s by variant and line."""
    found = []
    for one in CLAIMS[experiment]:
        load = carried[one.variant, one.line]
        reached = load / carried[one.variant, one.over] if one.over else load / one.gpus
        metric = "times_requests_per_s" if one.over else "requests_per_gpu_s"
        off = abs(reached / one.published - 1)
        arm = f"{one.variant}: {one.line}" + (f" over {one.over}" if one.over else "")
        found.append(Error(experiment, arm, metric, 1, off, off))
    return found
