"""What measurements leave open of a step's cost: another draw for each seed (`hardware.uncertainty=true`)."""

from __future__ import annotations

import math
import zlib
from dataclasses import replace

import numpy as np

from prebleexp.hardware.parameters import Parameters, Support

VERSION = {"f": 0.3, "v": 0.2, "t_req": 0.5, "a0": 0.5, "a1": 0.5}
"""how far an engine's versions differ, as standard deviations of logarithms: the prior of the fit. Which version will
run is not said, and is seldom one that was measured."""
KERNELS = 0.07
"""likewise of what decodes read: of 838 kernels that read much, nine tenths are within 12 %"""
THEORY = 0.21
"""likewise of all of a step where nothing like it was measured: nine tenths of models left out are within 35 %"""
OF_OTHERS = "of other models, each left out of the fit, as none was measured here"
"""of what that error is"""
IN_STEP = 0.7
"""likewise of how many requests go through a shared prefix in step, which nothing measured: between half as many as are
read at one time, and twice; that is a guess"""
NINE_TENTHS = 1.645
"""standard deviations of a normal distribution"""


def drawn(parameters: Parameters, support: Support | None, seed: int, name: str, *, shipped: bool) -> Parameters:
    """Those of a seed, log-normal about `parameters`: in common as far as `support` is off what was measured, what
    decodes read as far as kernels differ, a shared prefix as far as it is not known, and if these are `shipped`, and
    not of one's own engine, each as versions do. `name` is of the GPU: kinds of GPU are not off together.

    The logarithm's mean is 0, so that half of all draws are slower than what is simulated without.
    """
    z = np.random.default_rng([seed, zlib.crc32(name.encode())]).standard_normal(3 + len(VERSION))
    whole, kernels = math.exp(z[0] * off(support)), math.exp(z[1] * KERNELS)
    times = {one: math.exp(of * spread * shipped) for of, (one, spread) in zip(z[3:], VERSION.items(), strict=True)}
    p = {one: getattr(parameters, one) * factor for one, factor in times.items()}
    p |= {"f": p["f"] * whole, "v": p["v"] * whole, "e_kv": parameters.e_kv / whole / kernels}
    return replace(parameters, **p, in_step=parameters.in_step * math.exp(z[2] * IN_STEP))


def is_of_others(support: Support | None) -> bool:
    """Whether no error was measured of it, so that `off` is that of models left out."""
    return support is None or math.isnan(support.p90)


def off(support: Support | None) -> float:
    """How far all of a step is off, as a standard deviation of a logarithm."""
    return THEORY if support is None or is_of_others(support) else support.p90 / NINE_TENTHS


def within(support: Support | None) -> float:
    """Nine in ten times are within this share of what is said."""
    return math.exp(off(support) * NINE_TENTHS) - 1
