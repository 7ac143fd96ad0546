"""Blocks for a context that comes from another GPU, or from tiers: for all of it, or, of layers with a window, for what
the next token needs alone (vllm/distributed/kv_transfer/kv_connector/v1)."""

from __future__ import annotations

from typing import Any

from prebleexp.engines.vllm import blocks
from prebleexp.engines.vllm.blocks import found_run, hold_between, segment_at
from prebleexp.engines.vllm.group_lookup import behind, lookup
from prebleexp.engines.vllm.phases import nothing
from prebleexp.engines.vllm.records import FAILED, PULLED, Engines
from prebleexp.engines.vllm.steady import blocks_of
from prebleexp.sim.compiled import chosen_by, compiled
from prebleexp.sim.records import NONE, World


@compiled
def _room(mine: Engines, world: World, g: int, request: int, reached: int) -> tuple[int, int, int]:
    hits, idle = blocks.cached(mine, world, g, request)
    return hits, blocks_of(mine, reached) - hits, idle


@compiled
def _room_of_groups(mine: Engines, world: World, g: int, request: int, reached: int) -> tuple[int, int, int]:
    hits, _ = lookup(mine, world, g, request)
    need = idle = 0
    for number in range(len(mine.groups.all)):
        group = mine.groups.all[number]
        at, segment, run = behind(int(group.kind), int(group.window), reached, mine.settings.block_size), 0, NONE
        need += blocks_of(mine, reached) - max(at, hits)
        while at < hits:
            segment = segment_at(mine, world, request, segment, at)
            run, until = found_run(mine, world, g, request, segment, at, hits, int(group.key), run)
            if mine.blocks.runs[run].holders == 0:
                idle += until - at
            at = until
    return hits, need, idle


room = chosen_by("groups", _room, _room_of_groups)
"""blocks of a context that are cached, blocks that are to come up to a position, and those of the former that nobody
holds"""


@compiled
def _whole(mine: Engines, known: int, hits: int, reached: int) -> int:
    return blocks_of(mine, known) - hits


@compiled
def _whole_of_groups(mine: Engines, known: int, hits: int, reached: int) -> int:
    need = 0
    for number in range(len(mine.groups.all)):
        group = mine.groups.all[number]
        first = max(hits, behind(int(group.kind), int(group.window), reached, mine.settings.block_size))
        need += max(0, min(blocks_of(mine, known), int(group.cap)) - first)
    return need


whole = chosen_by("groups", _whole, _whole_of_groups)
"""blocks beside the hits for all that is known, of which a part comes"""


@compiled
def _hold(mine: Engines, world: World, g: int, request: int, reached: int) -> None:
    blocks.hold(mine, world, g, request)


@compiled
def _hold_windows(mine: Engines, world: World, g: int, request: int, reached: int) -> None:
    job, groups, gpu = mine.jobs[request], mine.groups, mine.gpus[g]
    hits, longest = lookup(mine, world, g, request)
    groups.junctions[request] = longest if longest > hits else 0
    job.keyed, job.segment = hits, 0
    for number in range(len(groups.all)):
        group, table, free = groups.all[number], groups.tables[request, number], gpu.free
        table.low = table.first = behind(int(group.kind), int(group.window), reached, mine.settings.block_size)
        table.gone_to, table.cached = 0, max(0, hits - int(table.low))
        hold_between(mine, world, g, request, table, int(table.low), hits, int(group.key))
        if number == groups.told:
            groups.held[g] += free - gpu.free + blocks_of(mine, reached) - max(int(table.low), hits)
    groups.due[request] = 0


hold = chosen_by("groups", _hold, _hold_windows)
"""let a request hold what `room` finds"""


@compiled
def _comes_last(mine: Engines, world: World, g: int, request: int) -> int:
    mine.groups.ranks[g] += 1
    mine.groups.links[request].rank = mine.groups.ranks[g]
    return 0


comes_last = chosen_by("groups", nothing, _comes_last)
"""of those that were admitted so far"""


@compiled
def _promised(mine: Engines, known: int, held: int) -> int:
    return max(0, blocks_of(mine, known) - held)


@compiled
def _promised_of_groups(mine: Engines, known: int, held: int) -> int:
    promised = 0
    for number in range(len(mine.groups.all)):
        promised += max(0, min(blocks_of(mine, known), int(mine.groups.all[number].cap)) - held)
    return promised


promised = chosen_by("groups", _promised, _promised_of_groups)
"""blocks that who knows so many tokens still needs"""


@compiled
def lacks(mine: Engines, job: Any) -> int:
    """Blocks that a request still needs for all that it knows, and for a first step with drafts."""
    return int(promised(mine, int(job.known) + mine.settings.first_step, int(job.blocks)))


@compiled
def _waits_for_first_step(mine: Engines, world: World, g: int, request: int) -> int:
    mine.gpus[g].lacked += lacks(mine, mine.jobs[request])
    return 0


@compiled
def _lacks_no_more(mine: Engines, world: World, g: int, request: int) -> int:
    job = mine.jobs[request]
    if job.filling in (PULLED, FAILED) and job.blocks > 0:
        mine.gpus[g].lacked -= lacks(mine, job)
    return 0


waits_for_first_step = chosen_by("speculation", nothing, _waits_for_first_step)
"""others leave it what it lacks for one with drafts, from when its KV is asked for …"""
lacks_no_more = chosen_by("speculation", nothing, _lacks_no_more)
"""… until it runs, gives its blocks back, or leaves"""
