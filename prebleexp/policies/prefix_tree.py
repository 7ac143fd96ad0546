"""A router's radix tree over the prompts it has routed, with a link for each GPU that a node has to do with.

The records are in `prebleexp.policies.prefix_records`. Because a segment id stands for its whole path from the root,
one comparison tells whether two prompts agree up to a segment.
"""

from __future__ import annotations

from typing import Any

from prebleexp.policies.prefix_records import FOUND, OUTPUT_UNIT
from prebleexp.sim.compiled import compiled
from prebleexp.sim.records import NODES, NONE, SEGMENTS, View

SPREAD = 257
"""places in `Tree.links` between those of two nodes that follow on one another"""


@compiled
def units(row: Any) -> int:
    """A request's expected output in units of `OUTPUT_UNIT`."""
    return int(row.expected_output * OUTPUT_UNIT + 0.5)


@compiled
def take_row(tree: Any) -> int:
    """Takes a free row out of the tree's pool and returns its number. There must be one."""
    control = tree.control
    row = int(control.free_row)
    if row == NONE:
        row = int(control.rows)
        control.rows += 1
    else:
        control.free_row = tree.rows[row].parent
    control.free_rows -= 1
    return row


@compiled
def give_back(tree: Any, row: int) -> None:
    control = tree.control
    tree.rows[row].parent = control.free_row
    control.free_row = row
    control.free_rows += 1


# ---------------------------------------------------------------- links
# A node's first link is its own row, which serves no GPU while it has none.


@compiled
def find_link(tree: Any, node: int, gpu: int) -> int:
    """The node's link for `gpu`, or -1. A prefix that many share has a link for every GPU: where each was found last,
    or that there is none, is noted, which is looked at first. A note of a link is right if that is such a link still;
    that there is none holds until `link_to` makes one, which notes that."""
    rows, first = tree.rows, tree.rows[node]
    if first.gpu == gpu:
        return node
    link = int(first.next)
    if link == NONE:
        return NONE
    place = (node * SPREAD + gpu) & (FOUND - 1)
    noted = int(tree.links[place])
    if noted == no_link(node):
        return NONE
    if noted > 0 and rows[noted].gpu == gpu and rows[noted].segment == 0 and rows[noted].parent == node:
        return noted
    while link != NONE and rows[link].gpu != gpu:
        link = int(rows[link].next)
    tree.links[place] = link if link != NONE else no_link(node)
    return link


@compiled
def no_link(node: int) -> int:
    """How it is noted that a node has none: of which GPU, says the place."""
    return NONE - 1 - node


@compiled
def link_to(tree: Any, node: int, gpu: int) -> int:
    """The node's link for `gpu`, made if there is none. What is a policy's own in it is as it was left."""
    link = find_link(tree, node, gpu)
    if link != NONE:
        return link
    first = tree.rows[node]
    if first.gpu == NONE:
        first.gpu = gpu
        return node
    link = take_row(tree)
    record = tree.rows[link]
    record.parent, record.segment, record.gpu, record.next = node, 0, gpu, first.next
    record.serves = record.active = 0
    first.next = link
    tree.links[(node * SPREAD + gpu) & (FOUND - 1)] = link
    return link


@compiled
def node_of(tree: Any, link: int) -> int:
    """The node that a link is of."""
    record = tree.rows[link]
    return int(record.parent) if record.segment == 0 and record.parent != NONE else link


@compiled
def serve(tree: Any, node: int, gpu: int) -> int:
    """Let `gpu` be one of those that serve the node; returns its link."""
    link = link_to(tree, node, gpu)
    if not tree.rows[link].serves:
        tree.rows[link].serves = 1
        tree.rows[node].serving += 1
    return link


@compiled
def serve_nothing(tree: Any, gpu: int) -> None:
    """Let `gpu` serve no node any more: it is gone, or it is back."""
    for link in range(1, tree.control.rows):
        record = tree.rows[link]
        if record.gpu == gpu and record.serves:
            record.serves = 0
            tree.rows[node_of(tree, link)].serving -= 1


@compiled
def serves(tree: Any, node: int, gpu: int) -> bool:
    link = find_link(tree, node, gpu)
    return link != NONE and tree.rows[link].serves == 1


# ---------------------------------------------------------------- nodes
@compiled
def own_tokens(tree: Any, node: int) -> int:
    """Tokens of the node's own edge."""
    record = tree.rows[node]
    return int(record.tokens) - (int(tree.rows[record.parent].tokens) if record.parent != NONE else 0)


@compiled
def new_node(tree: Any, view: View, parent: int, owner: int, segment: int, first: int) -> int:
    """A node that ends behind so many segments of the owner's prompt, with no links."""
    prompts, end, node = view.prompts, view.requests[owner].first_segment + segment - 1, take_row(tree)
    record = tree.rows[node]
    record.parent, record.owner, record.segment, record.tokens = parent, owner, segment, prompts.ends[end]
    record.first, record.last = first, prompts.ids[end]
    record.prefix = record.gpu = record.next = NONE
    record.serving = record.serves = record.active = 0
    tree.begins[first] = node
    return node


