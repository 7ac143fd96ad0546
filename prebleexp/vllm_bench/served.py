"""A run as the tool's client saw it: when it sent what, and when each token came."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from prebleexp.experiment.runs import Run
from prebleexp.sim.steps import Steps
from prebleexp.sim.types import Floats, Ints, Longs, State

ROUNDING_S = 1e-9


class Served(NamedTuple):
    """Of n requests in the order in which they came to the client's queue; warm-ups are left out. Seconds; times count
    from the beginning of the simulated run."""

    input_lens: Ints
    output_lens: Longs
    """tokens that came; 0 of one that failed"""
    start_s: Floats
    """when it was sent; that of one that never was is when it came"""
    waited_s: Floats
    """at the client, before it was sent"""
    ttft_s: Floats
    """from when it was sent; 0 of one that failed"""
    latency_s: Floats
    """likewise"""
    gaps_s: Sequence[Floats]
    """between its tokens: one fewer than there are"""
    ok: npt.NDArray[np.bool_]
    errors: Sequence[str]
    """empty where it is ok"""
    begun_s: float
    """when the first could be sent: all warm-ups were over"""
    duration_s: float
    spread: int
    """of how many requests it is not known in which steps their tokens came, so that these are taken to be even"""


def served(run: Run, steps: Steps) -> Served:
    """`steps` observed the run. Tokens come when steps end; of steps that the event loop bundled, each is as long."""
    workload, outcome = run.workload, run.outcome
    warm = workload.stage < 0
    begun_s = float(np.nanmax(outcome.finish_s[warm], initial=0.0)) if warm.any() else 0.0
    own = ~warm & (outcome.state != State.NOT_DUE)
    queues = bool(warm.any()) or workload.after_ends.any()
    came_s = begun_s + (workload.delay_s if warm.any() else workload.arrival_s)[own]
    ok = (outcome.state == State.FINISHED)[own]
    due_s = np.where(np.isnan(outcome.due_s[own]), came_s, outcome.due_s[own])
    outputs = np.where(ok, outcome.output_seen[own], 0).astype(np.int64)
    ttft_s, latency_s = (np.where(ok, one[own], 0.0) for one in (outcome.ttft_s, outcome.latency_s))
    gaps_s, spread = _gaps(steps, outcome.decode_gpu[own], outputs, due_s + ttft_s, due_s + latency_s)
    over_s = (due_s + latency_s)[ok].max(initial=begun_s)
    return Served(
        input_lens=workload.prompt_tokens[own],
        output_lens=outputs,
        start_s=due_s,
        waited_s=np.maximum(due_s - came_s, 0.0) if queues else np.zeros(len(due_s)),
        ttft_s=ttft_s,
        latency_s=latency_s,
        gaps_s=gaps_s,
        ok=ok,
        errors=["" if one == State.FINISHED else State(one).name.lower() for one in outcome.state[own].tolist()],
        begun_s=begun_s,
        duration_s=float(over_s) - begun_s,
        spread=spread,
    )


def _gaps(steps: Steps, gpus: Ints, outputs: Longs, first_s: Floats, last_s: Floats) -> tuple[list[Floats], int]:
    """Between the tokens of each request, and of how many these are taken to be even: of those whose tokens are fewer
    than the steps that made tokens meanwhile, for example because they left the batch."""
    ends = _token_times(steps)
    found, spread = [], 0
    for g, many, first, last in zip(gpus.tolist(), outputs.tolist(), first_s, last_s, strict=True):
        if many < 2:
            found.append(np.zeros(0))
            continue
        times = ends.get(g, np.zeros(0))
        low, high = np.searchsorted(times, (first + ROUNDING_S, last + ROUNDING_S))
        if high - low == many - 1:
            found.append(np.diff(times[low:high], prepend=first))
        else:
            spread += 1
            found.append(np.full(many - 1, (last - first) / (many - 1)))
    return found, spread


def _token_times(steps: Steps) -> dict[int, Floats]:
    """When steps ended that gave tokens to those that were in the batch already, by GPU."""
    columns = steps.columns()
    gives = columns["generated_tokens"] > 0
    gpu, many = columns["gpu"][gives], np.maximum(columns["decode_steps"][gives], 1)
    starts, ends = columns["start_s"][gives], columns["end_s"][gives]
    rows = np.repeat(np.arange(len(many)), many)
    number = np.arange(len(rows)) - np.repeat(np.cumsum(many) - many, many) + 1
    left = (many[rows] - number) / many[rows]
    times = ends[rows] - left * (ends - starts)[rows]
    return {int(g): times[gpu[rows] == g] for g in np.unique(gpu)}
