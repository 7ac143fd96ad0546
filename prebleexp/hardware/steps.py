"""Whole steps as `prebleexp hardware measure` takes them: read from its CSV, predicted, and fitted to."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from prebleexp.errors import InvalidInput, unknown
from prebleexp.hardware import measurements
from prebleexp.hardware.domain import Domain
from prebleexp.hardware.equations import Array, Coefficients, stack, step_s
from prebleexp.hardware.measurements import Sizes
from prebleexp.hardware.parameters import NAMES, shipped_for

COLUMNS = ("gpu", "engine", "model", "weights", "tp", "what", "new", "sequences", "context", "pairs", "us")
"""that there must be; of others, kv is read: the cache's precision"""
KINDS = ("prefill", "decode", "mixed")
"""of whole steps"""
PARTS = ("linear", "attention")
"""of a layer, which are not compared: no parameter is of theirs alone"""


@dataclass(frozen=True)
class Steps:
    """A row of each array is one step."""

    labels: Mapping[str, NDArray[np.str_]]
    """gpu, engine, model, precision, version, tp, kv and kind"""
    of: Coefficients
    new: Array
    sequences: Array
    context: Array
    pairs: Array
    """as in `step_s`"""
    seconds: Array

    def __len__(self) -> int:
        return len(self.seconds)

    def take(self, chosen: Any) -> Steps:
        labels = {name: values[chosen] for name, values in self.labels.items()}
        numbers = (self.new, self.sequences, self.context, self.pairs, self.seconds)
        return Steps(labels, self.of.take(chosen), *(values[chosen] for values in numbers))

    def keys(self, names: Iterable[str]) -> list[tuple[str, ...]]:
        """Values of the columns `names` (GPU, engine, model …) for each measured step, as texts."""
        columns = [self.labels[name] for name in names]
        return [tuple(str(column[row]) for column in columns) for row in range(len(self))]

    def domain(self) -> Domain:
        """Of which sizes they are; the context of decodes alone is known, and no prompt's length."""
        return Domain(round(float(self.sequences.max())), round(float(self.context.max())))

    def of_engine(self, engine: str) -> Steps:
        """The same, as steps of another engine."""
        return replace(self, labels={**self.labels, "engine": np.full(len(self), engine)})

    def predict(self, p: Mapping[str, Any]) -> Array:
        """Seconds of each step by the formula: (steps,). `p` has the fields of `Parameters`, one for all or of each
        row."""
        found: Array = step_s(self.of, p, self.new, self.sequences, self.context, self.pairs)
        return found

    def by_shipped(self) -> Array:
        """Seconds of each, by the parameters that ship for its configuration, or else those that fit all best."""
        found = []
        for gpu, engine, model, precision, version, tp in self.keys(CONFIGURED):
            found.append(shipped_for((gpu, engine, model, precision), version, tp))
        return self.predict({name: np.array([getattr(one, name) for one in found]) for name in NAMES})


CONFIGURED = ("gpu", "engine", "model", "precision", "version", "tp")


def are_steps(path: Path) -> bool:
    """Whether a file is one of them, and not one of closed loops."""
    return path.is_file() and path.suffix in (".csv", ".gz") and {"what", "us"} <= set(measurements.heads(path))


def read(path: Path, sizes: Sizes) -> Steps:
    """Raises InvalidInput, which names file, row and column, for what cannot be a measured step."""
    rows = measurements.read(path, COLUMNS)
    for at, row in rows:
        if row["what"] not in (*KINDS, *PARTS):
            raise InvalidInput(f"{at}: {unknown('what', row['what'], (*KINDS, *PARTS))}")
    whole = [(at, row) for at, row in rows if row["what"] in KINDS]
    if not whole:
        raise InvalidInput(f"{path} has no whole step: no row has what={' or what='.join(KINDS)}")
    return _steps(whole, sizes)


def _steps(rows: Sequence[tuple[str, Mapping[str, str]]], sizes: Sizes) -> Steps:
    made, numbers, texts = [], [], []
    for at, row in rows:
        of = measurements.configured(at, row, sizes)
        made.append(of.coefficients(sizes))
        least = {"new": 1.0, "sequences": 0.0, "context": 0.0, "pairs": 0.0}
        counts = [measurements.number(at, row, name, value) for name, value in least.items()]
        numbers.append((*counts, measurements.number(at, row, "us") / 1e6))
        version = row.get("version", "")
        texts.append((of.gpu, row["engine"], of.model, of.weights, version, str(of.tp), of.kv, row["what"]))
    names = (*CONFIGURED, "kv", "kind")
    labels = {name: np.array([text[i] for text in texts]) for i, name in enumerate(names)}
    new, sequences, context, pairs, seconds = np.array(numbers, dtype=np.float64).T
    return Steps(labels, stack(made), new, sequences, context, pairs, seconds)
