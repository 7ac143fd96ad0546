"""A GPU is lost, or back: what it holds, and for whom it serves, is nothing. What it was sent stays in the window."""

from __future__ import annotations

from prebleexp.policies.e2_as_described.accounts import set_apart
from prebleexp.policies.e2_as_described.holdings import drop
from prebleexp.policies.e2_as_described.memory import Memory
from prebleexp.policies.e2_as_described.rebalance import take_back
from prebleexp.sim.compiled import compiled
from prebleexp.sim.records import NONE


@compiled
def forget_all(mine: Memory, gpu: int) -> None:
    tree = mine.tree
    for link in range(1, tree.control.rows):
        if tree.rows[link].gpu == gpu:
            drop(mine, link)
    prefix = tree.control.first_prefix
    while prefix != NONE:
        entry = tree.prefixes[prefix]
        link = entry.node if entry.apart > 0 else NONE
        while link != NONE:
            _serve_for_itself(mine, prefix, link, gpu)
            link = tree.rows[link].next
        prefix = entry.behind


@compiled
def _serve_for_itself(mine: Memory, prefix: int, link: int, gpu: int) -> None:
    """The GPU of the link is not relieved by `gpu`; if it is that one, by none, and it is no replica."""
    account, is_it = mine.tree.accounts[link], mine.tree.rows[link].gpu == gpu
    if account.relieved and (is_it or account.successor == gpu):
        take_back(mine, prefix, link)
        set_apart(mine, prefix, link, 0, account.replica)
    if is_it:
        set_apart(mine, prefix, link, account.relieved, 0)
