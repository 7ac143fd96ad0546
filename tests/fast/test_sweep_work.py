"""What a sweep does besides its simulations, in calls of functions. Numbers are printed (-s)."""

from __future__ import annotations

from pathlib import Path

import pytest

import prebleexp.sim.simulate
from prebleexp.__main__ import main
from tests.support.counted import calls
from tests.support.stand_in import served

SWEEP = ("-m", "gpus=1,2", "policy=random,round_robin", "duration_s=1", "report=none", "output=csv", "workers=1")


def swept(seeds: str) -> int:
    return calls(lambda: main([*SWEEP, f"seed=range({seeds})"]))


@pytest.mark.slow
def test_a_run_more_takes_few_calls_computed_or_cached(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By the difference of a long sweep and a short one: what a sweep takes once is not a run's."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(prebleexp.sim.simulate, "simulate", served)
    swept("0,1")  # imports
    few, many = swept("1,3"), swept("3,15")
    computed = (many - few) / 40
    few, many = swept("1,3"), swept("3,15")
    cached = (many - few) / 40
    print(f"{computed:,.0f} calls for a run that is computed, {cached:,.0f} from the cache")
    assert computed < 4_350
    assert cached < 950
