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


def of_blocks(offsets: Longs, hashes: Longs, sizes: Longs) -> Prompts:
    """Those of blocks, of which a hash stands for so many tokens and all before them."""
    return Prompts(offsets, _paths(offsets, hashes, sizes), sizes.astype(np.int32))


def private(prompt_tokens: Longs) -> Prompts:
    """Those of prompts that share nothing, of this length each."""
    n = len(prompt_tokens)
    return Prompts(np.arange(n + 1), np.arange(n, dtype=np.int32), prompt_tokens.astype(np.int32))


class Hashed(NamedTuple):
    """Prompts of hashes, and what more is said of these."""

    prompts: Prompts
    says: str


LISTED = "a list of integers, or of texts"


def fits(tokens: Longs, counts: Longs, block: int) -> str:
    """Which blocks rows have hashes of, if they are of so many tokens: all; complete ones; or "", neither."""
    has = counts > 0
    if (counts[has] == -(-tokens[has] // block)).all():
        return "all"
    return "complete" if (counts[has] == tokens[has] // block).all() else ""


def hashed(rows: Rows, length: str, tokens: Longs, hashes: str, block: int, *, partly: bool = False) -> Hashed:
    """Of a trace's columns: a hash stands for `block` tokens and all before them; the last one for what remains, or
    nothing does, if that may be (`partly`).

    A hash that comes after another one than before, or with another number of tokens, is not shared. A row without any
    shares nothing. Raises InvalidInput, naming the row, where there are more or fewer hashes than the prompt's length
    needs.
    """
    offsets, flat = rows.lists(hashes, LISTED)
    counts = np.diff(offsets)
    kind = fits(tokens, counts, block)
    if not kind or (kind == "complete" and not partly):
        expected = -(-tokens // block)
        row = int(np.flatnonzero((counts != expected) & (counts > 0))[0])
        raise rows.wrong(
            row,
            f"{hashes} has {counts[row]} elements; {length}={tokens[row]} needs {expected[row]}, one to {block} "
            "tokens: say workload.block_tokens= if blocks have another size",
        )
    left = tokens - block * counts if kind == "complete" else np.where(counts > 0, 0, tokens)
    sizes = np.full(offsets[-1], block, np.int64)
    says = " (what follows the last complete block is not shared)"
    if kind == "all":
        sizes[offsets[1:][counts > 0] - 1] = (tokens - block * (counts - 1))[counts > 0]
        without = int((counts == 0).sum())
        says = f" ({without:,} requests have none, and share nothing)" if without else ""
    return Hashed(_with_rest(offsets, flat, sizes, left), says)


def blocks_that_fit(tokens: Longs, counts: Longs) -> list[int]:
    """Sizes of blocks, powers of two, of which every row has as many hashes as it needs."""
    return [size for size in (2**power for power in range(15)) if fits(tokens, counts, size) == "all"]


def begun(rows: Rows, ids: str, tokens: Longs) -> tuple[Prompts, int]:
    """Prompts of their tokens' ids, which may be those of its beginning alone; and how many have fewer ids than tokens.

    Raises InvalidInput, naming the row, where there are more.
    """
    offsets, flat = rows.lists(ids, "a list of integers")
    counts = np.diff(offsets)
    wrong = np.flatnonzero(counts > tokens)
    if len(wrong):
        row = int(wrong[0])
        says = f"{ids} has {counts[row]} elements, and the prompt {tokens[row]} tokens"
        raise rows.wrong(row, f"{says}; say which field is its length, with workload.columns={{input: …}}")
    left = tokens - counts
    prompts, _ = joined(_with_rest(offsets, flat, np.ones(offsets[-1], np.int64), left))
    return prompts, int((left > 0).sum())


def _with_rest(offsets: Longs, hashes: Longs, sizes: Longs, left: Longs) -> Prompts:
    """Prompts of hashes, behind which each has so many tokens more that are its own."""
    n, counts = len(left), np.diff(offsets)
    rest = np.flatnonzero(left > 0)
    into = np.concatenate(([0], np.cumsum(counts + (left > 0))))
    own = np.zeros(into[-1], np.bool_)
    own[into[1:][rest] - 1] = True
    names, tokens = np.empty(into[-1], np.int64), np.empty(into[-1], np.int64)
    names[~own], tokens[~own] = hashes, sizes
    names[own], tokens[own] = int(hashes.max(initial=-1)) + 1 + np.arange(len(rest)), left[rest]
    assert len(into) == n + 1
    return of_blocks(into, names, tokens)


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


def _paths(offsets: Longs, hashes: Longs, tokens: Longs) -> Ints:
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
