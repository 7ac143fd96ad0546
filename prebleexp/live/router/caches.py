"""What GPUs are assumed to hold, where they tell nothing of it (kv=assumed): what they have computed, until their
memory is full; then the blocks that were used least recently go, of a prompt the last ones first, as vLLM frees them.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator
from typing import Any, Generic, NamedTuple, TypeVar

R = TypeVar("R")


class Evicted(NamedTuple, Generic[R]):
    """The GPU holds of the request's prompt what lies below so many tokens."""

    request: R
    tokens: int


class Assumed(Generic[R]):
    """Of one GPU. `R`: what a request is called, of which the host is told."""

    def __init__(self, kv_tokens: int) -> None:
        self._most, self.held = kv_tokens, 0
        self._blocks = OrderedDict[int, tuple[R, int, int]]()
        """by id, the least recently used first: a request with it, tokens before it, and its own"""

    def stored(self, request: R, ids: Any, ends: Any, tokens: int) -> Iterator[Evicted[R]]:
        """The GPU has computed so many leading tokens; what goes for them."""
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
            blocks[one] = request, start, size
        while self.held > self._most and len(blocks) > len(found):
            _, (owner, start, size) = blocks.popitem(last=False)
            self.held -= size
            yield Evicted(owner, start)

    def forget(self) -> None:
        """It starts anew."""
        self._blocks.clear()
        self.held = 0
