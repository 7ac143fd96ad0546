"""A stable sort without further memory: `mine.ordered[0]` by `mine.keys[0]`, ascending."""

from __future__ import annotations

from prebleexp.engines.sglang.records import Engines
from prebleexp.sim.compiled import compiled


@compiled
def put_in_order(mine: Engines, size: int) -> None:
    """The first `size` of them, by merging runs of twice the length each time."""
    ordered, keys = mine.ordered, mine.keys
    width, source = 1, 0
    while width < size:
        target = 1 - source
        low = 0
        while low < size:
            middle, high = min(low + width, size), min(low + 2 * width, size)
            left, right = low, middle
            for at in range(low, high):
                if left < middle and (right == high or keys[source, left] <= keys[source, right]):
                    taken = left
                    left += 1
                else:
                    taken = right
                    right += 1
                ordered[target, at], keys[target, at] = ordered[source, taken], keys[source, taken]
            low = high
        width, source = 2 * width, target
    if source == 1:
        for at in range(size):
            ordered[0, at] = ordered[1, at]
