"""The load of a GPU for a request, in GPU seconds: L + M + P (spec: e2)."""

from __future__ import annotations

from prebleexp.policies.e2_as_described.loading import have_again_s, have_s
from prebleexp.policies.e2_as_described.memory import NO_DECODE, NS, REMAINING, Memory
from prebleexp.policies.prefix_records import OUTPUT_UNIT
from prebleexp.policies.prefix_tree import node_of, own_tokens
from prebleexp.sim.compiled import compiled
from prebleexp.sim.cost import prefill_s
from prebleexp.sim.records import ENTRIES, GPUS, NONE, View


@compiled
def missing_s(mine: Memory, view: View, request: int, gpu: int, like: int) -> float:
    """P: the prefill of the tokens of the request that the GPU does not hold; one at least is computed. Of those that
    tiers have, what it takes to load them. `like`: a GPU of which it was asked, which often is the same; -1: none."""
    length, book, cost = view.requests[request].prompt_tokens, mine.gpus[gpu], view.costs[gpu]
    if mine.below.heard:
        book.missing_s = have_s(mine, view, gpu, length)
    elif like != NONE and view.costs[like].own == cost.own and mine.gpus[like].held == book.held:
        book.missing_s = mine.gpus[like].missing_s
    else:
        book.missing_s = prefill_s(cost, max(1, length - book.held), length)
    return book.missing_s


@compiled
def least_loaded(mine: Memory, view: View, request: int, asked: int, now: float) -> int:
    """Of the first GPUs of `Memory.asked` the one of least load, of equal loads the lower number; -1 if there is none.
    What they hold must have been looked up.

    M takes longest to say, and is small beside the differences of L. So whoever is first without it is asked for it
    first, and of the others those alone that are before that one without theirs.
    """
    best, least = NONE, 0.0
    for at in range(asked):
        gpu = mine.asked[at]
        book = mine.gpus[gpu]
        view.work[GPUS] += 1
        if mine.settings.recompute:
            recompute(mine, gpu, now)
        book.window_s = window_s(mine, view, gpu)
        book.load_s = book.window_s
        if mine.settings.request_cost:
            book.load_s += missing_s(mine, view, request, gpu, best)
        if best == NONE or book.load_s < least or (book.load_s == least and gpu < best):
            best, least = gpu, book.load_s
    if best == NONE or not mine.settings.eviction_cost:
        return best
    first, least = best, _load_s(mine, view, request, best)
    for at in range(asked):
        gpu = mine.asked[at]
        if gpu != first and (mine.settings.counted or mine.gpus[gpu].load_s <= least):
            load = _load_s(mine, view, request, gpu)
            if load < least or (load == least and gpu < best):
                best, least = gpu, load
    return best


@compiled
def _load_s(mine: Memory, view: View, request: int, gpu: int) -> float:
    """L + M + P, of which M is said now."""
    book = mine.gpus[gpu]
    book.load_s = book.window_s + eviction_s(mine, view, request, gpu)
    if mine.settings.request_cost:
        book.load_s += book.missing_s
    return float(book.load_s)


@compiled
def window_s(mine: Memory, view: View, gpu: int) -> float:
    """L: prefills of the window's requests, and decoding: what its unfinished requests still have to generate, as far
    as expected (REMAINING), or all of the window's output (TOTAL)."""
    book, decode = mine.gpus[gpu], mine.settings.decode
    seconds = book.work_ns * NS
    if decode == NO_DECODE:
        return seconds
    if decode == REMAINING:
        seen = view.gpus[gpu]
        output = max(0.0, book.unfinished / OUTPUT_UNIT - seen.generated - seen.ahead)
    else:
        output = book.output / OUTPUT_UNIT
    return seconds + output * book.tpot_s


@compiled
def eviction_s(mine: Memory, view: View, request: int, gpu: int) -> float:
    """M: if the GPU must evict to hold the request's new tokens and its output, what it would cost to compute again
    what goes first, each node times the share of the GPU's requests that go through it."""
    tree, book, row = mine.tree, mine.gpus[gpu], view.requests[request]
    wanted = row.prompt_tokens - book.held + row.expected_output
    wanted -= view.gpus[gpu].kv_free
    link, seconds = book.oldest, 0.0
    while wanted > 0 and link != NONE:
        record = tree.rows[link]
        view.work[ENTRIES] += 1
        node = node_of(tree, link)
        own = own_tokens(tree, node)
        wanted -= own
        if record.requests > 0:
            again_s = _again_s(mine, view, link, gpu, own, tree.rows[node].tokens)
            seconds += again_s * (record.requests / book.requests)
        link = record.newer
    return seconds


@compiled
def _again_s(mine: Memory, view: View, link: int, gpu: int, own: int, tokens: int) -> float:
    """What it takes the GPU of the link to compute the last `own` tokens of so many again, or to load them."""
    if mine.below.heard:
        return have_again_s(mine, view, gpu, node_of(mine.tree, link))
    known = mine.tree.recomputed[link]
    if known.own != own or known.tokens != tokens or known.gpu != gpu:
        known.own, known.tokens, known.gpu = own, tokens, gpu
        known.seconds = prefill_s(view.costs[gpu], own, tokens)
    return known.seconds


@compiled
def recompute(mine: Memory, gpu: int, now: float) -> None:
    """Sum the window anew for a GPU, from the requests that were routed. The sums that are kept up to date must be the
    same: whatever differs makes a difference to the result."""
    begin = now - mine.settings.window_s
    work, output, unfinished, requests = 0, 0, 0, 0
    for turn in range(mine.tree.control.routed):
        row = mine.routed[turn]
        if row.gpu != gpu:
            continue
        if mine.times[turn] >= begin:
            work += row.prefill_ns
            output += row.output
            requests += 1
        if not row.finished:
            unfinished += row.output
    book = mine.gpus[gpu]
    book.work_ns, book.output, book.unfinished, book.requests = work, output, unfinished, requests
