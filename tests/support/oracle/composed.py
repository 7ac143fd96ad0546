"""The second simulator of several features at once: their layers, one above the other, and nothing of its own."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from prebleexp.sim.types import Outcome, Workload
from tests.support.oracle.core import Oracle
from tests.support.oracle.faults import FaultyOracle
from tests.support.oracle.scaling import ScaledOracle
from tests.support.oracle.tiers import TiersOracle

USUAL = {"reports_ms": 0.0, "kinds": (), "faults": None, "pools": None, "tiers": None, "autoscaler": None}


def layers(of: Any) -> list[type[Oracle]]:
    """Those that a run has, the highest first: the last says what GPUs are."""
    above = [ScaledOracle] if of.autoscaler is not None else []
    return [*above, FaultyOracle if of.tiers is None else TiersOracle]


def simulate(workload: Workload, **given: Any) -> Outcome:
    """As `prebleexp.sim.simulate.simulate` with `engine=vllm`, of lengths Max."""
    of = SimpleNamespace(**{**USUAL, **given})
    return type("Composed", tuple(layers(of)), {})(workload, of).run()
