"""Where labels of points stand, so that they cover neither points nor one another."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from typing import NamedTuple

LETTER, HEIGHT = 0.6, 1.0
"""of a text, in its size"""
FAR = (4.0, 9.0, 15.0)
"""from its point, the nearest first"""


class Box(NamedTuple):
    """Ends, in units of a text's size."""

    left: float
    low: float
    right: float
    high: float

    def covers(self, other: Box) -> bool:
        beside = self.right <= other.left or other.right <= self.left
        return not beside and not (self.high <= other.low or other.high <= self.low)

    def holds(self, other: Box) -> bool:
        left = self.left <= other.left and other.right <= self.right
        return left and self.low <= other.low and other.high <= self.high


def placed(
    labels: Sequence[tuple[float, float, str]],
    points: Sequence[tuple[float, float]],
    inside: Box,
    size: float,
    mark: float,
) -> list[tuple[float, float]]:
    """The lower left corner of each label (x, y, text), as far from its point as it takes to cover as few others as can
    be; `mark` is how wide a point is drawn."""
    taken = [Box(x - mark / 2, y - mark / 2, x + mark / 2, y + mark / 2) for x, y in points]
    found = []
    for x, y, text in labels:
        wide, high = LETTER * size * len(text), HEIGHT * size
        places = [
            Box(left, low, left + wide, low + high)
            for far in FAR
            for (across, up) in product((1, -1, 0), (1, 0, -1))
            if across or up
            for left in [x + (far if across > 0 else -far - wide if across < 0 else -wide / 2)]
            for low in [y + (far / 2 if up > 0 else -far / 2 - high if up < 0 else -high / 2)]
        ]
        best = min(places, key=lambda box: sum(map(box.covers, taken)) + 10 * (not inside.holds(box)))
        taken.append(best)
        found.append((best.left, best.low))
    return found
