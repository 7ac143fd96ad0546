"""What GPUs are assumed to hold, where they tell nothing of it (kv=assumed): what they have computed, until their
memory is full; then the blocks that were used least recently go, of a prompt the last ones first, as vLLM frees them.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator
from typing import Any, NamedTuple

_ROW, _START = 48, 16
"""bits of a block's number behind which stand the row of a request that has it, and the tokens before it; its own come
last: there are millions of blocks, and one number is a third of three"""


class Evicted(NamedTuple):
    """The GPU holds of the context of this row what lies below so many tokens."""

    row: int
    tokens: int


class Assumed:
    """What one GPU's cache is assumed to hold."""

    def __init__(self, kv_tokens: int) -> None:
        self._most, self.held = kv_tokens, 0
        self._blocks = OrderedDict[int, int]()
        """by id, the least recently used first"""

    def stored(self, row: int, ids: Any, ends: Any, tokens: int) -> Iterator[Evicted]:
        """The GPU has computed so many leading tokens of a request's prompt; what goes for them. Blocks of one context
        that go one after the other are told at once: what is below the last of them is what is left."""
        blocks, before = self._blocks, 0
        found: list[tuple[int, int, int]] = []
        for one, end in zip(ids.tolist(), ends.tolist(), strict=True):
            if end > tokens:
                break
            found.append((one, before, end - before))
            before = end
        for one, start, size in reversed(found):
            if one in blocks:
                blocks.move_to_end(one)
            else:
                self.held += size
            blocks[one] = row << _ROW | start << _START | size
        gone: Evicted | None = None
        while self.held > self._most and len(blocks) > len(found):
            _, packed = blocks.popitem(last=False)
            self.held -= packed & (1 << _START) - 1
            whose, start = packed >> _ROW, packed >> _START & (1 << _ROW - _START) - 1
            if gone is not None and (whose != gone.row or start > gone.tokens):
                yield gone
            gone = Evicted(whose, start)
        if gone is not None:
            yield gone

    def forget(self) -> None:
        """Forget all that the GPU's cache was assumed to hold."""
        self._blocks = OrderedDict()
        self.held = 0
