"""Dynamo's offline replay as an engine: prefill workers, decode workers, and the link between them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from prebleexp.checks import integer, is_number, one_of, positive, require
from prebleexp.engines.base import Engine
from prebleexp.errors import InvalidInput
from prebleexp.sim.types import Floats, Workload

BACKENDS = ("vllm", "sglang", "trtllm")
TIMING_MODES = ("full_prompt", "destination_missing")
MOST = 2**20
SGLANG_TOKENS = 8192
"""of prompts that a step computes at most with backend=sglang, whatever is set"""


@dataclass(frozen=True)
class DynamoReplay(Engine):
    """Dynamo's offline replay (ai-dynamo 1.6.1) with prefill and decode workers and steps of fixed time: a worker
    computes a request's prompt and holds its KV until another has room for it and has read it; that one computes the
    prompt's last token again, which brings the first token, and makes all others. One of `gpus` is a worker.

    It has a router and step times of its own: policy and hardware do not matter, and are left as they are. The router
    is round robin, over prefill workers by arrival, over decode workers in the order in which prompts are done. TTFT is
    the first token, which a decode worker makes in all three backends. `gpu` is the prefill worker, `decode_gpu` that
    of the tokens.

    Kept as released: a link is never shared; blocks are reserved for one request at a time; whoever is preempted waits
    until none is held, however long that is; SGLang's first token is not the prefill worker's, and its prefill workers
    cache a prompt when it was read; TensorRT-LLM's decode workers share nothing. Of both only what they do while there
    is memory: where it is scarce they follow vLLM's rules here, and do not in the release. Not kept: a request that no
    worker could ever hold is refused, where the release stops with an error.
    """

    compiles: ClassVar[str] = "prebleexp.engines.dynamo_replay.loop"
    brings: ClassVar[Mapping[str, str]] = {
        "policy": "lor",
        "hardware": "composed",
        "lengths": "max",
        "overhead": "none",
    }

    backend: str = "vllm"
    """vllm and trtllm: a prompt is computed at once; sglang: when its decode worker has reserved blocks for it, and its
    prefill worker is chosen then"""
    prefill_workers: int | None = None
    """so many, the first ones; null: half of all. The others are decode workers"""
    block_size: int = 16
    """tokens of a block of KV"""
    num_gpu_blocks: int = 16384
    """of a prefill worker"""
    decode_num_gpu_blocks: int | None = None
    """of a decode worker; null: as many"""
    max_num_seqs: int = 256
    """requests that a prefill worker computes at a time, at most"""
    decode_max_num_seqs: int | None = None
    """and a decode worker; null: as many"""
    max_num_batched_tokens: int = 8192
    """tokens of a prefill worker's step, at most; with sglang they are always 8192"""
    decode_max_num_batched_tokens: int | None = None
    """of a decode worker's; null: as many"""
    prefill_ms: float = 40.0
    """of a prefill worker's step"""
    decode_ms: float = 10.0
    """of a decode worker's"""
    kv_transfer_bytes_per_token: int = 100_000
    """of KV"""
    kv_transfer_bandwidth: float = 5.0
    """GB (10^9 bytes) a second; 0: KV is there at once"""
    kv_transfer_timing_mode: str = "full_prompt"
    """what takes time: full_prompt, or destination_missing: whole blocks that the decode worker has not cached"""

    def __post_init__(self) -> None:
        one_of("engine.backend", self.backend, BACKENDS)
        one_of("engine.kv_transfer_timing_mode", self.kv_transfer_timing_mode, TIMING_MODES)
        for name in ("block_size", "num_gpu_blocks", "max_num_seqs", "max_num_batched_tokens"):
            integer(f"engine.{name}", getattr(self, name), 1, MOST)
        integer("engine.kv_transfer_bytes_per_token", self.kv_transfer_bytes_per_token, 1, 2**40)
        for name in ("prefill_workers", *(f"decode_{name}" for name in PER_ROLE)):
            if getattr(self, name) is not None:
                integer(f"engine.{name}", getattr(self, name), 1, MOST)
        for name in ("prefill_ms", "decode_ms"):
            positive(f"engine.{name}", getattr(self, name), "a finite number > 0")
        bandwidth = self.kv_transfer_bandwidth
        valid = is_number(bandwidth) and bandwidth >= 0
        require(valid, "engine.kv_transfer_bandwidth", bandwidth, "a finite number >= 0")

    @property
    def own(self) -> Mapping[str, str]:
        times = f"{self.prefill_ms:g} ms a prefill step, {self.decode_ms:g} ms a decode step"
        return {"policy": "round_robin", "hardware": times}

    @property
    def support(self) -> str:
        return "step times are fixed numbers, of no hardware"

    def of_decode(self, name: str) -> int:
        """A setting of `PER_ROLE` as it is for decode workers."""
        value = getattr(self, f"decode_{name}")
        return int(getattr(self, name) if value is None else value)

    def prefills(self, gpus: int) -> int:
        """How many of so many workers compute prompts. Raises InvalidInput if none is left for tokens, or for them."""
        count = max(1, gpus // 2) if self.prefill_workers is None else self.prefill_workers
        if count >= gpus:
            said = "engine=dynamo_replay" if self.prefill_workers is None else f"engine.prefill_workers={count}"
            raise InvalidInput(
                f"gpus={gpus} is not valid with {said}: no worker is left for decode; it must be {count + 1} at least"
            )
        return count

    def check(self, gpus: int) -> None:
        self.prefills(gpus)

    def alone(self, workload: Workload) -> tuple[Floats, Floats, Floats]:
        """On idle workers that have nothing cached."""
        prompts = workload.prompt_tokens.astype(np.int64)
        outputs = np.minimum(workload.output_tokens, workload.max_new_tokens)
        most = SGLANG_TOKENS if self.backend == "sglang" else self.max_num_batched_tokens
        sent = (
            prompts
            if self.kv_transfer_timing_mode == "full_prompt"
            else -(-prompts // self.block_size) * self.block_size
        )
        link = self.kv_transfer_bandwidth * 1e9
        transfer_s = sent * self.kv_transfer_bytes_per_token / link if link > 0 else np.zeros(len(prompts))
        decode_s = self.decode_ms / 1e3
        ttft_s = -(-prompts // most) * self.prefill_ms / 1e3 + transfer_s + decode_s
        return ttft_s, np.where(outputs > 1, decode_s, np.nan), ttft_s + decode_s * (outputs - 1)

    def own_loop(self) -> Any:
        from prebleexp.engines.dynamo_replay.simulate import simulate  # nothing that is cached needs it

        return simulate


PER_ROLE = ("num_gpu_blocks", "max_num_seqs", "max_num_batched_tokens")
"""settings that decode workers may have otherwise, as decode_…"""
