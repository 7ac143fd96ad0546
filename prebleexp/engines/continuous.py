"""Continuous batching: prefills whole or in chunks, one of three orders of the queue, KV in tokens or blocks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import numpy as np
import numpy.typing as npt

from prebleexp.checks import integer, is_number, one_of, require
from prebleexp.engines.base import Engine
from prebleexp.sim.types import Longs, Setup, Steps

if TYPE_CHECKING:
    from prebleexp.sim.comer import Coming

QUEUES = ("lpm", "fcfs", "priority_groups")
PREFILLS = ("whole", "chunked")
MOST_GROUPS = 1000
NEW_TOKEN_RATIO = 0.4
"""of the tokens that running requests may still generate, the share that is kept free for them at first"""
MOST_PREFILL_SHARE = 6
"""a whole prefill may take this fraction of KV memory, or the context length if that is more"""


class Numbers(NamedTuple):
    step_cost_s: float
    queue: int
    groups: int
    chunk_tokens: int
    """0: prefills are whole"""
    block_tokens: int
    decode_steps: int


@dataclass(frozen=True)
class Continuous(Engine):
    """How a GPU batches its requests. The defaults are SGLang's of early 2024.

    queue: lpm takes the longest cached prefix first, and passes over what does not fit. fcfs takes requests in order of
    arrival, those sent back for want of memory included. priority_groups (PREBLE, section 3.3) puts a request into
    group floor(groups · cached share of its prompt) and takes, in rounds, up to i requests of group i, the highest
    group first, and 1 of group 0; within a group in order of arrival. A round goes on over batches until no group has
    both requests and turns left, so a request with k others before it in group i is admitted within k // max(1, i) + 2
    rounds of at most groups (groups + 1) / 2 + 1 admissions each. fcfs and priority_groups wait for what does not fit.

    prefill: whole computes all new tokens of all admitted requests in one step, apart from decoding. chunked computes
    at most chunk_tokens a step, of which every running request takes one to decode; what is left goes to the requests
    that are part-way, then to new ones.

    block_tokens: KV is held in blocks. Cached prefixes count in whole blocks, and every running request holds
    block_tokens − 1 tokens besides its context: what its last block may leave unused.

    decode_steps: where nothing is to be prefilled, the queue is looked at, and tokens are reported, after every so many
    decode steps of the GPU, and after one in which a request finishes.

    A request is refused if its prompt is longer than the context, or if it would not fit on an empty GPU: its prompt,
    of which one block is computed although all of it may be cached, and all that it may generate.
    """

    compiles: ClassVar[str] = "prebleexp.engines.batching"
    loses: ClassVar[bool] = True

    step_cost_s: float = 0.0006
    """of the host, for every step"""
    queue: str = "lpm"
    """lpm, fcfs or priority_groups"""
    groups: int = 10
    """of priority_groups"""
    prefill: str = "whole"
    """whole or chunked"""
    chunk_tokens: int = 512
    """the most that a step computes, where prefills are chunked"""
    block_tokens: int = 1
    """tokens of a block of KV"""
    decode_steps: int = 8
    """between two looks at the queue"""

    def __post_init__(self) -> None:
        cost = self.step_cost_s
        valid = is_number(cost) and cost >= 1e-7
        require(valid, "engine.step_cost_s", cost, "a number of seconds, at least 1e-7")
        object.__setattr__(self, "step_cost_s", float(cost))
        one_of("engine.queue", self.queue, QUEUES)
        one_of("engine.prefill", self.prefill, PREFILLS)
        most_of = {"groups": MOST_GROUPS, "chunk_tokens": 2**24, "block_tokens": 2**16, "decode_steps": 1000}
        for name, most in most_of.items():
            integer(f"engine.{name}", getattr(self, name), 1, most)

    @property
    def host_step_s(self) -> float:
        return self.step_cost_s

    def steps(self, setup: Setup) -> Steps:
        chunked = self.prefill == "chunked"
        return Steps(prefill_tokens=self.chunk_tokens if chunked else 0, mixed=chunked, host_s=self.host_step_s)

    def numbers(self) -> Numbers:
        chunk_tokens = self.chunk_tokens if self.prefill == "chunked" else 0
        queue = QUEUES.index(self.queue)
        return Numbers(self.step_cost_s, queue, self.groups, chunk_tokens, self.block_tokens, self.decode_steps)

    def start(self, setup: Setup) -> Any:
        from prebleexp.engines import rooms

        made = rooms.batching(setup, self.groups)
        made.gpus.kv_free = made.gpus.least_kv_free = setup.kv_tokens
        made.gpus.new_token_ratio = NEW_TOKEN_RATIO
        made.gpus.max_prefill = _most_prefill(setup)
        made.gpus.slack = self.block_tokens - 1
        return made

    def come(self, mine: Any, setup: Setup, row: int, one: Coming) -> None:
        from prebleexp.engines import rooms

        rooms.come(mine, row, one)

    def with_more_room(self, mine: Any, world: Any, g: int) -> Any:
        from prebleexp.engines import rooms

        return rooms.with_more(mine, g, int(world.seen.sent[g].outstanding))

    def lose(self, mine: Any, world: Any, g: int, requests: Longs) -> None:
        from prebleexp.engines import losing

        losing.lose(mine, world, g)
        mine.gpus.new_token_ratio[g] = NEW_TOKEN_RATIO

    def give_back(self, mine: Any, world: Any, g: int) -> Longs:
        from prebleexp.engines import losing

        return losing.give_back(mine, world, g)

    def refuses(self, setup: Setup) -> npt.NDArray[np.bool_]:
        workload, longest = setup.workload, setup.context_length
        if self.prefill == "whole":
            longest = min(longest, _most_prefill(setup) - 1)
        held = workload.prompt_tokens.astype(np.int64) + workload.max_new_tokens + 2 * self.block_tokens - 1
        return np.asarray((workload.prompt_tokens > longest) | (held >= setup.kv_tokens))


def _most_prefill(setup: Setup) -> int:
    return max(setup.context_length, setup.kv_tokens // MOST_PREFILL_SHARE)
