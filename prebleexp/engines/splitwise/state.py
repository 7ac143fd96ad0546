"""The arrays of a run: made for a workload and its machines, and made larger when lists are full."""

from __future__ import annotations

import numpy as np

from prebleexp.engines.serial_heap import Events
from prebleexp.engines.splitwise import records as own
from prebleexp.engines.splitwise.batching import MOST_TASKS
from prebleexp.engines.splitwise.engine import Cluster, Splitwise
from prebleexp.engines.splitwise.records import ALL, PROMPT, TOKEN, Lists, Rules, Sim
from prebleexp.engines.splitwise.schedulers import SCHEDULERS
from prebleexp.engines.splitwise.tables import KV, MEMORY, WEIGHTS, step_times
from prebleexp.sim import records as core
from prebleexp.sim.handles import Block
from prebleexp.sim.records import NONE
from prebleexp.sim.types import Longs, Workload, records

ROOM = 64
"""requests of a machine, at first"""


def allocate(workload: Workload, engine: Splitwise, gpus: int, end_s: float, pause: int) -> Sim:
    """State at time 0: nobody has arrived."""
    cluster, n = engine.cluster(gpus), len(workload)
    rule, link = SCHEDULERS[engine.scheduler]
    token_bytes = KV[engine.model]
    control = records(1, own.CONTROL)[0]
    control.unfinished = n
    requests, tasks = records(n, own.REQUEST), records(2 * n, own.TASK)
    requests.arrival_s, requests.prompt = workload.arrival_s, workload.prompt_tokens
    requests.transfer_start_s = requests.transfer_end_s = np.nan
    later = np.minimum(workload.output_tokens, workload.max_new_tokens).astype(np.int64) - 1
    tasks.machine = tasks.since = NONE
    tasks.start_s = tasks.end_s = np.nan
    tasks.tokens[::2], tasks.left[::2], tasks.bytes[::2] = requests.prompt, 1, (requests.prompt + 1) * token_bytes
    tasks.tokens[1::2], tasks.left[1::2], tasks.bytes[1::2] = 1, later, later * token_bytes
    machines, live = records(gpus, own.MACHINE), records(gpus, core.REPORT)
    machines.kind = cluster.kinds
    machines.memory = machines.most_memory = machines.booked = WEIGHTS[engine.model]
    machines.event = NONE
    live.kv_tokens = live.kv_free = (MEMORY - WEIGHTS[engine.model]) // token_bytes
    most = 4 * n + gpus + 1  # a try of each transfer, an end of each batch, and three for each request that were cut
    pools, members = _pools(cluster)
    for pool in (PROMPT, TOKEN):
        machines.home[pools[pool, : members[pool]]] = pool
    return Sim(
        control=control,
        rules=Rules(rule, engine.start_state == "orca", token_bytes, link, end_s, pause),
        step_times=step_times(engine.model),
        events=Events(np.zeros(most), np.zeros(most, np.int64), np.zeros(most, np.int64)),
        tasks=tasks,
        requests=requests,
        machines=machines,
        lists=Lists(np.zeros((gpus, MOST_TASKS), np.int32), *(np.zeros((gpus, s * ROOM), np.int32) for s in SHARES)),
        pools=pools,
        members=members,
        pick=records(1, own.PICK)[0],
        picked=np.zeros(MOST_TASKS, np.int64),
        servers=records(gpus, core.SERVER),
        totals=records(gpus, core.TOTALS),
        live=live,
    )


SHARES = (2, 1, 1, 1)
"""of `ROOM` that the lists behind the batch have: both tasks of a request may wait"""


def _pools(cluster: Cluster) -> tuple[Longs, Longs]:
    gpus = len(cluster.kinds)
    pools, members = np.zeros((4, gpus), np.int64), np.zeros(4, np.int64)
    for pool, machines in ((ALL, range(gpus)), (PROMPT, cluster.prompt), (TOKEN, cluster.token)):
        members[pool] = len(machines)
        pools[pool, : len(machines)] = machines
    return pools, members


def with_more_room(sim: Sim) -> Sim:
    """Lists that are twice as long."""
    batch, *others = sim.lists
    return sim._replace(lists=Lists(batch, *(np.hstack([one, np.zeros_like(one)]) for one in others)))


def _example() -> Block:
    one = np.ones(1, np.int32)
    workload = Workload(np.zeros(1), one, one, one, one, np.array([0, 1]), one, one)
    return Block(allocate(workload, Splitwise(), 2, 1.0, 1))


EXAMPLE = _example()
"""its type is that of every run's state"""
