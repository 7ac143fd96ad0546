"""The step's equations with arrays, a row of each for every measurement, and what they make of a closed loop of clients
(spec: hardware.md, The step). `prebleexp.hardware.composed_step` has the same step, compiled, for one configuration."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

from prebleexp.hardware import products
from prebleexp.hardware.gpu import Gpu
from prebleexp.hardware.model import BYTES, Model

Array = NDArray[np.float64]
BUDGET = 8192.0
"""tokens of a step: what vLLM takes at most, here of every engine"""
PER_CLIENT = 10
"""requests that each client of a benchmark sends one after another"""
ROUNDS = 14
"""of the closed loop's fixed point; more change its times by less than 2e-4"""
SCHEDULED = 1
"""steps that are scheduled while another runs, which a prompt cannot join any more"""
ELEMENTWISE = 24
"""bytes of memory traffic of elementwise kernels, per layer, token and hidden element"""


@dataclass(frozen=True)
class Coefficients:
    """What a configuration costs at the peaks of its GPUs, in seconds, before any fitted parameter; a float each, or
    arrays of one per row. Experts are at what kernels reach in their precision (`prebleexp.hardware.products`)."""

    linear_token: Any
    """linear layers: computing for a token, …"""
    linear: Any
    """… and reading the weights"""
    expert_token: Any
    expert: Any
    """likewise, of one expert in each layer"""
    experts: Any
    """in a layer; 1 if there are none"""
    log_missed: Any
    """logarithm of the chance that a token misses an expert"""
    head_token: Any
    head: Any
    """of the output head"""
    context: Any
    """reading the KV of a token from memory, as kernels of attention were measured; all else is at the peaks"""
    window: Any
    """tokens that layers with a sliding window look back; infinite: there are none"""
    window_share: Any
    """of the layers"""
    pair: Any
    """prefill attention of a query and a key"""
    latency: Any
    """of all-reduces, a step"""
    token: Any
    """all-reduces and elementwise kernels of a token"""
    layers: Any
    expert_layers: Any

    def take(self, chosen: Any) -> Coefficients:
        return Coefficients(*(getattr(self, one.name)[chosen] for one in fields(self)))


def all_reduces_s(model: Model, count: int, gpus: int, rate: float) -> float:
    """Seconds of a token in so many all-reduces of its hidden state in BF16, at `rate` bytes a second; a layer has
    two."""
    return 4 * count * model.hidden * (gpus - 1) / (gpus * rate)


def coefficients(gpu: Gpu, model: Model, gpus: int, weights: str, experts: str, kv: str) -> Coefficients:
    """Of `gpus` GPUs that serve one copy of the model. Precisions are keys of `BYTES`; `experts` is that in which
    they are stored. A precision in which the GPU cannot compute is computed in BF16."""
    memory, half = gpus * gpu.hbm_gb_s * 1e9, gpus * gpu.peak_flops("bf16")
    flops = gpus * gpu.peak_flops(weights) or half
    expert_flops = gpus * products.expert_flops(gpu, experts, model.expert_precision)
    latency, rate = gpu.link(gpus) if gpus > 1 else (0.0, math.inf)
    far = 1 - model.window_share
    token = ELEMENTWISE * model.layers * model.hidden / (gpu.hbm_gb_s * 1e9)
    token += all_reduces_s(model, 2 * model.layers, gpus, rate)
    return Coefficients(
        linear_token=2 * model.linear / flops,
        linear=model.linear * BYTES[weights] / memory,
        expert_token=2 * model.active * model.expert / expert_flops,
        expert=model.expert * BYTES[experts] / memory,
        experts=float(max(model.experts, 1)),
        log_missed=math.log1p(-model.active / model.experts) if model.experts > model.active else -1e3,
        head_token=model.embeddings / half,
        head=model.embeddings / memory,
        context=model.kv_elements * BYTES[kv] / (model.kv_share(gpus) * gpu.reading(kv)[0]),
        window=float(model.window or math.inf),
        window_share=model.window_share,
        pair=model.pair_flops * far / half,
        latency=2 * model.layers * latency,
        token=token,
        layers=float(model.layers),
        expert_layers=float(model.expert_layers),
    )


def stack(rows: list[Coefficients]) -> Coefficients:
    """Coefficients of several rows, as arrays."""
    return Coefficients(*(np.array([getattr(row, one.name) for row in rows]) for one in fields(Coefficients)))


def step_s(of: Coefficients, p: Mapping[str, Any], new: Any, sequences: Any, context: Any, pairs: Any) -> Any:
    """Seconds of one step with `new` tokens, of which `sequences` requests yield one, `context` tokens that decodes
    read, and `pairs` of a query and a key in prefills. `p`: the fields of `Parameters`, floats or a row each.

    No two requests of a benchmark share a prompt, so that all that decodes read comes from memory. `v` is not of that:
    how fast a kernel reads KV is known from kernels, and hardly from closed loops, of which it is a small part."""
    linear = _sharp(new * of.linear_token / p["e_c"], of.linear / p["e_m"])
    touched = -of.experts * np.expm1(new * of.log_missed)
    experts = _roof(new * of.expert_token / p["e_xc"], touched * of.expert / p["e_xm"])
    head = _sharp(sequences * of.head_token / p["e_c"], of.head / p["e_m"])
    near = np.minimum(context, np.maximum(sequences, 1) * of.window)
    read = of.context * (context * (1 - of.window_share) + near * of.window_share)
    fixed = p["t_step"] + of.layers * p["t_layer"] + of.expert_layers * p["t_moe"]
    rest = linear + experts + head + of.pair * pairs / p["e_p"] + of.latency + of.token * new + p["t_req"] * sequences
    return p["f"] * fixed + p["v"] * rest + read / p["e_kv"]


