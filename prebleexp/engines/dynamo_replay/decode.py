"""A decode worker: it reserves blocks for requests that are held elsewhere, and makes their tokens once KV is there.

A reservation is tried when a step ends, when a request is handed over to a worker that does nothing, when KV has come,
and where a pass had nothing to compute. The first of those held alone is tried, and not twice before a request here is
done or preempted. Whoever is preempted waits in front; while any is held without blocks only those run whose KV has
come, however long that lasts.
"""

from __future__ import annotations

import numpy as np

from prebleexp.engines.dynamo_replay.blocks import cached, fits, give_back, hold, remember, take
from prebleexp.engines.dynamo_replay.events import STEP, TRANSFER, push
from prebleexp.engines.dynamo_replay.prefill import receive, was_read
from prebleexp.engines.dynamo_replay.queues import join
from prebleexp.engines.dynamo_replay.records import DECODE_WAITING, DECODING, DONE, Sim
from prebleexp.engines.dynamo_replay.routing import prefill_worker_of
from prebleexp.engines.dynamo_replay.shown import over, show
from prebleexp.engines.dynamo_replay.touched import touch
from prebleexp.sim.compiled import compiled
from prebleexp.sim.records import NONE


# ---------------------------------------------------------------- what it hears
@compiled
def accept(sim: Sim, request: int) -> None:
    """Takes a request over from its prefill worker, before its KV has come."""
    w, workers = int(sim.requests[request].decode_worker), sim.workers
    join(workers.held, workers.held_last, sim.requests.d_next, w, request)
    sim.live[w].queued += 1
    touch(sim, w)
    if not workers[w].busy:
        reserve(sim, w)


@compiled
def arrive(sim: Sim, request: int) -> None:
    """Lets a request that was handed over decode, as its KV has come."""
    w, workers = int(sim.requests[request].decode_worker), sim.workers
    join(workers.arrived, workers.arrived_last, sim.requests.d_next, w, request)
    touch(sim, w)


