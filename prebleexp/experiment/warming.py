"""What of a cell's request stream comes before its run, and what is its own."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from prebleexp.errors import InvalidInput
from prebleexp.experiment.load import retimed
from prebleexp.policies.replay import Replay
from prebleexp.sim.warmth import Before
from prebleexp.warm.base import COLD

if TYPE_CHECKING:
    from prebleexp.experiment.cell import Cell
    from prebleexp.sim.types import Workload


def check(cell: Cell) -> None:
    """Raises InvalidInput for what does not go with requests that are served before a run."""
    if cell.warm.changes_nothing:
        return
    if cell.engine.own_loop() is not None:
        name = cell.names.get("engine", type(cell.engine).__name__)
        raise InvalidInput(f"engine={name} begins with empty caches; take another engine, or warm=none")
    if isinstance(cell.policy, Replay):
        raise InvalidInput("policy=replay knows nothing of requests before the run; take another policy, or warm=none")
    if cell.warm.takes_s and cell.profile.duration_s is not None:
        raise InvalidInput(
            f"warm={cell.names.get('warm', type(cell.warm).__name__)} is not valid with "
            f"profile={cell.names.get('profile', '')}, which lasts as long as it says; take warm=prefixes"
        )
    if cell.workload.users is not None and cell.warm.takes_s:
        raise InvalidInput(
            "warm=first is not valid where users are the load, who go on for ever; take slo.warmup_s=, or warm=prefixes"
        )


def whole(cell: Cell) -> Workload:
    """The stream with what of it comes before the run."""
    longer = cell.warm.takes_s if "duration_s" in cell.workload.obeys else 0.0
    if longer:
        cell = replace(cell, duration_s=cell.duration_s + longer, warm=COLD)
    drawn = cell.workload.draw(
        rps=cell.rps, duration_s=cell.duration_s, seed=cell.seed, output_length=cell.output_length
    )
    return retimed(cell, drawn)


def before(cell: Cell, workload: Workload) -> Before | None:
    """What is served before `workload`, which is what the cell's run serves."""
    if cell.warm.changes_nothing:
        return None
    return cell.warm.before(whole(cell) if cell.warm.takes_s else workload)
