"""The window H over important nodes, and the delays of first tokens that tell an overloaded one."""

from __future__ import annotations

from typing import Any

from prebleexp.policies.e2_as_released.memory import Memory, Tree
from prebleexp.policies.e2_as_released.tree import next_stamp, serve_alone
from prebleexp.policies.prefix_tree import find_link, own_tokens, units
from prebleexp.policies.prefixes import entry_of, inherits, move_entry, remove
from prebleexp.sim.compiled import compiled
from prebleexp.sim.records import ENTRIES, NONE, View

WINDOW_S = 180.0
OVERLOAD = 2.0
"""times the delay of the window's first half"""
ROUNDING = 1e-6
"""relative error that sums may have gathered"""


@compiled
def inherit(tree: Tree, lower: int) -> None:
    """A node was cut (On arrival, 1): if its new upper part is large and it itself no longer is, the window's
    statistics and the delays of the GPUs that serve it become the upper part's."""
    if not inherits(tree, lower):
        return
    move_entry(tree, lower)
    upper, link = int(tree.rows[lower].parent), lower
    while link != NONE:
        old = tree.rows[link]
        if old.serves and _noted(tree, link):
            new = tree.rows[find_link(tree, upper, int(old.gpu))]
            new.delays, old.delays = old.delays, new.delays
            _clear(tree.delays[old.delays])
        link = int(old.next)


@compiled
def record(mine: Memory, view: View, node: int, leaf: int, request: int, now: float) -> None:
    """Add a request to the window of its important node; take out those older than H (On arrival, 5)."""
    tree, control, seen = mine.tree, mine.tree.control, view.requests[request]
    prompt, hit = seen.prompt_tokens, seen.prompt_tokens - own_tokens(tree, leaf)
    prefix = entry_of(tree, node)
    entry = tree.prefixes[prefix]
    if entry.count == 0:
        entry.prompt = entry.hit = entry.output_sum = 0
    entry.count += 1
    entry.prompt += prompt
    entry.hit += hit
    entry.output = seen.max_new_tokens
    entry.output_sum += units(seen)
    entry.miss = 1.0 - entry.hit / entry.prompt
    row = mine.routed[control.routed]
    row.time, row.leaf, row.prefix, row.output = now, leaf, prefix, units(seen)
    mine.turn[request] = control.routed
    control.routed += 1
    while mine.routed[control.oldest].time < now - WINDOW_S:
        old = mine.routed[control.oldest]
        length = int(tree.rows[old.leaf].tokens)
        control.oldest += 1
        view.work[ENTRIES] += 1
        entry = tree.prefixes[old.prefix]
        entry.count -= 1
        entry.prompt -= length
        # of the leaf as it is now: splits have shortened it, and more is taken out than was put in
        entry.hit -= length - own_tokens(tree, int(old.leaf))
        entry.output_sum -= old.output
        if entry.prompt <= 0:
            serve_alone(tree, int(entry.node), NONE, next_stamp(tree))
            remove(tree, int(old.prefix))


@compiled
def _clear(delays: Any) -> None:
    """Forget all delays of the window."""
    delays.early = delays.late = 0
    delays.early_s = delays.late_s = 0.0


@compiled
def _noted(tree: Tree, link: int) -> bool:
    """Whether there are any delays of a link."""
    delays = tree.delays[tree.rows[link].delays]
    return bool(delays.early + delays.late > 0)


@compiled
def _delays_of(tree: Tree, link: int) -> int:
    """The link's row of delays, made if there is none."""
    row = tree.rows[link]
    if row.delays == 0:
        tree.control.delays += 1
        row.delays = tree.control.delays
    return int(row.delays)


@compiled
def sample(mine: Memory, node: int, gpu: int, turn: int, ttft_s: float, now: float) -> None:
    """Note the delay of a finished request's first token, and forget those older than H."""
    routed, link = mine.routed, mine.tree.delays[_delays_of(mine.tree, find_link(mine.tree, node, gpu))]
    row = routed[turn]
    row.sample_time, row.sample_s, row.next_sample = now, ttft_s, NONE
    if link.early + link.late == 0:
        link.first = turn
    else:
        routed[link.last].next_sample = turn
    link.last = turn
    if link.late == 0:
        link.first_late = turn
    link.late += 1
    link.late_s += ttft_s
    _look(routed, link, now)
    while routed[link.first].sample_time < now - WINDOW_S:
        oldest = routed[link.first]
        link.early -= 1
        link.early_s -= oldest.sample_s
        link.first = oldest.next_sample


@compiled
def _look(routed: Any, link: Any, now: float) -> None:
    """Count as early what is no longer late."""
    while link.late > 0 and routed[link.first_late].sample_time < now - WINDOW_S / 2:
        row = routed[link.first_late]
        link.late -= 1
        link.late_s -= row.sample_s
        link.early += 1
        link.early_s += row.sample_s
        link.first_late = row.next_sample


@compiled
def overloaded(tree: Tree, routed: Any, node: int, gpu: int, now: float) -> bool:
    """Whether the mean delay has doubled from the window's first half to the second (Rebalancing)."""
    number = find_link(tree, node, gpu)
    if number == NONE:
        return False
    link = tree.delays[tree.rows[number].delays]
    _look(routed, link, now)
    if link.early == 0 or link.late == 0:
        return False
    late, threshold = link.late_s / link.late, OVERLOAD * (link.early_s / link.early)
    if abs(late - threshold) > ROUNDING * threshold:
        return late > threshold
    late_s, early_s = 0.0, 0.0  # too close to tell by sums that values were taken out of again
    request = int(link.first)
    while request != NONE:
        row = routed[request]
        if row.sample_time < now - WINDOW_S / 2:
            early_s += row.sample_s
        else:
            late_s += row.sample_s
        request = int(row.next_sample)
    return late_s / link.late >= OVERLOAD * (early_s / link.early)


@compiled
def forget_samples(tree: Tree, node: int, gpu: int) -> None:
    _clear(tree.delays[tree.rows[find_link(tree, node, gpu)].delays])
