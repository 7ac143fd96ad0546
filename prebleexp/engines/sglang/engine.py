"""SGLang's scheduler, step for step (0.5.23): one full-attention model, page size 1, no speculation."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import numpy.typing as npt

from prebleexp.checks import flag, integer, is_number, one_of, require
from prebleexp.engines.base import Engine
from prebleexp.engines.sglang.records import AT_ONCE, CLIP_MAX_NEW_TOKENS, RETRACT_DECODE_STEPS, Settings
from prebleexp.sim.types import Longs, Setup, Steps

if TYPE_CHECKING:
    from prebleexp.sim.comer import Coming

POLICIES = ("fcfs", "lpm")
CHUNKS = ((160.0, 16384), (60.0, 8192), (20.0, 4096), (1e-9, 2048), (0.0, 4096))
"""(memory of a GPU in GiB or more, chunked_prefill_size); 0: not known"""
MOST_PREFILL_TOKENS = 16384
"""max_prefill_tokens: a larger chunk would be limited by it"""
MOST_REQUESTS, MOST_RESERVED = 2**16, 2**24
RATIO, LEAST_RATIO, DECAY_STEPS = 0.7, 0.14, 600
"""SGLANG_INIT_NEW_TOKEN_RATIO, …MIN…FACTOR, …DECAY_STEPS"""


@dataclass(frozen=True)
class SGLang(Engine):
    """The fields have SGLang's names and defaults; null: SGLang's default for the GPU's memory and the context length.

    A step is a prefill, of at most chunked_prefill_size tokens, or, if nobody can be admitted, a decode of all running
    requests. A waiting request is admitted if its prompt and all that it may generate (at most 4096 tokens) fit beside
    a share of what running ones may still generate; the share falls with every decode from 0.7 ·
    schedule_conservativeness on. One that does not fit ends the batch, and nobody is admitted until a request leaves.
    If KV runs out, those that have generated the fewest tokens are retracted, and computed again later.

    schedule_policy: fcfs, or lpm: the longest cached prefix first, while no more than 128 wait.
    disable_overlap_schedule false: a step is scheduled while the one before it runs, so that the host's time is hidden;
    its results are known a step later. skip_finishing_decode: with it, a request whose last token by max_new_tokens is
    under way is not decoded once more. host_s: the host's time a step without overlap, in seconds.

    A request is refused if its prompt and output are longer than the context, or might never fit an empty GPU.
    Source: sglang/srt/managers, checked step by step (docs/core.md); where prompts and outputs have GPUs of their own
    sglang/srt/disaggregation, read (docs/pools.md).
    """

    compiles: ClassVar[str] = "prebleexp.engines.sglang.stepping"
    project: ClassVar[str] = "sglang"
    loses: ClassVar[bool] = True
    resumes: ClassVar[bool] = True
    protocols: ClassVar[tuple[str, ...]] = ("reserve_first",)

    chunked_prefill_size: int | None = None
    """tokens that a prefill computes at most; null: by the GPU's memory"""
    max_running_requests: int | None = None
    """that run at once, at most; null: by the KV's size and the context length"""
    schedule_policy: str = "fcfs"
    """fcfs or lpm"""
    schedule_conservativeness: float = 1.0
    """of what is kept for tokens still to be generated"""
    disable_overlap_schedule: bool = False
    """true: a step is scheduled when the one before it is over"""
    skip_finishing_decode: bool = True
    """whether a request whose last token is known to be under way is left out"""
    num_reserved_decode_tokens: int = 512
    """of KV, kept free for each request where outputs have GPUs of their own"""
    host_s: float = 0.001
    """of the host a step, where it is not hidden"""

    def __post_init__(self) -> None:
        optional = {"chunked_prefill_size": MOST_PREFILL_TOKENS, "max_running_requests": MOST_REQUESTS}
        for name, most in optional.items():
            if getattr(self, name) is not None:
                integer(f"engine.{name}", getattr(self, name), 1, most)
        reserved = self.num_reserved_decode_tokens
        integer("engine.num_reserved_decode_tokens", reserved, 1, MOST_RESERVED)
        one_of("engine.schedule_policy", self.schedule_policy, POLICIES)
        for name in ("disable_overlap_schedule", "skip_finishing_decode"):
            flag(f"engine.{name}", getattr(self, name))
        share, host_s = self.schedule_conservativeness, self.host_s
        require(is_number(share) and share >= 0, "engine.schedule_conservativeness", share, "a number, >= 0")
        require(is_number(host_s) and host_s >= 0, "engine.host_s", host_s, "a number of seconds, >= 0")
        object.__setattr__(self, "schedule_conservativeness", float(share))
        object.__setattr__(self, "host_s", float(host_s))

    def limits(self, setup: Setup) -> tuple[int, int]:
        """(chunked_prefill_size, max_running_requests) for a GPU."""
        chunk = next(tokens for memory, tokens in CHUNKS if setup.gpu_memory_gib >= memory)
        by_context = int(setup.kv_tokens / setup.context_length * 512)
        requests = self.max_running_requests or max(2048, min(4096, by_context))
        return self.chunked_prefill_size or chunk, max(1, min(requests, setup.kv_tokens // 2))

    def steps(self, setup: Setup) -> Steps:
        host_s = self.host_s if self.disable_overlap_schedule else 0.0
        return Steps(self.project, self.limits(setup)[0], mixed=False, host_s=host_s)

    def numbers(self) -> None:
        """What kernels read is in `start`: some of it depends on the GPU."""

    def start(self, setup: Setup) -> Any:
        from prebleexp.engines.sglang import rooms

        chunk, requests = self.limits(setup)
        answers = int(setup.workload.answer_segment.max(initial=-1))
        ratio = min(RATIO * self.schedule_conservativeness, 1.0)
        overlap = not self.disable_overlap_schedule
        settings = Settings(
            kv_tokens=setup.kv_tokens,
            chunked_prefill_size=chunk,
            max_running_requests=requests,
            by_prefix=self.schedule_policy == "lpm",
            overlap=overlap,
            skip_finishing=overlap and self.skip_finishing_decode,
            ratio=ratio,
            least_ratio=ratio * LEAST_RATIO,
            ratio_decay=(ratio - ratio * LEAST_RATIO) / DECAY_STEPS,
            host_s=0.0 if overlap else self.host_s,
            reserved_decode_tokens=self.num_reserved_decode_tokens,
            segment_ids=max(setup.segment_ids, answers + 1),
        )
        return rooms.engines(setup, settings)

    def come(self, mine: Any, setup: Setup, row: int, one: Coming) -> None:
        from prebleexp.engines.sglang import rooms

        rooms.come(mine, row, one)

    def remembers(self, mine: Any) -> Longs | None:
        from prebleexp.engines.sglang import rooms

        return rooms.remembered(mine)

    def lose(self, mine: Any, world: Any, g: int, requests: Longs) -> None:
        from prebleexp.engines.sglang import losing

        losing.lose(mine, world, g, requests)

    def withdraw(self, mine: Any, world: Any, g: int, request: int) -> None:
        from prebleexp.engines.sglang import losing

        losing.withdraw(mine, world, g, request)

    def give_back(self, mine: Any, world: Any, g: int) -> Longs:
        from prebleexp.engines.sglang import losing

        return losing.give_back(mine, world, g)

    def forget(self, mine: Any, world: Any, g: int) -> None:
        from prebleexp.engines.sglang.tree import make_room

        gpu = mine.gpus[g]
        make_room(mine, world, g, int(gpu.free + -(-gpu.evictable // 2)))

    def with_more_room(self, mine: Any, world: Any, g: int) -> Any:
        from prebleexp.engines.sglang import rooms, stepping

        return rooms.with_more(mine, stepping.NODES * (int(world.control.most) + 2) * len(mine.gpus))

    def own_cache(self, setup: Setup) -> int | None:
        chunk, requests = self.limits(setup)
        evicted = min(setup.kv_tokens, AT_ONCE * (chunk + (1 + RETRACT_DECODE_STEPS) * requests))
        return evicted + AT_ONCE

    def refuses(self, setup: Setup) -> npt.NDArray[np.bool_]:
        """What may still be generated counts as 4096 tokens at most, but behind all that was generated before."""
        workload = setup.workload
        prompt, max_new = workload.prompt_tokens.astype(np.int64), workload.max_new_tokens.astype(np.int64)
        output = np.minimum(workload.output_tokens, max_new)
        wanted = prompt + np.minimum(max_new, output - 1 + CLIP_MAX_NEW_TOKENS) + 1
        refused = (prompt + output > setup.context_length) | (wanted >= setup.kv_tokens)
        if setup.legs:  # who could never be taken back, once retracted
            outputs = slice(len(prompt) // 2)
            refused[outputs] |= (prompt + output + self.num_reserved_decode_tokens > setup.kv_tokens)[outputs]
        return np.asarray(refused)
