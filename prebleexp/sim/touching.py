"""Which GPUs have changed, for routers that keep what they make of reports (see `prebleexp.sim.records.Touched`).

It is noted when a request is sent or reaches its GPU, and when a step begins or ends: what an engine does then changes
what that GPU tells of itself, and no other's. What happens seldom touches all. Where engines may change what others
tell, with pools, tiers, or requests that are moved, nobody counts, and routers look at all.
"""

from __future__ import annotations

import numpy as np

from prebleexp.sim.compiled import compiled
from prebleexp.sim.records import Touched, World


def uncounted(gpus: int) -> Touched:
    return Touched(np.zeros(1, np.int64), np.zeros(1 << max(0, gpus - 1).bit_length(), np.int64))


@compiled
def touch(world: World, g: int) -> None:
    touched = world.seen.touched
    times = touched.times[0]
    if times > 0:
        touched.gpus[times & (len(touched.gpus) - 1)] = g
        touched.times[0] = times + 1


@compiled
def touch_all(world: World) -> None:
    """More are touched than are remembered."""
    touched = world.seen.touched
    if touched.times[0] > 0:
        touched.times[0] += len(touched.gpus) + 1
