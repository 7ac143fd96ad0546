"""A policy outside of a simulation, as settings of one name it: what `route` and `pick` share."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

from prebleexp.errors import InvalidInput

if TYPE_CHECKING:
    from prebleexp.experiment.cell import Cell

OF_SIMULATIONS = ("policy", "hardware", "seed")
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
    """What the settings of a simulation say of policy, hardware and seed."""
    from prebleexp.launch.configure import job

    return job(["rps=1", *settings]).cells[0]
