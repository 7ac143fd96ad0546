"""The recordings of the released simulator, and how a run is compared with one.

All of the folder named in PREBLEEXP_FIDELITY (default: ../shared/fidelity beside the checkout) if there is one,
else the few that are committed.
"""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from prebleexp.engines.released.engine import Released
from prebleexp.lengths.known import Max, Oracle
from prebleexp.overhead.model import Overhead
from prebleexp.policies.e2_released import ReleasedE2
from prebleexp.policies.lor import LeastOutstanding
from prebleexp.policies.random import Random
from prebleexp.policies.round_robin import RoundRobin
from prebleexp.sim.simulate import simulate
from prebleexp.sim.types import Outcome, Workload
from tests.support.costs.fitted import A6000
from tests.support.places import ROOT

COMMITTED = ROOT / "tests" / "data" / "fidelity"
BESIDE = Path(os.environ.get("PREBLEEXP_FIDELITY", ROOT.parent / "shared" / "fidelity"))
FOLDER = BESIDE if any(BESIDE.glob("outcome_*.npz")) else COMMITTED
CASES = sorted(path.stem.removeprefix("outcome_") for path in FOLDER.glob("outcome_*.npz"))


OWN = {
    "lor": LeastOutstanding(),
    "random": Random(seed=42),
    "round_robin": RoundRobin(),
    "preble": ReleasedE2(),
    "empanada": ReleasedE2(),
}


def load(case: str, folder: Path = FOLDER) -> tuple[dict[str, Any], dict[str, Any], Workload]:
    """A recording's columns, its configuration and its workload."""
    with np.load(folder / f"outcome_{case}.npz", allow_pickle=False) as arrays:
        recorded = dict(arrays)
    config = json.loads(str(recorded["config"]))
    with np.load(folder / config["workload_file"], allow_pickle=False) as arrays:
        return recorded, config, Workload(**arrays)


def rerun(case: str, *, stepwise: bool = False, folder: Path = FOLDER) -> tuple[dict[str, Any], Outcome]:
    """A recording, and the same run made by this package."""
    recorded, config, workload = load(case, folder)
    outcome = simulate(
        workload,
        gpus=config["num_gpus"],
        policy=OWN[config["scheduler"]],
        hardware=replace(A6000, kv_tokens=config["kv_tokens_effective"], context_length=config["context_len"]),
        engine=Released(config.get("step_cost_s", 0.0006), config.get("output_step_cost_s", 0.03), stepwise=stepwise),
        lengths=Oracle() if config["scheduler"] == "empanada" else Max(),
        overhead=Overhead(),
        duration_s=config["duration"],
        horizon=config.get("horizon", "stop"),
        seed=0,
    )
    return recorded, outcome


def assert_equal(recorded: dict[str, Any], outcome: Outcome) -> None:
    """Bit for bit."""
    for name in ("gpu", "ttft_s", "latency_s", "finish_s", "output_seen"):
        np.testing.assert_array_equal(getattr(outcome, name), recorded[name], err_msg=name)
    np.testing.assert_array_equal(outcome.state == 3, recorded["success"])
    totals = (outcome.gpu_hit_tokens, outcome.gpu_forwarded_tokens, outcome.gpu_recomputed_tokens, outcome.gpu_requests)
    np.testing.assert_array_equal(np.stack(totals, axis=1), recorded["per_gpu"])
    assert outcome.gpu_evicted_tokens.sum() == recorded["evicted_tokens"]
    assert outcome.gpu_retracted.sum() == recorded["retracted"]
