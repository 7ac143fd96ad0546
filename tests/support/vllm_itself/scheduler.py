"""vLLM's own scheduler, with its KV cache manager and a connector, but without a model, a worker or a GPU."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from vllm.config import CacheConfig, KVTransferConfig, LoRAConfig, ParallelConfig, SchedulerConfig, VllmConfig
from vllm.config.speculative import SpeculativeConfig
from vllm.lora.request import LoRARequest
from vllm.sampling_params import SamplingParams
from vllm.utils.hashing import sha256
from vllm.v1.core.kv_cache_utils import get_request_block_hasher, init_none_hash
from vllm.v1.kv_cache_interface import (
    ChunkedLocalAttentionSpec,
    FullAttentionSpec,
    KVCacheConfig,
    KVCacheGroupSpec,
    SlidingWindowSpec,
)
from vllm.v1.request import Request

from tests.support.recordings.columns import Columns

SPAN = 1 << 20
"""token ids of a segment"""


def scheduler_of(config: dict[str, Any], transfer: dict[str, Any] | None) -> Any:
    """`config` as recordings have it. `transfer`: of a KV connector, if there is one."""
    init_none_hash(sha256)
    whole = _whole(config, transfer)
    groups = [KVCacheGroupSpec([str(n)], _layers(config, one)) for n, one in enumerate(groups_of(config))]
    groups[_drafting(config)].is_eagle_group = config.get("spec_method") == "eagle"
    retention = whole.cache_config.prefix_cache_retention_interval
    blocks = KVCacheConfig(config["num_blocks"], [], groups, prefix_cache_retention_interval=retention)
    outputs = SimpleNamespace(accept_tokens=lambda *_: True, validate_tokens=lambda _, tokens: tokens)
    made = whole.scheduler_config.get_scheduler_cls()
    return made(whole, blocks, outputs, config["block_size"], log_stats=False)


def _drafting(config: dict[str, Any]) -> int:
    """The group of a head's layer: it looks back to all, and comes last."""
    full = [number for number, one in enumerate(groups_of(config)) if one["kind"] == "full"]
    return full[-1] if full else -1


def groups_of(config: dict[str, Any]) -> list[dict[str, Any]]:
    return config.get("groups") or [{"kind": "full"}]


def _layers(config: dict[str, Any], group: dict[str, Any]) -> Any:
    size = {"block_size": config["block_size"], "num_kv_heads": 1, "head_size": 1, "dtype": torch.float16}
    if group["kind"] == "sliding":
        return SlidingWindowSpec(**size, sliding_window=group["window"])
    if group["kind"] == "chunked":
        return ChunkedLocalAttentionSpec(**size, attention_chunk_size=group["window"])
    return FullAttentionSpec(**size)


def _whole(config: dict[str, Any], transfer: dict[str, Any] | None) -> VllmConfig:
    """vLLM checks a configuration against a model; there is none, so the parts are put together here."""
    made = object.__new__(VllmConfig)
    longest = config.get("max_model_len", SPAN)
    cache = CacheConfig(enable_prefix_caching=config["enable_prefix_caching"])
    cache.block_size, cache.num_gpu_blocks = config["block_size"], config["num_blocks"]
    slides = any(one["kind"] == "sliding" for one in groups_of(config))  # else it is refused: nothing reads it
    cache.prefix_cache_retention_interval = config.get("prefix_cache_retention_interval", 0) if slides else 0
    parts: dict[str, Any] = {
        "scheduler_config": SchedulerConfig(
            max_num_batched_tokens=config["max_num_batched_tokens"],
            max_num_seqs=config["max_num_seqs"],
            max_model_len=longest,
            is_encoder_decoder=False,
            policy=config["policy"],
            async_scheduling=config["async_scheduling"],
            scheduler_reserve_full_isl=config["reserve_full_isl"],
            watermark=config["watermark"],
            long_prefill_token_threshold=config["long_prefill_token_threshold"],
            prefill_schedule_interval=config.get("prefill_schedule_interval", 1),
            disable_hybrid_kv_cache_manager=False,
        ),
        "cache_config": cache,
        "model_config": SimpleNamespace(
            model="",
            dtype=torch.float16,
            max_model_len=longest,
            runner_type="generate",
            multimodal_config=None,
            uses_mrope=False,
            use_mla=False,
            is_encoder_decoder=False,
            is_diffusion=False,
            is_moe=True,
            supports_multimodal_inputs=False,
            return_sampling_mask=False,
            get_total_num_kv_heads=lambda: 1,
        ),
        "device_config": None,
        "parallel_config": ParallelConfig(),
        "lora_config": LoRAConfig(max_loras=config["max_loras"]) if "max_loras" in config else None,
        "speculative_config": _drafts(config),
        "kv_transfer_config": KVTransferConfig(**transfer) if transfer else None,
    }
    for name, field in VllmConfig.__pydantic_fields__.items():
        object.__setattr__(made, name, parts[name] if name in parts else field.get_default(call_default_factory=True))
    return made


