"""What a model step costs by its equations: a few products (spec: hardware.md, The step). Positive, continuous, and
never less for more of anything."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from prebleexp.hardware import products
from prebleexp.hardware.model import BYTES
from prebleexp.sim.compiled import compiled
from prebleexp.sim.types import records

KNOWN = 256
"""decodes of fewer requests are reckoned up once"""

COST = np.dtype(
    [
        ("fixed", np.float64),  # seconds of a step, …
        ("token", np.float64),  # … of each of its new tokens, …
        ("sequence", np.float64),  # … of each sequence that yields one, …
        ("context", np.float64),  # … of each token of context that a decode reads from memory, …
        ("again", np.float64),  # … or, since another just did, from the cache, …
        ("at_once", np.float64),  # … where so many sequences are read at one time, …
        ("near", np.float64),  # … and, in layers with a sliding window, of each, …
        ("window", np.float64),  # … but of so many of a sequence at most
        ("pair_ms", np.float64),  # milliseconds of a query and a key of a prefill
        # kernels that take a smooth maximum of two times: seconds of a token, and of reading weights
        ("linear_compute", np.float64),
        ("linear_memory", np.float64),
        ("head_compute", np.float64),
        ("head_memory", np.float64),
        ("expert_compute", np.float64),
        ("expert_memory", np.float64),  # of an expert that is touched
        ("experts", np.float64),  # in a layer; 0: there are none
        ("log_missed", np.float64),  # logarithm of the chance that a token misses an expert
        ("decodes", np.float64, (KNOWN,)),  # of a decode of so many requests, but for contexts, as soon as it is known
        # the same of the last step of so many tokens, modulo `KNOWN`: routers ask of many GPUs that have equally many
        ("step_tokens", np.int64, (KNOWN,)),
        ("step_sequences", np.int64, (KNOWN,)),
        ("steps", np.float64, (KNOWN,)),
    ],
    align=True,
)
"""Coefficients of a step. One record: its address is all that is passed on."""
ELEMENTWISE = 24
"""bytes of memory traffic of elementwise kernels, per layer, token and hidden element"""


def coefficients(of: Any, fitted: Any) -> Any:
    """Of hardware (`prebleexp.hardware.composed.Composed`) with these parameters, a `COST`."""
    gpu, model, gpus, v = of.gpu, of.model, of.tensor_parallel, fitted.v
    bandwidth, flops, half = gpu.hbm_gb_s * 1e9, gpu.peak_flops(of.precision), gpu.peak_flops("bf16")
    expert_flops = products.expert_flops(gpu, of.precision, model.expert_precision)
    expert_bytes = BYTES[model.expert_precision or of.precision]
    latency, rate = gpu.link(gpus) if gpus > 1 else (0.0, math.inf)
    fixed = fitted.t_step * of.stages + model.layers * fitted.t_layer + model.expert_layers * fitted.t_moe
    passed = 8 * model.hidden * (gpus - 1) / (gpus * rate) + ELEMENTWISE * model.hidden / bandwidth
    # heads of KV that are fewer than GPUs are read by several of them at once
    memory, cache = gpu.reading(str(of.kv_precision))
    share = model.kv_share(gpus)
    context, again = (of.kv_bytes / (share * rate * fitted.e_kv) for rate in (memory, cache))
    far = 1 - model.window_share
    kernels = {
        "token": model.layers * passed,
        "sequence": fitted.t_req,
        "pair_ms": 1e3 * model.pair_flops * far / (gpus * half * fitted.e_p),
        "linear_compute": 2 * model.linear / (gpus * flops * fitted.e_c),
        "linear_memory": model.linear * BYTES[of.precision] / (gpus * bandwidth * fitted.e_m),
        "head_compute": model.embeddings / (gpus * half * fitted.e_c),
        "head_memory": model.embeddings / (gpus * bandwidth * fitted.e_m),
        "expert_compute": 2 * model.active * model.expert / (gpus * expert_flops * fitted.e_xc),
        "expert_memory": model.expert * expert_bytes / (gpus * bandwidth * fitted.e_xm),
    }
    cost = records(1, COST)[0]
    for name, seconds in kernels.items():
        cost[name] = v * seconds
    cost.context, cost.again, cost.near = context * far, again * far, context * model.window_share
    cost.at_once = max(1.0, fitted.in_step * gpu.sms * share / model.kv_heads)
    cost.fixed = fitted.f * fixed + v * 2 * model.layers * latency
    cost.window, cost.experts = model.window, model.experts
    cost.log_missed = math.log1p(-model.active / model.experts) if model.experts > model.active else -math.inf
    return cost


@compiled
def _linear_s(cost: Any, tokens: int, sequences: int) -> float:
    """All that does not depend on contexts."""
    compute, memory = (cost.linear_compute * tokens) ** 2, cost.linear_memory**2
    seconds = cost.fixed + cost.token * tokens + cost.sequence * sequences
    seconds += math.sqrt(math.sqrt(compute * compute + memory * memory))
    compute, memory = (cost.head_compute * sequences) ** 2, cost.head_memory**2
    seconds += math.sqrt(math.sqrt(compute * compute + memory * memory))
    if cost.experts > 0:
        touched = cost.experts * (1.0 - math.exp(tokens * cost.log_missed))
        compute, memory = cost.expert_compute * tokens, cost.expert_memory * touched
        seconds += math.sqrt(compute * compute + memory * memory)
    return seconds


@compiled
def _attention_s(cost: Any, sequences: int, running: int, context: int, unique: int) -> float:
    """Of decodes, of whose context at most so many tokens are distinct; each is read by the mean number of requests.

    Those that are read at one time read a prefix that they share in step: one of them gets it from memory, and the
    others find it in the cache. When the next are read it is gone. So of the requests that share a token, each time one
    loads it; were `at_once` of all that run drawn by chance, that is what follows."""
    near = cost.near * min(float(context), cost.window * sequences)
    if unique >= context:
        return near + cost.context * context
    share, distinct = min(1.0, cost.at_once / running), float(max(unique, 1))
    if share == 1.0:  # each is loaded once: what follows, without a power
        return near + cost.context * distinct + cost.again * (context - distinct)
    loaded = distinct / share * (1.0 - (1.0 - share) ** (context / distinct))
    return near + cost.context * loaded + cost.again * (context - loaded)


# ---------------------------------------------------------------- as a plug (see `prebleexp.sim.cost`)
@compiled
def request_ms(self: Any, mine: Any, new: int, length: int) -> float:
    """Each new token looks at what is cached and, on average, at half of the new ones."""
    return mine.pair_ms * new * (length - 0.5 * new)


@compiled
def step_s(
    self: Any,
    mine: Any,
    prefills: int,
    new: int,
    length: int,
    running: int,
    context: int,
    unique: int,
    requests_ms: float,
) -> float:
    """Kernels of today read a prefix that requests share once for each of them: from memory, or from the cache. What
    prefills hold counts as if decodes did, so that too little is found in the cache, not too much."""
    if running + new == 0:
        return 0.0
    tokens, sequences = running + new, running + prefills
    slot = tokens & (KNOWN - 1)
    if mine.step_tokens[slot] != tokens or mine.step_sequences[slot] != sequences:
        mine.step_tokens[slot], mine.step_sequences[slot] = tokens, sequences
        mine.steps[slot] = _linear_s(mine, tokens, sequences)
    seconds = mine.steps[slot] + _attention_s(mine, sequences, running, context, unique)
    return seconds + requests_ms / 1e3


@compiled
def decode_s(self: Any, mine: Any, running: int, context: int, unique: int, steps: int) -> float:
    known = mine.decodes[running] if running < KNOWN else 0.0
    seconds, linear = 0.0, known if known > 0 else _linear_s(mine, running, running)
    if running < KNOWN:
        mine.decodes[running] = linear
    for _ in range(steps):
        seconds += linear + _attention_s(mine, running, running, context, unique)
        context += running
        unique += running
    return seconds
