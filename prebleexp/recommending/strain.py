"""What the first candidate does under a greater load, and without a replica."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from prebleexp.experiment.cell import Cell
from prebleexp.planning.beside import Beside, strained
from prebleexp.planning.planned import Planned
from prebleexp.planning.prices import Prices
from prebleexp.recommending.candidates import Candidate

SPLIT = "what the loss of a replica does is not known of a split, where it matters which role it has"


def strain(of: Candidate, prices: Prices, runs: Callable[[Sequence[Cell]], Sequence[Mapping[str, Any]]]) -> Beside:
    """Headroom and loss alone, over the streams of the last round. `runs` has the metrics of cells."""
    design = of.design
    answer = of.answer.times(design.each)
    planned = Planned(str(design.at["policy"]), design.at, design.contender, answer, prices)

    def parted(_: str, cells: Sequence[Cell]) -> Sequence[Mapping[str, Any]]:
        return runs([design.parted(cell, cell.gpus // design.each) for cell in cells])

    found = strained(planned, answer.seeds, parted, alike=design.split is None)
    unknown = found.unknown if design.split is None else (*found.unknown, SPLIT)
    return Beside(
        of=planned,
        size=of.replicas * design.each,
        seen={},
        off=None,
        slower=None,
        faster=None,
        most=None,
        enough=None,
        **found._replace(unknown=unknown)._asdict(),
    )
