"""The arrays of a vLLM engine. They are as large as they can become: memory that is never touched takes none."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from prebleexp.engines.recent import RECENT
from prebleexp.engines.vllm.records import (
    ANONYMOUS,
    CHOSEN,
    GPU,
    HOLD,
    JOB,
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
from prebleexp.sim.tiers import TIERS
from prebleexp.sim.types import Setup, records


def engines(setup: Setup, settings: Settings, last_tokens: npt.NDArray[np.int64]) -> Engines:
    """`last_tokens`: (n,) with which each request is finished."""
    workload, gpus = setup.workload, setup.gpus
    state, jobs = records(gpus, GPU), records(len(workload), JOB)
    begin_gpus(state, settings)
    begin_jobs(jobs, workload.prompt_tokens, last_tokens, workload.answer_segment)
    shape = (gpus, STEPS, settings.max_num_seqs)
    return Engines(
        settings=settings,
        gpus=state,
        jobs=jobs,
        preemptions=np.zeros(len(workload), np.int32),
        blocks=_blocks(setup, settings, jobs.limit),
        running=np.empty((gpus, settings.max_num_seqs), np.int32),
        due=np.empty((gpus, settings.max_num_seqs), np.int32),
        crossing=np.zeros((gpus, settings.block_size), np.int64),
        looked_at=np.empty(settings.max_num_seqs, np.int32),
        steps=records(gpus * STEPS, STEP).reshape(gpus, STEPS),
        chosen=unset(shape, CHOSEN),
        preempted=np.empty(shape, np.int32),
        finished=np.empty(shape, np.int32),
        whole=unset(shape, CHOSEN),
        recent=np.zeros((gpus, RECENT, 2), np.int64),
    )


def begin_gpus(gpus: Any, settings: Settings) -> None:
    """Let zeroed records be GPUs that nobody has used."""
    gpus.free = gpus.unkeyed = settings.blocks
    gpus.first = gpus.last = gpus.queue = gpus.moving = NONE


def begin_jobs(jobs: Any, prompt_tokens: Any, last_tokens: Any, answer_segment: Any) -> None:
    """Let zeroed records be requests that nobody has seen."""
    jobs.known, jobs.limit = prompt_tokens, last_tokens
    jobs.holds = jobs.steady_from = NONE
    jobs.answer = np.where(answer_segment == NONE, ANONYMOUS, NONE)
    jobs.filling = 1


def with_more(mine: Engines) -> Engines:
    """Twice the room for keys."""
    blocks = mine.blocks
    larger = blocks._replace(**dict(zip(("slot_keys", "slot_nodes"), slots(len(blocks.slot_keys)), strict=True)))
    copy_children(Block(larger).handle, Block(blocks).handle)
    return mine._replace(blocks=larger)


def _blocks(setup: Setup, settings: Settings, tokens: np.ndarray) -> Blocks:
    """As many runs and holds as there can be: a run has one block at least, and a request holds no run twice. Keys by
    a guess."""
    control = records(1, STORE)[0]
    control.free_run = control.free_hold = NONE
    runs = setup.gpus * (settings.blocks + settings.max_num_seqs)  # a step caches blocks before it takes all of them
    of_contexts = -(-tokens.astype(np.int64) // settings.block_size)
    at_once = setup.gpus * settings.max_num_seqs * int(of_contexts.max(initial=1))
    whole = setup.legs or setup.tiers or setup.moves  # there are holds of requests that do not run
    holds = int(of_contexts.sum()) if whole else min(int(of_contexts.sum()), at_once)
    if setup.tiers:  # what is stored, and what is lent to other GPUs
        holds += TIERS * setup.gpus * settings.blocks + int(of_contexts.sum())
    a_step = settings.max_num_batched_tokens // settings.block_size + settings.max_num_seqs
    keys = 4 * a_step + len(tokens)
    return Blocks(control, unset(runs, RUN), unset(holds, HOLD), *slots(keys))
