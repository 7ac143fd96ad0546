"""What stands in for the simulator where it is to take no time."""

from __future__ import annotations

from typing import Any

import numpy as np

from prebleexp.errors import PrebleexpError
from prebleexp.sim.types import Outcome, State, Workload


def served(workload: Workload, *, gpus: int, seed: int, **rest: Any) -> Outcome:
    """Stands in for the simulator: every request takes a second; 13 GPUs are too many."""
    if gpus == 13:
        raise PrebleexpError("13 GPUs bring bad luck")
    n = len(workload)
    ones, zeros = np.ones(n), np.zeros(n, np.int32)
    per_gpu = np.zeros(gpus, np.int64)
    return Outcome(
        gpu=np.arange(n, dtype=np.int32) % gpus,
        decode_gpu=np.arange(n, dtype=np.int32) % gpus,
        state=np.full(n, State.FINISHED, np.int8),
        due_s=workload.arrival_s,
        told_output=np.full(n, np.nan),
        overhead_s=np.full(n, np.nan),
        router_wait_s=np.full(n, np.nan),
        ttft_s=ones / (gpus + seed),
        prefill_end_s=ones / (gpus + seed),
        transferred_tokens=zeros,
        host_tokens=zeros,
        disk_tokens=zeros,
        shared_tokens=zeros,
        peer_tokens=zeros,
        latency_s=ones,
        moves=zeros,
        moves_aborted=zeros,
        stopped_s=np.zeros(n),
        gap_p99_s=np.full(n, np.nan),
        gap_top10_s=np.full(n, np.nan),
        losses=zeros,
        refused_by=zeros,
        retries=zeros,
        finish_s=workload.arrival_s + 1,
        output_seen=np.minimum(workload.output_tokens, workload.max_new_tokens),
        hit_tokens=zeros,
        prefilled_tokens=workload.prompt_tokens,
        gpu_hit_tokens=per_gpu,
        gpu_host_tokens=per_gpu,
        gpu_disk_tokens=per_gpu,
        gpu_shared_tokens=per_gpu,
        gpu_peer_tokens=per_gpu,
        gpu_prefilled_tokens=per_gpu,
        gpu_forwarded_tokens=per_gpu,
        gpu_recomputed_tokens=per_gpu,
        gpu_requests=np.bincount(np.arange(n) % gpus, minlength=gpus),
        gpu_evicted_tokens=per_gpu,
        gpu_retracted=per_gpu,
        gpu_peak_kv_tokens=per_gpu,
        gpu_peak_running=per_gpu,
        gpu_peak_context_tokens=per_gpu,
        gpu_lost_s=np.full(gpus, np.nan),
        gpu_down_s=np.zeros(gpus),
        gpu_on_s=np.zeros(gpus),
        end_s=float(workload.arrival_s[-1]) + 1 if n else 0.0,
    )
