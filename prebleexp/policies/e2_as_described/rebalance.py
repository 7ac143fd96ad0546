"""What happens after an assignment: prefixes of the most loaded GPU are redirected, overloaded prefixes replicated."""

from __future__ import annotations

from prebleexp.policies.e2_as_described.accounts import change, in_seconds, set_apart
from prebleexp.policies.e2_as_described.delays import begin_to_watch, has_grown
from prebleexp.policies.e2_as_described.load import window_s
from prebleexp.policies.e2_as_described.memory import Memory, Tree
from prebleexp.policies.prefix_tree import find_link, link_to, node_of
from prebleexp.sim.compiled import compiled
from prebleexp.sim.records import ENTRIES, NONE, View


@compiled
def rebalance(mine: Memory, view: View) -> None:
    """While the most loaded GPU exceeds the threshold times the least loaded, redirect the cheapest of its prefixes
    whose move does not turn the two around.

    Loads are the window's work of the prefixes that a GPU serves from now on: a redirected prefix counts for its new
    GPU at once, so that it is redirected once and not with every request until the window has slid."""
    for _ in range(mine.tree.control.prefixes):
        heavy, light, most, least = view.candidates[0], view.candidates[0], -1.0, -1.0
        for gpu in view.candidates:
            seconds = mine.gpus[gpu].share_s
            if seconds > most:
                heavy, most = gpu, seconds
            if least < 0 or seconds < least:
                light, least = gpu, seconds
        if most <= mine.settings.threshold * least or heavy == light:
            return
        cheapest, cost = _cheapest(mine, view, heavy)
        if cheapest == NONE or most - cost < least + cost:
            return
        redirect(mine, node_of(mine.tree, cheapest), heavy, light)


@compiled
def _cheapest(mine: Memory, view: View, gpu: int) -> tuple[int, float]:
    """The shared prefix of least work that the GPU serves, and its seconds; of several the first that entered; -1 if
    there is none."""
    tree, best, least = mine.tree, NONE, 0.0
    link = mine.gpus[gpu].shared
    view.work[ENTRIES] += tree.control.prefixes
    while link != NONE:
        account = tree.accounts[link]
        seconds = in_seconds(mine, gpu, account.work_ns, account.work_output)
        if best == NONE or seconds < least or (seconds == least and _entered(tree, link) < _entered(tree, best)):
            best, least = link, seconds
        link = account.behind
    return best, least


@compiled
def _entered(tree: Tree, link: int) -> int:
    """When the prefix of a link entered: a number, only its order matters."""
    return tree.prefixes[tree.rows[node_of(tree, link)].prefix].entered


@compiled
def redirect(mine: Memory, node: int, heavy: int, light: int) -> None:
    """From now on `light` serves the prefix in place of `heavy`, and of those in whose place `heavy` did."""
    tree, prefix = mine.tree, mine.tree.rows[node].prefix
    receiver, giver = link_to(tree, node, light), find_link(tree, node, heavy)
    to = tree.accounts[receiver]
    if to.relieved and to.successor != heavy:
        take_back(mine, prefix, receiver)
    link = node
    while link != NONE:
        account = tree.accounts[link]
        if tree.rows[link].gpu == heavy or (account.relieved and account.successor == heavy):
            set_apart(mine, prefix, link, 1, account.replica)
            account.successor = light
        link = tree.rows[link].next
    set_apart(mine, prefix, receiver, 0, to.replica)
    set_apart(mine, prefix, giver, 1, 0)
    work, output = tree.accounts[giver].work_ns, tree.accounts[giver].work_output
    change(mine, prefix, giver, -work, -output)
    change(mine, prefix, receiver, work, output)


@compiled
def replicate(mine: Memory, view: View, prefix: int) -> None:
    """If the prefix's mean delay has grown, let the least loaded of the GPUs that do not hold it cache it as well, and
    begin anew to watch its delays."""
    if not has_grown(mine, prefix):
        return
    tree, best, least = mine.tree, NONE, 0.0
    node = tree.prefixes[prefix].node
    for gpu in view.candidates:
        if not _caches(mine, node, gpu):
            seconds = window_s(mine, view, gpu)
            if best == NONE or seconds < least:
                best, least = gpu, seconds
    if best == NONE:
        return
    link = link_to(tree, node, best)
    if tree.accounts[link].relieved:
        take_back(mine, prefix, link)
    set_apart(mine, prefix, link, 0, 1)
    begin_to_watch(mine, prefix)


@compiled
def take_back(mine: Memory, prefix: int, link: int) -> None:
    """A GPU whose requests of a prefix count for its successor will have none: they count for itself again."""
    tree = mine.tree
    own = tree.accounts[link]
    work, output = own.sent_ns, own.sent_output
    change(mine, prefix, find_link(tree, tree.prefixes[prefix].node, own.successor), -work, -output)
    change(mine, prefix, link, work, output)


@compiled
def _caches(mine: Memory, node: int, gpu: int) -> bool:
    """Whether requests for the prefix go to this GPU already: it holds it and was not relieved of it, or is a
    replica."""
    link = find_link(mine.tree, node, gpu)
    if link == NONE:
        return False
    account = mine.tree.accounts[link]
    return account.replica == 1 or (mine.tree.rows[link].serves == 1 and not account.relieved)
