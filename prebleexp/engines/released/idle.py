"""An idle GPU's clock, jumped over instead of stepped: bit for bit what repeated addition gives."""

from __future__ import annotations

import math

import numpy as np

from prebleexp.sim.compiled import compiled


@compiled
def next_idle_step(clock: float, cost: float, time: float) -> float:
    """The first of clock, clock + cost, (clock + cost) + cost … that is not before `time`, each sum rounded to a
    double.

    Between two powers of two all doubles are multiples of one spacing, so each addition moves the clock by the
    same multiple of it (unless `cost` lies halfway between two, when rounding to even alternates): that many
    additions at once are exact.
    """
    while clock < time:
        step = (clock + cost) - clock
        if step <= 0.0:
            return time  # the clock has grown so large that a step does not move it
        _, exponent = math.frexp(clock)
        binade_end = math.ldexp(1.0, exponent)
        halfway = abs(cost - step) * 2 == np.spacing(clock)
        steps = math.floor((min(time, binade_end) - clock) / step) - 2
        if steps > 0 and not halfway and clock > 0.0:
            clock += steps * step
        else:
            clock = clock + cost
    return clock
