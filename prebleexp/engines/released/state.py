"""The arrays of a run of the released simulator: made for a workload, and made larger when it needs more."""

from __future__ import annotations

from typing import Any

import numpy as np

from prebleexp.engines.batch import Batches
from prebleexp.engines.released import records as own
from prebleexp.engines.released.events import ARRIVE, KIND_BITS, STEP, encode, push
from prebleexp.engines.released.records import Events, Rules, Scratch, Sim, Window
from prebleexp.engines.released.serving import NEW_TOKEN_RATIO
from prebleexp.sim import addresses
from prebleexp.sim import records as core
from prebleexp.sim.handles import Block
from prebleexp.sim.records import NONE
from prebleexp.sim.types import Floats, Ints, Setup, Workload, records
from prebleexp.sim.world import made_cache, made_jobs, made_means, made_view, told

MOST_PREFILL_SHARE = 6
"""a prefill may take this fraction of KV memory, or the context length if that is more"""


def allocate(
    setup: Setup,
    rules: Rules,
    expected_output: Floats | None,
    refined: tuple[Ints, Floats] | None,
    router: Any,
    costs: Any,
) -> Sim:
    """State at time 0: all arrivals and every GPU's first step in the event queue, as the release pushes them."""
    workload, gpus, n = setup.workload, setup.gpus, setup.requests
    rows = min(max(16, 2 * n // gpus), 2048)
    control = records(1, own.CONTROL)[0]
    control.unfinished, control.events, control.request = n, n, NONE
    control.parking = not rules.stepwise
    delay_s = rules.prediction_s if rules.overhead == core.SERIAL else 0.0
    times = np.concatenate([workload.arrival_s + delay_s, np.zeros(2 * gpus + 3)])
    codes = np.zeros(len(times), np.int64)
    codes[:n] = np.arange(n) << KIND_BITS | ARRIVE
    made, jobs = made_jobs(workload), records(n, own.JOB)
    jobs.next, jobs.target = NONE, made.target
    if refined is not None:
        made.length_class = refined[0]
    seen = records(gpus, core.REPORT)
    seen.kv_tokens = seen.kv_free = setup.kv_tokens
    cache = told(made_cache(setup, gpus + min(4 * n, 1 << 16)), expected_output)
    total = gpus * rows
    return Sim(
        control=control,
        rules=rules,
        seen=made_view(cache.requests, cache.prompts, seen, costs),
        live=seen,
        made=made,
        jobs=jobs,
        gpus=_gpus(setup, rows),
        totals=records(gpus, core.TOTALS),
        servers=records(gpus, core.SERVER),
        events=Events(times, codes),
        cache=cache,
        batches=Batches(np.zeros(total, np.int64), np.zeros(total, np.int32), np.zeros(total, np.int32)),
        window=Window(np.zeros(total), np.zeros(total, np.int64), np.zeros(total, np.int64)),
        means=made_means(workload),
        left=np.zeros((0, 0)) if refined is None else np.ascontiguousarray(refined[1]),
        scratch=Scratch(*(np.zeros(n, np.int32) for _ in Scratch._fields)),
        router=router,
    )


def push_first_steps(sim: Sim) -> None:
    for g in range(len(sim.gpus)):
        push(Block(sim.events).handle, sim.control, 0.0, encode(STEP, g))


def _gpus(setup: Setup, rows: int) -> Any:
    state = records(setup.gpus, own.GPU)
    state.kv_free = state.least_kv_free = setup.kv_tokens
    state.new_token_ratio = NEW_TOKEN_RATIO
    state.max_prefill = max(setup.context_length, setup.kv_tokens // MOST_PREFILL_SHARE)
    state.queue_head = state.queue_tail = NONE
    state.batch_capacity = state.window_capacity = rows
    state.batch_offset = state.window_offset = np.arange(setup.gpus) * rows
    return state


def with_more_rows(sim: Sim) -> Sim:
    """Twice the batch and hit-window rows of the GPU that lacks them, or more if the next step may need them.

    Its rows move to the end of the arrays; those it had stay unused.
    """
    gpu = sim.gpus[sim.control.gpu]
    wanted = 2 * max(int(gpu.batch_capacity), int(gpu.running + gpu.queued))
    moved = {}
    for name, pool in (("batch", sim.batches), ("window", sim.window)):
        offset, capacity = int(gpu[f"{name}_offset"]), int(gpu[f"{name}_capacity"])
        first = int(gpu.window_first) if name == "window" else 0
        moved[name] = [
            np.concatenate(
                [column, np.roll(column[offset : offset + capacity], -first), np.zeros(wanted - capacity, column.dtype)]
            )
            for column in pool
        ]
        gpu[f"{name}_offset"], gpu[f"{name}_capacity"] = len(pool[0]), wanted
    gpu.window_first = 0
    return sim._replace(batches=Batches(*moved["batch"]), window=Window(*moved["window"]))


def _example() -> Block:
    one = np.ones(1, np.int32)
    workload = Workload(np.zeros(1), one, one, one, one, np.array([0, 1]), one, one)
    setup = Setup(gpus=1, seed=0, requests=1, kv_tokens=8, context_length=8, workload=workload)
    rules = Rules(1.0, 1.0, 1.0, False, 0.0, False, False, 0, 0.0, 0.0, np.zeros(4), 1)
    return Block(allocate(setup, rules, None, None, records(1, addresses.ROUTER)[0], records(1, addresses.COST)))


EXAMPLE = _example()
"""its type is that of every run's state"""
