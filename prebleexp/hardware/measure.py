"""Times of a model's parts and of whole steps, taken on the device at hand: random weights in the model's shapes,
PyTorch's own kernels, CUDA graphs where there are any.

What is measured is what `prebleexp.hardware.equations` computes: a step of `new` tokens in all, `sequences` of which
decode, over `context` tokens that decodes read, with `pairs` of a query and a key in prefills.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch.nn import functional
from torch.nn.attention.bias import causal_lower_right

from prebleexp.errors import InvalidInput
from prebleexp.hardware.model import Model

TOKENS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192)
"""of a layer's linear layers, and of prefills"""
BATCHES = (1, 2, 4, 8, 16, 32, 64, 128, 256)
CONTEXTS = (128, 512, 2048, 8192, 32768)
SHARE = 0.9
"""of the device's memory that is filled"""
WARM_UP = 3
LEAST_REPEATS, MOST_REPEATS = 5, 50
POINT_S = 0.15
"""for a point's repeats"""


@dataclass(frozen=True)
class Measured:
    """One point; `us` is the median."""

    what: str
    """linear (of one layer), attention (of one layer), prefill or decode (a whole step)"""
    new: int
    sequences: int
    context: int
    pairs: float
    us: float
    repeats: int


class Decoder:
    """As many layers as the model has, each with weights of its own: a step must read them all."""

    def __init__(self, shape: Model, device: torch.device, dtype: torch.dtype) -> None:
        self.shape, self.device, self.dtype = shape, device, dtype
        make = torch.Generator(device).manual_seed(0)

        def weight(rows: int, columns: int) -> torch.Tensor:
            made = torch.empty(rows, columns, device=device, dtype=dtype)
            return made.normal_(std=columns**-0.5, generator=make)

        hidden, width = shape.hidden, shape.heads * shape.head_dim
        one = [
            (width + 2 * shape.kv_heads * shape.head_dim, hidden),
            (hidden, width),
            (2 * shape.ffn, hidden),
            (hidden, shape.ffn),
        ]
        self.layers = [[weight(*size) for size in one] for _ in range(shape.layers)]
        self.head = weight(shape.vocab, hidden)
        self.norm = torch.ones(hidden, device=device, dtype=dtype)

    def all_linear(self, x: torch.Tensor) -> torch.Tensor:
        """The linear layers of all layers, without what is between them."""
        for qkv, out, up, down in self.layers:
            x = functional.linear(functional.linear(x, qkv)[..., : out.shape[1]], out)
            x = functional.linear(functional.linear(x, up)[..., : down.shape[1]], down)
        return x

    def step(self, x: torch.Tensor, cache: torch.Tensor, yields: int) -> torch.Tensor:
        """Of `x` (sequences, new, hidden), the last tokens of `cache` (layers, 2, sequences, KV heads, tokens, head
        size); the last `yields` rows get logits."""
        shape, (sequences, new, _) = self.shape, x.shape
        size = (shape.heads + 2 * shape.kv_heads, shape.head_dim)
        for layer, (qkv, out, up, down) in enumerate(self.layers):
            mixed = functional.linear(functional.rms_norm(x, (shape.hidden,), self.norm), qkv)
            parts = mixed.view(sequences, new, *size).transpose(1, 2)
            query, keys, values = torch.split(parts, [shape.heads, shape.kv_heads, shape.kv_heads], dim=1)
            cache[layer, 0, :, :, -new:].copy_(keys)
            cache[layer, 1, :, :, -new:].copy_(values)
            seen = attention(query, cache[layer, 0], cache[layer, 1]).transpose(1, 2)
            x = x + functional.linear(seen.reshape(sequences, new, -1), out)
            gate, wide = functional.linear(functional.rms_norm(x, (shape.hidden,), self.norm), up).chunk(2, dim=-1)
            x = x + functional.linear(functional.silu(gate) * wide, down)
        return functional.linear(functional.rms_norm(x.reshape(-1, shape.hidden)[-yields:], (shape.hidden,)), self.head)

    def cache(self, sequences: int, tokens: int, layers: int | None = None) -> torch.Tensor:
        """Of that many layers, or all."""
        shape = self.shape
        size = (layers or shape.layers, 2, sequences, shape.kv_heads, tokens, shape.head_dim)
        return torch.zeros(size, device=self.device, dtype=self.dtype)


def attention(query: torch.Tensor, keys: torch.Tensor, values: torch.Tensor) -> torch.Tensor:
    """The queries are the last tokens of the keys."""
    new, context = query.shape[2], keys.shape[2]
    mask = causal_lower_right(new, context) if 1 < new < context else None
    causal = new > 1 and mask is None
    return functional.scaled_dot_product_attention(query, keys, values, mask, is_causal=causal, enable_gqa=True)


