"""What GPUs cost: one price for all, or one for each kind."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from prebleexp.checks import is_number, require
from prebleexp.errors import InvalidInput

if TYPE_CHECKING:
    from prebleexp.experiment.cell import Cell

KEY = "price_per_gpu_hour"
LIKE = "a number > 0, or one for each kind of GPU, as {h100: 2.5, h200: 3.5}"


def read(text: str) -> Any:
    """What a command line says: a number, or names and numbers in braces; what is neither is left as it is."""
    if not text.startswith("{"):
        return _number(text)
    pairs = (one.partition(":") for one in text.strip("{}").split(","))
    return {name.strip(): _number(value.strip()) for name, _, value in pairs}


def _number(text: str) -> Any:
    try:
        return float(text)
    except ValueError:
        return text


@dataclass(frozen=True)
class Prices:
    """Of an hour of one GPU. Raises InvalidInput for what is no price."""

    of: float | Mapping[str, float]

    def __post_init__(self) -> None:
        each = list(self.of.values()) if isinstance(self.of, Mapping) else [self.of]
        require(bool(each) and all(is_number(one) and one > 0 for one in each), KEY, self.of, LIKE)

    def an_hour(self, cell: Cell) -> float:
        """Of all its GPUs. Raises InvalidInput, naming the kind, if it has no price."""
        from prebleexp.experiment import counting  # which the help of a command does not need

        return sum(size.gpus * self._of_kind(name) for size, name, _ in counting.kinds(cell))

    def _of_kind(self, name: str) -> float:
        if not isinstance(self.of, Mapping):
            return self.of
        if name not in self.of:
            kind = name or "GPUs whose kind is not known"
            raise InvalidInput(f"{KEY} has no price of {kind}; it has {', '.join(self.of)}; give one, or one for all")
        return self.of[name]