@compiled
def activate(sim: Sim, w: int) -> None:
    """Where KV has come, in that order: blocks are cached, and may be given back at the prefill worker; the request
    waits to run, behind those who were preempted, in the order of reservations."""
    worker, requests, size = sim.workers[w], sim.requests, sim.rules.block_size
    while not worker.busy and worker.arrived != NONE:
        request = int(worker.arrived)
        one, before = requests[request], NONE
        worker.arrived = one.d_next
        one.stage, one.destination_activated_ms, one.d_computed = DECODE_WAITING, sim.control.now, one.prompt
        remember(sim, w, request, sim.d_blocks, one.d_first, one.d_cached, one.prompt // size)
        one.d_cached = one.prompt // size
        at = int(worker.waiting)
        while at != NONE and (requests[at].preempted or requests[at].reserved < one.reserved):
            before, at = at, int(requests[at].d_next)
        one.d_next = at
        if before == NONE:
            worker.waiting = request
        else:
            requests[before].d_next = request
        was_read(sim, request)
        reserve(sim, w)


@compiled
def reserve(sim: Sim, w: int) -> bool:
    """Take blocks for the first of those held, if there are enough; returns whether there were."""
    worker, rules, control = sim.workers[w], sim.rules, sim.control
    request = int(worker.held)
    if request == NONE or (worker.tried == request and worker.tried_at == worker.freed):
        return False
    worker.tried, worker.tried_at = request, worker.freed
    one = sim.requests[request]
    blocks = -(-one.prompt // rules.block_size)
    hits = cached(sim, w, request, one.prompt // rules.block_size) if rules.shared else 0
    if worker.running >= rules.decode_seqs or not fits(sim, w, request, hits, blocks):
        return False
    worker.held = one.d_next
    hold(sim, w, request, sim.d_blocks, one.d_first, hits)
    take(sim, w, sim.d_blocks, one.d_first + hits, blocks - hits)
    one.d_blocks, one.d_cached = blocks, hits
    one.reserved = control.reservations
    control.reservations += 1
    one.destination_reserved_ms = control.now
    one.transferred = one.prompt if rules.whole_prompt else (blocks - hits) * rules.block_size
    if rules.link > 0:
        one.transfer_ms = one.transferred * rules.token_bytes / rules.link * 1e3
    if rules.reserve_first:
        prefill_worker_of(sim, request)
        receive(sim, request)
    else:
        push(sim, control.now + one.transfer_ms, TRANSFER, request)
    return True


# ---------------------------------------------------------------- steps
@compiled
def work(sim: Sim, w: int) -> None:
    """Begin worker w's next step, if it computes nothing and there is anything to do. A pass in which nobody makes a
    token takes no time; there may be another."""
    worker = sim.workers[w]
    again = not worker.busy
    while again:
        begun = worker.running
        left = _grow(sim, w)
        preempted = worker.running < begun
        if not preempted:
            _admit(sim, w, left)
        if _makes_a_token(sim, w):
            worker.busy, worker.begun_ms = 1, sim.control.now
            push(sim, sim.control.now + sim.rules.decode_ms, STEP, w)
            break
        again = preempted or worker.running > 0 or (worker.waiting != NONE and reserve(sim, w))
    show(sim, w)


@compiled
def _makes_a_token(sim: Sim, w: int) -> bool:
    """Whether any request that runs makes a token in this step."""
    for i in range(sim.workers[w].running):
        one = sim.requests[sim.running[w, i]]
        if one.d_computed == one.prompt + one.generated:
            return True
    return False


@compiled
def _grow(sim: Sim, w: int) -> int:
    """Those who run get room for what they compute; if there is none, the last of them is preempted. Returns what is
    left of the tokens of a step."""
    worker, budget, i = sim.workers[w], sim.rules.decode_tokens, 0
    while i < worker.running and budget > 0:
        request = int(sim.running[w, i])
        one = sim.requests[request]
        target = min(one.prompt + one.generated, one.d_computed + budget)
        missing = -(-target // sim.rules.block_size) - one.d_blocks
        while missing > 0 and i < worker.running and worker.used + missing > worker.blocks:
            _preempt_last(sim, w)
        if i == worker.running:
            break
        budget -= target - one.d_computed
        _compute(sim, w, request, target)
        i += 1
    return budget


@compiled
def _preempt_last(sim: Sim, w: int) -> None:
    worker = sim.workers[w]
    worker.running -= 1
    worker.freed += 1
    request = int(sim.running[w, worker.running])
    one = sim.requests[request]
    give_back(sim, w, sim.d_blocks, one.d_first, one.d_blocks)
    one.d_blocks = one.d_cached = one.d_computed = 0
    one.preempted, one.stage, one.d_next = 1, DECODE_WAITING, worker.waiting
    worker.waiting = request
    sim.live[w].queued += 1
    sim.totals[w].retracted += 1
    sim.totals[w].recomputed_tokens += one.prompt


@compiled
def _admit(sim: Sim, w: int, budget: int) -> None:
    worker, size = sim.workers[w], sim.rules.block_size
    while worker.running < sim.rules.decode_seqs:
        before, request = NONE, int(worker.waiting)
        while request != NONE and sim.requests[request].preempted and worker.held != NONE:
            before, request = request, int(sim.requests[request].d_next)
        if request == NONE:
            break
        one = sim.requests[request]
        if one.preempted:
            tokens = one.prompt + one.generated
            hits = cached(sim, w, request, (tokens - 1) // size)
            if budget == 0 or not fits(sim, w, request, hits, -(-tokens // size)):
                break
            hold(sim, w, request, sim.d_blocks, one.d_first, hits)
            one.d_blocks = one.d_cached = hits
            one.d_computed = hits * size
            one.decode_reused_input_tokens = max(one.decode_reused_input_tokens, one.d_computed)
            one.preempted = 0
            one.readmission_count += 1
            target = min(tokens, one.d_computed + budget)
            budget -= target - one.d_computed
            _compute(sim, w, request, target)
        if before == NONE:
            worker.waiting = one.d_next
        else:
            sim.requests[before].d_next = one.d_next
        if np.isnan(one.decode_admit_ms):
            one.decode_admit_ms = sim.control.now
        one.stage = DECODING
        sim.live[w].queued -= 1
        sim.running[w, worker.running] = request
        worker.running += 1


@compiled
def _compute(sim: Sim, w: int, request: int, target: int) -> None:
    one, size = sim.requests[request], sim.rules.block_size
    missing = -(-target // size) - one.d_blocks
    if missing > 0:
        take(sim, w, sim.d_blocks, one.d_first + one.d_blocks, missing)
        one.d_blocks += missing
    sim.totals[w].forwarded_tokens += target - one.d_computed
    one.d_computed = target
    if target // size > one.d_cached:
        remember(sim, w, request, sim.d_blocks, one.d_first, one.d_cached, target // size)
        one.d_cached = target // size


@compiled
def end(sim: Sim, w: int) -> None:
    """A step is over: who computed all that it had makes a token, and leaves with its last."""
    worker, control, stay = sim.workers[w], sim.control, 0
    over(sim, w)
    for i in range(worker.running):
        request = int(sim.running[w, i])
        one = sim.requests[request]
        if one.d_computed == one.prompt + one.generated:
            one.generated += 1
            one.last_token_ms = control.now
            if one.generated == 1:
                one.first_token_ms = control.now
            if one.generated == one.output:
                one.stage, one.terminal_time_ms = DONE, control.now
                give_back(sim, w, sim.d_blocks, one.d_first, one.d_blocks)
                one.d_blocks = 0
                worker.freed += 1
                control.unfinished -= 1
                continue
        sim.running[w, stay] = request
        stay += 1
    worker.running = stay
    sim.ended[control.ended] = w
    control.ended += 1
    touch(sim, w)
