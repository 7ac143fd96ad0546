"""A measurement in the columns of a run, so that all metrics, tables and pages are of it as of a simulated one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from prebleexp.live.measuring.sent import Table
from prebleexp.metrics import DECLARED
from prebleexp.sim.histogram import BINS, edges
from prebleexp.sim.outcome import KINDS
from prebleexp.sim.types import Floats, Longs, Outcome, State

HITS = ("hit_ratio", "found_ratio")
SPREAD = "requests_max_over_mean"
KNOWN_BEGINNINGS = (
    *("n_", "offered", "ttft", "tpot", "latency", "norm_latency", "itl", "output_tokens", "requests_per_s", "session"),
    *("unfinished_growth", "in_system_trend", "due_requests", "slo_", "goodput", "prompt_tokens_max", "end_s"),
)
"""of the names of metrics that a client can know; the others are nothing"""


def outcome(sent: Table, gpus: int, end_s: float) -> Outcome:
    """`gpus`: how many there are to be, or more if an answer says so."""
    n, gpus = len(sent.due_s), max(gpus, int(sent.gpu.max(initial=-1)) + 1)
    columns: dict[str, Any] = {
        name: _nothing(kind, gpus if name.startswith("gpu_") else n) for name, kind in KINDS.items()
    }
    columns |= _gaps(sent.gaps_s)
    cached, served = np.maximum(sent.cached, 0), sent.prompt >= 0
    prefilled = np.where(served, sent.prompt - cached, 0).astype(np.int32)
    given: dict[str, Any] = {
        "gpu": sent.gpu,
        "decode_gpu": sent.gpu,
        "state": sent.state,
        "due_s": sent.due_s,
        "ttft_s": sent.first_s - sent.due_s,
        "latency_s": sent.last_s - sent.due_s,
        "finish_s": np.where(sent.state == State.FINISHED, sent.last_s, np.nan),
        "output_seen": sent.output,
        "hit_tokens": cached,
        "prefilled_tokens": prefilled,
        "prefill_end_s": sent.first_s - sent.due_s,
        "gpu_requests": _by_gpu(sent.gpu, np.ones(n), gpus),
        "gpu_hit_tokens": _by_gpu(sent.gpu, cached, gpus),
        "gpu_prefilled_tokens": _by_gpu(sent.gpu, prefilled, gpus),
        "gpu_on_s": np.full(gpus, end_s),
        "gpu_down_s": np.zeros(gpus),
        "end_s": end_s,
    }
    return Outcome(**columns | given)


def unknown(sent: Table) -> list[str]:
    """Metrics that a client cannot know; of hits and of who served it only where a server says nothing of it."""
    found = [name for name in DECLARED if not name.startswith(KNOWN_BEGINNINGS)]
    if (sent.cached >= 0).any():
        found = [name for name in found if name not in HITS]
    if sent.gpu.max(initial=-1) > 0:
        found.remove(SPREAD)
    return found


def _nothing(kind: type[Any], rows: int) -> Any:
    return np.full(rows, np.nan) if issubclass(kind, np.floating) else np.zeros(rows, kind)


def _by_gpu(gpu: Any, values: Any, gpus: int) -> Longs:
    on = gpu >= 0
    return np.bincount(gpu[on], values[on], minlength=gpus).astype(np.int64)


def _gaps(of_each: Sequence[Floats]) -> dict[str, Any]:
    """All requests as one class."""
    gaps = np.concatenate([*of_each, np.zeros(0)])
    counts = np.bincount(np.searchsorted(edges(), gaps, "right") - 1, minlength=BINS).astype(np.int64)
    return {
        "gaps_priority": np.zeros(1, np.int32),
        "gaps_counts": counts[None, :],
        "gaps_sum_s": np.array([gaps.sum()]),
        "gaps_max_s": np.array([gaps.max(initial=0.0)]),
    }