def measured(
    shape: Model,
    device: torch.device,
    tokens: Sequence[int] = TOKENS,
    batches: Sequence[int] = BATCHES,
    contexts: Sequence[int] = CONTEXTS,
) -> Iterator[Measured]:
    """Every point that fits into the device's memory beside the weights, in bfloat16. Raises InvalidInput if these do
    not."""
    room = memory_bytes(device) * SHARE - weight_bytes(shape)
    if room <= 0:
        raise InvalidInput(
            f"the model's weights take {weight_bytes(shape) / 1e9:,.0f} GB, and {device} has "
            f"{memory_bytes(device) / 1e9:,.0f} GB; choose a smaller model"
        )
    tokens, contexts = ([one for one in sizes if one <= shape.context_length] for sizes in (tokens, contexts))
    with torch.inference_mode():
        model = Decoder(shape, device, torch.bfloat16)
        yield from _linear(model, tokens)
        yield from _attention(model, batches, contexts, room)
        yield from _prefills(model, tokens, room)
        yield from _decodes(model, batches, contexts, room)


def _linear(model: Decoder, tokens: Sequence[int]) -> Iterator[Measured]:
    for new in tokens:
        x = _embedded(model, 1, new)
        seconds, repeats = timed(partial(model.all_linear, x), model.device)
        yield Measured("linear", new, 0, 0, 0.0, seconds / len(model.layers) * 1e6, repeats)


def _attention(model: Decoder, batches: Sequence[int], contexts: Sequence[int], room: float) -> Iterator[Measured]:
    shape = model.shape
    for batch in batches:
        for context in contexts:
            if kv_bytes(shape, 1) * batch * context > room:
                continue
            cache = model.cache(batch, context, 1)[0]
            query = torch.zeros(batch, shape.heads, 1, shape.head_dim, device=model.device, dtype=model.dtype)
            seconds, repeats = timed(partial(attention, query, cache[0], cache[1]), model.device)
            yield Measured("attention", batch, batch, batch * context, 0.0, seconds * 1e6, repeats)


def _prefills(model: Decoder, tokens: Sequence[int], room: float) -> Iterator[Measured]:
    """Of one request, nothing of it cached, or as much again."""
    for new in tokens[1:]:
        for cached in (0, new):
            if cached + new > model.shape.context_length or kv_bytes(model.shape) * (cached + new) > room:
                continue
            x, cache = _embedded(model, 1, new), model.cache(1, cached + new)
            seconds, repeats = timed(partial(model.step, x, cache, 1), model.device)
            yield Measured("prefill", new, 1, 0, new * (cached + new / 2), seconds * 1e6, repeats)


def _decodes(model: Decoder, batches: Sequence[int], contexts: Sequence[int], room: float) -> Iterator[Measured]:
    for batch in batches:
        for context in contexts:
            if kv_bytes(model.shape) * batch * context > room:
                continue
            x, cache = _embedded(model, batch, 1), model.cache(batch, context)
            seconds, repeats = timed(partial(model.step, x, cache, batch), model.device)
            yield Measured("decode", batch, batch, batch * context, 0.0, seconds * 1e6, repeats)


def _embedded(model: Decoder, sequences: int, new: int) -> torch.Tensor:
    return torch.ones(sequences, new, model.shape.hidden, device=model.device, dtype=model.dtype)


# ---------------------------------------------------------------- time and memory
def timed(work: Callable[[], Any], device: torch.device) -> tuple[float, int]:
    """Seconds that it takes, the median, and of how many times: as one CUDA graph, so that launching costs nothing."""
    for _ in range(WARM_UP):
        work()
    once = _graph(work) if device.type == "cuda" else work
    taken: list[float] = []
    while len(taken) < MOST_REPEATS and (len(taken) < LEAST_REPEATS or sum(taken) < POINT_S):
        taken.append(_seconds(once, device))
    return sorted(taken)[len(taken) // 2], len(taken)


def _graph(work: Callable[[], Any]) -> Callable[[], Any]:
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        work()
    return graph.replay


def _seconds(once: Callable[[], Any], device: torch.device) -> float:
    if device.type != "cuda":
        begun = time.perf_counter()
        once()
        return time.perf_counter() - begun
    begin, end = torch.Event("cuda", enable_timing=True), torch.Event("cuda", enable_timing=True)
    begin.record()
    once()
    end.record()
    end.synchronize()
    return float(begin.elapsed_time(end)) / 1e3


def memory_bytes(device: torch.device) -> float:
    if device.type == "cuda":
        return float(torch.cuda.get_device_properties(device).total_memory)
    return float(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))


def weight_bytes(shape: Model) -> float:
    """In bfloat16; one embedding, which is the output head."""
    width = (2 * shape.heads + 2 * shape.kv_heads) * shape.head_dim
    return 2.0 * (shape.layers * shape.hidden * (width + 3 * shape.ffn) + shape.vocab * shape.hidden)


def kv_bytes(shape: Model, layers: int | None = None) -> float:
    """Bytes of a token's KV, in bfloat16."""
    return 4.0 * (layers or shape.layers) * shape.kv_heads * shape.head_dim
