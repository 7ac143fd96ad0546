"""What a predictor said of each request."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from prebleexp.errors import InvalidInput, unknown
from prebleexp.lengths.base import Lengths
from prebleexp.sim.types import Floats, Workload


@dataclass(frozen=True)
class Predicted(Lengths):
    """The predictions that come with the workload's requests. `overhead.prediction_s` says what one takes."""

    draws: ClassVar[bool] = False

    predictor: str = "minilm"
    """its name in the workload"""

    def check(self, predictors: Sequence[str]) -> None:
        if not predictors:
            raise InvalidInput("lengths=predicted needs a workload with predictions, such as workload=instructions")
        if self.predictor not in predictors:
            raise unknown("lengths.predictor", str(self.predictor), predictors)

    def expected(self, workload: Workload, seed: int) -> Floats:
        self.check(tuple(workload.predictions))
        return workload.predictions[self.predictor]