def _drafts(config: dict[str, Any]) -> Any:
    if "num_speculative_tokens" not in config:
        return None
    made = object.__new__(SpeculativeConfig)
    for name, field in SpeculativeConfig.__pydantic_fields__.items():
        object.__setattr__(made, name, field.get_default(call_default_factory=True))
    made.method, made.num_speculative_tokens = config["spec_method"], config["num_speculative_tokens"]
    return made


class Requests:
    """Requests of a stream, and the tokens that they are given."""

    def __init__(self, stream: Columns, block_size: int, lookahead: int) -> None:
        """`lookahead`: tokens behind a block that its key covers."""
        self.stream, self.hasher = stream, get_request_block_hasher(block_size, sha256, lookahead)
        self.segments = int(max(stream["segment_ids"].max(), stream["output_segment"].max())) + 1

    def __len__(self) -> int:
        return len(self.stream["arrival_ns"])

    def prompt(self, index: int) -> list[int]:
        """A segment id stands for its whole path, and its tokens are nowhere else."""
        stream = self.stream
        rows = slice(int(stream["segment_offsets"][index]), int(stream["segment_offsets"][index + 1]))
        pairs = zip(stream["segment_ids"][rows].tolist(), stream["segment_tokens"][rows].tolist(), strict=True)
        return [segment * SPAN + at for segment, size in pairs for at in range(size)]

    def made(self, index: int, target: int, transfer: dict[str, Any] | None = None) -> Request:
        lora = int(self.stream["lora"][index]) if "lora" in self.stream else 0
        return Request(
            f"{index:09}",
            self.prompt(index),
            SamplingParams(max_tokens=target, ignore_eos=True, extra_args={"kv_transfer_params": transfer}),
            None,
            arrival_time=float(self.stream["arrival_ns"][index]),
            priority=int(self.stream["priority"][index]),
            lora_request=LoRARequest(str(lora), lora, "nowhere") if lora else None,
            block_hasher=self.hasher,
        )

    def answer(self, request: Request, tokens: int) -> list[int]:
        """The next tokens that it generates."""
        index, first = int(request.request_id), request.num_output_tokens
        segment = int(self.stream["output_segment"][index])
        segment = segment if segment >= 0 else self.segments + index
        return [segment * SPAN + at for at in range(first, first + tokens)]


class Script:
    """How many drafts there are, and how many are accepted."""

    def __init__(self, config: dict[str, Any], stream: Columns) -> None:
        self.drafts, self.stream = config.get("num_speculative_tokens", 0), stream
        self.verified = np.zeros(len(stream["arrival_ns"]), np.int64)
        self.proposed = self.verified.copy()

    def accepted(self, index: int, drafts: int) -> int:
        row = self.stream["accepts"][index]
        self.verified[index] += 1
        return min(drafts, int(row[(self.verified[index] - 1) % len(row)]))

    def proposes(self, index: int) -> int:
        if "drafts" not in self.stream:
            return self.drafts
        row = self.stream["drafts"][index]
        self.proposed[index] += 1
        return int(row[(self.proposed[index] - 1) % len(row)])
