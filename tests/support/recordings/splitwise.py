"""The recordings of splitwise-sim, and the same runs made by this package.

Of the folder named in PREBLEEXP_CLUSTER_FIDELITY (default: ../shared/fidelity/clusters beside the checkout).
"""

from __future__ import annotations

import json
import math
import os
from pathlib import Path
from typing import Any

import numpy as np

from prebleexp.engines.splitwise import loop
from prebleexp.engines.splitwise.engine import Splitwise
from prebleexp.engines.splitwise.records import Sim
from prebleexp.engines.splitwise.state import EXAMPLE, allocate, with_more_room
from prebleexp.sim.handles import Block
from prebleexp.sim.types import Workload
from tests.support.places import ROOT

FOLDER = Path(os.environ.get("PREBLEEXP_CLUSTER_FIDELITY", ROOT.parent / "shared" / "fidelity" / "clusters"))
CASES = sorted(path.stem.removeprefix("splitwise_") for path in FOLDER.glob("splitwise_*.npz"))
COLUMNS = (
    *("prompt_instance", "token_instance", "prompt_start", "prompt_end"),
    *("transfer_start", "transfer_end", "token_start", "token_end"),
)


def stream(arrival: Any, prompt: Any, tokens: Any) -> Workload:
    """Prompts that share nothing."""
    n = len(arrival)
    return Workload(arrival, prompt, tokens, tokens, np.full(n, -1), np.arange(n + 1), np.arange(n), prompt)


def served(workload: Workload, engine: Splitwise, machines: int) -> Sim:
    """The state in which a run ends that nothing stops."""
    block = Block(allocate(workload, engine, machines, math.inf, 1 << 15), EXAMPLE.layout)
    while True:
        status = loop.advance(block.handle)
        if status == loop.DONE:
            return block.value
        if status == loop.NEEDS_ROOM:
            block.replace(with_more_room(block.value))


def columns(sim: Sim) -> dict[str, Any]:
    """As a recording has them."""
    prompts, tokens = sim.tasks[::2], sim.tasks[1::2]
    moved = (sim.requests.transfer_start_s, sim.requests.transfer_end_s)
    times = (prompts.start_s, prompts.end_s, *moved, tokens.start_s, tokens.end_s)
    return dict(zip(COLUMNS, (prompts.machine, tokens.machine, *times), strict=True))


def rerun(case: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """A recording, and the same run made by this package."""
    with np.load(FOLDER / f"splitwise_{case}.npz", allow_pickle=False) as arrays:
        recorded = dict(arrays)
    config = json.loads(str(recorded["config"]))
    engine = Splitwise(
        start_state=config["start"],
        scheduler=config["scheduler"],
        model=config["model"],
        a100=config["a100"],
        prompt_machines=config["prompt_instances"],
        token_machines=config["token_instances"],
    )
    workload = stream(recorded["arrival"], recorded["prompt"], recorded["tokens"])
    return recorded, columns(served(workload, engine, config["a100"] + config["h100"]))
