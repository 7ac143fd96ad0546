"""What each GPU's cache holds, as far as the router knows: what it was sent and has not reported evicted.

A node's link `serves` where its GPU holds the node. Those of a GPU that no unfinished request uses may be evicted, and
are in a list by last use in which a node comes behind all that lie below it, so that the oldest are leaves. Of nodes
that the same turn used last, which are of one path, the deeper is the older.
"""

from __future__ import annotations

from prebleexp.policies.e2_as_described.memory import Memory, Tree
from prebleexp.policies.prefix_tree import find_link, lost_link, next_on_path, node_of
from prebleexp.sim.compiled import compiled
from prebleexp.sim.records import NONE, View


@compiled
def hold(mine: Memory, node: int, link: int, turn: int) -> None:
    """The GPU of the node's link holds the node, and a request will use it."""
    record = mine.tree.rows[link]
    if not record.serves:
        record.serves = 1
        mine.tree.rows[node].serving += 1
    elif record.active == 0:
        _unlink(mine, link)
    mine.tree.used[link] = turn


@compiled
def let_go(mine: Memory, link: int) -> None:
    """One request less uses the link's node: if that was the last, it may be evicted."""
    record = mine.tree.rows[link]
    record.active -= 1
    if record.serves and record.active == 0:
        older = _before_later_turns(mine, link)
        while older != NONE and _used_later(mine.tree, older, link):
            older = mine.tree.rows[older].older
        _insert(mine, link, older)


@compiled
def _before_later_turns(mine: Memory, link: int) -> int:
    """The newest in the GPU's list that no later turn used than the one that used the link; -1: none. It is looked for
    from both sides, in the list and in later turns: of these many may have finished, or few, but not both."""
    rows, used, turn = mine.tree.rows, mine.tree.used, int(mine.tree.used[link])
    older, later = int(mine.gpus[rows[link].gpu].newest), int(mine.routed[turn].behind)
    while older != NONE and used[older] > turn:
        if later != NONE:
            oldest = int(mine.routed[later].oldest)
            if oldest != NONE:
                return int(rows[oldest].older)
            later = int(mine.routed[later].behind)
        older = int(rows[older].older)
    return older


@compiled
def _used_later(tree: Tree, link: int, than: int) -> bool:
    if tree.used[link] != tree.used[than]:
        return bool(tree.used[link] > tree.used[than])
    return bool(tree.rows[node_of(tree, link)].tokens < tree.rows[node_of(tree, than)].tokens)


@compiled
def _insert(mine: Memory, link: int, older: int) -> None:
    """Let the link stand right behind `older` in its GPU's list; -1: before all others."""
    rows, record = mine.tree.rows, mine.tree.rows[link]
    book = mine.gpus[record.gpu]
    record.older = older
    record.newer = book.oldest if older == NONE else rows[older].newer
    if older == NONE:
        book.oldest = link
    else:
        rows[older].newer = link
    if record.newer == NONE:
        book.newest = link
    else:
        rows[record.newer].older = link
    turn = mine.tree.used[link]
    if older == NONE or mine.tree.used[older] != turn:
        mine.routed[turn].oldest = link


@compiled
def _unlink(mine: Memory, link: int) -> None:
    rows, record, turn = mine.tree.rows, mine.tree.rows[link], mine.tree.used[link]
    if mine.routed[turn].oldest == link:
        same = record.newer != NONE and mine.tree.used[record.newer] == turn
        mine.routed[turn].oldest = record.newer if same else NONE
    if record.newer == NONE:
        mine.gpus[record.gpu].newest = record.older
    else:
        rows[record.newer].older = record.older
    if record.older == NONE:
        mine.gpus[record.gpu].oldest = record.newer
    else:
        rows[record.older].newer = record.newer


@compiled
def drop(mine: Memory, link: int) -> None:
    """The GPU holds the node no more."""
    record = mine.tree.rows[link]
    if record.serves:
        if record.active == 0:
            _unlink(mine, link)
        record.serves = 0
        mine.tree.rows[node_of(mine.tree, link)].serving -= 1


@compiled
def fill_held(mine: Memory, leaf: int) -> None:
    """Look up how many leading tokens of the prompt that ends at `leaf` each GPU holds."""
    rows, node = mine.tree.rows, leaf
    for gpu in range(len(mine.gpus)):
        mine.gpus[gpu].held = 0
    while node != 0:
        tokens, link = rows[node].tokens, node
        while link != NONE:
            record = rows[link]
            if record.serves and mine.gpus[record.gpu].held == 0:
                mine.gpus[record.gpu].held = tokens
            link = record.next
        node = rows[node].parent


@compiled
def look_up_held(mine: Memory, leaf: int, gpu: int) -> None:
    """Look up how many leading tokens of the prompt that ends at `leaf` the GPU holds."""
    rows, node = mine.tree.rows, leaf
    while node != 0:
        link = find_link(mine.tree, node, gpu)
        if link != NONE and rows[link].serves:
            break
        node = rows[node].parent
    mine.gpus[gpu].held = rows[node].tokens


@compiled
def copy_holdings(mine: Memory, lower: int) -> None:
    """A node was cut: requests that go through it go through its upper part, which was last used when it itself was."""
    rows, used = mine.tree.rows, mine.tree.used
    upper = rows[lower].parent
    rows[upper].users = rows[lower].users
    link = upper
    while link != NONE and rows[link].gpu != NONE:
        record = rows[link]
        below = find_link(mine.tree, lower, record.gpu)
        record.requests, record.up = rows[below].requests, rows[below].up
        rows[below].up = link
        used[link] = used[below]
        if record.serves and record.active == 0:
            _insert(mine, link, below)
        link = record.next


@compiled
def evicted(mine: Memory, view: View, request: int, gpu: int, tokens: int) -> None:
    """A GPU dropped a part of a request's context: what lies beyond so many tokens."""
    tree, turn = mine.tree, int(mine.turn[request])
    node = NONE if turn == NONE else int(mine.leaves[turn])
    if node == NONE:  # its nodes are there for the sake of others, if at all
        node = next_on_path(tree, view, 0, request)
        while node != NONE:
            _lose(mine, node, gpu, tokens)
            node = next_on_path(tree, view, node, request)
        return
    while node != 0 and tree.rows[node].tokens > tokens:
        _lose(mine, node, gpu, tokens)
        node = tree.rows[node].parent


@compiled
def _lose(mine: Memory, node: int, gpu: int, tokens: int) -> None:
    link = lost_link(mine.tree, node, gpu, tokens)
    if link != NONE:
        drop(mine, link)
