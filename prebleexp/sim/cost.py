"""What a model step costs on a GPU: the face of whatever cost model is plugged in there.

`cost` is a record of `View.costs`; engines and routers call it alike. A cost model is a plug with these three
functions (see `prebleexp.hardware.base`).
"""

from __future__ import annotations

from typing import Any

from prebleexp.sim.compiled import compiled
from prebleexp.sim.plug import call_float


@compiled
def request_ms(cost: Any, new: int, length: int) -> float:
    """What a request adds to a step that prefills `new` tokens of it, up to `length`: milliseconds."""
    return call_float(cost.request_ms, cost.own, new, length)


@compiled
def step_s(
    cost: Any, prefills: int, new: int, length: int, running: int, context: int, unique: int, requests_ms: float
) -> float:
    """Seconds of a step that prefills `new` tokens of `prefills` requests, which are `length` tokens long with them,
    and decodes one token of each of `running` requests of `context` tokens; `unique` of all are distinct, and
    `requests_ms` is the sum over prefills of `request_ms`."""
    return call_float(cost.step_s, cost.own, prefills, new, length, running, context, unique, requests_ms)


@compiled
def decode_s(cost: Any, running: int, context: int, unique: int, steps: int) -> float:
    """Seconds of so many decode steps of `running` requests, which are `context` tokens long in the first (`unique` of
    them distinct) and one token longer in each that follows."""
    return call_float(cost.decode_s, cost.own, running, context, unique, steps)


@compiled
def wave_s(cost: Any, tokens: int) -> float:
    """What GPUs that step together do in common in a step of so many tokens of all of them: of `step_s`, which is of
    GPUs that have as many tokens each, the part that is not of each one alone."""
    return call_float(cost.wave_s, cost.own, tokens)


@compiled
def prefill_s(cost: Any, new: int, length: int) -> float:
    """Seconds of a step that prefills `new` tokens of one request of `length` alone."""
    return step_s(cost, 1, new, length, 0, 0, new, request_ms(cost, new, length))
