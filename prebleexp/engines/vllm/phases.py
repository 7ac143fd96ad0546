"""Steady requests whose layers have groups, by phase: those that take a block in the same steps are linked, in order of
admission.

What a window gives up and what is taken decide together which cached blocks are evicted, so it is done request after
request, as vLLM does it. But nobody else is looked at: between two of its phases nothing happens to a request.
"""

from __future__ import annotations

from prebleexp.engines.vllm.records import NEVER, Engines
from prebleexp.sim.compiled import chosen_by, compiled
from prebleexp.sim.records import World


@compiled
def nothing(mine: Engines, world: World, g: int, request: int) -> int:
    """What is to be done of one table; steps until it must be again."""
    return NEVER


@compiled
def _link(mine: Engines, world: World, g: int, request: int) -> int:
    """A request that is steady from now on."""
    links, one, job, size = mine.groups.links, mine.groups.links[request], mine.jobs[request], mine.settings.block_size
    behind = len(mine.jobs) + g * size + (job.steady_from - job.computed) % size
    before = int(links[behind].before)
    while links[before].rank > one.rank:
        before, behind = int(links[before].before), before
    links[before].behind = links[behind].before = request
    one.before, one.behind = before, behind
    for at in range(len(mine.groups.offsets)):
        mine.stirred[g, (job.steady_from - job.computed + mine.groups.offsets[at]) % size] += 1
    return NEVER


@compiled
def _unlink(mine: Engines, world: World, g: int, request: int) -> int:
    """Take a request out of the list that `_link` put it into."""
    links, one, job, size = mine.groups.links, mine.groups.links[request], mine.jobs[request], mine.settings.block_size
    links[one.before].behind, links[one.behind].before = one.behind, one.before
    for at in range(len(mine.groups.offsets)):
        mine.stirred[g, (job.steady_from - job.computed + mine.groups.offsets[at]) % size] -= 1
    return NEVER


link = chosen_by("groups", nothing, _link)
unlink = chosen_by("groups", nothing, _unlink)
