"""Blocks of output tokens, which weigh upon a GPU besides those of prompts (router_track_output_blocks).

Dynamo sees every token that streams by. A policy does not: it hears how many tokens the requests of a GPU's batch have
generated together. What is added to that is taken to be shared evenly by those that have their first token. So it was,
token for token, where all of a batch decode in every step, none is sent back to the queue, and reports are of now.

A request of L prompt tokens gains a block with each output token that begins one: the first of them is token
⌈L / B⌉ · B − L + 1, the others follow B tokens apart. So a GPU's requests stand on a dial of B hours.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from prebleexp.policies.dynamo.prompt_sets import BLOCK, PromptSets, weigh
from prebleexp.sim.compiled import compiled
from prebleexp.sim.records import View
from prebleexp.sim.types import Setup, records

GENERATING = np.dtype(
    [
        ("heard_s", np.float64),  # up to when it is known what has happened
        ("reported", np.int64),  # tokens of the batch, as of then
        ("unshared", np.int64),  # what was added and is nobody's yet
        ("clock", np.int64),  # tokens that each request on the dial has generated since the run began
        ("on_dial", np.int64),
        ("beside", np.int64),  # requests that got their first token just now
    ],
    align=True,
)
OUTPUT = np.dtype(
    [
        ("weight", np.int64),  # of its blocks together, in units of `BLOCK`
        ("began", np.int64),  # the clock, when its first token came
        ("blocks", np.int32),
        ("hour", np.int32),  # of the dial, B: beside it
        ("before", np.int32),  # at this hour. Requests are counted from 1 here; 0: none
        ("behind", np.int32),
        ("there", np.int32),
    ],
    align=True,
)


class OutputBlocks(NamedTuple):
    gpus: Any
    requests: Any
    dial: Any
    """(GPUs, B + 1) the first request at each hour"""


def output_blocks(setup: Setup, block_size: int) -> OutputBlocks:
    """Empty books of blocks that outputs grow by, for all requests and GPUs of `setup`; blocks have `block_size`
    tokens."""
    dial = np.zeros((setup.gpus, block_size + 1), np.int32)
    return OutputBlocks(records(setup.gpus, GENERATING), records(setup.requests, OUTPUT), dial)


@compiled
def one_more(outputs: OutputBlocks, sets: PromptSets, request: int, gpu: int, share: float) -> None:
    """The request has one more block. All of its output, and what it alone has of its prompt, is worth this share from
    now on, which is what it has yet to generate; below 0: that is not known, and the block is a whole one."""
    row, before = outputs.requests[request], outputs.requests[request].weight
    row.blocks += 1
    if share < 0.0:
        row.weight += BLOCK
    else:
        weight = int(share * BLOCK + 0.5)
        row.weight = weight * int(row.blocks)
        weigh(sets, request, gpu, weight)
    sets.weights[gpu] += row.weight - before


# ---------------------------------------------------------------- what is heard
@compiled
def first_token(outputs: OutputBlocks, sets: PromptSets, view: View, request: int, now: float) -> None:
    gpu = int(view.requests[request].gpu)
    _hear(outputs, sets, view, gpu, now)
    outputs.gpus[gpu].beside += 1
    _put(outputs, request, gpu, outputs.dial.shape[1] - 1)


@compiled
def finished(outputs: OutputBlocks, sets: PromptSets, view: View, request: int, now: float) -> None:
    """Forget the output of a request that has ended."""
    gpu, row = int(view.requests[request].gpu), outputs.requests[request]
    _hear(outputs, sets, view, gpu, now)
    if row.there:
        if row.hour == outputs.dial.shape[1] - 1:
            outputs.gpus[gpu].beside -= 1
        else:
            outputs.gpus[gpu].on_dial -= 1
            outputs.gpus[gpu].unshared += outputs.gpus[gpu].clock - row.began + 1
        _take(outputs, request, gpu)
    sets.weights[gpu] -= row.weight
    row.weight = row.blocks = 0


@compiled
def forget(outputs: OutputBlocks, view: View, gpu: int) -> None:
    """What the GPU has reported is nobody's, if nobody generates there."""
    row = outputs.gpus[gpu]
    if row.on_dial == 0 and row.beside == 0:
        row.unshared, row.reported = 0, view.gpus[gpu].generated


@compiled
def catch_up(outputs: OutputBlocks, sets: PromptSets, view: View, now: float) -> None:
    """Let every request have the blocks that it has by now."""
    for gpu in range(len(outputs.gpus)):
        _hear(outputs, sets, view, gpu, now)
        _share(outputs, sets, view, gpu)


@compiled
def _hear(outputs: OutputBlocks, sets: PromptSets, view: View, gpu: int, now: float) -> None:
    """Read what the GPU reports. Of one moment there may be several notices, so what was reported then is shared when
    the next begins."""
    row = outputs.gpus[gpu]
    if now > row.heard_s:
        _share(outputs, sets, view, gpu)
        row.heard_s = now
    row.unshared += view.gpus[gpu].generated - row.reported
    row.reported = view.gpus[gpu].generated


@compiled
def _share(outputs: OutputBlocks, sets: PromptSets, view: View, gpu: int) -> None:
    row, beside = outputs.gpus[gpu], outputs.dial.shape[1] - 1
    row.unshared -= row.beside
    steps = max(0, row.unshared // row.on_dial) if row.on_dial > 0 else 0
    row.unshared -= steps * row.on_dial
    for _ in range(steps):
        row.clock += 1
        one = int(outputs.dial[gpu, row.clock % beside])
        while one != 0:
            _begin_block(outputs, sets, view, one - 1, gpu)
            one = int(outputs.requests[one - 1].behind)
    row.on_dial += row.beside
    row.beside = 0
    while outputs.dial[gpu, beside] != 0:
        request = int(outputs.dial[gpu, beside]) - 1
        _take(outputs, request, gpu)
        outputs.requests[request].began = row.clock
        ahead = -int(view.requests[request].prompt_tokens) % beside
        _put(outputs, request, gpu, (row.clock + ahead) % beside)
        if ahead == 0:
            _begin_block(outputs, sets, view, request, gpu)


@compiled
def _begin_block(outputs: OutputBlocks, sets: PromptSets, view: View, request: int, gpu: int) -> None:
    asked, share = view.requests[request], -1.0
    if asked.informed:
        generated = outputs.gpus[gpu].clock - outputs.requests[request].began + 1
        share = max(0.0, 1.0 - generated / max(1.0, asked.expected_output))
    one_more(outputs, sets, request, gpu, share)


# ---------------------------------------------------------------- the dial
@compiled
def _put(outputs: OutputBlocks, request: int, gpu: int, hour: int) -> None:
    row, behind = outputs.requests[request], int(outputs.dial[gpu, hour])
    row.hour, row.before, row.behind, row.there = hour, 0, behind, 1
    if behind != 0:
        outputs.requests[behind - 1].before = request + 1
    outputs.dial[gpu, hour] = request + 1


@compiled
def _take(outputs: OutputBlocks, request: int, gpu: int) -> None:
    row = outputs.requests[request]
    row.there = 0
    if row.before == 0:
        outputs.dial[gpu, row.hour] = row.behind
    else:
        outputs.requests[row.before - 1].behind = row.behind
    if row.behind != 0:
        outputs.requests[row.behind - 1].before = row.before
