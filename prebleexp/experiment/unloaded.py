"""How requests do alone: each on an idle GPU with an empty prefix cache, by the engine and the costs of their run,
or by those of the hardware that the service level names."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any, ClassVar

import numpy as np

from prebleexp.engines.base import Engine
from prebleexp.experiment.cell import Cell
from prebleexp.hardware.base import Hardware
from prebleexp.lengths.known import Max
from prebleexp.overhead.model import Overhead
from prebleexp.policies.base import Policy
from prebleexp.service.attainment import Unloaded
from prebleexp.sim.records import View
from prebleexp.sim.types import Ints, Outcome, Workload

AT_ONCE = 256
"""requests that are simulated together, on as many GPUs"""
REMEMBERED = 64
"""sets of requests: runs of a plan serve the same ones at every load"""


@dataclass(frozen=True)
class _Alone(Policy):
    """Each request has a GPU of its own, which nobody used before; of ranks that step together the first."""

    ranks: int = 1
    compiled: ClassVar[bool] = False
    reads_lengths: ClassVar[bool] = False

    def route(self, mine: Any, view: View, request: int, now: float) -> int:
        return request * self.ranks


def unloaded(cell: Cell, workload: Workload) -> Unloaded:
    """Of each request of a cell's stream. Those of equal sizes are simulated once, unless the engine knows."""
    known = cell.engine.alone(workload)
    if known is not None:
        return Unloaded(*known)
    lengths = np.minimum(workload.output_tokens, workload.max_new_tokens)
    sizes = np.column_stack([workload.prompt_tokens, lengths, workload.max_new_tokens])
    kinds, of = np.unique(sizes, axis=0, return_inverse=True)
    alone = _of_kinds(kinds.tobytes(), cell.engine, cell.alone_on.drawn(cell.seed))
    return Unloaded(alone.ttft_s[of], alone.tpot_s[of], alone.latency_s[of])


@lru_cache(REMEMBERED)
def _of_kinds(sizes: bytes, engine: Engine, hardware: Hardware) -> Unloaded:
    """Of requests (prompt, output, most output tokens)."""
    kinds = np.frombuffer(sizes, np.int32).reshape(-1, 3)
    made = [_simulated(kinds[i : i + AT_ONCE], engine, hardware) for i in range(0, len(kinds), AT_ONCE)]
    ttft_s, latency_s, tokens = (
        np.concatenate([getattr(one, name) for one in made]) for name in ("ttft_s", "latency_s", "output_seen")
    )
    tpot_s = np.divide(latency_s - ttft_s, tokens - 1, out=np.full(len(tokens), np.nan), where=tokens > 1)
    return Unloaded(ttft_s, tpot_s, latency_s)


def _simulated(kinds: Ints, engine: Engine, hardware: Hardware) -> Outcome:
    from prebleexp.sim.simulate import simulate

    count = len(kinds)
    stream = Workload(
        arrival_s=np.zeros(count),
        prompt_tokens=kinds[:, 0],
        output_tokens=kinds[:, 1],
        max_new_tokens=kinds[:, 2],
        prefix_group=np.full(count, -1),
        segment_offsets=np.arange(count + 1),
        segment_ids=np.arange(count),
        segment_tokens=kinds[:, 0],
    )
    return simulate(
        stream,
        gpus=count * hardware.ranks,
        policy=_Alone(hardware.ranks),
        hardware=hardware,
        engine=engine,
        lengths=Max(),
        overhead=Overhead(),
        duration_s=1.0,
        horizon="drain",
        seed=0,
    )
