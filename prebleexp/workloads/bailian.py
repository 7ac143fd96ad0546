"""Traces of Alibaba's Bailian: real arrivals, lengths and conversations, prompts as hashes of blocks of 16 tokens."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from prebleexp.sim.types import Longs
from prebleexp.workloads import inferred
from prebleexp.workloads.blocks import hashed, joined
from prebleexp.workloads.clock import clock, in_order
from prebleexp.workloads.columns import own
from prebleexp.workloads.rows import Rows
from prebleexp.workloads.tabular import Tabular
from prebleexp.workloads.trace import Reading, Trace

BLOCK = 16
"""tokens a hash"""
ROOT = -1
"""the parent of a conversation's first request"""


@dataclass(frozen=True)
class Bailian(Tabular):
    """Qwen's usage traces of Bailian: chat_id, parent_chat_id (−1: of none), timestamp (s), input_length,
    output_length, hash_ids.

    A hash stands for 16 tokens and all before them; the last one for what remains. Prompts are cut only where they
    part. A conversation is what hangs together by parents; a parent that is not in the file counts as none. Blocks of
    more than 60 requests are everybody's. An output length of 0 counts as 1.

    What the thinking model thought is not in the next prompt, and the hash of a last, partly filled block changes: a
    next turn need not contain all of the answer before it.

    Source: Wang et al., "KVCache Cache in the Wild", ATC 2025.
    """

    name: ClassVar[str] = "bailian"
    where: ClassVar[str] = "a trace from https://github.com/alibaba-edu/qwen-bailian-usagetraces-anon"

    @property
    def blocks_of(self) -> int:
        return BLOCK

    def read(self) -> Trace:
        rows = self.rows()
        arrival, length = (
            own(rows, self.columns, "arrival", "timestamp"),
            own(rows, self.columns, "input", "input_length"),
        )
        answer, hashes = (
            own(rows, self.columns, "output", "output_length"),
            own(rows, self.columns, "hashes", "hash_ids"),
        )
        when = clock(rows, arrival, self.time_unit, "s", known=True, least=0)
        order, times = in_order(when.seconds)
        rows = rows.taken(order)
        made = hashed(rows, length, rows.integers(length, 1), hashes, BLOCK)
        prompts = joined(made.prompts)[0]
        session, turn = inferred.chains(_parents(rows))
        outputs = np.maximum(rows.integers(answer), 1)
        said = f"{hashes}, of {BLOCK} tokens{made.says}"
        reading = Reading(
            when.says, length, answer, prefix=said, sessions="chat_id, parent_chat_id", doubts=when.doubts
        )
        return Trace(times, outputs, prompts, session, turn, inferred.public(prompts), reading=reading)


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
