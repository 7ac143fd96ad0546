"""The window H: which requests count, for their GPU, for the nodes they go through and for their prefix.

A turn counts for its nodes and its prefix until it has both left the window and finished, so that nothing is forgotten
that an unfinished request uses. That its GPU was lost is one way to finish: what was sent there stays in the window.
"""

from __future__ import annotations

from prebleexp.policies.e2_as_described.accounts import count_one, serve_for_none, share
from prebleexp.policies.e2_as_described.delays import begin_to_watch
from prebleexp.policies.e2_as_described.holdings import drop, hold, let_go
from prebleexp.policies.e2_as_described.memory import TOTAL, Memory
from prebleexp.policies.prefix_tree import find_link, link_to, node_of, remove_leaf, units
from prebleexp.policies.prefixes import entry_of, remove
from prebleexp.sim.compiled import compiled
from prebleexp.sim.records import ENTRIES, NONE, View


@compiled
def add(
    mine: Memory, view: View, leaf: int, prefix_node: int, request: int, gpu: int, prefill_ns: int, now: float
) -> None:
    """Count a request that is sent to `gpu`, which from now on holds its nodes."""
    tree, control, output = mine.tree, mine.tree.control, units(view.requests[request])
    prefix = entry_of(tree, prefix_node)
    if tree.prefixes[prefix].count == 0:
        tree.prefixes[prefix].apart = 0
        begin_to_watch(mine, prefix)
    count_one(mine, prefix, 1)
    turn = control.routed
    row = mine.routed[turn]
    row.gpu, row.prefix = gpu, prefix
    row.prefill_ns, row.output, row.epoch = prefill_ns, output, tree.prefixes[prefix].epoch
    mine.leaves[turn], mine.times[turn], mine.turn[request] = leaf, now, turn
    control.routed += 1
    book = mine.gpus[gpu]
    row.behind = row.oldest = NONE
    if book.turn != NONE:
        mine.routed[book.turn].behind = turn
    book.turn = turn
    book.requests += 1
    book.work_ns += prefill_ns
    book.output += output
    book.unfinished += output
    share(mine, prefix, _hold_path(mine, leaf, prefix_node, gpu, turn), prefill_ns, output)


@compiled
def _hold_path(mine: Memory, leaf: int, prefix_node: int, gpu: int, turn: int) -> int:
    """Let the GPU hold the nodes from `leaf` up, and count one more request for them; returns the prefix's link."""
    rows, node, link, own = mine.tree.rows, leaf, link_to(mine.tree, leaf, gpu), NONE
    while True:
        hold(mine, node, link, turn)
        if node == prefix_node:
            own = link
        record, parent = rows[link], rows[node].parent
        above = 0
        if parent != 0:
            above = record.up if record.active + record.requests > 0 else link_to(mine.tree, parent, gpu)
        record.up = above
        record.active += 1
        record.requests += 1
        rows[node].users += 1
        if parent == 0:
            return own
        node, link = parent, above


@compiled
def slide(mine: Memory, view: View, now: float) -> None:
    """Take out of the window what is older than H."""
    tree, control, begin = mine.tree, mine.tree.control, now - mine.settings.window_s
    while control.oldest < control.routed and mine.times[control.oldest] < begin:
        turn = control.oldest
        row = mine.routed[turn]
        control.oldest += 1
        view.work[ENTRIES] += 1
        row.expired = 1
        book = mine.gpus[row.gpu]
        book.requests -= 1
        book.work_ns -= row.prefill_ns
        book.output -= row.output
        prefix_node, own = tree.prefixes[row.prefix].node, NONE
        link = find_link(tree, mine.leaves[turn], row.gpu)
        while link != 0:
            tree.rows[link].requests -= 1
            if node_of(tree, link) == prefix_node:
                own = link
            link = tree.rows[link].up
        share(mine, row.prefix, own, -row.prefill_ns, -row.output if mine.settings.decode == TOTAL else 0)
        if row.finished:
            _forget(mine, turn)


@compiled
def finish(mine: Memory, request: int) -> None:
    tree, turn = mine.tree, mine.turn[request]
    row = mine.routed[turn]
    row.finished = 1
    mine.gpus[row.gpu].unfinished -= row.output
    prefix_node, own = tree.prefixes[row.prefix].node, NONE
    link = find_link(tree, mine.leaves[turn], row.gpu)
    while link != 0:
        let_go(mine, link)
        if node_of(tree, link) == prefix_node:
            own = link
        link = tree.rows[link].up
    if mine.settings.decode != TOTAL:
        share(mine, row.prefix, own, 0, -row.output)
    if row.expired:
        _forget(mine, turn)


@compiled
def _forget(mine: Memory, turn: int) -> None:
    """The turn counts no more: nodes that were its alone leave the tree."""
    tree, node, prefix = mine.tree, mine.leaves[turn], mine.routed[turn].prefix
    count_one(mine, prefix, -1)
    if tree.prefixes[prefix].count == 0:
        serve_for_none(mine, prefix)
        remove(tree, prefix)
    while node != 0:
        parent = tree.rows[node].parent
        tree.rows[node].users -= 1
        if tree.rows[node].users == 0:
            link = node
            while link != NONE:
                drop(mine, link)
                link = tree.rows[link].next
            remove_leaf(tree, node)
        node = parent
    mine.leaves[turn] = NONE
