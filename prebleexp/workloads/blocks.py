"""Prompts as hashes of blocks of tokens, as traces have them, made into segments."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from prebleexp.sim.types import Ints, Longs
from prebleexp.workloads.rows import Rows


class Prompts(NamedTuple):
    """Segments of n prompts, as in `Workload`."""

    offsets: Longs
    """(n + 1,)"""
    ids: Ints
    """(s,) from 0 without gaps"""
    tokens: Ints
    """(s,)"""


def private(prompt_tokens: Longs) -> Prompts:
    """Those of prompts that share nothing, of this length each."""
    n = len(prompt_tokens)
    return Prompts(np.arange(n + 1), np.arange(n, dtype=np.int32), prompt_tokens.astype(np.int32))


def hashed(rows: Rows, length: str, hashes: str, block: int) -> Prompts:
    """Of a trace's columns: a hash stands for `block` tokens and all before them, the last one for what remains.

    A hash that comes behind another one than before, or with another number of tokens, is not shared. Raises
    InvalidInput, naming the row, where there are more or fewer hashes than the prompt's length needs.
    """
    tokens = rows.integers(length, 1)
    offsets, flat = rows.lists(hashes, "a list of integers from 0 to 2^63 - 1")
    expected, counts = -(-tokens // block), np.diff(offsets)
    wrong = np.flatnonzero(counts != expected)
    if len(wrong):
        row = int(wrong[0])
        says = (
            f"{hashes} has {counts[row]} elements; {length}={tokens[row]} needs {expected[row]}, one to {block} tokens"
        )
        raise rows.wrong(row, says)
    sizes = np.full(offsets[-1], block, np.int32)
    sizes[offsets[1:] - 1] = tokens - block * (counts - 1)
    return Prompts(offsets, _paths(offsets, flat, sizes), sizes)


def joined(prompts: Prompts) -> tuple[Prompts, Ints]:
    """The same prompts in as few segments as there can be, cut only where prompts part; and of which old segment each
    new one is the end."""
    offsets, ids, tokens = prompts
    together = np.bincount(ids)[ids]
    starts = np.ones(len(ids), np.bool_)
    starts[1:] = together[1:] != together[:-1]  # all that come so far go on together
    starts[offsets[:-1]] = True
    first = np.flatnonzero(starts)
    last = np.append(first[1:], len(ids)) - 1
    known, dense = np.unique(ids[last], return_inverse=True)
    sizes = np.add.reduceat(tokens.astype(np.int64), first) if len(first) else tokens
    return Prompts(np.searchsorted(first, offsets), dense.astype(np.int32), sizes.astype(np.int32)), known


def _paths(offsets: Longs, hashes: Longs, tokens: Ints) -> Ints:
    """Segment ids, one to each different path from the root: blocks are equal if their hash, tokens and parent are."""
    _, number = np.unique(hashes, return_inverse=True)
    block = number * (int(tokens.max(initial=0)) + 1) + tokens
    ids = np.empty(len(hashes), np.int32)
    parent = np.zeros(len(offsets) - 1, np.int64)
    row, end = offsets[:-1], offsets[1:]
    next_id = 0
    while len(row):
        path = _pairs(parent, block[row])
        ids[row] = next_id + path
        next_id += int(path.max()) + 1
        more = row + 1 < end
        row, end, parent = row[more] + 1, end[more], path[more]
    return ids


def _pairs(first: Longs, second: Longs) -> Longs:
    """(n,) numbers from 0 without gaps, equal where both elements are."""
    _, dense = np.unique(second, return_inverse=True)
    numbers: Longs = np.unique(first * len(second) + dense, return_inverse=True)[1]
    return numbers
