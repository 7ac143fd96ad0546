"""What engines are told of GPUs that go: all or some of what they have is dropped, and nobody else hears of it here."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from prebleexp.sim import moves
from prebleexp.sim.compiled import INTERPRETED
from prebleexp.sim.handles import Block
from prebleexp.sim.plug import Plug
from prebleexp.sim.protocols import Batcher
from prebleexp.sim.types import Longs


class Emptied:
    """The engines of a run while something happens to its GPUs. It is made for that, and not kept: a run that could be
    reached from here would outlive its end, with all of its memory."""

    def __init__(self, batcher: Batcher, engines: Sequence[Plug], world: Block) -> None:
        """`engines`: of each GPU."""
        self._batcher, self._engines, self.handle = batcher, engines, world.handle
        """the handle: the world, as compiled functions are given it"""

    def lose(self, g: int, requests: Longs) -> None:
        """Empty a GPU, where these requests are."""
        self._batcher.lose(self._mine(g), self.handle, g, requests)

    def forget(self, g: int) -> None:
        """Drop the older half of what a GPU's cache holds and nobody uses, if that names whom it is of."""
        self._batcher.forget(self._mine(g), self.handle, g)

    def abandon(self, g: int) -> None:
        """Give up moves from a GPU, and to it: what it has is dropped."""
        moves.abandon(self.handle, g)

    def give_back(self, g: int) -> Longs:
        """Take out of a GPU's queue what was never admitted there."""
        return self._batcher.give_back(self._mine(g), self.handle, g)

    def withdraw(self, g: int, request: int) -> None:
        """Take out of a GPU a request that waits there for KV."""
        self._batcher.withdraw(self._mine(g), self.handle, g, request)

    def _mine(self, g: int) -> Any:
        engine = self._engines[g]
        return engine.mine if INTERPRETED else engine.block.mine
