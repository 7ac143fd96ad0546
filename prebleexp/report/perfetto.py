"""A run as a trace for Perfetto (ui.perfetto.dev) or chrome://tracing, in the JSON form of the Trace Event Format.

Each GPU, or replica of several, is a process: its batch steps are slices, its queue, batch and KV are counters, its
requests are asynchronous slices, with waiting and prefill, then decoding. Where GPUs come and go, their states are
slices, too.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, BinaryIO

import numpy as np

from prebleexp.experiment.runs import Run
from prebleexp.sim.steps import Steps
from prebleexp.sim.types import Longs

Event = dict[str, Any]
STEP_BYTES, REQUEST_BYTES, CHANGE_BYTES = 570, 640, 80
"""that are written of each, about"""


def write(
    file: BinaryIO, run: Run, steps: Steps, gpus: int, kv_tokens: Longs, about: dict[str, Any], unit: str = "GPU"
) -> int:
    """Write the trace; returns the number of its events. `about` is kept in it as `otherData`; `unit` is what each of
    `gpus` is called."""
    file.write(f'{{"displayTimeUnit": "ms", "otherData": {json.dumps(about)}, "traceEvents": [\n'.encode())
    count = 0
    for event in events(run, steps, gpus, kv_tokens, unit):
        file.write(((",\n" if count else "") + json.dumps(event, separators=(",", ":"))).encode())
        count += 1
    file.write(b"\n]}\n")
    return count


def megabytes(run: Run, steps: Steps) -> float:
    """About how large the file will be, before it is written."""
    changes = int((np.diff(steps.queues()[1], axis=0) != 0).sum()) if len(steps.queues()[1]) else 0
    return (len(steps.columns()["gpu"]) * STEP_BYTES + len(run.workload) * REQUEST_BYTES + changes * CHANGE_BYTES) / 1e6


def events(run: Run, steps: Steps, gpus: int, kv_tokens: Longs, unit: str = "GPU") -> Iterator[Event]:
    """Times are in microseconds of simulated time."""
    for g in range(gpus):
        yield {"ph": "M", "pid": g + 1, "name": "process_name", "args": {"name": f"{unit} {g}"}}
        yield {"ph": "M", "pid": g + 1, "name": "process_sort_index", "args": {"sort_index": g}}
        yield {"ph": "M", "pid": g + 1, "tid": 1, "name": "thread_name", "args": {"name": "batch steps"}}
    yield from _steps(steps, kv_tokens)
    yield from _queues(steps)
    yield from _requests(run)
    yield from of_history(run)
    yield from of_moves(run, unit)


def _steps(steps: Steps, kv_tokens: Longs) -> Iterator[Event]:
    columns = {name: column.tolist() for name, column in steps.columns().items()}
    for row in (dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)):
        kinds = {"prefill": row["prefilled_tokens"], "decode": row["generated_tokens"]}
        args = {name: row[name] for name in row if name not in ("gpu", "start_s", "end_s")}
        start, end = _us(row["start_s"]), _us(row["end_s"])
        of_gpu = {"pid": row["gpu"] + 1, "tid": 1}
        yield {
            "ph": "X",
            **of_gpu,
            "ts": start,
            "dur": max(0.0, end - start),
            "name": " + ".join(kind for kind, tokens in kinds.items() if tokens),
            "args": args,
        }
        yield {"ph": "C", **of_gpu, "ts": start, "name": "tokens of a step", "args": kinds}
        if row["retracted"]:
            name = f"{row['retracted']} sent back for want of memory"
            yield {"ph": "i", **of_gpu, "ts": start, "name": name, "s": "t"}
        yield {"ph": "C", **of_gpu, "ts": start, "name": "running", "args": {"requests": row["running"]}}
        used = {
            "running requests": int(kv_tokens[row["gpu"]]) - row["kv_free"] - row["evictable"],
            "prefix cache alone": row["evictable"],
        }
        yield {"ph": "C", **of_gpu, "ts": start, "name": "KV tokens", "args": used}


def of_history(run: Run) -> Iterator[Event]:
    """The states of GPUs as slices beside their steps, and what an autoscaler saw and wanted as a counter."""
    history, end_s = run.outcome.history, float(run.outcome.end_s)
    for g in sorted({one.gpu for one in history.gpu_states}):
        rows = [one for one in history.gpu_states if one.gpu == g]
        for one, until_s in zip(rows, [*(row.at_s for row in rows[1:]), end_s], strict=True):
            start, end = _us(one.at_s), _us(until_s)
            of_gpu = {"pid": g + 1, "tid": 2, "ts": start, "dur": max(0.0, end - start)}
            yield {"ph": "X", **of_gpu, "name": one.state.name.lower(), "args": {}}
    for look in history.decisions:
        seen = {"wanted": look.wanted, "ready": look.ready, "starting": look.starting, "draining": look.draining}
        yield {"ph": "C", "pid": 0, "ts": _us(look.at_s), "name": "autoscaler", "args": seen}


def of_moves(run: Run, unit: str) -> Iterator[Event]:
    """Moves of requests as slices of the GPU that they leave."""
    for one in run.outcome.history.moves:
        start, end = _us(one.at_s), _us(one.ended_s)
        what = "moved" if one.moved else "not moved"
        name = f"request {one.request} {what} to {unit} {one.target}"
        args = {"tokens": one.tokens, "copied_tokens": one.copied_tokens, "stages": one.stages, "running": one.running}
        of_gpu = {"pid": one.source + 1, "tid": 3, "ts": start, "dur": max(0.0, end - start)}
        yield {"ph": "X", **of_gpu, "name": name, "args": args | {"stopped_s": one.stopped_s}}


def _queues(steps: Steps) -> Iterator[Event]:
    times, queues = steps.queues()
    before = np.zeros(queues.shape[1] if len(queues) else 0, np.int64)
    for time, now in zip(times, queues, strict=True):
        for g in np.flatnonzero(now != before):
            yield {"ph": "C", "pid": int(g) + 1, "ts": _us(time), "name": "waiting", "args": {"requests": int(now[g])}}
        before = now


def _requests(run: Run) -> Iterator[Event]:
    workload, outcome = run.workload, run.outcome
    for i in np.flatnonzero(outcome.gpu >= 0):
        arrival = float(outcome.due_s[i])
        of_request = {"pid": int(outcome.gpu[i]) + 1, "id": str(i), "cat": "request"}
        first, end = arrival + float(outcome.ttft_s[i]), float(outcome.finish_s[i])
        args = {
            "prompt_tokens": int(workload.prompt_tokens[i]),
            "output_tokens": int(workload.output_tokens[i]),
            "hit_tokens": int(outcome.hit_tokens[i]),
            "prefix_group": int(workload.prefix_group[i]),
        }
        spans = [(f"request {i}", arrival, end, args)]
        spans += [("waiting and prefill", arrival, first, {}), ("decoding", first, end, {})]
        for name, start, stop, more in spans:
            stop = float(outcome.end_s) if np.isnan(stop) else stop  # unfinished: until the run ended
            if not np.isnan(start):
                yield {"ph": "b", **of_request, "ts": _us(start), "name": name, "args": more}
                yield {"ph": "e", **of_request, "ts": _us(stop), "name": name}


def _us(seconds: float) -> float:
    return round(seconds * 1e6, 3)
