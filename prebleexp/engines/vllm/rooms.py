"""The arrays of a vLLM engine. They are as large as they can become: memory that is never touched takes none."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from prebleexp.checks import require
from prebleexp.engines.recent import RECENT
from prebleexp.engines.vllm.adapters import Adapters
from prebleexp.engines.vllm.drafts import Speculation
from prebleexp.engines.vllm.group_lookup import ALIKE, GROUP, LINK, TABLE, Groups
from prebleexp.engines.vllm.groups import Grouping, most_held
from prebleexp.engines.vllm.records import (
    ANONYMOUS,
    CHOSEN,
    GPU,
    HOLD,
    JOB,
    NEVER,
    RUN,
    STEP,
    STEPS,
    STORE,
    Blocks,
    Engines,
    Settings,
)
from prebleexp.sim.arrays import unset
from prebleexp.sim.children import copy_children, slots
from prebleexp.sim.handles import Block
from prebleexp.sim.records import NONE
from prebleexp.sim.tiers import PEERS
from prebleexp.sim.types import CHUNKED, FULL, SLIDING, Setup, records

if TYPE_CHECKING:
    from prebleexp.engines.vllm.scheduling import Cadence
    from prebleexp.sim.comer import Coming

KINDS = (FULL, SLIDING, CHUNKED)
"""by the numbers that `records` has for them"""


def engines(
    setup: Setup,
    settings: Settings,
    last_tokens: npt.NDArray[np.int64],
    groups: Groups | None = None,
    adapters: Adapters | None = None,
    speculation: Speculation | None = None,
    cadence: Cadence | None = None,
    parallel: Any = None,
) -> Engines:
    """`last_tokens`: (n,) with which each request is finished. `groups`: of layers, and so on: if there are any."""
    workload, gpus = setup.workload, setup.gpus
    state, jobs = records(gpus, GPU), records(len(workload), JOB)
    begin_gpus(state, settings)
    begin_jobs(jobs, workload.prompt_tokens, last_tokens, workload.answer_segment)
    shape = (gpus, STEPS, settings.max_num_seqs)
    crossing = np.zeros((gpus, settings.block_size), np.int64)
    return Engines(
        settings=settings,
        gpus=state,
        jobs=jobs,
        preemptions=np.zeros(len(workload), np.int32),
        blocks=_blocks(setup, settings, jobs.limit, 1 if groups is None else len(groups.all)),
        running=np.empty((gpus, settings.max_num_seqs), np.int32),
        due=np.empty((gpus, settings.max_num_seqs), np.int32),
        crossing=crossing,
        stirred=crossing if groups is None else np.zeros_like(crossing),
        looked_at=np.empty(settings.max_num_seqs, np.int32),
        steps=records(gpus * STEPS, STEP).reshape(gpus, STEPS),
        chosen=unset(shape, CHOSEN),
        preempted=np.empty(shape, np.int32),
        finished=np.empty(shape, np.int32),
        fresh=np.empty(shape, np.int32),
        whole=unset(shape, CHOSEN),
        recent=np.zeros((gpus, RECENT, 2), np.int64),
        groups=groups,
        adapters=adapters,
        speculation=speculation,
        cadence=cadence,
        parallel=parallel,
    )


def groups(setup: Setup, settings: Settings, of: Grouping, interval: int | None) -> Groups:
    """Groups of layers; `interval` is prefix_cache_retention_interval."""
    made, n, size = records(len(of.groups), GROUP), len(setup.workload), settings.block_size
    kinds = list(dict.fromkeys(one[:2] for one in sorted(of.groups, key=lambda one: one.kind != FULL)))
    members = [[number for number, one in enumerate(of.groups) if one[:2] == kind] for kind in kinds]
    told = members[0][0]
    in_flight = (2 if settings.async_scheduling else 1) * settings.max_num_batched_tokens
    for number, (one, group) in enumerate(zip(of.groups, made, strict=True)):
        sliding = one.kind == SLIDING
        most = most_held(one, size, in_flight, setup.context_length)
        group.kind, group.window = KINDS.index(one.kind), one.window
        group.tail = -(-(one.window - 1) // size) if sliding else 0
        group.cap = NEVER if most is None else most
        group.every = NONE if interval is None or not sliding else interval // size
        group.key = (number - told) % len(of.groups)
    alike = records(len(kinds), ALIKE)
    for row, those in zip(alike, members, strict=True):
        row.kind, row.window, row.tail = made.kind[those[0]], made.window[those[0]], made.tail[those[0]]
        row.size = len(those)
    alike.first = np.cumsum(alike["size"]) - alike["size"]
    windows = [-(-one.window // size) for one in of.groups]  # of those that look back to all none
    order = sorted(range(len(made)), key=lambda number: (of.groups[number].kind != FULL, -windows[number]))
    tables = records(n * len(made), TABLE).reshape(n, len(made))
    tables.holds = tables.answer = NONE
    links = records(n + setup.gpus * size, LINK)
    begin_links(links, slice(n, None))
    ahead = 1 if settings.async_scheduling else 0  # positions that are in flight when a step is scheduled
    offsets = {0} | {(one.window + ahead - (one.kind == SLIDING)) % size for one in of.groups if one.kind != FULL}
    return Groups(
        all=made,
        alike=alike,
        members=np.array([number for those in members for number in those], np.int64),
        runs=np.full(len(made), NONE, np.int64),
        order=np.array(order, np.int64),
        full=sum(one.kind == FULL for one in of.groups),
        tables=tables,
        due=np.full(n, NEVER, np.int64),
        links=links,
        offsets=np.array(sorted(offsets), np.int64),
        next=np.empty(len(offsets), np.int64),
        walked=np.full(setup.gpus, NONE, np.int64),
        ranks=np.zeros(setup.gpus, np.int64),
        junctions=np.zeros(n, np.int64),
        head=_head(of) if settings.drops_last else NONE,
        lags=np.full((PEERS, n if settings.tiered else 0), NONE, np.int32),
        told=told,
        held=np.zeros(setup.gpus, np.int64),
        keep_answers=bool((made.every[made.kind != KINDS.index(FULL)] != 0).any()),
        block_tokens=setup.kv_tokens / (settings.blocks + 1),
        whole=np.empty((setup.gpus, STEPS, settings.max_num_seqs, len(made)), np.int32),
    )


def _head(of: Grouping) -> int:
    """The group of a draft's head: its layer looks back to all, and comes behind those of the model."""
    looks_back = [number for number, one in enumerate(of.groups) if one.kind == FULL]
    valid = "draft_model or ngram where KV moves and all layers have windows: a head would have a group of its own"
    require(bool(looks_back), "engine.speculative_config.method", "eagle or mtp", valid)
    return looks_back[-1]


