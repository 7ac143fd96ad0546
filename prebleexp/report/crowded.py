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
    """A sentence, if weights take most of a GPU's memory, and no other tensor parallelism was asked for."""
    first, hardware = found[0].contender, found[0].contender.cell.hardware
    same = {one.contender.cell.hardware for one in found} == {hardware} and not any(KEY in one.at for one in found)
    if first.searched != GPUS or first.cell.cluster.groups or not same or not isinstance(hardware, Composed):
        return []
    now = hardware.tensor_parallel
    share = hardware.gpu_weights(now, hardware.precision) / (hardware.gpu.memory_gb * 1e9)
    larger = [each for each in hardware.groups if each > now]
    if hardware.is_spread or share <= MOST or not larger:
        return []
    tried = ",".join(map(str, [now, *larger][:NAMED]))
    return [
        f"weights take {percent(share)} of each GPU's memory with {KEY}={now}: larger replicas leave more for KV, and "
        f"may need fewer GPUs in all; {KEY}={tried} compares them"
    ]
