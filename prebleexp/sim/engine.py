"""The serving engine: what a model step costs beside the GPU's seconds, and the constants of its scheduler."""

from __future__ import annotations

import math
from dataclasses import dataclass

from prebleexp.errors import InvalidInput

REPORT_INTERVAL = 8
"""decode steps between two reports of running requests"""
BURST = 10
"""decode steps at most in one model step"""
HIT_WINDOW_S = 30.0
"""over which a GPU's hit ratio is taken"""
NEW_TOKEN_RATIO = 0.4
"""of the tokens that running requests may still generate, the share that is kept free for them at first"""
RATIO_DECAY, RATIO_LEAST = 0.0001, 0.2
"""after each decode step that finds room"""
RATIO_GROWTH, RATIO_MOST = 0.05, 1.0
"""after one that does not"""


QUEUES = ("lpm", "fcfs", "priority_groups")
PREFILLS = ("whole", "chunked")
MOST_GROUPS = 1000


@dataclass(frozen=True)
class Engine:
    """How a GPU batches its requests. The defaults are SGLang's of early 2024, under a host loop that adds a fixed time
    to every model step (spec: engine-as-released, Q10).

    queue: lpm takes the longest cached prefix first, and passes over what does not fit. fcfs takes requests in order of
    arrival, those sent back for want of memory included. priority_groups (PREBLE, section 3.3) puts a request into
    group floor(groups · cached share of its prompt) and takes, in rounds, up to i requests of group i, the highest
    group first, and 1 of group 0; within a group in order of arrival. A round goes on over batches until no group has
    both requests and turns left, so a request with k others before it in group i is admitted within k // max(1, i) + 2
    rounds of at most groups (groups + 1) / 2 + 1 admissions each. fcfs and priority_groups wait for what does not fit.

    prefill: whole computes all new tokens of all admitted requests in one step, apart from decoding. chunked computes
    at most chunk_tokens a step, of which every running request takes one to decode; what is left goes to the request
    that is part-way, then to new ones.

    block_tokens: KV is held in blocks. Cached prefixes count in whole blocks, and every running request holds
    block_tokens − 1 tokens besides its context: what its last block may leave unused.
    """

    step_cost_s: float = 0.0006
    """of a step that reports no token"""
    output_step_cost_s: float = 0.0006
    """of a step that does; 0.03 in the release"""
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

    def __post_init__(self) -> None:
        for name in ("step_cost_s", "output_step_cost_s"):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int | float) or not 1e-7 <= value < math.inf:
                raise InvalidInput(f"engine.{name}={value} is not valid; it must be a number of seconds, at least 1e-7")
            object.__setattr__(self, name, float(value))
        for name, valid in (("queue", QUEUES), ("prefill", PREFILLS)):
            if getattr(self, name) not in valid:
                raise InvalidInput(
                    f"engine.{name}={getattr(self, name)} is not valid; it must be one of {', '.join(valid)}"
                )
        for name, most in (("groups", MOST_GROUPS), ("chunk_tokens", 2**24), ("block_tokens", 2**16)):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= most:
                raise InvalidInput(f"engine.{name}={value} is not valid; it must be an integer from 1 to {most}")
