"""What the router is told of requests that are being served, one by one: how much nearer to its end the running batch
of each GPU is than all that was expected of it less all that it has produced."""

from __future__ import annotations

from typing import Any

from prebleexp.sim.batch import output_of
from prebleexp.sim.compiled import compiled
from prebleexp.sim.records import Sim

NONE = -1


@compiled
def refine(sim: Sim) -> None:
    """Fill in `ahead` of every GPU, as of now."""
    for g in range(len(sim.gpus)):
        gpu = sim.gpus[g]
        gpu.ahead = 0.0
        for row in range(gpu.batch_offset, gpu.batch_offset + gpu.batch_rows):
            request = int(sim.batches.order[row])
            if request != NONE:
                gpu.ahead += _ahead(sim, gpu, request)


@compiled
def _ahead(sim: Sim, gpu: Any, request: int) -> float:
    """Tokens by which a running request has less left than what was expected of it less what it has. Unless lengths are
    refined, one that is beyond what was expected has none left, and not less than none."""
    output, row = output_of(gpu, sim.jobs[request]), sim.requests[request]
    if len(sim.left) == 0:
        return min(0.0, row.expected_output - output)
    left = sim.left[row.length_class, min(output, sim.left.shape[1] - 1)]
    return row.expected_output - output - left
