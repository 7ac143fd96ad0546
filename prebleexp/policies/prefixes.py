"""Prefixes: the nodes that requests count for, and a list of those of the window in order of entry.

A request's prefix is the deepest node of its prompt that is large: has more tokens than lie before it. PREBLE's code
calls it the important node.
"""

from __future__ import annotations

from typing import Any

from prebleexp.policies.prefix_tree import own_tokens
from prebleexp.sim.compiled import compiled
from prebleexp.sim.records import NONE


@compiled
def is_large(tree: Any, node: int) -> bool:
    """Whether the node has more tokens than lie before it."""
    own = own_tokens(tree, node)
    return own > tree.rows[node].tokens - own


@compiled
def prefix_node(tree: Any, node: int) -> int:
    """The node itself or its nearest ancestor that is large. What hangs below the root always is."""
    while not is_large(tree, node):
        node = int(tree.rows[node].parent)
    return node


@compiled
def append(tree: Any, prefix: int) -> None:
    """Put an entry at the end of the order."""
    control, entry = tree.control, tree.prefixes[prefix]
    control.clock += 1
    entry.entered = control.clock
    entry.before, entry.behind = control.last_prefix, NONE
    if control.last_prefix == NONE:
        control.first_prefix = prefix
    else:
        tree.prefixes[control.last_prefix].behind = prefix
    control.last_prefix = prefix
    control.prefixes += 1


@compiled
def unlink(tree: Any, prefix: int) -> None:
    """Take an entry out of the order."""
    control, entry = tree.control, tree.prefixes[prefix]
    if entry.before == NONE:
        control.first_prefix = entry.behind
    else:
        tree.prefixes[entry.before].behind = entry.behind
    if entry.behind == NONE:
        control.last_prefix = entry.before
    else:
        tree.prefixes[entry.behind].before = entry.before
    control.prefixes -= 1


@compiled
def entry_of(tree: Any, node: int) -> int:
    """The node's entry, made if there is none: then its count is 0, and what is a policy's own in it is as it was
    left."""
    prefix = int(tree.rows[node].prefix)
    if prefix == NONE:
        control = tree.control
        prefix = int(control.free_prefix)
        if prefix == NONE:
            prefix = int(control.prefix_rows)
            control.prefix_rows += 1
        else:
            control.free_prefix = tree.prefixes[prefix].behind
        control.free_prefixes -= 1
        entry = tree.prefixes[prefix]
        entry.node, entry.count = node, 0
        tree.rows[node].prefix = prefix
        append(tree, prefix)
    return prefix


@compiled
def remove(tree: Any, prefix: int) -> None:
    unlink(tree, prefix)
    control, entry = tree.control, tree.prefixes[prefix]
    tree.rows[entry.node].prefix = NONE
    entry.behind = control.free_prefix
    control.free_prefix = prefix
    control.free_prefixes += 1


@compiled
def inherits(tree: Any, lower: int) -> bool:
    """Whether the upper part of a node that was cut is large and it itself no longer is: then what counted for the
    node counts for the upper part."""
    return is_large(tree, int(tree.rows[lower].parent)) and not is_large(tree, lower)


@compiled
def move_entry(tree: Any, lower: int) -> None:
    """Let the node's entry, if any, be that of its parent, at the end of the order."""
    prefix, upper = int(tree.rows[lower].prefix), int(tree.rows[lower].parent)
    if prefix != NONE:
        unlink(tree, prefix)
        append(tree, prefix)
        tree.prefixes[prefix].node = upper
        tree.rows[upper].prefix, tree.rows[lower].prefix = prefix, NONE
