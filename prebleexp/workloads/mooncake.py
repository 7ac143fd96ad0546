"""Traces of the Mooncake project: real arrivals and lengths, prompts as hashes of blocks of 512 tokens."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from prebleexp.checks import flag, is_integer, require
from prebleexp.errors import InvalidInput
from prebleexp.sim.types import Floats
from prebleexp.workloads import delays, inferred
from prebleexp.workloads.accumulated import ELSEWHERE
from prebleexp.workloads.blocks import LISTED, blocks_that_fit, hashed, private
from prebleexp.workloads.columns import own, set_column
from prebleexp.workloads.failed import served
from prebleexp.workloads.few_shot import random
from prebleexp.workloads.replayed import TICKS
from prebleexp.workloads.rows import MOST, Rows
from prebleexp.workloads.tabular import Tabular
from prebleexp.workloads.trace import Reading, Trace, alone

INPUT, OUTPUT, HASHES = "input_length", "output_length", "hash_ids"
BLOCK = 512
"""tokens a hash"""
BAILIANS = ("chat_id", "parent_chat_id")
OF_BAILIAN = "it looks like a trace of Bailian, whose times are in seconds: workload=bailian reads it so"
TICK_S = 3.0
"""its clock goes in steps of this"""
EARLY_S = 0.001
"""so much before a step counts as on it"""


@dataclass(frozen=True)
class Mooncake(Tabular):
    """A trace in the format of Mooncake's FAST'25 release: timestamp (ms, or a time since 1970 in any unit),
    input_length, output_length, hash_ids; in any order.

    A hash stands for 512 tokens and all before them; the last one for what remains. Blocks of another size are told by
    the numbers of hashes, if only one power of two fits all rows, or said; where they are said, a prompt's incomplete
    last block may have none. Requests share the blocks of their equal leading hashes; a hash that follows a
    different one than before, or has another number of tokens, is not shared. Without hash_ids, prompts share nothing.
    An output length of 0 counts as 1: a prefill always yields a token.

    Sessions are those of session_id; else they are inferred: a request is the next turn of the latest one whose whole
    blocks it begins with (prebleexp/workloads/inferred.py); blocks of more than 60 requests are everybody's. A turn
    without timestamp comes `delay` (ms) after the answer before it, as in the traces of aiperf and Dynamo.

    Source: Qin et al., "Mooncake", FAST 2025. Raises InvalidInput, naming the field, for values that are not valid, and
    naming the file, the row and the field for lines that are not.
    """

    spread_ticks: bool = False
    """its clock steps every 3 s: true spreads the requests of a step over it, at random by the seed, in their order"""
    block_tokens: int | None = None
    """that a hash stands for; null: 512, or what the file says"""

    name: ClassVar[str] = "mooncake"
    where: ClassVar[str] = "a trace from https://github.com/kvcache-ai/Mooncake/tree/main/FAST25-release/traces"

    def __post_init__(self) -> None:
        super().__post_init__()
        flag("workload.spread_ticks", self.spread_ticks)
        valid = self.block_tokens is None or is_integer(self.block_tokens, 1, MOST)
        require(valid, "workload.block_tokens", self.block_tokens, f"null or an integer from 1 to {MOST}")

    @property
    def obeys(self) -> tuple[str, ...]:
        return super().obeys or (("seed",) if self.spread_ticks else ())

    def read(self) -> Trace:
        every = self.rows()
        length, answer = own(every, self.columns, "input", INPUT), own(every, self.columns, "output", OUTPUT)
        kept = served(every, self.columns)
        if not len(kept.rows):
            raise InvalidInput(f"{self.path}: there are no requests that were served: {'; '.join(kept.left_out)}")
        rows = every.taken(kept.rows)
        when = delays.timed(rows, self.columns, self.time_unit)
        rows = rows.taken(when.order)
        inputs, outputs = rows.integers(length, 1), rows.integers(answer)
        hashes = set_column(rows, self.columns, "hashes") or (HASHES if HASHES in rows else None)
        block, says, doubts = BLOCK, "prompts share nothing: there are no hash_ids", when.doubts
        prompts = private(inputs)
        if hashes is not None:
            block = self.block_tokens or self._block(rows, length, hashes)
            made = hashed(rows, length, inputs, hashes, block, partly=self.block_tokens is not None)
            prompts, says = made.prompts, f"{hashes}, of {block} tokens{made.says}"
        if when.sessions is not None:
            session, turn = when.sessions
        elif hashes is None:
            session, turn = alone(len(rows))
        else:
            session, turn = inferred.chains(inferred.parents(prompts, block, inputs, outputs))
        told_by = when.by or ("every request is one of its own" if hashes is None else "read off the hashes")
        doubts = doubts if self.time_unit or not {*BAILIANS} <= {*every.names} else (*doubts, OF_BAILIAN)
        reading = Reading(
            when.says,
            length,
            answer,
            prefix=says,
            sessions=told_by,
            left_out=kept.left_out,
            doubts=doubts,
            block_tokens=block,
            cure=ELSEWHERE,
        )
        public = None if hashes is None else inferred.public(prompts)
        return Trace(
            when.starts,
            np.maximum(outputs, 1),
            prompts,
            session,
            turn,
            public,
            when.links,
            None,
            None,
            reading,
            when.closed,
        )

    def _block(self, rows: Rows, length: str, hashes: str) -> int:
        tokens, counts = rows.integers(length, 1), np.diff(rows.lists(hashes, LISTED)[0])
        could = blocks_that_fit(tokens, counts)
        return could[0] if len(could) == 1 else BLOCK

    @property
    def span_s(self) -> float:
        return super().span_s + (TICK_S / self.compress if self.spread_ticks else 0.0)

    def starts(self, trace: Trace, seed: int) -> Floats:
        if not self.spread_ticks:
            return trace.start_s
        step = np.floor((trace.start_s + EARLY_S) / TICK_S)
        within = random(seed, TICKS).random(len(trace))
        found: Floats = (step + within[np.lexsort((within, step))]) * TICK_S
        return found
