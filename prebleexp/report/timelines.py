"""What a run looked like over time, few enough numbers to draw: every bin keeps the least and the greatest value that
was in force in it, and the mean over its time."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from prebleexp.experiment.runs import Run
from prebleexp.sim.steps import Columns, Steps
from prebleexp.sim.types import Longs

Floats = npt.NDArray[np.float64]
BINS = 240
QUANTILES = 400


@dataclass(frozen=True)
class Series:
    """A quantity on every GPU; arrays of shape (gpus, bins). Without `low` and `high` it is a share of each bin's time
    or tokens, NaN where there were none."""

    name: str
    label: str
    mean: Floats
    low: Floats | None = None
    high: Floats | None = None


def edges(end_s: float) -> Floats:
    """Bins of equal length from the start of a run to its end, seconds; shape (BINS + 1,)."""
    return np.linspace(0.0, max(end_s, 1e-9), BINS + 1)


def timelines(run: Run, steps: Steps, gpus: int, kv_tokens: Longs) -> list[Series]:
    """Waiting, running and outstanding requests, KV, hit ratio and busy time of each GPU."""
    bins = edges(run.outcome.end_s)
    columns = steps.columns()
    of_gpu = [{name: column[columns["gpu"] == g] for name, column in columns.items()} for g in range(gpus)]
    times, queues = steps.queues()
    queues = queues if len(times) else np.zeros((0, gpus), np.int64)
    rooms = list(zip(of_gpu, kv_tokens.tolist(), strict=True))
    held = [(one["start_s"], (room - one["kv_free"]) / room) for one, room in rooms]
    used = [(one["start_s"], (room - one["kv_free"] - one["evictable"]) / room) for one, room in rooms]
    tokens = [(one["start_s"], one["prefilled_tokens"] + one["generated_tokens"]) for one in of_gpu]
    sent_back = [(one["start_s"], np.cumsum(one["retracted"])) for one in of_gpu]
    return [
        _series("queue", "Requests waiting", [(times, queues[:, g]) for g in range(gpus)], bins),
        _series("running", "Requests in the batch", [(one["start_s"], one["running"]) for one in of_gpu], bins),
        _series("outstanding", "Requests outstanding", _outstanding(run, gpus), bins),
        _series("kv_held", "KV memory held, the prefix cache included (share)", held, bins),
        _series("kv_used", "KV memory of running requests (share)", used, bins),
        _series("tokens", "Tokens computed in a step", tokens, bins),
        _series("sent_back", "Sent back for want of memory, so far", sent_back, bins),
        Series("hit_ratio", "Prompt tokens found in the cache (share)", np.array([_hits(one, bins) for one in of_gpu])),
        Series("busy", "Time spent computing (share)", np.array([_busy(one, bins) for one in of_gpu])),
    ]


def envelope(times: Floats, values: npt.NDArray[Any], bins: Floats) -> tuple[Floats, Floats, Floats]:
    """Least, greatest and mean value over each bin of a quantity that is 0 at first and values[i] from times[i] on.

    `times` ascend; of equal ones the last counts. `bins` are k + 1 edges; shapes are (k,).
    """
    steps = np.concatenate([[0.0], values.astype(np.float64)])
    starts = np.concatenate([[bins[0]], np.maximum(times, bins[0])])
    lasts = np.clip(np.concatenate([starts[1:], [bins[-1]]]), None, bins[-1])
    lengths = np.maximum(lasts - starts, 0.0)
    area = np.concatenate([[0.0], np.cumsum(steps * lengths)])
    index = np.searchsorted(starts, bins, side="right") - 1  # what is in force at each edge
    at_edge = area[index] + steps[index] * (bins - starts[index])
    mean = np.diff(at_edge) / np.diff(bins)
    low, high = np.empty(len(mean)), np.empty(len(mean))
    for i in range(len(mean)):
        last = max(int(np.searchsorted(starts, bins[i + 1], side="left")), index[i] + 1)
        rows = np.arange(index[i], last)
        rows = rows[(lengths[rows] > 0) | (rows == rows[-1])]  # what something else replaces at once was never in force
        low[i], high[i] = steps[rows].min(), steps[rows].max()
    return low, high, mean


def quantiles(values: Floats) -> Floats:
    """The values of an empirical distribution, all or evenly thinned, the least and the greatest among them."""
    sorted_values = np.sort(values[~np.isnan(values)])
    if len(sorted_values) <= QUANTILES:
        return sorted_values
    return np.asarray(sorted_values[np.linspace(0, len(sorted_values) - 1, QUANTILES).round().astype(np.int64)])


def assignment(run: Run, gpus: int) -> tuple[list[int], npt.NDArray[np.int64]]:
    """Prefix groups, the largest first, and how many requests of each went to each GPU, shape (groups, gpus)."""
    groups, routed = run.workload.prefix_group, run.outcome.gpu >= 0
    names, index = np.unique(groups, return_inverse=True)
    counts = np.zeros((len(names), gpus), np.int64)
    np.add.at(counts, (index[routed], run.outcome.gpu[routed]), 1)
    order = np.argsort(-counts.sum(axis=1), kind="stable")
    return [int(name) for name in names[order]], counts[order]


def _series(name: str, label: str, changes: list[tuple[Floats, npt.NDArray[Any]]], bins: Floats) -> Series:
    low, high, mean = (np.array(part) for part in zip(*(envelope(*one, bins) for one in changes), strict=True))
    return Series(name, label, mean, low, high)


def _outstanding(run: Run, gpus: int) -> list[tuple[Floats, npt.NDArray[Any]]]:
    outcome = run.outcome
    sent = outcome.due_s + np.nan_to_num(outcome.router_wait_s) + np.nan_to_num(outcome.overhead_s)
    changes = []
    for g in range(gpus):
        here = outcome.gpu == g
        ends = outcome.finish_s[here & ~np.isnan(outcome.finish_s)]
        times = np.concatenate([sent[here], ends])
        order = np.argsort(times, kind="stable")
        jumps = np.concatenate([np.ones(int(here.sum())), -np.ones(len(ends))])
        changes.append((times[order], np.cumsum(jumps[order])))
    return changes


def _hits(steps: Columns, bins: Floats) -> Floats:
    hit = np.histogram(steps["start_s"], bins, weights=steps["hit_tokens"])[0]
    computed = np.histogram(steps["start_s"], bins, weights=steps["prefilled_tokens"])[0]
    total = hit + computed
    ratio: Floats = np.divide(hit, total, out=np.full(len(total), np.nan), where=total > 0)
    return ratio


def _busy(steps: Columns, bins: Floats) -> Floats:
    times = np.column_stack([steps["start_s"], steps["end_s"]]).ravel()
    times = np.maximum.accumulate(times) if len(times) else times  # some fitted costs are below zero
    return envelope(times, np.tile([1.0, 0.0], len(steps["start_s"])), bins)[2]
