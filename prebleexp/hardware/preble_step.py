"""What a model step costs in GPU seconds: the fitted equations of the PREBLE release (spec: engine-as-released,
Cost)."""

from __future__ import annotations

from typing import Any, NamedTuple

from prebleexp.sim.compiled import compiled


class StepCost(NamedTuple):
    """Coefficients, milliseconds and tokens; see `prebleexp.hardware.preble.PrebleFit` for their meaning."""

    linear: Any
    """(k, 4): from this many tokens, constant, per token, per token²; in descending order of the first"""
    attention_flat_tokens: float
    attention_flat: float
    attention_constant: float
    attention_per_token: float
    shared_unique_per_request: float
    shared_unique_times_requests: float
    request_from: float
    request_constant: float
    request_per_new: float
    request_per_length: float
    request_per_product: float
    prefill_batch: float
    """1 if a prefill pays the batch's linear layers and attention, 0 if the sum over requests is all of it"""
    efficiency: float


# The order of operations is the release's: with another, times would differ in the last bit.


@compiled
def linear_s(cost: StepCost, tokens: int) -> float:
    """Linear layers for `tokens` tokens in the batch."""
    row = 0
    while tokens < cost.linear[row, 0]:
        row += 1
    ms = cost.linear[row, 1] + cost.linear[row, 2] * tokens + cost.linear[row, 3] * (tokens * tokens)
    return ms / 1e3


@compiled
def attention_s(cost: StepCost, requests: int, context: int, unique_kv: int) -> float:
    """Memory-bound attention of `requests` requests over `context` tokens, `unique_kv` of them distinct."""
    if context <= cost.attention_flat_tokens:
        return cost.attention_flat / 1e3
    ms = cost.attention_per_token * context + cost.attention_constant
    if (
        unique_kv / requests <= cost.shared_unique_per_request
        and requests * unique_kv <= cost.shared_unique_times_requests
    ):
        ms /= 2
    return ms / 1e3


@compiled
def request_part_ms(cost: StepCost, new: int, length: int) -> float:
    """One request's own share of a prefill of `new` tokens up to `length`: compute-bound attention."""
    product = new * length
    if product < cost.request_from:
        return 0.0
    return (
        cost.request_constant
        + cost.request_per_new * new
        + cost.request_per_length * length
        + cost.request_per_product * new * length
    )


@compiled
def prefill_step_s(cost: StepCost, requests: int, new: int, context: int, unique_kv: int, requests_ms: float) -> float:
    batch = 0.0
    if cost.prefill_batch > 0:
        batch = linear_s(cost, new) + attention_s(cost, requests, context, unique_kv)
    return (batch + requests_ms / 1e3) / cost.efficiency


@compiled
def decode_step_s(cost: StepCost, requests: int, context: int, unique_kv: int, linear: float) -> float:
    """`linear` is `linear_s(cost, requests)`, which stays the same while the batch does."""
    return (linear + attention_s(cost, requests, context, unique_kv)) / cost.efficiency


# ---------------------------------------------------------------- as a plug (see `prebleexp.sim.cost`)
@compiled
def request_ms(self: Any, mine: StepCost, new: int, length: int) -> float:
    return request_part_ms(mine, new, length)


@compiled
def step_s(
    self: Any,
    mine: StepCost,
    prefills: int,
    new: int,
    length: int,
    running: int,
    context: int,
    unique: int,
    requests_ms: float,
) -> float:
    """The linear layers take all tokens of the step at once, and attention reads the distinct KV of all once."""
    if running + new == 0:
        return 0.0
    if running == 0 or mine.prefill_batch > 0:
        return prefill_step_s(mine, running + prefills, running + new, context + length, unique, requests_ms)
    seconds = requests_ms / 1e3 / mine.efficiency  # a sum over requests is all that a prefill costs
    return seconds + decode_step_s(mine, running, context, context, linear_s(mine, running))


@compiled
def decode_s(self: Any, mine: StepCost, running: int, context: int, unique: int, steps: int) -> float:
    seconds, linear = 0.0, linear_s(mine, running)
    for _ in range(steps):
        seconds += decode_step_s(mine, running, context, unique, linear)
        context += running
        unique += running
    return seconds
