"""On what the step times of a candidate rest, in a word."""

from __future__ import annotations

from prebleexp.experiment.cell import Cell
from prebleexp.hardware.composed import Composed
from prebleexp.report.wording import NOTHING

THEORY, MEASURED = "theory", "measured"
OWN = "your own"
UNSPLIT = "unsplit"
WORDS = {
    "measured": MEASURED,
    "ladder measured": MEASURED,
    "steps measured": "steps",
    "unseen model": "similar",
    "kernels only": "kernels",
    "theory": THEORY,
}
"""of levels of `Support`"""


def word(cell: Cell) -> str:
    """One of `WORDS`; `UNSPLIT` where replicas for prompts alone were measured as whole ones, `OWN` for parameters that
    were given, and nothing for hardware that is not composed."""
    hardware = cell.hardware
    if not isinstance(hardware, Composed):
        return NOTHING
    found = OWN if hardware.evidence is None else WORDS[hardware.evidence.level]
    return UNSPLIT if found == MEASURED and cell.cluster.has_roles else found
