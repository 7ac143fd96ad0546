"""What became of a run: the columns of `Outcome`."""

from __future__ import annotations

from typing import Any

import numpy as np

from prebleexp.engines.splitwise.records import DONE, PREEMPTED, RUNNING, Sim
from prebleexp.engines.splitwise.tables import MEMORY
from prebleexp.sim.records import NONE
from prebleexp.sim.types import Floats, Longs, Outcome, State, Workload, lacking


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
    state = np.full(n, State.QUEUED, np.int8)
    for where, what in ((~came, State.UNROUTED), (running, State.RUNNING), (finished, State.FINISHED)):
        state[where] = what
    started = (prompts.state == RUNNING) | (prompts.state == DONE)
    own = dict[str, Any](
        gpu=gpu,
        decode_gpu=decode_gpu,
        state=state,
        due_s=np.where(workload.arrival_s <= end_s, workload.arrival_s, np.nan),
        ttft_s=prompts.end_s - workload.arrival_s,
        latency_s=last_s - workload.arrival_s,
        finish_s=np.where(finished, tokens.end_s, np.nan),
        output_seen=seen.astype(np.int32),
        prefilled_tokens=np.where(started, workload.prompt_tokens, 0).astype(np.int32),
        prefill_end_s=prompts.end_s - workload.arrival_s,
        transferred_tokens=np.where(np.isfinite(sim.requests.transfer_start_s), workload.prompt_tokens, 0),
        gpu_prefilled_tokens=sim.totals.prefilled_tokens.copy(),
        gpu_forwarded_tokens=sim.totals.forwarded_tokens.copy(),
        gpu_requests=requests,
        gpu_peak_kv_tokens=(sim.machines.most_memory - weights) // sim.rules.token_bytes,
        gpu_on_s=np.full(len(sim.machines), end_s),
        end_s=end_s,
    )
    return Outcome(**{**lacking(n, len(sim.machines)), **own})


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
