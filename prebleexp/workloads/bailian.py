"""Traces of Alibaba's Bailian: real arrivals, lengths and conversations, prompts as hashes of blocks of 16 tokens."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from prebleexp.sim.types import Longs
from prebleexp.workloads import inferred
from prebleexp.workloads.blocks import hashed, joined
from prebleexp.workloads.replayed import Replayed
from prebleexp.workloads.rows import Rows, rows_of
from prebleexp.workloads.trace import Trace

BLOCK = 16
"""tokens a hash"""
ROOT = -1
"""the parent of a conversation's first request"""


@dataclass(frozen=True)
class Bailian(Replayed):
    """Qwen's usage traces of Bailian: chat_id, parent_chat_id (−1: of none), timestamp (s), input_length,
    output_length, hash_ids.

    A hash stands for 16 tokens and all before them; the last one for what remains. Prompts are cut only where they
    part. A conversation is what hangs together by parents; a parent that is not in the file counts as none. Blocks of
    more than 60 requests are everybody's. An output length of 0 counts as 1.

    What the thinking model thought is not in the next prompt, and the hash of a last, partly filled block changes: a
    next turn need not contain all of the answer before it.

    Source: Wang et al., "KVCache Cache in the Wild", ATC 2025.
    """

    block_tokens: ClassVar[int] = BLOCK
    name: ClassVar[str] = "bailian"
    where: ClassVar[str] = "a trace from https://github.com/alibaba-edu/qwen-bailian-usagetraces-anon"

    def read(self) -> Trace:
        rows = rows_of(self.path)
        times = rows.in_order("timestamp", rows.numbers("timestamp", 0, "seconds"))
        prompts = joined(hashed(rows, "input_length", "hash_ids", BLOCK))[0]
        session, turn = inferred.chains(_parents(rows))
        outputs = np.maximum(rows.integers("output_length"), 1)
        return Trace(times, outputs, prompts, session, turn, inferred.public(prompts))


def _parents(rows: Rows) -> Longs:
    """(n,) the row of each row's parent; −1: none."""
    chats = rows.integers("chat_id", -(2**62), 2**62).tolist()
    row_of: dict[int, int] = {}
    for row, chat in enumerate(chats):
        if row_of.setdefault(chat, row) != row:
            raise rows.wrong(row, f"chat_id={chat} is not valid; row {rows.number(row_of[chat])} has it already")
    found = np.full(len(rows), -1, np.int64)
    for row, parent in enumerate(rows.integers("parent_chat_id", -(2**62), 2**62).tolist()):
        if parent != ROOT and parent in row_of:
            found[row] = row_of[parent]
            if found[row] >= row:
                what = "itself" if found[row] == row else f"row {rows.number(int(found[row]))}, which comes later"
                raise rows.wrong(row, f"parent_chat_id={parent} is not valid; it is {what}")
    return found
