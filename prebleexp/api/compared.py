"""Two sides of a sweep against each other, as `python -m prebleexp compare` pairs them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from prebleexp.api import html
from prebleexp.comparison import Comparison, Measured, flattened
from prebleexp.experiment.cache import Cache
from prebleexp.experiment.key import content
from prebleexp.experiment.results import Result
from prebleexp.launch.streams import with_streams
from prebleexp.launch.tables import number
from prebleexp.report import compared

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True, repr=False)
class Compared:
    """B against A, cell by cell: paired differences over common seeds."""

    a: str
    b: str
    found: Comparison
    """the cells, and what tells the sides apart"""

    def frame(self) -> pd.DataFrame:
        """A row for each cell: its place on the axes, the means of A and B, the difference and the half-width of its
        95 % interval (both as shares of A's mean), how many seeds, and the verdict."""
        import pandas as pd

        return pd.DataFrame(self.found.rows())

    def __repr__(self) -> str:
        return f"<A {self.a}, B {self.b}, {self.found.metric}: {self.found.account()}>"

    def _repr_html_(self) -> str:
        lines = compared.lines(self.found, number, finished=False)
        heads = (
            *compared.axes(self.found),
            f"{self.found.metric} of A ({self.a})",
            f"of B ({self.b})",
            "difference",
            "seeds",
            "B is",
        )
        return html.table(heads, lines, " in .frame()") + html.paragraph(self.found.account())


def measured(results: Iterable[Result], cache: Cache) -> list[Measured]:
    """Runs as one side of a comparison; those that failed are none of it."""
    known = {
        result.key: Measured.of(flattened(content(result.cell)), result.metrics, result.provenance)
        for result in results
        if result.metrics is not None
    }
    return with_streams(cache, list(known), list(known.values()))
