"""What GPUs are assumed to hold, where they tell nothing of it (kv=assumed): what they have computed, until their
memory is full; then the blocks that were used least recently go, of a prompt the last ones first, as vLLM frees them.

GPUs know nothing of laps: what they hold they go on to hold when the policy has forgotten all. It is told so again when
a prompt comes that begins with it.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator, Sequence
from typing import NamedTuple

_NUMBER, _START = 48, 16
"""bits of a block's number behind which stand the number of a request that has it, and the tokens before it; its own
come last: there are millions of blocks, and one number is a third of three"""


class Evicted(NamedTuple):
    """The GPU holds of the context of this request what lies below so many tokens."""

    number: int
    tokens: int


class Assumed:
    """What one GPU's cache is assumed to hold. Requests have numbers in the order in which they came, and prompts have
    hashes of blocks that stand for their path from the root."""

    def __init__(self, kv_tokens: int) -> None:
        self._most, self.held = kv_tokens, 0
        self._blocks = OrderedDict[int, int]()
        """by hash, the least recently used first: so of a prompt a beginning is held"""
        self._first = self.untold = 0
        """the first request of this lap, and blocks of which the policy has not heard in it"""

    def begin_lap(self, first: int) -> None:
        """The policy has forgotten what it was told of requests before this one."""
        self._first, self.untold = first, len(self._blocks)

    def stored(self, number: int, hashes: Sequence[int], ends: Sequence[int], tokens: int) -> Iterator[Evicted]:
        """The GPU has computed so many leading tokens of a request's prompt; what goes for them, of requests of this
        lap. Blocks of one context that go one after the other are told at once: what is below the last of them is what
        is left."""
        blocks, before = self._blocks, 0
        found: list[tuple[int, int, int]] = []
        for one, end in zip(hashes, ends, strict=True):
            if end > tokens:
                break
            found.append((one, before, end - before))
            before = end
        for one, start, size in reversed(found):
            last, known = number, blocks.get(one)
            if known is None:
                self.held += size
                self.untold += number < self._first
            else:
                blocks.move_to_end(one)
                last = max(number, known >> _NUMBER)
                self.untold -= known >> _NUMBER < self._first <= last
            blocks[one] = last << _NUMBER | start << _START | size
        gone: Evicted | None = None
        while self.held > self._most and len(blocks) > len(found):
            _, packed = blocks.popitem(last=False)
            self.held -= packed & (1 << _START) - 1
            whose, start = packed >> _NUMBER, packed >> _START & (1 << _NUMBER - _START) - 1
            if whose < self._first:
                self.untold -= 1
                continue
            if gone is not None and (whose != gone.number or start > gone.tokens):
                yield gone
            gone = Evicted(whose, start)
        if gone is not None:
            yield gone

    def again(self, number: int, hashes: Sequence[int], ends: Sequence[int]) -> int:
        """How many leading tokens of a request's prompt the GPU holds, if the policy has not heard of all of them in
        this lap; else 0. The request has them from now on."""
        blocks, low, high = self._blocks, 0, len(hashes)
        while low < high:
            middle = (low + high) >> 1
            if hashes[middle] in blocks:
                low = middle + 1
            else:
                high = middle
        told = 0
        for at in range(low - 1, -1, -1):
            packed = blocks[hashes[at]]
            if packed >> _NUMBER >= self._first:
                break
            blocks[hashes[at]] = number << _NUMBER | packed & (1 << _NUMBER) - 1
            self.untold -= 1
            told = ends[low - 1]
        return told

    def forget(self) -> None:
        """Forget all that the GPU's cache was assumed to hold."""
        self._blocks = OrderedDict()
        self.held = self.untold = 0
