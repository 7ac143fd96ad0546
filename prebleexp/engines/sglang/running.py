"""The requests that decode, in order. Every decode step computes a token of each, and nothing is kept up to date of
them: what one has follows from the number of steps since it joined, so a step costs what happens in it.

Who gets a last token in which step is known when a request joins: those that do so in one step make a ring. (The
scheduler knows it only of those that end by length.)
"""

from __future__ import annotations

from typing import Any

from prebleexp.engines.sglang.records import CLIP_MAX_NEW_TOKENS, LEAVING, RUNNING, Engines
from prebleexp.sim.compiled import compiled
from prebleexp.sim.gaps import token
from prebleexp.sim.records import NONE, World


@compiled
def generated_of(gpu: Any, job: Any) -> int:
    """Output tokens of a request that are known."""
    over = int(gpu.decodes_over - job.joined) if job.stage == RUNNING or job.stage == LEAVING else 0
    return int(job.generated) + max(0, over)  # it may have joined while a decode was under way


@compiled
def computed_of(gpu: Any, job: Any) -> int:
    """Its tokens that have KV, those under way included."""
    if job.stage == RUNNING:
        return int(job.computed + gpu.decodes - job.joined)
    return int(job.computed + job.due - job.joined) if job.stage == LEAVING else int(job.computed)


@compiled
def run(mine: Engines, g: int, request: int, under_way: int) -> None:
    """A request decodes from now on, with so many tokens under way beside those that it has generated."""
    gpu, job = mine.gpus[g], mine.jobs[request]
    job.stage, job.joined = RUNNING, gpu.decodes
    job.next_fresh, gpu.fresh = gpu.fresh, request
    job.due = gpu.decodes + job.target - job.generated - under_way
    gpu.late += int(gpu.decodes > gpu.decodes_over)
    gpu.running += 1
    gpu.context += job.computed
    gpu.generated += job.generated
    gpu.max_new += job.max_new
    gpu.beyond_clip += int(job.max_new > CLIP_MAX_NEW_TOKENS)
    put_behind(mine, g, request)


@compiled
def put_behind(mine: Engines, g: int, request: int) -> None:
    """In the order, and in its ring."""
    gpu, job = mine.gpus[g], mine.jobs[request]
    job.before, job.behind = gpu.last_running, NONE
    if gpu.last_running == NONE:
        gpu.first_running = request
    else:
        mine.jobs[gpu.last_running].behind = request
    gpu.last_running = request
    last = last_due(mine, g, int(job.due))
    if last == NONE:
        job.next_due = request
    else:
        job.next_due, mine.jobs[last].next_due = mine.jobs[last].next_due, request
    set_last_due(mine, g, int(job.due), request)


@compiled
def last_due(mine: Engines, g: int, decode: int) -> int:
    """The last in the ring of those that are due in a decode step; -1: nobody is."""
    return int(mine.due[g, decode & (mine.due.shape[1] - 1)]) - 1


@compiled
def set_last_due(mine: Engines, g: int, decode: int, request: int) -> None:
    mine.due[g, decode & (mine.due.shape[1] - 1)] = request + 1


@compiled
def stop(mine: Engines, g: int, request: int, stage: int) -> None:
    """A request leaves the others; it stays in its ring."""
    gpu, job = mine.gpus[g], mine.jobs[request]
    before, behind = int(job.before), int(job.behind)
    if before == NONE:
        gpu.first_running = behind
    else:
        mine.jobs[before].behind = behind
    if behind == NONE:
        gpu.last_running = before
    else:
        mine.jobs[behind].before = before
    uncount(mine, g, request, stage)


@compiled
def uncount(mine: Engines, g: int, request: int, stage: int) -> None:
    """A request is not one of them any more."""
    gpu, job = mine.gpus[g], mine.jobs[request]
    gpu.running -= 1
    gpu.late -= int(job.joined > gpu.decodes_over)
    gpu.context -= computed_of(gpu, job)
    gpu.generated -= generated_of(gpu, job)
    gpu.max_new -= job.max_new
    gpu.beyond_clip -= int(job.max_new > CLIP_MAX_NEW_TOKENS)
    gpu.full = 0
    job.stage = stage
    if job.joined >= gpu.decodes_over and (stage != LEAVING or job.joined == gpu.decodes):
        _not_fresh(mine, g, request)


@compiled
def _not_fresh(mine: Engines, g: int, request: int) -> None:
    """A request that leaves before its first decode step is over is no part of that."""
    gpu, jobs, behind = mine.gpus[g], mine.jobs, NONE
    one = int(gpu.fresh)
    while one != request:
        behind, one = one, int(jobs[one].next_fresh)
    if behind == NONE:
        gpu.fresh = jobs[request].next_fresh
    else:
        jobs[behind].next_fresh = jobs[request].next_fresh


@compiled
def take_fresh(jobs: Any, gpu: Any) -> int:
    """The first of those, in a chain, that decoded for the first time in the step that is over; they are fresh no more.
    To be called before it is counted as over."""
    late, request = NONE, int(gpu.fresh)
    while request != NONE and jobs[request].joined > gpu.decodes_over:
        late, request = request, int(jobs[request].next_fresh)
    if late == NONE:
        gpu.fresh = NONE
    else:
        jobs[late].next_fresh = NONE
    return request


@compiled
def show_each(mine: Engines, world: World, g: int, now: float) -> None:
    """A decode step is over: all that were in it have a token, one by one. To be called before it is counted as
    over."""
    gpu, jobs, over = mine.gpus[g], mine.jobs, int(mine.gpus[g].decodes_over)
    request = int(gpu.first_running)
    while request != NONE:
        if jobs[request].joined <= over:
            token(world.gaps, request, now)
        request = int(jobs[request].behind)
    request = last = last_due(mine, g, over + 1)
    while gpu.leaving > 0:
        if jobs[request].stage == LEAVING:
            token(world.gaps, request, now)
        request = int(jobs[request].next_due)
        if request == last:
            break


@compiled
def reserved(mine: Engines, g: int) -> float:
    """Tokens that are kept for what they may still generate: the sum over them, in order, of a share of that."""
    gpu, jobs = mine.gpus[g], mine.jobs
    tokens = gpu.ratio * (gpu.max_new - gpu.generated)
    if gpu.beyond_clip == 0 and (gpu.ratio == 1.0 or abs(tokens - round(tokens)) > NEAR):
        return float(tokens)
    tokens, request = 0.0, int(gpu.first_running)
    while request != NONE:
        tokens += may_generate(jobs[request], generated_of(gpu, jobs[request])) * gpu.ratio
        request = int(jobs[request].behind)
    return float(tokens)


NEAR = 1e-3
"""It is compared with whole numbers, and rounding makes no difference unless it is near one: then it is summed just as
SGLang does."""


@compiled
def may_generate(job: Any, generated: int) -> int:
    return min(max(int(job.max_new) - generated, 0), CLIP_MAX_NEW_TOKENS)
