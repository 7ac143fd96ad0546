"""A policy outside of a simulation, as settings of one name it: what `route` and `pick` share."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

from prebleexp.checks import not_valid
from prebleexp.errors import InvalidInput

if TYPE_CHECKING:
    from prebleexp.experiment.cell import Cell

OF_SIMULATIONS = ("policy", "hardware", "lengths", "seed")
"""what is taken of their settings"""


def refuse_others(command: str, settings: Sequence[str]) -> None:
    """Nothing is passed over: what says nothing here is not taken."""
    for one in settings:
        key = one.lstrip("+~").partition("=")[0]
        if re.split(r"[./@]", key)[0] not in OF_SIMULATIONS:
            raise InvalidInput(
                f"{command} does not take {key}= of a simulation; valid: its own settings ({command} --help), and "
                f"{', '.join(OF_SIMULATIONS)}"
            )


def cell(settings: Sequence[str]) -> Cell:
    """What the settings of a simulation say of policy, hardware, lengths and seed."""
    from prebleexp.launch.configure import job

    return job(["rps=1", *settings]).cells[0]


def lengths_window_s(cell: Cell) -> float:
    """Over which the router learns lengths of answers; 0: it does not. Raises InvalidInput for what it cannot know."""
    from prebleexp.lengths.known import Max
    from prebleexp.lengths.mean import Mean

    lengths = cell.lengths
    if isinstance(lengths, Mean) and not lengths.per_prefix:
        return lengths.window
    if isinstance(lengths, Max):
        return 0.0
    name = "mean with lengths.over=prefix" if isinstance(lengths, Mean) else cell.names["lengths"]
    raise not_valid("lengths", name, "max or mean (over all requests): a router knows no more of answers to come")
