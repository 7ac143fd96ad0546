"""What a ladder can say of a step's cost: few factors, each on one part of the time, and how far what ships leaves them
open."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from prebleexp.hardware import uncertain
from prebleexp.hardware.composed import Composed
from prebleexp.hardware.equations import Array
from prebleexp.hardware.fitting import MOST_BANDWIDTH, MOST_COMPUTE
from prebleexp.hardware.own_runs import SPREAD
from prebleexp.hardware.parameters import Parameters


@dataclass(frozen=True)
class Factor:
    """Of one part of the time: twice as much makes it twice as long."""

    name: str
    words: str
    times: tuple[str, ...]
    """parameters that are multiplied by it"""
    shares: tuple[str, ...]
    """efficiencies that are divided by it"""
    spread: float
    """how far its own logarithm may be off: a standard deviation"""
    whole: bool = False
    """whether all of a step's error, which has one sign, is its too"""


VERSION = uncertain.VERSION
FACTORS = (
    Factor("fixed", "a step's fixed part", ("f",), (), VERSION["f"], whole=True),
    Factor("rest", "all else of a step but what decodes read", ("v",), (), VERSION["v"], whole=True),
    Factor("request", "what each request adds to a step", ("t_req",), (), VERSION["t_req"]),
    Factor("prefill", "computing, which prefills are bound by", (), ("e_c", "e_xc", "e_p"), SPREAD["e_c"]),
    Factor("context", "reading of context by decodes", (), ("e_kv",), uncertain.KERNELS, whole=True),
    Factor("frontend", "a request's time outside the GPU", ("a0", "a1"), (), VERSION["a0"]),
)
OF_LAYERS = {"e_m": MOST_BANDWIDTH, "e_c": MOST_COMPUTE, "e_xc": MOST_COMPUTE, "e_p": MOST_COMPUTE}
"""shares of a peak that no kernel exceeds; `v` is of these times, too"""


def covariance(hardware: Composed) -> Array:
    """Of the factors' logarithms about 0, as far as it is known how far off what ships is: that of versions, of
    kernels, and what all of a step is off by together."""
    whole = uncertain.off(hardware.evidence)
    shared = np.array([whole if one.whole else 0.0 for one in FACTORS])
    found: Array = np.diag([one.spread**2 for one in FACTORS]) + np.outer(shared, shared)
    return found


def applied(hardware: Composed, logs: Sequence[float] | Array) -> Composed:
    """The same where each part of the time is so many times as long, by the logarithms of `FACTORS`, but no kernel is
    faster than the GPU, nor than it was if that was so already. At 0 it is what it was, to the last bit."""
    return replace(hardware, parameters=parameters(hardware, logs), evidence=hardware.evidence)


def parameters(hardware: Composed, logs: Sequence[float] | Array) -> Parameters:
    of = hardware.parameters
    assert isinstance(of, Parameters)
    p: dict[str, float] = {}
    for factor, log in zip(FACTORS, logs, strict=True):
        times = math.exp(float(log))
        p |= {name: getattr(of, name) * times for name in factor.times}
        p |= {name: getattr(of, name) / times for name in factor.shares}
    for name, most in OF_LAYERS.items():
        limit = max(most, getattr(of, name) / of.v) * p["v"]
        if p.get(name, getattr(of, name)) > limit:
            p[name] = limit
    p["e_kv"] = min(p["e_kv"], max(_fastest(hardware), of.e_kv))
    return replace(of, **p)


def _fastest(hardware: Composed) -> float:
    """`e_kv` at the memory's peak."""
    return hardware.gpu.hbm_gb_s * 1e9 / hardware.gpu.reading(str(hardware.kv_precision))[0]
