"""Real questions with their answers' lengths, and what predictors said of these."""

from __future__ import annotations

import hashlib
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from prebleexp import evaluated
from prebleexp.errors import InvalidInput, unreadable
from prebleexp.sim.types import Floats, Ints
from prebleexp.workloads.few_shot import LONGEST, QUESTIONS, FewShot, Questions, random
from prebleexp.workloads.output_length import OutputLength

LENGTHS = ("prompt_tokens", "output_tokens")
PACKAGED = evaluated.FOLDER / "predictions.parquet"
"""of data/instructions.jsonl.gz; evaluation.json beside it says more"""


@dataclass(frozen=True)
class Instructions(FewShot):
    """Few-shot prompts that end with real questions. Each request has prompt length, output length and predictions of
    one row of an evaluation, drawn with replacement; two that have the same row are different texts of its size.

    The file is the predictions.parquet of `predict evaluate`: integers prompt_tokens and output_tokens, and a column of
    tokens for each predictor, under its name. Raises InvalidInput, naming it, if it cannot be read or has other values.
    """

    max_new_tokens: int = 512
    path: str | None = None
    """relative to the current folder; null: the evaluation that comes with the package"""

    own_outputs: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if self.path is not None and (not isinstance(self.path, str) or not self.path):
            raise InvalidInput(f"workload.path={self.path} is not valid; it must be a .parquet of predict evaluate")
        super().__post_init__()

    def identity(self) -> dict[str, object]:
        """The file's contents stand for it."""
        own = {name: value for name, value in asdict(self).items() if name != "path"}
        return own | {"sha256": hashlib.sha256(self._bytes).hexdigest()}

    @property
    def longest_question(self) -> int:
        return int(self._columns["prompt_tokens"].max())

    @property
    def predictors(self) -> tuple[str, ...]:
        return tuple(name for name in self._columns if name not in LENGTHS)

    def questions(self, group: Ints, seed: int, output_length: OutputLength) -> Questions:
        columns = self._columns
        rows = random(seed, QUESTIONS).integers(len(columns["prompt_tokens"]), size=len(group))
        predictions: dict[str, Floats] = {name: columns[name][rows].astype(np.float64) for name in self.predictors}
        prompts, outputs = (columns[name][rows].astype(np.int32) for name in LENGTHS)
        return Questions(prompts, outputs, predictions=predictions)

    @property
    def _place(self) -> str:
        return str(PACKAGED) if self.path is None else f"workload.path={self.path}"

    @cached_property
    def _bytes(self) -> bytes:
        try:
            return (PACKAGED if self.path is None else Path(self.path).expanduser()).read_bytes()
        except (OSError, ValueError) as error:
            raise unreadable(self._place, self.path, error) from None

    @cached_property
    def _columns(self) -> dict[str, npt.NDArray[Any]]:
        import pyarrow as pa
        import pyarrow.parquet as pq

        try:
            table = pq.read_table(pa.BufferReader(self._bytes))
        except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
            raise InvalidInput(f"{self._place} is not a Parquet file: {str(error).splitlines()[0]}") from None
        columns = {}
        for name, column in zip(table.column_names, table.columns, strict=True):
            if name in columns:
                raise InvalidInput(f"{self._place}: there are two columns {name}")
            if not (pa.types.is_integer(column.type) or (name not in LENGTHS and pa.types.is_floating(column.type))):
                what = "integers" if name in LENGTHS else "numbers"
                raise InvalidInput(f"{self._place}: column {name} is {column.type}; it must be {what}")
            columns[name] = column.to_numpy()
            bad = np.flatnonzero(~(np.isfinite(columns[name]) & (columns[name] > 0) & (columns[name] <= LONGEST)))
            if column.null_count or len(bad):
                where = f", row {bad[0]}" if len(bad) else ""
                raise InvalidInput(f"{self._place}: column {name}{where}: it must be > 0 and at most {LONGEST}")
        for name in LENGTHS:
            if name not in columns:
                raise InvalidInput(f"{self._place}: there is no column {name}")
        if not table.num_rows:
            raise InvalidInput(f"{self._place}: there are no rows")
        return columns
