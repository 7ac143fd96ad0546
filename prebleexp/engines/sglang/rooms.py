"""The arrays of an SGLang engine. They are as large as they can become, but for nodes of the tree: memory that is never
touched takes none."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from prebleexp.engines.recent import RECENT
from prebleexp.engines.sglang.records import (
    CHOICE,
    GPU,
    JOB,
    LIST,
    MATCHED_WAITING,
    NOBODY,
    NODE,
    STEP,
    STEPS,
    STORE,
    Engines,
    Settings,
    Tree,
)
from prebleexp.sim.arrays import unset
from prebleexp.sim.children import copy_children, slots
from prebleexp.sim.handles import Block
from prebleexp.sim.records import NONE
from prebleexp.sim.types import Longs, Setup, records

if TYPE_CHECKING:
    from prebleexp.sim.comer import Coming


def engines(setup: Setup, settings: Settings) -> Engines:
    workload, gpus = setup.workload, setup.gpus
    target = np.minimum(workload.output_tokens, workload.max_new_tokens)
    state, jobs = begun_gpus(gpus, settings), records(len(workload), JOB)
    jobs.prompt, jobs.target, jobs.max_new = workload.prompt_tokens, target, workload.max_new_tokens
    lists = records(2 * gpus, LIST).reshape(gpus, 2)
    lists[:] = NOBODY
    most = settings.max_running_requests + 1
    shape = (gpus, STEPS, most)
    listed = max(most, MATCHED_WAITING)
    return Engines(
        settings=settings,
        gpus=state,
        jobs=jobs,
        retractions=np.zeros(len(workload), np.int32),
        tree=_tree(gpus, len(workload)),
        due=np.zeros((gpus, 1 << (int(target.max(initial=1)) + 1).bit_length()), np.int32),
        steps=records(gpus * STEPS, STEP).reshape(gpus, STEPS),
        chosen=unset(shape, CHOICE),  # from here to keys: written before it is read
        retracted=np.empty(shape, np.int32),
        whole=unset(shape, CHOICE),
        ordered=np.empty((2, listed), np.int32),
        keys=np.empty((2, listed), np.int64),
        firsts=np.zeros(MATCHED_WAITING, np.int64),
        lists=lists,
        recent=np.zeros((gpus, RECENT, 2), np.int64),
    )


def begun_gpus(gpus: int, settings: Settings) -> Any:
    """So many that nobody has used."""
    state = records(gpus, GPU)
    state.free = state.room = settings.kv_tokens
    state.ratio = settings.ratio
    for name in ("lru", "first_waiting", "last_waiting", "part_way", "first_running", "last_running", "fresh"):
        state[name] = NONE
    return state


def come(mine: Engines, row: int, one: Coming) -> None:
    """A request comes while the run is stepped."""
    job = records(1, JOB)
    job.prompt, job.target, job.max_new = one.prompt_tokens, one.target, one.max_new_tokens
    mine.jobs[row], mine.retractions[row] = job[0], 0


def remembered(mine: Engines) -> Longs:
    """Rows of requests that are in steps that are not over, or due with a decode that is to come, or whose context goes
    through a node of the tree."""
    tree, jobs = mine.tree, mine.jobs
    found = [tree.nodes.owner[len(mine.gpus) : tree.control.made]]
    for g, gpu in enumerate(mine.gpus):
        for last in mine.due[g, mine.due[g] != 0] - 1:
            one, ring = int(jobs.next_due[last]), [int(last)]
            while one != last:
                ring.append(one)
                one = int(jobs.next_due[one])
            found.append(np.array(ring))
        for number in range(max(0, int(gpu.begun) - 1), int(gpu.scheduled)):
            slot = number % STEPS
            found.append(mine.chosen[g, slot, : mine.steps[g, slot].chosen].request)
    return np.concatenate(found).astype(np.int64)


def with_more(mine: Engines, wanted: int) -> Engines:
    """Twice the nodes, or more if so many are wanted."""
    tree = mine.tree
    old = len(tree.nodes)
    nodes = records(max(2 * old, old + wanted), NODE)
    nodes[:old] = tree.nodes
    larger = Tree(tree.control, nodes, *slots(len(nodes)))
    copy_children(Block(larger).handle, Block(tree).handle)
    return mine._replace(tree=larger)


def _tree(gpus: int, requests: int) -> Tree:
    rows = max(gpus, min(gpus + 8 * requests, 1 << 16))
    control, nodes = records(1, STORE)[0], unset(rows, NODE)  # what is taken is written to then
    nodes[:gpus] = np.zeros(1, NODE)
    control.made = control.nodes = gpus
    control.free_node = NONE
    nodes.parent[:gpus] = NONE
    return Tree(control, nodes, *slots(rows))
