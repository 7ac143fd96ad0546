"""Whose work a prefix is: sums by the GPU that serves it from now on, and by the one that its requests were sent to.

A GPU's shared prefixes that it has work of are in a list, so that the cheapest is found without a look at all others.
"""

from __future__ import annotations

from prebleexp.policies import tpot
from prebleexp.policies.e2_as_described.memory import NO_DECODE, NS, Memory
from prebleexp.policies.prefix_records import OUTPUT_UNIT
from prebleexp.policies.prefix_tree import find_link
from prebleexp.policies.prefixes import move_entry
from prebleexp.sim.compiled import compiled
from prebleexp.sim.records import NONE

SHARED = 2
"""requests of the window from which on a prefix is worth redirecting"""


@compiled
def in_seconds(mine: Memory, gpu: int, work_ns: int, output: int) -> float:
    """What so much work is on the GPU."""
    if mine.settings.decode == NO_DECODE:
        return work_ns * NS
    return work_ns * NS + output / OUTPUT_UNIT * mine.gpus[gpu].tpot_s


@compiled
def observe_tpot(mine: Memory, gpu: int, tpot_s: float) -> None:
    """A request that finished took so many seconds per output token."""
    book = mine.gpus[gpu]
    book.tpot_s = tpot.observe(mine.tpots, gpu, tpot_s)
    book.share_s = in_seconds(mine, gpu, book.share_ns, book.share_output)


@compiled
def share(mine: Memory, prefix: int, own: int, prefill_ns: int, output: int) -> None:
    """Change the work of a request that was sent to the GPU of the link `own` of its prefix, on the account of the GPU
    that serves the prefix in place of that one."""
    account = mine.tree.accounts[own]
    account.sent_ns += prefill_ns
    account.sent_output += output
    link = find_link(mine.tree, mine.tree.prefixes[prefix].node, account.successor) if account.relieved else own
    change(mine, prefix, link, prefill_ns, output)


@compiled
def change(mine: Memory, prefix: int, link: int, work_ns: int, output: int) -> None:
    """Change the work that a GPU has of a prefix."""
    account, gpu = mine.tree.accounts[link], mine.tree.rows[link].gpu
    book = mine.gpus[gpu]
    account.work_ns += work_ns
    account.work_output += output
    book.share_ns += work_ns
    book.share_output += output
    book.share_s = in_seconds(mine, gpu, book.share_ns, book.share_output)
    enlist(mine, link, mine.tree.prefixes[prefix].count)


@compiled
def count_one(mine: Memory, prefix: int, more: int) -> None:
    """One request more counts for the prefix, or (-1) one less."""
    entry = mine.tree.prefixes[prefix]
    entry.count += more
    if entry.count == (SHARED if more > 0 else SHARED - 1):
        link = entry.node
        while link != NONE:
            enlist(mine, link, entry.count)
            link = mine.tree.rows[link].next


@compiled
def enlist(mine: Memory, link: int, count: int) -> None:
    """Let the account be in its GPU's list if there is work, and the prefix is shared; else not."""
    accounts, account = mine.tree.accounts, mine.tree.accounts[link]
    belongs = account.work_ns > 0 and count >= SHARED
    if belongs == account.listed:
        return
    book = mine.gpus[mine.tree.rows[link].gpu]
    account.listed = belongs
    if belongs:
        account.before, account.behind = NONE, book.shared
        if book.shared != NONE:
            accounts[book.shared].before = link
        book.shared = link
        return
    if account.before == NONE:
        book.shared = account.behind
    else:
        accounts[account.before].behind = account.behind
    if account.behind != NONE:
        accounts[account.behind].before = account.before


@compiled
def set_apart(mine: Memory, prefix: int, link: int, relieved: int, replica: int) -> None:
    """Say of a GPU that another serves the prefix in its place, or that it was told to cache it as well."""
    entry, account = mine.tree.prefixes[prefix], mine.tree.accounts[link]
    entry.apart += (relieved | replica) - (account.relieved | account.replica)
    account.relieved, account.replica = relieved, replica


@compiled
def server_of(mine: Memory, node: int, gpu: int) -> int:
    """The GPU to which the prefix's requests for `gpu` are redirected, or `gpu` itself."""
    link = find_link(mine.tree, node, gpu)
    if link == NONE or not mine.tree.accounts[link].relieved:
        return gpu
    return int(mine.tree.accounts[link].successor)


@compiled
def serve_for_none(mine: Memory, prefix: int) -> None:
    """Forget who serves for whom: the prefix is forgotten, if the node, which longer ones may go through, is not."""
    link = mine.tree.prefixes[prefix].node
    while link != NONE:
        set_apart(mine, prefix, link, 0, 0)
        link = mine.tree.rows[link].next


@compiled
def inherit(mine: Memory, lower: int) -> None:
    """The node was cut and its upper part is the prefix now: so are the accounts of the GPUs, and who serves for
    whom."""
    tree, upper, link = mine.tree, mine.tree.rows[lower].parent, lower
    move_entry(tree, lower)
    while link != NONE and tree.rows[link].gpu != NONE:
        heir = find_link(tree, upper, tree.rows[link].gpu)
        old, new = tree.accounts[link], tree.accounts[heir]
        new.work_ns, new.work_output = old.work_ns, old.work_output
        new.sent_ns, new.sent_output = old.sent_ns, old.sent_output
        new.relieved, new.successor, new.replica = old.relieved, old.successor, old.replica
        old.work_ns = old.work_output = old.sent_ns = old.sent_output = old.relieved = old.replica = 0
        if old.listed:
            enlist(mine, link, SHARED)
            enlist(mine, heir, SHARED)
        link = tree.rows[link].next
