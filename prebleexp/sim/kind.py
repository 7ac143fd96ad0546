"""GPUs of one kind in a run."""

from __future__ import annotations

from typing import Any

from prebleexp.sim import addresses
from prebleexp.sim.compatibility import FEATURES
from prebleexp.sim.given import Given
from prebleexp.sim.plug import Plug
from prebleexp.sim.pools import RESERVE_FIRST
from prebleexp.sim.signatures import (
    CANCELLING,
    COST,
    DECIDING,
    DECODING,
    ENGINE,
    FAILING,
    LENDING,
    MIGRATING,
    MOVING,
    TIERING,
    WAVE,
)


class Kind:
    """Their engine and what it costs, both told of this kind alone."""

    def __init__(self, given: Given, kind: int) -> None:
        (self.count, hardware), self.setup = given.kinds[kind], given.setup(kind)
        self.batcher = engine = given.engine_of(kind)
        kept = engine.start(self.setup)
        functions = dict(ENGINE)
        if given.pools is not None:
            functions |= MOVING[given.pools.protocol]
            functions |= {} if given.pools.prompts_first else DECIDING
        waits = given.pools is not None and given.pools.protocol == RESERVE_FIRST
        lends = given.tiers is not None and given.tiers.peers is not None
        for some, there in (
            (CANCELLING, given.impatient or (waits and FEATURES["faults"](given))),
            (TIERING, given.tiers),
            (LENDING, lends),
            (FAILING, FEATURES["faults"](given) and (lends or FEATURES["pull"](given))),
            (MIGRATING, given.migration),
            (DECODING, not (given.tiers or given.migration or self.setup.ranks * self.setup.stages > 1)),
        ):
            functions |= some if there else {}
        made = engine.kernels_for(self.setup), kept
        self.engine = Plug(engine, *made, addresses.ENGINE, functions, ("cancel", "decode", "fail"), given.check)
        costs, asked = (hardware.kernels(), hardware.start()), {**COST, **(WAVE if hardware.ranks > 1 else {})}
        self.cost = Plug(hardware, *costs, addresses.COST, asked, check=given.check)
        self.cost.record.frontend_s, self.cost.record.frontend_token_s = hardware.frontend_s
        self.cost.record.handoff_s, self.cost.record.handoff_token_s = hardware.handoff_s

    def records(self) -> tuple[Any, Any]:
        """Of each of its GPUs: its engine's, and its cost's."""
        return self.engine.repeated(self.count), self.cost.repeated(self.count)
