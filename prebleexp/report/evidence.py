"""On what step times rest, in a word for a table, and in a few beside GPUs that a sentence names."""

from __future__ import annotations

from collections.abc import Sequence

from prebleexp.experiment.cell import Cell
from prebleexp.hardware.base import Hardware
from prebleexp.hardware.composed import Composed
from prebleexp.planning.planned import Planned
from prebleexp.report.contenders import named
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
SAID = {
    MEASURED: MEASURED,
    UNSPLIT: "measured in whole replicas",
    "steps": "whole steps measured, no serving engine",
    "similar": "not measured itself, other models were",
}
"""of words whose line of support is full of numbers"""
UNKNOWN = "nothing says how good they are"


def word(cell: Cell) -> str:
    """One of `WORDS`; `UNSPLIT` where replicas for prompts alone were measured as whole ones, `OWN` for parameters that
    were given, and nothing for hardware that is not composed."""
    return _word(cell.hardware, cell)


def _word(hardware: Hardware, cell: Cell) -> str:
    if not isinstance(hardware, Composed):
        return NOTHING
    found = OWN if hardware.evidence is None else WORDS[hardware.evidence.level]
    return UNSPLIT if found == MEASURED and cell.cluster.has_roles else found


def aside(cell: Cell) -> str:
    """ " (step times: theory only, nothing like it was measured)" """
    return f" (step times: {_said(cell)})"


def of_several(of: Sequence[Planned], found: Sequence[Planned]) -> str:
    """The same of some contenders, where those of a plan are not all of one kind of GPU with one evidence: nothing that
    a sentence names as enough is taken for as sure as the best, of which the plan says more."""
    if len({(*(kind.hardware.gpu_name for kind in one.cell.kinds), _said(one.cell)) for one in found}) < 2:
        return ""
    alike: dict[str, list[Planned]] = {}
    for one in of:
        alike.setdefault(_said(one.cell), []).append(one)
    if len(alike) == 1:
        return aside(of[0].cell)
    return f" (step times: {'; '.join(f'{said} with {named(some, found)}' for said, some in alike.items())})"


def _said(cell: Cell) -> str:
    if "hardware" in cell.engine.brings:
        return cell.engine.support or UNKNOWN
    hardware = [kind.hardware for kind in cell.kinds]
    lines = [SAID.get(_word(one, cell), one.support.replace(": ", ", ", 1)) or UNKNOWN for one in hardware]
    return " and ".join(dict.fromkeys(lines))
