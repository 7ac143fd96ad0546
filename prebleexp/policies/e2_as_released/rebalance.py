"""Rebalancing as released: shift nodes from the heaviest GPU to the lightest."""

from __future__ import annotations

from prebleexp.policies.e2_as_released.loads import cost_s, fill_loads
from prebleexp.policies.e2_as_released.memory import Memory, Tree
from prebleexp.policies.e2_as_released.tree import give_subtree, serve_alone
from prebleexp.policies.e2_as_released.window import forget_samples, overloaded
from prebleexp.policies.prefix_tree import find_link, serve, serves
from prebleexp.policies.prefixes import is_large
from prebleexp.sim.compiled import compiled
from prebleexp.sim.records import ENTRIES, NONE, View

THRESHOLD = 1.5
"""of the heaviest to the lightest load"""


@compiled
def rebalance(mine: Memory, view: View, now: float) -> None:
    fill_loads(mine, view, 2)
    loads, order, gpus = mine.loads, mine.order, len(mine.loads)
    if max(loads) < THRESHOLD * min(loads):
        return
    _sort(loads, order)
    light = order[gpus - 1]
    for rank in range(gpus - 1):
        heavy = order[rank]
        if loads[heavy] < THRESHOLD * loads[light]:
            return
        if mine.served[heavy] > 0:  # else there is nothing to move; shifts add to `light` alone
            _shift(mine, view, heavy, light, now)


@compiled
def _sort(loads, order) -> None:  # type: ignore[no-untyped-def]
    """GPUs by load, descending, those of equal load ascending. By insertion: the order is nearly the last one's."""
    for i in range(1, len(order)):
        gpu = order[i]
        j = i - 1
        while j >= 0 and (loads[order[j]] < loads[gpu] or (loads[order[j]] == loads[gpu] and order[j] > gpu)):
            order[j + 1] = order[j]
            j -= 1
        order[j + 1] = gpu


@compiled
def _shift(mine: Memory, view: View, heavy: int, light: int, now: float) -> None:
    """One round: a single node is shared if it is overloaded; of several, the cheapest move until the loads are close.
    Loads change as the shifts say."""
    tree, loads, routed = mine.tree, mine.loads, mine.routed
    found = _movable(mine, view, heavy)
    if found == 1:
        cost, node = tree.costs[0], int(tree.prefixes[tree.order[0]].node)
        if not serves(tree, node, light) and overloaded(tree, routed, node, heavy, now):
            loads[heavy] -= cost / 2
            loads[light] += cost / 2
            serve(tree, node, light)
            forget_samples(tree, node, heavy)
        return
    for left in range(found, 0, -1):
        best = _cheapest(tree, left)
        cost, prefix = tree.costs[best], int(tree.order[best])
        tree.costs[best], tree.order[best] = tree.costs[left - 1], tree.order[left - 1]
        if loads[heavy] - cost < loads[light] + cost:
            return
        loads[heavy] -= cost
        loads[light] += cost
        _give(tree, int(tree.prefixes[prefix].node), light)
        if loads[heavy] < THRESHOLD * loads[light]:
            return


@compiled
def _movable(mine: Memory, view: View, heavy: int) -> int:
    """List the large nodes of several requests that `heavy` serves, with their costs; returns how many there are."""
    tree, found = mine.tree, 0
    prefix = int(tree.control.first_prefix)
    while prefix != NONE:
        entry = tree.prefixes[prefix]
        view.work[ENTRIES] += 1
        if entry.count > 1:
            link = find_link(tree, int(entry.node), heavy)
            if link != NONE and tree.rows[link].serves and is_large(tree, int(entry.node)):
                tree.order[found], tree.costs[found] = prefix, cost_s(mine, view, prefix, tree.rows[link])
                found += 1
        prefix = int(entry.behind)
    return found


@compiled
def _cheapest(tree: Tree, found: int) -> int:
    best = 0
    for other in range(1, found):
        if tree.costs[other] < tree.costs[best]:
            best = other
        elif tree.costs[other] == tree.costs[best]:
            one, two = int(tree.prefixes[tree.order[best]].node), int(tree.prefixes[tree.order[other]].node)
            if _comes_before(tree, two, one):
                best = other
    return best


@compiled
def _comes_before(tree: Tree, one: int, other: int) -> bool:
    """Ties in cost are broken by the vectors of unfinished requests, then by last touch."""
    difference, at = 0, -1  # of the first GPU for which they differ
    for node, sign in ((one, 1), (other, -1)):
        link = node
        while link != NONE:
            record = tree.rows[link]
            gpu = int(record.gpu)
            if at == -1 or gpu < at:
                theirs = find_link(tree, other if sign == 1 else one, gpu)
                mine = int(record.active) - (int(tree.rows[theirs].active) if theirs != NONE else 0)
                if mine != 0:
                    difference, at = sign * mine, gpu
            link = int(record.next)
    if at != -1:
        return difference < 0
    return bool(tree.rows[one].accessed < tree.rows[other].accessed)


@compiled
def _give(tree: Tree, node: int, gpu: int) -> None:
    """Let `gpu` alone serve the node's subtree. The window's nodes in it learn of it now: they are read without a walk
    from the root."""
    stamp = give_subtree(tree, node, gpu)
    prefix = int(tree.control.first_prefix)
    while prefix != NONE:
        below = int(tree.prefixes[prefix].node)
        above = below
        while above != NONE and above != node:
            above = int(tree.rows[above].parent)
        if above == node and below != node:
            serve_alone(tree, below, gpu, stamp)
        prefix = int(tree.prefixes[prefix].behind)