def begin_gpus(gpus: Any, settings: Settings) -> None:
    """Let zeroed records be GPUs that nobody has used."""
    gpus.free = gpus.unkeyed = settings.blocks
    gpus.first = gpus.last = gpus.queue = gpus.queue_last = gpus.moving = gpus.news = gpus.stored = NONE


def begin_groups(mine: Engines, g: int) -> None:
    """Let a GPU be one that nobody has used."""
    groups, size = mine.groups, mine.settings.block_size
    first = len(mine.jobs) + g * size
    begin_links(groups.links, slice(first, first + size))
    groups.held[g], groups.walked[g], mine.stirred[g] = 0, NONE, 0


def begin_links(links: Any, phases: slice) -> None:
    """Let nobody be in some phases."""
    links.rank[phases] = NONE
    links.before[phases] = links.behind[phases] = np.arange(len(links))[phases]


def begin_jobs(jobs: Any, prompt_tokens: Any, last_tokens: Any, answer_segment: Any) -> None:
    """Let zeroed records be requests that nobody has seen."""
    jobs.known, jobs.limit = prompt_tokens, last_tokens
    jobs.holds = jobs.steady_from = NONE
    jobs.answer = np.where(answer_segment == NONE, ANONYMOUS, NONE)
    jobs.filling = 1


def come(mine: Engines, row: int, one: Coming, context_length: int) -> None:
    """A request comes while the run is stepped."""
    job = records(1, JOB)
    limit = min(one.prompt_tokens + one.target, context_length)
    begin_jobs(job, one.prompt_tokens, limit, np.array(one.answer_segment))
    mine.jobs[row], mine.preemptions[row] = job[0], 0
    if mine.groups is not None:
        table = mine.groups.tables[row]
        table.low = table.cached = 0
        table.holds = table.answer = NONE
        mine.groups.due[row], mine.groups.junctions[row] = NEVER, 0
        mine.groups.lags[:, row : row + 1] = NONE  # none without tiers


def with_more(mine: Engines) -> Engines:
    """The same books with a table of block hashes that has twice the slots."""
    blocks = mine.blocks
    larger = blocks._replace(**dict(zip(("slot_keys", "slot_nodes"), slots(len(blocks.slot_keys)), strict=True)))
    copy_children(Block(larger).handle, Block(blocks).handle)
    return mine._replace(blocks=larger)


def _blocks(setup: Setup, settings: Settings, tokens: np.ndarray, tables: int) -> Blocks:
    """As many runs and holds as there can be: a run has one block at least, and a request holds no run twice. Keys by
    a guess."""
    control = records(1, STORE)[0]
    control.free_run = control.free_hold = NONE
    runs = setup.gpus * (settings.blocks + settings.max_num_seqs)  # a step caches blocks before it takes all of them
    of_contexts = -(-tokens.astype(np.int64) // settings.block_size)
    of_contexts *= tables
    at_once = setup.gpus * settings.max_num_seqs * int(of_contexts.max(initial=1))
    whole = setup.legs or setup.tiers or setup.moves  # there are holds of requests that do not run
    holds = int(of_contexts.sum()) if whole else min(int(of_contexts.sum()), at_once)
    if setup.tiers:  # what is lent to other GPUs
        holds += int(of_contexts.sum())
    a_step = settings.max_num_batched_tokens // settings.block_size + settings.max_num_seqs
    keys = tables * (4 * a_step + len(tokens))
    if setup.lends:  # with a GPU that lends, many requests get what they have at once
        keys = max(keys, setup.gpus * min(settings.blocks, settings.segment_ids + len(tokens)))
    return Blocks(control, unset(runs, RUN), unset(holds, HOLD), *slots(keys))
