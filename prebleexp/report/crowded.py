"""What a plan for GPUs says where weights leave little memory for KV: more GPUs a replica may be fewer in all."""

from __future__ import annotations

from collections.abc import Sequence

from prebleexp.hardware.composed import Composed
from prebleexp.planning.contender import GPUS
from prebleexp.planning.planned import Planned
from prebleexp.report.wording import percent

MOST = 0.5
"""of a GPU's memory that weights may take without a word"""
KEY = "hardware.tensor_parallel"
NAMED = 3
"""sizes of a replica that are proposed"""


def crowded(found: Sequence[Planned]) -> list[str]:
    """A sentence for each hardware of which weights take most of a GPU's memory, if no other tensor parallelism was
    asked for."""
    every = dict.fromkeys(one.contender.cell.hardware for one in found if not one.contender.cell.cluster.groups)
    composed = [one for one in every if isinstance(one, Composed)]
    asked = any(KEY in one.at for one in found) or len({one.tensor_parallel for one in composed}) > 1
    if found[0].contender.searched != GPUS or asked:
        return []
    return [said for one in composed if (said := _crowded(one, alone=len(every) == 1))]


def _crowded(hardware: Composed, alone: bool) -> str:
    now = hardware.tensor_parallel
    share = hardware.gpu_weights(now, hardware.precision) / (hardware.gpu.memory_gb * 1e9)
    larger = [each for each in hardware.groups if each > now]
    if hardware.is_spread or share <= MOST or not larger:
        return ""
    tried = ",".join(map(str, [now, *larger][:NAMED]))
    whose = "each GPU's memory" if alone else f"the memory of each {hardware.gpu.name.upper()}"
    return (
        f"weights take {percent(share)} of {whose} with {KEY}={now}: larger replicas leave more for KV, and may need "
        f"fewer GPUs in all; {KEY}={tried} compares them"
    )