@compiled
def new_leaf(tree: Any, view: View, parent: int, request: int) -> int:
    """A child of the node at which the tree and the request's prompt part."""
    row = view.requests[request]
    first = int(view.prompts.ids[row.first_segment + tree.rows[parent].segment])
    return new_node(tree, view, parent, request, int(row.segments), first)


@compiled
def agreement(tree: Any, view: View, node: int, request: int, segment: int) -> int:
    """How many segments of the request's prompt agree with the path through `node`, which it enters behind `segment` of
    them."""
    record, row, ids = tree.rows[node], view.requests[request], view.prompts.ids
    whole, mine = int(record.segment), int(row.first_segment)
    view.work[SEGMENTS] += 1
    if whole <= row.segments and ids[mine + whole - 1] == record.last:
        return whole
    end, other = min(whole, int(row.segments)), int(view.requests[record.owner].first_segment)
    if end < whole and ids[mine + end - 1] == ids[other + end - 1]:
        return end
    low = segment + 1  # these agree; `end` do not
    while end - low > 1:
        middle = (low + end) >> 1
        view.work[SEGMENTS] += 1
        if ids[mine + middle - 1] == ids[other + middle - 1]:
            low = middle
        else:
            end = middle
    return low


@compiled
def split(tree: Any, view: View, lower: int, segment: int) -> int:
    """Cut `lower` so that its upper part ends behind `segment` segments; returns the upper part.

    It has the links of the lower one, as far as they are `LINK`'s.
    """
    record = tree.rows[lower]
    owner = int(record.owner)
    upper = new_node(tree, view, int(record.parent), owner, segment, int(record.first))
    next_id = int(view.prompts.ids[view.requests[owner].first_segment + segment])
    record.parent, record.first = upper, next_id
    tree.begins[next_id] = lower
    tree.rows[upper].serving = record.serving
    copied = lower
    while copied != NONE:
        old = tree.rows[copied]
        if old.gpu != NONE:
            new = tree.rows[link_to(tree, upper, int(old.gpu))]
            new.serves, new.active = old.serves, old.active
        copied = int(old.next)
    return upper


@compiled
def insert(tree: Any, view: View, request: int) -> tuple[int, int]:
    """Add a prompt; returns (node in which it ends, lower part of the node that was cut for it or -1)."""
    row, ids = view.requests[request], view.prompts.ids
    node, segment, cut = 0, 0, NONE
    while True:
        view.work[NODES] += 1
        if segment == row.segments:
            return node, cut
        child = tree.begins[ids[row.first_segment + segment]]
        if child == 0:
            return new_leaf(tree, view, node, request), cut
        agreed = agreement(tree, view, child, request, segment)
        if agreed < tree.rows[child].segment:
            node, segment, cut = split(tree, view, child, agreed), agreed, child
        elif agreed == row.segments:
            return child, cut
        else:
            node, segment = child, agreed


@compiled
def next_on_path(tree: Any, view: View, node: int, request: int) -> int:
    """The child of `node`, which lies on the prompt's path, through which that path goes to the child's end; or -1."""
    row, ids, segment = view.requests[request], view.prompts.ids, int(tree.rows[node].segment)
    if segment == row.segments:
        return NONE
    child = tree.begins[ids[row.first_segment + segment]]
    if child == 0:
        return NONE
    whole = int(tree.rows[child].segment)
    agrees = whole <= row.segments and ids[row.first_segment + whole - 1] == tree.rows[child].last
    return child if agrees else NONE


@compiled
def remove_leaf(tree: Any, node: int) -> None:
    """Take a node without children out of the tree, with its links."""
    tree.begins[tree.rows[node].first] = 0
    link = node
    while link != NONE:
        behind = int(tree.rows[link].next)
        give_back(tree, link)
        link = behind


@compiled
def fill_held(tree: Any, held: Any, leaf: int) -> None:
    """Write to `held` how many leading tokens of the prompt that ends at `leaf` each GPU serves."""
    held[:] = 0
    node = leaf
    while node != 0:
        tokens, link = tree.rows[node].tokens, node
        while link != NONE:
            one = tree.rows[link]
            if one.serves and held[one.gpu] == 0:
                held[one.gpu] = tokens
            link = int(one.next)
        node = int(tree.rows[node].parent)


@compiled
def held(tree: Any, leaf: int, gpu: int) -> int:
    """How many leading tokens of the prompt that ends at `leaf` one GPU serves."""
    node = leaf
    while node != 0 and not serves(tree, node, gpu):
        node = int(tree.rows[node].parent)
    return int(tree.rows[node].tokens)


@compiled
def lost_link(tree: Any, node: int, gpu: int, tokens: int) -> int:
    """The node's link for a GPU that dropped what lies beyond so many tokens of a path through it; -1 if the node lies
    before that, or unfinished requests of the GPU go through it, which will bring it back."""
    if tree.rows[tree.rows[node].parent].tokens < tokens:
        return NONE
    link = find_link(tree, node, gpu)
    return link if link != NONE and tree.rows[link].active == 0 and tree.rows[link].serves else NONE
