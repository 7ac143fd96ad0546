"""Benchmarks of clients in a closed loop, served by the simulator; `prebleexp.hardware.equations.closed_loop_s` has a
formula for them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from prebleexp.experiment.cell import Cell
from prebleexp.experiment.runs import simulate_cell
from prebleexp.hardware.composed import Composed
from prebleexp.hardware.equations import PER_CLIENT, Array, held_up_s
from prebleexp.hardware.measurements import ClosedLoops, Sizes
from prebleexp.hardware.parameters import NAMES, Parameters
from prebleexp.sim.types import Workload
from prebleexp.workloads.sessions import Sessions


def simulated(
    cell: Cell, loops: ClosedLoops, p: Mapping[str, Array], sizes: Sizes, seed: int = 0
) -> tuple[Array, Array]:
    """(Mean TPOT, mean TTFT) in seconds of each benchmark, under its parameters, on one replica as the cell has
    it. Raises InvalidInput for one whose hardware cannot be composed."""
    tpot, ttft = np.empty(len(loops)), np.empty(len(loops))
    for row in range(len(loops)):
        one = {name: float(values[row]) for name, values in p.items()}
        clients, prompt = int(loops.clients[row]), float(loops.prompt[row])
        drawn = draw(clients, prompt, float(loops.output[row]), float(loops.shortest[row]), seed)
        made = hardware(loops, row, sizes, one)
        served = simulate_cell(replace(cell, hardware=made, gpus=made.gpus_per_replica), drawn)
        tpot[row] = np.mean((served.latency_s - served.ttft_s) / (drawn.output_tokens - 1))
        ttft[row] = np.mean(served.ttft_s) + held_up_s(one, clients, prompt) / PER_CLIENT + loops.held[row] * tpot[row]
    return tpot, ttft


def hardware(loops: ClosedLoops, row: int, sizes: Sizes, p: Mapping[str, float]) -> Composed:
    """The hardware of a benchmark, a row of the closed loops."""
    of = {name: str(values[row]) for name, values in loops.labels.items()}
    return Composed(
        gpu=sizes.gpus[of["gpu"]],
        model=sizes.models[of["model"]],
        engine=of["engine"],
        tensor_parallel=int(of["tp"]),
        precision=of["precision"],
        kv_precision=of["kv"],
        parameters=Parameters(**{name: p[name] for name in NAMES}),
    )


def draw(clients: int, prompt: float, output: float, shortest: float, seed: int) -> Workload:
    """Clients that all begin at once and send so many requests, each when the one before is answered; lengths of these
    means, uniform from `shortest` of the longest to that, and no prefix that two of them share."""
    made = Sessions()
    rng = np.random.default_rng([seed, clients])
    longest = np.array([prompt, output]) * 2 / (1 + shortest)
    least = np.maximum(np.round(shortest * longest), (1, 2)).astype(int)
    lengths = rng.integers(least, np.maximum(np.round(longest), least) + 1, (clients, PER_CLIENT, 2))
    for turns in lengths.tolist():
        session, before = made.begin(), list[int]()
        for new, tokens in turns:
            before = [made.request(session, new, tokens, after=before)]
    return made.workload()
