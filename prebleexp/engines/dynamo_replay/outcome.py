"""What became of a run: the columns of `Outcome`."""

from __future__ import annotations

from typing import Any

import numpy as np

from prebleexp.engines.dynamo_replay.records import DECODING, DONE, PREFILLING, REFUSED, Sim
from prebleexp.sim.records import NONE
from prebleexp.sim.types import Outcome, State, Workload, lacking


def outcome(sim: Sim, workload: Workload) -> Outcome:
    """Copied from the state in which the run ended."""
    requests, totals, n = sim.requests, sim.totals, len(workload)
    end_ms = float(sim.rules.end_ms if sim.control.stopped else sim.control.now)
    stage = requests.stage
    came = np.arange(n) < sim.control.arrived
    state = np.full(n, State.QUEUED, np.int8)
    for where, what in (
        ((stage == PREFILLING) | (stage == DECODING), State.RUNNING),
        (stage == DONE, State.FINISHED),
        (stage == REFUSED, State.REFUSED),
        (~came, State.UNROUTED),
    ):
        state[where] = what
    served = came & (stage != REFUSED)
    gpu, decode_gpu = (
        np.where(served, workers, NONE).astype(np.int32)
        for workers in (requests.prefill_worker, requests.decode_worker)
    )
    routed = np.concatenate([gpu, decode_gpu])
    admitted = np.isfinite(requests.prefill_admit_ms)
    own = dict[str, Any](
        gpu=gpu,
        decode_gpu=decode_gpu,
        state=state,
        due_s=np.where(requests.arrival_ms <= end_ms, workload.arrival_s, np.nan),
        ttft_s=requests.first_token_ms / 1e3 - workload.arrival_s,
        latency_s=requests.last_token_ms / 1e3 - workload.arrival_s,
        finish_s=requests.terminal_time_ms / 1e3,
        prefill_end_s=requests.source_held_ms / 1e3 - workload.arrival_s,
        transferred_tokens=requests.transferred.astype(np.int32),
        output_seen=requests.generated.astype(np.int32),
        hit_tokens=requests.reused_input_tokens.astype(np.int32),
        prefilled_tokens=np.where(admitted, requests.prompt - requests.reused_input_tokens, 0).astype(np.int32),
        gpu_hit_tokens=totals.hit_tokens.copy(),
        gpu_prefilled_tokens=totals.prefilled_tokens.copy(),
        gpu_forwarded_tokens=totals.forwarded_tokens.copy(),
        gpu_recomputed_tokens=totals.recomputed_tokens.copy(),
        gpu_requests=np.bincount(routed[routed != NONE], minlength=len(sim.workers)),
        gpu_evicted_tokens=totals.evicted_tokens.copy(),
        gpu_retracted=totals.retracted.copy(),
        gpu_peak_kv_tokens=totals.peak_kv_tokens.copy(),
        gpu_on_s=np.full(len(totals), end_ms / 1e3),
        end_s=end_ms / 1e3,
    )
    return Outcome(**{**lacking(n, len(sim.workers)), **own})
