"""What requests hold: of one table of blocks, or of one for each group of layers. Whoever calls these is compiled for
one of the two alone (`prebleexp.sim.compiled.chosen_by`)."""

from __future__ import annotations

from typing import Any

from prebleexp.engines.vllm import blocks, group_tables
from prebleexp.engines.vllm.phases import nothing
from prebleexp.engines.vllm.records import STEPS, Engines
from prebleexp.engines.vllm.steady import blocks_of, is_whole
from prebleexp.sim.compiled import chosen_by, compiled
from prebleexp.sim.records import NONE, World


# ---------------------------------------------------------------- at an admission
@compiled
def _needed(mine: Engines, known: int, hits: int, reached: int) -> int:
    return blocks_of(mine, max(known, reached) if mine.settings.reserve_full_isl else reached) - hits


needed = chosen_by("groups", _needed, group_tables.needed)
"""blocks beside the hits that must be free so that a request which knows so many tokens is admitted, and computes so
many positions at first"""

cached = chosen_by("groups", blocks.cached, group_tables.cached)
hold = chosen_by("groups", blocks.hold, group_tables.hold)


# ---------------------------------------------------------------- while it runs
@compiled
def _lengthen(mine: Engines, world: World, g: int, request: int, more: int) -> int:
    mine.jobs[request].blocks += more
    return int(blocks.take(mine, world, g, more))


lengthen = chosen_by("groups", _lengthen, group_tables.lengthen)
"""so many blocks more for each table of a request; how many of those taken were cached until now"""


move_on = chosen_by("groups", nothing, group_tables.give_up)
"""blocks that are behind the windows of a request are given up before others are taken for it"""

remember = chosen_by("groups", blocks.remember, group_tables.remember)
release = chosen_by("groups", blocks.release, group_tables.release)
release_late = chosen_by("groups", blocks.release, group_tables.release_late)
"""when a step is over that was under way at its end: vLLM has all of it in one list by then, and goes through that from
the last block to the first"""


# ---------------------------------------------------------------- while it decodes steadily
@compiled
def wants(mine: Engines, job: Any, computed: int, new: int) -> int:
    """Blocks that a request which is looked at needs beside those of `Engines.crossing`."""
    if job.steady_from == NONE:
        return mine.settings.tables * max(0, blocks_of(mine, computed + new) - job.blocks)
    last = new == 0 and computed % mine.settings.block_size == 0 and not is_whole(mine, job)
    return -mine.settings.tables * int(last)


@compiled
def _cross(mine: Engines, world: World, g: int, until: int) -> None:
    gpu = mine.gpus[g]
    if until == NONE:
        step, size = mine.steps[g, gpu.scheduled % STEPS], mine.settings.block_size
        step.evicted += blocks.take(mine, world, g, int(mine.crossing[g, gpu.scheduled % size]))


cross = chosen_by("groups", _cross, group_tables.cross)
"""let steady requests whose phase it is take what they must for a token: of one table all together, of several one by
one, those that were admitted before another (-1: all the others)"""


go_steadily = chosen_by("groups", nothing, group_tables.go_steadily)
"""the same of one that is looked at; steps until it must be again: what lies behind a window when it begins to be
steady may have to wait for the step under way"""


# ---------------------------------------------------------------- in tokens
@compiled
def _tokens(mine: Engines, count: int) -> int:
    return count * mine.settings.block_size


@compiled
def _tokens_of_all_layers(mine: Engines, count: int) -> int:
    return int(count * mine.groups.block_tokens)


tokens_of = chosen_by("groups", _tokens, _tokens_of_all_layers)
"""what so many blocks of the pool are, in tokens of all layers"""


@compiled
def _held(mine: Engines, g: int) -> int:
    return int((mine.settings.blocks - mine.gpus[g].free) * mine.settings.block_size)


@compiled
def _held_of_one_group(mine: Engines, g: int) -> int:
    return int(mine.groups.held[g] * mine.settings.block_size)


held = chosen_by("groups", _held, _held_of_one_group)
"""distinct tokens of context that requests hold, of layers that look back to all"""


@compiled
def _not_written(mine: Engines, g: int, row: int, request: int) -> None:
    """Of one table the blocks follow from what is computed."""


@compiled
def _write_held(mine: Engines, g: int, row: int, request: int) -> None:
    for number in range(len(mine.groups.all)):
        held = mine.jobs[request].blocks - mine.groups.tables[request, number].low
        mine.groups.whole[g, mine.gpus[g].scheduled % STEPS, row, number] = held


write_held = chosen_by("groups", _not_written, _write_held)
"""how many blocks a request of the step that is being scheduled holds, for those who watch"""
