"""What became of a run: the columns of `Outcome`."""

from __future__ import annotations

import numpy as np

from prebleexp.engines.splitwise.records import DONE, PREEMPTED, RUNNING, Sim
from prebleexp.engines.splitwise.tables import MEMORY
from prebleexp.sim.records import NONE
from prebleexp.sim.types import Floats, Longs, Outcome, State, Workload


def outcome(sim: Sim, workload: Workload) -> Outcome:
    """Copied from the state in which the run ended."""
    prompts, tokens, n = sim.tasks[::2], sim.tasks[1::2], len(workload)
    end_s = float(sim.rules.end_s if sim.control.stopped else sim.control.now)
    came = np.arange(n) < sim.control.arrived
    finished = tokens.state == DONE
    running = (prompts.state == RUNNING) | (tokens.state == RUNNING)
    seen, last_s = _reported(sim, workload, end_s)
    gpu, decode_gpu = (np.where(came, legs.machine, NONE).astype(np.int32) for legs in (prompts, tokens))
    elsewhere = came & (gpu != decode_gpu)
    requests = np.bincount(np.concatenate([gpu[came], decode_gpu[elsewhere]]), minlength=len(sim.machines))
    weights = MEMORY - sim.live.kv_tokens * sim.rules.token_bytes
    none, nan = np.zeros(len(sim.machines), np.int64), np.full(n, np.nan)
    state = np.full(n, State.QUEUED, np.int8)
    for where, what in ((~came, State.UNROUTED), (running, State.RUNNING), (finished, State.FINISHED)):
        state[where] = what
    started = (prompts.state == RUNNING) | (prompts.state == DONE)
    return Outcome(
        gpu=gpu,
        decode_gpu=decode_gpu,
        state=state,
        due_s=np.where(workload.arrival_s <= end_s, workload.arrival_s, np.nan),
        told_output=nan,
        overhead_s=nan,
        router_wait_s=nan,
        ttft_s=prompts.end_s - workload.arrival_s,
        latency_s=last_s - workload.arrival_s,
        finish_s=np.where(finished, tokens.end_s, np.nan),
        output_seen=seen.astype(np.int32),
        hit_tokens=np.zeros(n, np.int32),
        prefilled_tokens=np.where(started, workload.prompt_tokens, 0).astype(np.int32),
        prefill_end_s=prompts.end_s - workload.arrival_s,
        transferred_tokens=np.where(np.isfinite(sim.requests.transfer_start_s), workload.prompt_tokens, 0),
        host_tokens=np.zeros(n, np.int32),
        disk_tokens=np.zeros(n, np.int32),
        shared_tokens=np.zeros(n, np.int32),
        peer_tokens=np.zeros(n, np.int32),
        losses=np.zeros(n, np.int32),
        moves=np.zeros(n, np.int32),
        moves_aborted=np.zeros(n, np.int32),
        stopped_s=np.zeros(n),
        gap_p99_s=np.full(n, np.nan),
        gap_top10_s=np.full(n, np.nan),
        refused_by=np.zeros(n, np.int32),
        retries=np.zeros(n, np.int32),
        gpu_hit_tokens=none,
        gpu_host_tokens=none,
        gpu_disk_tokens=none,
        gpu_shared_tokens=none,
        gpu_peer_tokens=none,
        gpu_prefilled_tokens=sim.totals.prefilled_tokens.copy(),
        gpu_forwarded_tokens=sim.totals.forwarded_tokens.copy(),
        gpu_recomputed_tokens=none,
        gpu_requests=requests,
        gpu_evicted_tokens=none,
        gpu_retracted=none,
        gpu_peak_kv_tokens=(sim.machines.most_memory - weights) // sim.rules.token_bytes,
        gpu_peak_running=none,
        gpu_peak_context_tokens=none,
        gpu_lost_s=np.full(len(sim.machines), np.nan),
        gpu_down_s=np.zeros(len(sim.machines)),
        gpu_on_s=np.full(len(sim.machines), end_s),
        end_s=end_s,
    )


def _reported(sim: Sim, workload: Workload, end_s: float) -> tuple[Longs, Floats]:
    """(n,) output tokens of each request until now, and when the last of them came: of a batch in hand those of the
    iterations that are over."""
    prompts, tokens = sim.tasks[::2], sim.tasks[1::2]
    all_tokens = np.minimum(workload.output_tokens, workload.max_new_tokens).astype(np.int64)
    running, preempted, done = (tokens.state == state for state in (RUNNING, PREEMPTED, DONE))
    machine = sim.machines[tokens.machine]
    computes = machine.event != NONE
    step_s = np.where(computes, machine.step_s, 1.0)
    over = np.where(computes, (end_s - machine.begun_s) // step_s, 0).astype(np.int64)
    left = np.where(running, tokens.goal - machine.iterations - over, np.where(preempted, tokens.left, all_tokens - 1))
    left = np.where(done, 0, left)
    later = all_tokens - 1 - left
    last_s = np.where(done | preempted, tokens.end_s, prompts.end_s)
    last_s = np.where(running & (later > 0), machine.begun_s + over * step_s, last_s)
    return np.where(prompts.state == DONE, 1 + later, 0), last_s
