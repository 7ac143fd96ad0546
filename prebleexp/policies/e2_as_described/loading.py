"""What tiers behind a GPU's cache have need not be computed: it is loaded, which takes as long as it does alone.

Tiers tell of full blocks, and a prompt's last one is rarely full: as where a cache drops a part of a node, a node of
which a GPU's tiers have a part is one that they have. Of the store for all every GPU has the same: that is no reason to
prefer one of them.
"""

from __future__ import annotations

from prebleexp.policies import below
from prebleexp.policies.e2_as_described.memory import Memory
from prebleexp.policies.prefix_index import longest_match
from prebleexp.policies.prefix_tree import serves
from prebleexp.sim.compiled import compiled
from prebleexp.sim.cost import prefill_s
from prebleexp.sim.records import View


@compiled
def look_below(mine: Memory, view: View, request: int, leaf: int, matched: int) -> tuple[int, int]:
    """Look up what tiers have of the prompt that ends at `leaf`, of which caches have what ends at `matched`; returns
    the node in which the longest match of a candidate's cache or its own tiers ends, and the match's tokens."""
    rows, longest, node = mine.tree.rows, int(mine.tree.rows[matched].tokens), leaf
    below.look(mine.below, view, request)
    for gpu in view.candidates:
        longest = max(longest, _own(mine, gpu))
    while node != 0 and rows[rows[node].parent].tokens >= longest:
        node = int(rows[node].parent)
    return node, longest


@compiled
def only_below(mine: Memory, node: int, gpu: int) -> bool:
    """Whether the GPU's own tiers have the node, which the prompt in hand goes through, and its cache has not."""
    above = mine.tree.rows[mine.tree.rows[node].parent].tokens
    return _own(mine, gpu) > above and not serves(mine.tree, node, gpu)


@compiled
def _own(mine: Memory, gpu: int) -> int:
    """Leading tokens of the prompt in hand that the GPU's host has, or its disk."""
    host, disk, _ = below.ends(mine.below, gpu, 0)
    return max(host, disk)


@compiled
def have_s(mine: Memory, view: View, gpu: int, length: int) -> float:
    """What it takes the GPU to have the prompt in hand of such a length: to load what it does not hold and its tiers
    have, and to compute the rest; one token at least is computed."""
    here = int(mine.gpus[gpu].held)
    host, disk, shared = below.ends(mine.below, gpu, here)
    return _load_s(mine, here, host, disk, shared) + prefill_s(view.costs[gpu], max(1, length - shared), length)


@compiled
def have_again_s(mine: Memory, view: View, gpu: int, node: int) -> float:
    """What it takes the GPU to have a node again that it drops."""
    gpus, row = len(mine.gpus), mine.tree.rows[node]
    here, owner, tokens = int(mine.tree.rows[row.parent].tokens), int(row.owner), int(row.tokens)
    host = min(tokens, max(here, _copied(mine, view, owner, gpu)))
    disk = min(tokens, max(host, _copied(mine, view, owner, gpus + gpu)))
    shared = min(tokens, max(disk, _copied(mine, view, owner, 2 * gpus)))
    rest_s = prefill_s(view.costs[gpu], tokens - shared, tokens) if shared < tokens else 0.0
    return _load_s(mine, here, host, disk, shared) + rest_s


@compiled
def _copied(mine: Memory, view: View, request: int, place: int) -> int:
    """Leading tokens of any prompt that a place has."""
    return longest_match(mine.below.held, view, request, (place,))[0]


@compiled
def _load_s(mine: Memory, here: int, host: int, disk: int, shared: int) -> float:
    """What it takes to load the parts that end there, behind `here` tokens: each tier has a link of its own."""
    seconds, begin, loads = 0.0, here, mine.loads
    for tier, end in enumerate((host, disk, shared)):
        if end > begin:
            seconds = max(seconds, loads[tier, 0] + loads[tier, 1] * (end - begin))
        begin = end
    return seconds
