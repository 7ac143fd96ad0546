"""Output lengths as classes."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from prebleexp.errors import InvalidInput
from prebleexp.sim.types import Floats, Ints

KINDS = ("frequency", "width")


@dataclass(frozen=True)
class Bins:
    """Bin i is from edge i up to, not including, edge i + 1; the outer bins take what lies beyond."""

    edges: tuple[float, ...]
    """(k + 1,) tokens, ascending"""
    values: tuple[float, ...]
    """(k,) the mean length in each bin"""

    def __len__(self) -> int:
        return len(self.values)

    def of(self, lengths: npt.NDArray[np.integer]) -> Ints:
        """(n,) the bin of each length."""
        found = np.searchsorted(self.edges, lengths, side="right") - 1
        return found.clip(0, len(self) - 1).astype(np.int32)

    def mean(self, probabilities: Floats) -> Floats:
        """(n,) the expected length under probabilities of shape (n, k)."""
        return np.asarray(probabilities @ np.array(self.values), np.float64)


def bins(lengths: npt.NDArray[np.integer], count: int, kind: str) -> Bins:
    """Bins of equal frequency, or of equal width, over some lengths.

    Raises InvalidInput if there are too few different lengths.
    """
    if kind == "width":
        edges = np.linspace(lengths.min(), lengths.max() + 1, count + 1)
    else:
        edges = np.quantile(lengths, np.linspace(0, 1, count + 1)).round()
        edges[-1] = lengths.max() + 1
    if (np.diff(edges) <= 0).any():
        raise InvalidInput(f"bins={count} are too many for {len(np.unique(lengths))} different output lengths")
    label = np.searchsorted(edges, lengths, side="right") - 1
    middles = (edges[:-1] + edges[1:]) / 2
    values = [float(lengths[label == i].mean()) if (label == i).any() else float(middles[i]) for i in range(count)]
    return Bins(tuple(map(float, edges)), tuple(values))
