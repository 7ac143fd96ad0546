"""How prompts of a conversation grow out of each other, as segments."""

from __future__ import annotations

from bisect import bisect_left
from itertools import chain

import numpy as np

from prebleexp.sim.types import Ints, Longs
from prebleexp.workloads.blocks import Prompts
from prebleexp.workloads.rows import Mask

NOBODY = -1


def grown(of: Longs, keep: Longs, prompt_tokens: Longs, output_tokens: Longs) -> tuple[Prompts, Ints]:
    """Prompts of n requests, each the first `keep` tokens of the context of request `of`, which stands before it (−1:
    of none), and new ones; and the segment that each one's answer has in later prompts, −1 where nobody keeps it.

    A context is a prompt and its answer; where only a part of an answer would be kept, nothing of it is, and these
    tokens are new. New tokens are everybody's own. Prompts are cut only where others part from them.
    """
    n = len(of)
    runs: list[list[int]] = []
    """of each prompt: whose new tokens, or answers (n + whose), it is made of, …"""
    ends: list[list[int]] = []
    """… and where they end in it"""
    cuts: list[int] = []
    """run · limit + position: where a prompt parts from within a run"""
    limit = int((prompt_tokens + output_tokens).max(initial=0)) + 1
    begins = np.concatenate([keep, prompt_tokens])
    for i, (source, kept, tokens) in enumerate(zip(of.tolist(), keep.tolist(), prompt_tokens.tolist(), strict=True)):
        mine: list[int] = []
        stops: list[int] = []
        if source != NOBODY and kept:
            whole, whole_stops = runs[source], ends[source]
            if kept > whole_stops[-1]:
                mine, stops = [*whole, n + source], [*whole_stops, kept]
            else:
                place = bisect_left(whole_stops, kept)
                if whole[place] >= n and whole_stops[place] != kept:
                    place, kept = place - 1, whole_stops[place - 1]
                    begins[i] = kept
                mine, stops = whole[: place + 1], [*whole_stops[:place], kept]
                if whole_stops[place] != kept:
                    cuts.append(whole[place] * limit + kept)
        if tokens > kept:
            mine.append(i)
            stops.append(tokens)
        runs.append(mine)
        ends.append(stops)
    counts = np.array([len(one) for one in runs])
    run, end = (np.array(list(chain.from_iterable(one)), np.int64) for one in (runs, ends))
    at = np.unique(np.array(cuts, np.int64))
    first = np.searchsorted(at, run * limit)  # of the run's cuts
    parts = np.searchsorted(at, run * limit + end) - first + 1
    into = np.concatenate(([0], np.cumsum(parts)))
    within = np.arange(into[-1]) - np.repeat(into[:-1], parts)
    cut = np.repeat(first, parts) + within
    last = within == np.repeat(parts, parts) - 1
    whose = np.repeat(run, parts)
    inner = at[np.minimum(cut, len(at) - 1)] - whose * limit if len(at) else np.zeros(len(cut), np.int64)
    stop = np.where(last, np.repeat(end, parts), inner)
    start = np.where(within == 0, begins[whose], np.concatenate(([0], stop[:-1])))
    offsets = into[np.concatenate(([0], np.cumsum(counts)))]
    _, dense = np.unique(whose + cut, return_inverse=True)
    answers = np.full(n, NOBODY, np.int32)
    kept_answers = whose >= n
    answers[whose[kept_answers] - n] = dense[kept_answers]
    return Prompts(offsets, dense.astype(np.int32), (stop - start).astype(np.int32)), answers


def headed(prompts: Prompts, answer: Ints, group: Longs, heads: Longs) -> tuple[Prompts, Ints, Mask]:
    """The prompts with their first `heads` tokens, (n,), as a segment that all of a group share, if they have more than
    these; the segments of answers; and which segments are shared."""
    offsets, ids, tokens = prompts
    counts = np.diff(offsets)
    of = np.repeat(np.arange(len(counts)), counts)
    ends = np.cumsum(tokens, dtype=np.int64)
    ends -= np.repeat(ends[offsets[:-1]] - tokens[offsets[:-1]], counts)
    has = (heads > 0) & (heads < ends[offsets[1:] - 1])
    rest = np.minimum(ends - np.where(has, heads, 0)[of], tokens)
    kept = rest > 0
    own = int(max(ids.max(), answer.max(initial=0))) + 1

    names = np.concatenate([(ids + own * has[of])[kept], -1 - group[has]])
    sizes = np.concatenate([rest[kept], heads[has]])
    order = np.argsort(np.concatenate([2 * np.flatnonzero(kept) + 1, 2 * offsets[:-1][has]]), kind="stable")
    known, dense = np.unique(names[order], return_inverse=True)
    into = np.concatenate(([0], np.cumsum(np.bincount(of[kept], minlength=len(counts)) + has)))
    wanted = np.maximum(answer, 0) + own * has
    place = np.minimum(np.searchsorted(known, wanted), len(known) - 1)
    found = np.where((answer >= 0) & (known[place] == wanted), place, NOBODY).astype(np.int32)
    return Prompts(into, dense.astype(np.int32), sizes[order].astype(np.int32)), found, known < 0
