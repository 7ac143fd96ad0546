"""A prefill worker: it computes prompts in chunks, first those that have begun, then others by arrival, as long as one
fits; what it has computed it holds until the decode worker has read it."""

from __future__ import annotations

from prebleexp.engines.dynamo_replay.blocks import cached, fits, give_back, hold, remember, take
from prebleexp.engines.dynamo_replay.events import STEP, TRANSFER, push
from prebleexp.engines.dynamo_replay.queues import join
from prebleexp.engines.dynamo_replay.records import HELD, PREFILLING, WAITING, Sim
from prebleexp.engines.dynamo_replay.routing import decode_worker_of
from prebleexp.engines.dynamo_replay.shown import over, show
from prebleexp.engines.dynamo_replay.touched import touch
from prebleexp.sim.compiled import compiled
from prebleexp.sim.records import NONE


@compiled
def receive(sim: Sim, request: int) -> None:
    """A request waits, behind the others."""
    one, workers = sim.requests[request], sim.workers
    w = int(one.prefill_worker)
    one.stage = WAITING
    join(workers.waiting, workers.waiting_last, sim.requests.p_next, w, request)
    sim.live[w].queued += 1
    touch(sim, w)


@compiled
def was_read(sim: Sim, request: int) -> None:
    """Its next step frees a request's blocks."""
    w, workers = int(sim.requests[request].prefill_worker), sim.workers
    join(workers.releasing, workers.releasing_last, sim.requests.p_next, w, request)
    touch(sim, w)


@compiled
def work(sim: Sim, w: int) -> None:
    """Begin worker w's next step, if it computes nothing and there is anything to do."""
    worker = sim.workers[w]
    if worker.busy:
        return
    _release(sim, w)
    left = _go_on(sim, w, sim.rules.prefill_tokens)
    chosen = sim.rules.prefill_tokens - left + _admit(sim, w, left)
    show(sim, w)
    if chosen or _is_computed(sim, w):
        sim.totals[w].prefilled_tokens += chosen
        sim.totals[w].forwarded_tokens += chosen
        worker.busy, worker.begun_ms = 1, sim.control.now
        push(sim, sim.control.now + (sim.rules.prefill_ms if chosen else 0.0), STEP, w)


@compiled
def _is_computed(sim: Sim, w: int) -> bool:
    """Whether the last request that was admitted is: all of it was cached."""
    worker = sim.workers[w]
    if worker.running == 0:
        return False
    last = sim.requests[sim.running[w, worker.running - 1]]
    return last.p_computed == last.prompt


@compiled
def _release(sim: Sim, w: int) -> None:
    worker = sim.workers[w]
    while worker.releasing != NONE:
        request = int(worker.releasing)
        one = sim.requests[request]
        if sim.rules.late:
            remember(sim, w, request, sim.p_blocks, one.p_first, one.p_cached, one.prompt // sim.rules.block_size)
        give_back(sim, w, sim.p_blocks, one.p_first, one.p_blocks)
        one.p_blocks = 0
        one.source_released_ms = sim.control.now
        worker.releasing = one.p_next


@compiled
def _go_on(sim: Sim, w: int, budget: int) -> int:
    """Who has begun gets a chunk; returns what is left of the budget. There is room: a prompt is admitted if all of it
    fits, and none after it before all of it is computed."""
    for i in range(sim.workers[w].running):
        request = int(sim.running[w, i])
        one = sim.requests[request]
        target = min(one.prompt, one.p_computed + budget)
        budget -= target - one.p_computed
        _compute(sim, w, request, target)
    return budget


@compiled
def _admit(sim: Sim, w: int, budget: int) -> int:
    """Returns the tokens that it takes."""
    worker, rules, taken = sim.workers[w], sim.rules, 0
    while worker.waiting != NONE and budget > taken and worker.running < rules.prefill_seqs:
        request = int(worker.waiting)
        one = sim.requests[request]
        hits = cached(sim, w, request, (one.prompt - rules.again) // rules.block_size)
        if not fits(sim, w, request, hits, -(-one.prompt // rules.block_size)):
            break
        worker.waiting = one.p_next
        sim.live[w].queued -= 1
        hold(sim, w, request, sim.p_blocks, one.p_first, hits)
        one.p_blocks = one.p_cached = hits
        one.p_computed = hits * rules.block_size
        one.prefill_admit_ms, one.reused_input_tokens = sim.control.now, one.p_computed
        sim.totals[w].hit_tokens += one.p_computed
        one.stage = PREFILLING
        sim.running[w, worker.running] = request
        worker.running += 1
        target = min(one.prompt, one.p_computed + budget - taken)
        taken += target - one.p_computed
        _compute(sim, w, request, target)
    return taken


@compiled
def _compute(sim: Sim, w: int, request: int, target: int) -> None:
    """Its KV is there for others as soon as a step computes it."""
    one, size = sim.requests[request], sim.rules.block_size
    missing = -(-target // size) - one.p_blocks
    if missing > 0:
        take(sim, w, sim.p_blocks, one.p_first + one.p_blocks, missing)
        one.p_blocks += missing
    one.p_computed = target
    if target // size > one.p_cached and not sim.rules.late:
        remember(sim, w, request, sim.p_blocks, one.p_first, one.p_cached, target // size)
        one.p_cached = target // size


@compiled
def end(sim: Sim, w: int) -> None:
    """A step is over: prompts that are computed are held."""
    worker, control, stay = sim.workers[w], sim.control, 0
    over(sim, w)
    for i in range(worker.running):
        request = int(sim.running[w, i])
        one = sim.requests[request]
        if one.p_computed < one.prompt:
            sim.running[w, stay] = request
            stay += 1
            continue
        one.stage, one.source_held_ms = HELD, control.now
        if sim.rules.reserve_first:
            push(sim, control.now + one.transfer_ms, TRANSFER, request)
        else:
            decode_worker_of(sim, request)
            sim.handed_over[control.handed_over] = request
            control.handed_over += 1
    worker.running = stay
    touch(sim, w)
