"""The load of a GPU as released (Load): a sum over the window's nodes that it serves, in order of entry."""

from __future__ import annotations

import math
from typing import Any

from prebleexp.policies.e2_as_released.memory import Memory
from prebleexp.policies.prefix_records import OUTPUT_UNIT
from prebleexp.policies.prefix_tree import fill_held, own_tokens
from prebleexp.policies.tpot import median_s
from prebleexp.sim.compiled import compiled
from prebleexp.sim.cost import prefill_s
from prebleexp.sim.records import ENTRIES, GPUS, NONE, View


@compiled
def cost_s(mine: Memory, view: View, prefix: int, link: Any) -> float:
    """What the node of a window's entry adds to the load of the GPU of `link`."""
    entry, node = mine.tree.prefixes[prefix], mine.tree.rows[mine.tree.prefixes[prefix].node]
    gpu = int(link.gpu)
    tpot_s = median_s(mine.tpots, gpu)
    prefill = prefill_s(view.costs[gpu], own_tokens(mine.tree, int(entry.node)), int(node.tokens))
    prefill = entry.miss * entry.count * prefill / node.serving
    if not mine.quirks.inert_oracle:
        return prefill + link.output / OUTPUT_UNIT * tpot_s
    output = node.expected_output
    if math.isnan(output):
        output = entry.output if mine.quirks.last_decode_length else entry.output_sum / OUTPUT_UNIT / entry.count
    return prefill + link.active * output * tpot_s


@compiled
def fill_loads(mine: Memory, view: View, least: int) -> None:
    """Sum the loads of all GPUs, over nodes with at least so many requests in the window, and how many of these each
    serves."""
    tree, loads, served = mine.tree, mine.loads, mine.served
    loads[:] = 0.0
    served[:] = 0
    view.work[GPUS] += len(loads)
    prefix = int(tree.control.first_prefix)
    while prefix != NONE:
        entry = tree.prefixes[prefix]
        view.work[ENTRIES] += 1
        if entry.count >= least:
            link = int(entry.node)
            while link != NONE:
                record = tree.rows[link]
                if record.serves:
                    served[record.gpu] += 1
                    loads[record.gpu] += cost_s(mine, view, prefix, record)
                link = int(record.next)
        prefix = int(entry.behind)


@compiled
def add_request_cost(mine: Memory, view: View, leaf: int) -> None:
    """Add to all loads the prefill of the tokens of a prompt that the GPU does not hold: P, which the release leaves
    out (Q6)."""
    length = int(mine.tree.rows[leaf].tokens)
    fill_held(mine.tree, mine.held, leaf)
    for gpu in range(len(mine.loads)):
        mine.loads[gpu] += prefill_s(view.costs[gpu], max(1, length - mine.held[gpu]), length)
