"""Traces of the Mooncake project: real arrivals and lengths, prompts as hashes of blocks of 512 tokens."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from prebleexp.checks import flag
from prebleexp.sim.types import Floats
from prebleexp.workloads import inferred
from prebleexp.workloads.blocks import hashed
from prebleexp.workloads.few_shot import random
from prebleexp.workloads.replayed import TICKS, Replayed
from prebleexp.workloads.rows import rows_of
from prebleexp.workloads.trace import Trace

BLOCK = 512
"""tokens a hash"""
TICK_S = 3.0
"""its clock goes in steps of this"""
EARLY_S = 0.001
"""so much before a step counts as on it"""


@dataclass(frozen=True)
class Mooncake(Replayed):
    """A trace in the format of Mooncake's FAST'25 release: timestamp (ms), input_length, output_length, hash_ids.

    A hash stands for 512 tokens and all before them; the last one for what remains. Requests share the blocks of their
    equal leading hashes; a hash that comes behind another one than before, or with another number of tokens, is not
    shared. An output length of 0 counts as 1: a prefill always yields a token. Sessions are inferred: a request is the
    next turn of the latest one whose whole blocks it begins with (prebleexp/workloads/inferred.py); blocks of more than
    60 requests are everybody's.

    Source: Qin et al., "Mooncake", FAST 2025. Raises InvalidInput, naming the field, for values that are not valid, and
    naming the file, the row and the field for lines that are not.
    """

    spread_ticks: bool = False
    """its clock steps every 3 s: true spreads the requests of a step over it, at random by the seed, in their order"""

    block_tokens: ClassVar[int] = BLOCK
    name: ClassVar[str] = "mooncake"
    where: ClassVar[str] = "a trace from https://github.com/kvcache-ai/Mooncake/tree/main/FAST25-release/traces"

    def __post_init__(self) -> None:
        super().__post_init__()
        flag("workload.spread_ticks", self.spread_ticks)

    @property
    def obeys(self) -> tuple[str, ...]:
        return super().obeys or (("seed",) if self.spread_ticks else ())

    def read(self) -> Trace:
        rows = rows_of(self.path)
        times = rows.in_order("timestamp", rows.numbers("timestamp", 0, "ms")) / 1000
        prompts = hashed(rows, "input_length", "hash_ids", BLOCK)
        inputs, outputs = rows.integers("input_length", 1), rows.integers("output_length")
        session, turn = inferred.chains(inferred.parents(prompts, BLOCK, inputs, outputs))
        public = inferred.public(prompts)
        return Trace(times, np.maximum(outputs, 1), prompts, session, turn, public)

    def starts(self, trace: Trace, seed: int) -> Floats:
        if not self.spread_ticks:
            return trace.start_s
        step = np.floor((trace.start_s + EARLY_S) / TICK_S)
        within = random(seed, TICKS).random(len(trace))
        found: Floats = (step + within[np.lexsort((within, step))]) * TICK_S
        return found
