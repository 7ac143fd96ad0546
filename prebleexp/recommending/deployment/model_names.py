"""By which name clients ask for the model of the files: by that in the log, where it has one."""

from __future__ import annotations

import re
from collections.abc import Sequence

from prebleexp.errors import InvalidInput
from prebleexp.experiment.cell import Cell
from prebleexp.hardware.composed import Composed

FLAG = "--served-model-name"
WRITABLE = re.compile(r"[A-Za-z0-9/][A-Za-z0-9_.:/@+-]{0,199}")
"""names that are taken from a log"""
SHOWN = 3


def called(cell: Cell) -> str:
    """Raises InvalidInput for hardware that is nobody's product."""
    hardware = cell.hardware
    if not isinstance(hardware, Composed):
        raise InvalidInput(
            f"hardware={cell.called('hardware')} names no GPU and no model to deploy; take hardware=composed"
        )
    return _of_log(cell) or hardware.model.name


def sentence(cells: Sequence[Cell], mark: str = "") -> str:
    """What clients must know of these deployments, which serve the same log; names stand between marks."""
    names = " or ".join(f"{mark}{one}{mark}" for one in dict.fromkeys(map(called, cells)))
    asked = cells[0].workload.asked_models
    flag = f"{mark}{FLAG}{mark}"
    if name := _of_log(cells[0]):
        others = dict.fromkeys(one for cell in cells if not is_called(one := _simulated(cell), name))
        if others:
            return (
                f"The log's requests ask for {names}, and these servers have {' or '.join(others)}: by {flag} they "
                "have the name of the log, so that clients go on asking for it; if it is another model, they get "
                "answers of the one and believe them the other's"
            )
        return f"The log's requests ask for {names}, so that is {flag}: clients go on asking for it"
    must = f"lients must ask for the model as {names}, which is {flag}: to another name vLLM answers 404"
    if len(asked) > 1:
        shown = ", ".join(f"{mark}{one}{mark}" for one in asked[:SHOWN])
        more = f" and {len(asked) - SHOWN} more" if len(asked) > SHOWN else ""
        return f"The log's requests ask for {len(asked)} models ({shown}{more}), and these servers have one. C{must}"
    return f"C{must}"


def is_called(model: str, name: str) -> bool:
    """Whether a name may be that of a model: one is within the other but for marks, case, and what is around them."""
    ours, theirs = (re.sub(r"[^a-z0-9]", "", one.lower()) for one in (model, name))
    return ours in theirs or theirs in ours


def _simulated(cell: Cell) -> str:
    assert isinstance(cell.hardware, Composed)
    return cell.hardware.model.name


def _of_log(cell: Cell) -> str:
    """The only name that its requests have, if that can be written into a command; else nothing."""
    asked = cell.workload.asked_models
    return asked[0] if len(asked) == 1 and WRITABLE.fullmatch(asked[0]) else ""
