"""Links of a router's tree are found as who walks through all of a node's would find them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numba import njit

from prebleexp.bench.engines import stream
from prebleexp.policies import backlog, prefix_records
from prebleexp.policies.prefix_records import Tree
from prebleexp.policies.prefix_tree import find_link, give_back, link_to, take_row
from prebleexp.sim.records import NONE
from prebleexp.sim.types import Setup

NODES, GPUS = 8, 600


@njit
def wrong(tree: Tree, nodes: int, gpus: int, drawn: Any) -> int:
    """How often something else was found, while links are made and sought, and nodes with theirs come and go. `drawn`:
    rows of a node, a GPU, whether the node is made anew, and whether the link is made."""
    of, missed = np.zeros((nodes, gpus), np.int64), 0
    numbers = np.full(nodes, NONE)
    for one, gpu, anew, linked in drawn:
        if numbers[one] == NONE or anew:
            link = numbers[one]
            while link != NONE:
                behind = tree.rows[link].next
                give_back(tree, link)
                link = behind
            numbers[one] = take_row(tree)
            row = tree.rows[numbers[one]]
            row.parent, row.segment, row.gpu, row.next = 0, 1, NONE, NONE
            of[one] = 0
        if linked:
            of[one, gpu] = link_to(tree, numbers[one], gpu)
        missed += find_link(tree, numbers[one], gpu) != (of[one, gpu] if of[one, gpu] != 0 else NONE)
    return missed


@pytest.mark.slow
def test_a_link_is_found_whatever_is_noted_of_it() -> None:
    workload = stream(np.zeros(NODES * GPUS), 10)
    setup = Setup(GPUS, 0, len(workload), 1000, 1000, workload)
    tree = prefix_records.tree(setup, backlog.ROW, backlog.CONTROL)
    drawn = np.random.default_rng(1).integers([NODES, GPUS, 1000, 4], size=(100_000, 4))
    drawn[:, 2:] = drawn[:, 2:] == 0
    assert wrong(tree, NODES, GPUS, drawn) == 0
    assert (np.asarray(tree.links) < 0).any(), "that there is none, is noted too"
