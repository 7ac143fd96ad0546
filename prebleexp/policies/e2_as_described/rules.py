"""What happens on arrival and on finish of a request."""

from __future__ import annotations

import math

from prebleexp.policies import tpot
from prebleexp.policies.candidates import is_candidate, served_by_one
from prebleexp.policies.e2_as_described.accounts import inherit, observe_tpot, server_of
from prebleexp.policies.e2_as_described.delays import note_delay, slide_delays
from prebleexp.policies.e2_as_described.holdings import copy_holdings, fill_held, look_up_held
from prebleexp.policies.e2_as_described.load import least_loaded, missing_s
from prebleexp.policies.e2_as_described.loading import look_below, only_below
from prebleexp.policies.e2_as_described.memory import NS, Memory
from prebleexp.policies.e2_as_described.rebalance import rebalance, replicate
from prebleexp.policies.e2_as_described.window import add, slide
from prebleexp.policies.e2_as_described.window import finish as count_finished
from prebleexp.policies.prefix_tree import insert
from prebleexp.policies.prefixes import inherits, prefix_node
from prebleexp.sim.compiled import compiled
from prebleexp.sim.cost import decode_s
from prebleexp.sim.records import GPUS, NONE, View


@compiled
def route(mine: Memory, view: View, request: int, now: float) -> int:
    tree, settings = mine.tree, mine.settings
    if tree.control.routed == 0:
        _seed_tpots(mine, view)
    slide(mine, view, now)
    slide_delays(mine, now)
    leaf, cut = insert(tree, view, request)
    if cut != NONE:
        copy_holdings(mine, cut)
        if inherits(tree, cut):
            inherit(mine, cut)
    prefix, matched = prefix_node(tree, leaf), served_by_one(tree, view.candidates, len(view.sent), leaf)
    hit, gpu = int(tree.rows[matched].tokens), NONE
    if mine.below.heard:
        matched, hit = look_below(mine, view, request, leaf, matched)
    if hit > view.requests[request].prompt_tokens - hit:
        gpu = _exploit(mine, view, request, leaf, matched, prefix, now)
    if gpu == NONE:
        gpu = _explore(mine, view, request, leaf, now)
    seconds = mine.gpus[gpu].missing_s if settings.request_cost else missing_s(mine, view, request, gpu, NONE)
    add(mine, view, leaf, prefix, request, gpu, round(seconds / NS), now)
    if settings.threshold < math.inf:
        rebalance(mine, view)
    if settings.replicate < math.inf:
        replicate(mine, view, mine.routed[mine.turn[request]].prefix)
    return gpu


@compiled
def _seed_tpots(mine: Memory, view: View) -> None:
    """Until a GPU has finished something it is taken to decode as one request alone does."""
    for gpu in range(len(view.costs)):
        mine.gpus[gpu].tpot_s = decode_s(view.costs[gpu], 1, 1, 1, 1)
        tpot.seed(mine.tpots, gpu, mine.gpus[gpu].tpot_s)


@compiled
def _exploit(mine: Memory, view: View, request: int, leaf: int, matched: int, prefix: int, now: float) -> int:
    """Of the GPUs that hold the longest match, or serve the prefix in their place, or were told to cache it as well,
    the one of least load; -1 if none of them is a candidate."""
    tree, asked = mine.tree, 0
    entry = tree.rows[prefix].prefix
    apart = entry != NONE and tree.prefixes[entry].apart > 0
    link = matched
    while link != NONE:
        if tree.rows[link].serves:
            gpu = tree.rows[link].gpu
            if apart:
                gpu = server_of(mine, prefix, gpu)
            asked = _ask(mine, view, leaf, gpu, asked)
        link = tree.rows[link].next
    link = prefix if apart else NONE
    while link != NONE:
        if tree.accounts[link].replica:
            asked = _ask(mine, view, leaf, tree.rows[link].gpu, asked)
        link = tree.rows[link].next
    if mine.below.heard:
        for gpu in view.candidates:
            if only_below(mine, matched, gpu):
                server = server_of(mine, prefix, gpu) if apart else gpu
                asked = _ask(mine, view, leaf, server, asked)
    return least_loaded(mine, view, request, asked, now)


@compiled
def _ask(mine: Memory, view: View, leaf: int, gpu: int, asked: int) -> int:
    """Let the GPU be one of those that are asked for their load, if it is a candidate; returns how many there are."""
    if not is_candidate(view.candidates, gpu):
        return asked
    look_up_held(mine, leaf, gpu)
    mine.asked[asked] = gpu
    return asked + 1


@compiled
def _explore(mine: Memory, view: View, request: int, leaf: int, now: float) -> int:
    """The GPU of least load; of those whose recent work is mostly decoding, if there are any: a high share of their
    prompt tokens was cached."""
    fill_held(mine, leaf)
    asked, chosen = 0, False
    for gpu in view.candidates:
        seen = view.gpus[gpu]
        prompt = seen.window_prompt_tokens
        view.work[GPUS] += 1
        decodes = prompt > 0 and seen.window_hit_tokens / prompt >= mine.settings.hit_ratio
        if decodes and not chosen:
            asked, chosen = 0, True
        if decodes or not chosen:
            mine.asked[asked] = gpu
            asked += 1
    return least_loaded(mine, view, request, asked, now)


@compiled
def finish(mine: Memory, view: View, request: int, now: float) -> None:
    seen = view.requests[request]
    slide_delays(mine, now)
    if math.isnan(seen.latency_s):  # it gave up, was lost, or is moved
        count_finished(mine, request)
        return
    note_delay(mine, request, max(0.0, seen.ttft_s - mine.routed[mine.turn[request]].prefill_ns * NS), now)
    count_finished(mine, request)
    tpot_s = (seen.latency_s - seen.ttft_s) / seen.output_seen
    if tpot_s != 0.0:  # an output of one token has none
        observe_tpot(mine, seen.gpu, tpot_s)