def closed_loop_s(
    of: Coefficients,
    p: Mapping[str, Any],
    clients: Array,
    prompt: Array,
    output: Array,
    shortest: Array,
    held: Array | float = 0.0,
) -> tuple[Array, Array]:
    """(TPOT, mean TTFT) in seconds of clients that each send the next request when the last is answered; `prompt` and
    `output` are mean tokens, of lengths that are uniform from `shortest` of the longest to that. `held`: steps that a
    prompt is kept waiting on purpose, as the engine was set.

    A request decodes beside the others that do, and sees a prefill of theirs every so many steps, at most a budget's
    tokens at once; of the first ones, which begin together, and the last, it sees half.

    A prompt comes when an answer ends, which is with a step. After its time in the frontend it waits for the rest of
    the step in hand and for the one that is scheduled behind it; then it is prefilled, with those that came meanwhile.
    The step in hand is a prefill if another prompt came just before, or came to the engine while this one was in the
    frontend: less often than at any moment, for while a prefill holds up all answers no prompts come. Clients that
    began together are still bunched: the fewer turns ago that was, the more of them come at once.

    A tenth of the requests are those with which all clients begin: they queue for each other's prefills, and before
    that in front of the engine, where each holds up the next by a2 · (its prompt tokens).
    `prebleexp.experiment.closed_loops` serves the same loops by the simulator.
    """

    def step(decoding: Any, prefills: Any) -> Any:
        new, pairs = decoding + prefills * prompt, prefills * prompt**2 / 2
        return step_s(of, p, new, decoding, decoding * (prompt + output / 2), pairs)

    tokens = np.minimum(clients * prompt, BUDGET)
    steps = np.maximum(1.0, clients * prompt / BUDGET)
    together = np.minimum(clients, np.maximum(1.0, BUDGET / prompt))
    first = step_s(of, p, tokens, together, 0.0, tokens * prompt / 2)

    tpot, wait = step(clients, 0.0), step(0 * clients, 1.0)
    for _ in range(ROUNDS):
        sent = np.minimum((clients - 1) / (output + wait / tpot), BUDGET / prompt)  # a step, by the others
        others, seen = sent * output, sent * (1 - 0.5 / PER_CLIENT)
        alone, mixed = step(1 + others, 0.0), step(1 + others, np.maximum(seen, 1.0))
        share = np.minimum(seen, 1.0)
        tpot = 0.5 * tpot + 0.5 * (alone + share * (mixed - alone))
        wait = mixed + np.minimum(others, 1.0) * (1 + SCHEDULED) * tpot

    spread = output * (1 - shortest) / (1 + shortest) / math.sqrt(3) * tpot
    bunched = sent * _bunched(output * tpot + wait, spread, steps * first)
    share = np.minimum(bunched, 1.0)
    mean = alone + share * (mixed - alone)
    frontend = p["a0"] + p["a1"] * prompt
    prefilling = np.minimum(share * np.maximum(1.0, frontend / alone), share * mixed / mean)
    in_hand = prefilling * (mixed - np.minimum(frontend, mixed) / 2) + (1 - prefilling) * alone / 2
    joined = step(1 + others, np.minimum(1 + bunched, np.maximum(1.0, BUDGET / prompt)))
    wait = joined + np.minimum(others, 1.0) * (in_hand + SCHEDULED * mean)
    first = first * (steps + 1) / 2 + held_up_s(p, clients, prompt)
    ttft = frontend + held * tpot + (1 - 1 / PER_CLIENT) * wait + first / PER_CLIENT
    return tpot, ttft


def _bunched(cycle: Array, spread: Array, burst: Array) -> Array:
    """How many times as many other requests come at the moment of one as on average, over the turns after the first.
    Clients begin within `burst` seconds, all answers of them take about a `cycle`, and each answer's seconds have this
    standard deviation, so that two of them drift apart as sums do."""
    turns = np.arange(1, PER_CLIENT)[:, np.newaxis]
    apart = 2 * math.sqrt(math.pi) * np.sqrt(turns * spread**2 + burst**2 / 12)
    times: Array = np.mean(np.maximum(1.0, cycle / apart), axis=0)
    return times


def held_up_s(p: Mapping[str, Any], clients: Any, prompt: Any) -> Any:
    """Seconds that one of the requests with which all clients begin waits, on average, before the engine has it."""
    return p["a2"] * prompt * (clients - 1) / 2


def _roof(compute: Any, memory: Any) -> Any:
    """A smooth maximum of the times that computing and reading take, of experts: some have many tokens, some few."""
    return np.sqrt(compute * compute + memory * memory)


def _sharp(compute: Any, memory: Any) -> Any:
    """Likewise of one product of matrices: measured ones turn more suddenly from one to the other
    (`tests/fast/test_products.py`)."""
    return np.sqrt(_roof(compute * compute, memory * memory))
