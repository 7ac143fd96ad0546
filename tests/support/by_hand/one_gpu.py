"""One GPU that takes 1 ms for each token."""

from __future__ import annotations

from typing import Any

from prebleexp.engines.base import Engine
from prebleexp.hardware.preble import PrebleFit
from prebleexp.lengths.known import Max
from prebleexp.overhead.model import Overhead
from prebleexp.policies.lor import LeastOutstanding
from prebleexp.sim.simulate import Accelerator, simulate
from prebleexp.sim.types import Outcome, Workload

HOST = 0.0006
# A step takes 1 ms for each of its tokens, whatever their contexts: linear(n) = n ms, no attention.
PLAIN = PrebleFit(
    linear=((0, 0, 1, 0),),
    attention=(0, 0, 0, 0),
    shared=(0, 0),
    request=(2**60, 0, 0, 0, 0),
    efficiency=1,
    kv_tokens=100_000,
)


def serve(workload: Workload, engine: Engine, hardware: Accelerator = PLAIN, **rest: Any) -> Outcome:
    given: dict[str, Any] = {"duration_s": 1.0, "horizon": "drain", "seed": 0} | rest
    return simulate(
        workload,
        gpus=1,
        policy=LeastOutstanding(),
        hardware=hardware,
        engine=engine,
        lengths=Max(),
        overhead=Overhead(),
        **given,
    )
