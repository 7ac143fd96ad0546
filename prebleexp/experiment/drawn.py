"""Whether a run draws anything: where it does not, all seeds are one run."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from prebleexp.sim.types import Setup, Workload

if TYPE_CHECKING:
    from prebleexp.experiment.cell import Cell

OF_SEEDS = ("seed", "rng", "agreed_seed", "common_seed")


class Watched(Setup):
    """Knows whether anybody looked at its seed: randomness of policies comes from nowhere else."""

    def __getattribute__(self, name: str) -> Any:
        if name in OF_SEEDS:
            object.__setattr__(self, "looked", True)
        return super().__getattribute__(name)


def draws(cell: Cell) -> bool:
    """Whether another seed can make another run."""
    if "seed" in cell.workload.obeys or cell.engine.own_loop() is not None or cell.engine.draws:
        return True
    if (
        not (cell.faults.changes_nothing and cell.adapters.changes_nothing)
        or cell.gateway.retries
        or cell.gateway.replicas > 1
    ):
        return True
    if cell.reads_lengths and cell.lengths.draws:
        return True
    return routes(cell)


def routes(cell: Cell) -> bool:
    """Whether a router of it draws where requests go."""
    second = cell.cluster.decode_policy
    return any(_looks(one, cell) for one in (cell.policy, second) if one is not None)


def _looks(policy: Any, cell: Cell) -> bool:
    """Told of one request, which is of a session, so that no router refuses it."""
    one = np.ones(1, np.int32)
    workload = Workload(np.zeros(1), one, one, one, one - 1, np.array([0, 1]), one - 1, one, session=one - 1)
    kind = cell.kinds[0].hardware
    setup = Watched(cell.replicas, 0, 1, kind.kv_tokens, kind.context_length, workload)
    object.__setattr__(setup, "looked", False)
    policy.start(setup)
    return bool(setup.__dict__["looked"])
