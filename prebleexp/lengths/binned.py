"""The truth as a classifier sees it: through its confusion matrix."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from prebleexp import evaluated
from prebleexp.checks import flag, integer, is_number
from prebleexp.errors import InvalidInput, unknown, unreadable
from prebleexp.lengths.base import Lengths, actual
from prebleexp.lengths.refine import LEAST, remaining
from prebleexp.sim.types import Floats, Ints, Workload

STREAM = 101
"""of random numbers, apart from the workload's"""
ENDING = ".confusion.json"
MOST_REFINED = 100_000
"""tokens; what is left does not change from there on"""
TOLERANCE = 1e-6
"""by which the sum of a row may differ from 1"""


@dataclass(frozen=True)
class Binned(Lengths):
    """A request whose true length lies in bin i is told the length that stands for bin j, with the probability of row
    i, column j of a confusion matrix.

    The file is JSON: `edges` (bins + 1 ascending numbers of tokens; bin i is from edge i up to, not including, edge
    i + 1, the first and the last take what lies beyond), `matrix` (bins rows of bins probabilities), and if wanted
    `values` (bins numbers: what is told for each; the middle of the bin if not given).

    `predict evaluate` writes such a file for every predictor.

    Raises InvalidInput, naming the file, if it cannot be read, has other sizes, or rows that do not sum to 1.
    """

    path: str | None = None
    """relative to the current folder"""
    bins: int = 20
    """what the file must have"""
    predictor: str | None = None
    """instead of a file: one whose matrix comes with the package"""
    refine: bool = False
    """whether policies that count tokens to come hear of what requests that run have left, by Bayes' rule over the bins
    and what they have produced; in advance, every bin is taken to be as likely"""

    def __post_init__(self) -> None:
        integer("lengths.bins", self.bins, 1, 10_000)
        flag("lengths.refine", self.refine)
        if self.predictor is None and (not isinstance(self.path, str) or not self.path):
            raise InvalidInput(
                f"lengths.path={self.path} is not valid; binned needs lengths.path=FILE, a confusion matrix as JSON, "
                f"or lengths.predictor={' or '.join(packaged())}"
            )
        if self.predictor is not None and self.path is not None:
            raise InvalidInput("lengths.path and lengths.predictor exclude each other")
        if self.predictor is not None and self.predictor not in packaged():
            raise unknown("lengths.predictor", str(self.predictor), packaged())
        self._content  # noqa: B018 (raises what is wrong with the file)

    def identity(self) -> dict[str, object]:
        """The file's contents stand for it."""
        known = {"predictor": self.predictor} if self.predictor else {}
        return {**known, "sha256": hashlib.sha256(self._bytes).hexdigest(), "refine": self.refine}

    def expected(self, workload: Workload, seed: int) -> Floats:
        _, _, values = self._content
        return np.asarray(values[self._told(workload, seed)], np.float64)

    def refined(self, workload: Workload, seed: int) -> tuple[Ints, Floats] | None:
        if not self.refine:
            return None
        edges, matrix, values = self._content
        likely = matrix.T + LEAST  # of the true bin, by the one that was told
        longest = min(int(actual(workload).max(initial=0)), MOST_REFINED) + 1
        left = [remaining(likely, edges, values, produced) for produced in range(longest)]
        return self._told(workload, seed), np.stack(left, axis=1)

    def _told(self, workload: Workload, seed: int) -> Ints:
        """(n,) the bin that each request is told to be in."""
        edges, matrix, _ = self._content
        seen = np.clip(np.searchsorted(edges, actual(workload), side="right") - 1, 0, self.bins - 1)
        draws = np.random.default_rng([seed, STREAM]).random(len(workload))
        told = (np.cumsum(matrix, axis=1)[seen] <= draws[:, None]).sum(axis=1).clip(max=self.bins - 1)
        return np.asarray(told, np.int32)

    @cached_property
    def _content(self) -> tuple[Floats, Floats, Floats]:
        try:
            content = json.loads(self._bytes)
        except ValueError as error:  # also what is not UTF-8
            raise InvalidInput(f"{self._place}: not JSON: {str(error).splitlines()[0]}") from None
        if not isinstance(content, dict):
            raise InvalidInput(f"{self._place}: not a JSON object with edges and matrix")
        edges = self._numbers(content, "edges", (self.bins + 1,))
        matrix = self._numbers(content, "matrix", (self.bins, self.bins))
        if not (np.diff(edges) > 0).all():
            raise InvalidInput(f"{self._place}: edges must ascend")
        if (matrix < 0).any():
            raise InvalidInput(
                f"{self._place}: matrix has a negative probability in row {np.argwhere(matrix < 0)[0][0]}"
            )
        sums = matrix.sum(axis=1)
        for row in np.flatnonzero(abs(sums - 1) > TOLERANCE):
            raise InvalidInput(f"{self._place}: row {row} of matrix sums to {sums[row]:.6g}; it must sum to 1")
        if "values" not in content:
            return edges, matrix, (edges[:-1] + edges[1:]) / 2
        values = self._numbers(content, "values", (self.bins,))
        if (values <= 0).any():
            raise InvalidInput(f"{self._place}: values must be > 0")
        return edges, matrix, values

    def _numbers(self, content: dict[str, Any], name: str, shape: tuple[int, ...]) -> Floats:
        if name not in content:
            raise InvalidInput(f"{self._place}: there is no {name}")
        rows = content[name] if len(shape) == 2 else [content[name]]
        sizes = {len(row) if isinstance(row, list) else -1 for row in rows} if isinstance(rows, list) else {-1}
        wanted = " x ".join(map(str, shape))
        if sizes != {shape[-1]} or (len(shape) == 2 and len(rows) != shape[0]):
            raise InvalidInput(f"{self._place}: {name} must be {wanted} numbers (lengths.bins={self.bins})")
        if not all(is_number(value) for row in rows for value in row):
            raise InvalidInput(f"{self._place}: {name} has a value that is not a finite number")
        return np.array(content[name], np.float64)

    @property
    def _place(self) -> str:
        return f"lengths.predictor={self.predictor}" if self.predictor else f"lengths.path={self.path}"

    @cached_property
    def _bytes(self) -> bytes:
        try:
            packed = evaluated.FOLDER / f"{self.predictor}{ENDING}"
            return (packed if self.predictor else Path(str(self.path))).read_bytes()
        except (OSError, ValueError) as error:
            raise unreadable(self._place, self.path, error) from None


def packaged() -> tuple[str, ...]:
    """The predictors whose matrices come with the package."""
    return tuple(sorted(file.name.removesuffix(ENDING) for file in evaluated.FOLDER.glob(f"*{ENDING}")))
