"""What was sent to each GPU and is not finished, for policies that balance tokens or work."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from prebleexp.policies import prefix_records
from prebleexp.policies.base import Policy
from prebleexp.policies.prefix_records import Tree
from prebleexp.policies.prefix_tree import (
    fill_held,
    find_link,
    insert,
    lost_link,
    next_on_path,
    serve,
    serve_nothing,
    units,
)
from prebleexp.sim.compiled import compiled
from prebleexp.sim.records import GPUS, NONE, View
from prebleexp.sim.types import Setup, records

ROW = prefix_records.dtype(prefix_records.NODE + prefix_records.LINK)
CONTROL = prefix_records.dtype(prefix_records.CONTROL)

ROUTED = np.dtype(
    [
        ("prefill", np.int64),  # what its GPU had to compute of its prompt, as the policy counts it
        ("output", np.int64),  # expected, in units of `OUTPUT_UNIT`
        ("leaf", np.int64),  # node in which its prompt ends
    ],
    align=True,
)
"""A request that was routed, by its number."""


class Backlog(NamedTuple):
    tree: Tree
    routed: Any
    prefill: Any
    """(GPUs,) sums over unfinished requests"""
    output: Any
    held: Any
    """(GPUs,) leading tokens of the prompt in hand that each holds"""


def backlog(setup: Setup) -> Backlog:
    """An empty backlog: no request is outstanding, all GPUs have 0 tokens of work."""
    tree = prefix_records.tree(setup, ROW, CONTROL)
    return Backlog(tree, records(setup.requests, ROUTED), *np.zeros((3, setup.gpus), np.int64))


@compiled
def lacks_room(mine: Backlog, view: View, request: int) -> int:
    """Whether routing the request may need more rows than there are."""
    return prefix_records.lacks_room(mine.tree, prefix_records.rows_for(view, request))


def with_more_room(mine: Any, view: Any, request: int) -> Backlog:
    value: Backlog = getattr(mine, "value", mine)
    return value._replace(tree=prefix_records.with_more_room(value.tree, prefix_records.rows_for(view, request)))


@compiled
def take_up(mine: Backlog, view: View, request: int) -> int:
    """Find what each GPU holds of the prompt; returns the node in which it ends."""
    leaf, _ = insert(mine.tree, view, request)
    fill_held(mine.tree, mine.held, leaf)
    view.work[GPUS] += len(view.candidates)
    return leaf


@compiled
def missing(mine: Backlog, view: View, request: int, gpu: int) -> int:
    """Prompt tokens that the GPU does not hold; one at least is computed."""
    return max(1, view.requests[request].prompt_tokens - mine.held[gpu])


@compiled
def add(mine: Backlog, view: View, leaf: int, request: int, gpu: int, prefill: int) -> None:
    """The request is sent to a GPU, which from now on holds its prompt."""
    tree, node, row = mine.tree, leaf, mine.routed[request]
    row.leaf, row.prefill, row.output = leaf, prefill, units(view.requests[request])
    mine.prefill[gpu] += row.prefill
    mine.output[gpu] += row.output
    while node != 0:
        tree.rows[serve(tree, node, gpu)].active += 1
        node = int(tree.rows[node].parent)


@compiled
def finish(mine: Backlog, view: View, request: int) -> None:
    tree, row, gpu = mine.tree, mine.routed[request], view.requests[request].gpu
    mine.prefill[gpu] -= row.prefill
    mine.output[gpu] -= row.output
    node = int(row.leaf)
    while node != 0:
        tree.rows[find_link(tree, node, gpu)].active -= 1
        node = int(tree.rows[node].parent)


@compiled
def evicted(mine: Backlog, view: View, request: int, gpu: int, tokens: int) -> None:
    """The GPU dropped what lies beyond so many tokens of the request's context."""
    tree, node = mine.tree, int(mine.routed[request].leaf)
    if node == 0:  # another router had it: its nodes are there for the sake of others, if at all
        node = next_on_path(tree, view, 0, request)
        while node != NONE:
            _lose(tree, node, gpu, tokens)
            node = next_on_path(tree, view, node, request)
        return
    while node != 0 and tree.rows[node].tokens > tokens:
        _lose(tree, node, gpu, tokens)
        node = int(tree.rows[node].parent)


@compiled
def _lose(tree: Tree, node: int, gpu: int, tokens: int) -> None:
    link = lost_link(tree, node, gpu, tokens)
    if link != NONE:
        tree.rows[link].serves = 0
        tree.rows[node].serving -= 1


# ---------------------------------------------------------------- policies
class Balancing(Policy):
    """A policy that remembers a backlog, of whose requests it takes up and adds each (`take_up`, `add`)."""

    def start(self, setup: Setup) -> Any:
        return backlog(setup)

    def lacks_room(self, mine: Any, view: View, request: int) -> int:
        return lacks_room(mine, view, request)

    def with_more_room(self, mine: Any, view: View, request: int) -> Backlog:
        return with_more_room(mine, view, request)

    def finished(self, mine: Any, view: View, request: int, now: float) -> None:
        finish(mine, view, request)

    def evicted(self, mine: Any, view: View, request: int, gpu: int, tokens: int, now: float) -> None:
        evicted(mine, view, request, gpu, tokens)

    def changed(self, mine: Any, view: View, gpu: int, now: float) -> None:
        serve_nothing(mine.tree, gpu)
