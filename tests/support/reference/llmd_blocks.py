"""What llm-d and BLIS believe that each server has cached, block by block."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from typing import NamedTuple

Block = tuple[tuple[int, int], ...]
"""the whole prefix that it ends: (segment, tokens of it)"""


class Rules(NamedTuple):
    block_size: int
    most: int
    partial: bool
    capacity: int


def blocks_of(prompt: Sequence[tuple[int, int]], rules: Rules) -> list[Block]:
    """The prompt is (segment, tokens), of which each names its whole path."""
    tokens = [(segment, one) for segment, size in prompt for one in range(size)]
    ends = list(range(rules.block_size, len(tokens) + 1, rules.block_size))
    if rules.partial and len(tokens) % rules.block_size:
        ends.append(len(tokens))
    return [tuple(tokens[:end]) for end in ends][: rules.most]


class Believed:
    """Of one server. What a prompt pushes out of the LRU of its own blocks is believed for ever, or until it comes
    again, if `leaks`."""

    def __init__(self, rules: Rules, leaks: bool) -> None:
        self.rules, self.leaks = rules, leaks
        self.lru: OrderedDict[Block, None] = OrderedDict()
        self.known: set[Block] = set()

    def forget(self) -> None:
        """It is lost."""
        self.lru.clear()
        self.known.clear()

    def put(self, blocks: list[Block]) -> None:
        for block in blocks:
            self.lru[block] = None
            self.lru.move_to_end(block)
            self.known.add(block)
            if len(self.lru) > self.rules.capacity:
                self.known.discard(self.lru.popitem(last=False)[0])
        if self.leaks:
            self.known.update(blocks)


def leading(believed: list[Believed], blocks: list[Block]) -> list[int]:
    return [next((i for i, block in enumerate(blocks) if block not in one.known), len(blocks)) for one in believed]


def counted(believed: list[Believed], blocks: list[Block]) -> list[int]:
    reach = next((i for i, block in enumerate(blocks) if not any(block in one.known for one in believed)), len(blocks))
    return [sum(block in one.known for block in blocks[:reach]) for one in believed]
