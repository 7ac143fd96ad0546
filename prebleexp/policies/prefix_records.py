"""The records of a router's radix tree over the prompts it has routed, and room for more of them.

What a node has to do with a GPU is a link. A row of the tree is a node with its first link, or a further link: most
nodes belong to one GPU, and all that there is of these is in one cache line. Rows have the fields named here and a
policy's own; functions that take a tree take any whose rows have the fields they read.

Rows that were never used are zero and untouched: there is room for two a request at first, which costs addresses and
no memory.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from prebleexp.sim.arrays import copy_written
from prebleexp.sim.compiled import compiled
from prebleexp.sim.records import NONE, View
from prebleexp.sim.types import Setup, records

NODE = [
    ("parent", np.int32),  # -1: the root. Of a further link, its node. In the free list: the next free row
    ("owner", np.int32),  # a request whose prompt goes through the node …
    ("segment", np.int32),  # … which ends behind this many of its segments; 0: the root, or a further link
    ("tokens", np.int32),  # from the root through the node
    ("first", np.int32),  # segment id its edge begins with, …
    ("last", np.int32),  # … and ends with: that of the whole path
    ("prefix", np.int32),  # its entry among the prefixes, -1 if it has none
    ("serving", np.int16),  # of its links, how many serve
]
LINK = [
    ("serves", np.int16),  # requests for the node may go to this GPU (or: it holds the node in its cache)
    ("gpu", np.int32),  # -1: a node without links
    ("next", np.int32),  # further link of the same node; -1: none
    ("active", np.int32),  # unfinished requests of this GPU that go through the node
]
PREFIX = [
    ("node", np.int32),
    ("before", np.int32),  # in order of entry. In the free list: unused
    ("behind", np.int32),
    ("count", np.int32),  # requests of the window (in `e2`, also unfinished ones)
    ("entered", np.int64),  # a counter, only its order matters
]
"""A node for which requests count (see `prebleexp.policies.prefixes`)."""

CONTROL = [
    ("free_row", np.int64),  # first of the free list of rows that were in use; -1: none
    ("rows", np.int64),  # that were ever used: those behind are free too, …
    ("free_rows", np.int64),  # … all of which count
    ("free_prefix", np.int64),  # likewise
    ("prefix_rows", np.int64),
    ("free_prefixes", np.int64),
    ("first_prefix", np.int64),  # in order of entry
    ("last_prefix", np.int64),
    ("prefixes", np.int64),
    ("clock", np.int64),  # touches, stamps and epochs so far
]

OUTPUT_UNIT = 1024
"""of an expected output token: sums of whole numbers are exact, whatever comes and goes"""

FOUND = 1 << 16
LINE = 64
"""bytes of a cache line"""


class Tree(NamedTuple):
    """Row 0 is the root. Trees of policies that need more have these fields and their own."""

    control: Any
    rows: Any
    begins: Any
    """(segment ids,) the node whose edge begins with a segment; 0: none. An id stands for its path from the root, so
    that there is one at most, and it is a child of the node that the path before it ends with"""
    links: Any
    """(`FOUND`,) where links were found of late, or that there were none (see `prefix_tree.find_link`)"""


GROWS_WITH = {"rows": ("accounts", "recomputed", "used", "delays"), "prefixes": ("order", "costs")}
"""other arrays of a tree that are as long"""


def dtype(fields: list[Any]) -> np.dtype[Any]:
    """NumPy's aligned record type of (name, type) pairs, so that compiled code reads fields in place."""
    return np.dtype(fields, align=True)


def first_rows(setup: Setup) -> int:
    """How many rows, or prefixes, there is room for at first."""
    return 2 * setup.requests + 1


def made(rows: int, kind: np.dtype[Any]) -> Any:
    """Records that are nothing yet, none of which lies in more cache lines than it needs to."""
    size = rows * kind.itemsize
    whole = np.zeros(size + LINE, np.uint8)
    start = -whole.ctypes.data % LINE
    return whole[start : start + size].view(kind).view(np.recarray)


def tree(setup: Setup, row: np.dtype[Any], control: np.dtype[Any]) -> Tree:
    """An empty prefix tree with room for the first rows; `row` and `control` are its record types."""
    size = first_rows(setup)
    rows, one = made(size, row), records(1, control)[0]
    root = rows[0]
    root.parent = root.owner = root.prefix = root.gpu = root.next = NONE
    one.free_row = one.free_prefix = one.first_prefix = one.last_prefix = NONE
    one.rows, one.free_rows, one.free_prefixes = 1, size - 1, size
    return Tree(one, rows, np.zeros(setup.segment_ids, np.int32), np.zeros(FOUND, np.int32))


# ---------------------------------------------------------------- room
@compiled
def rows_for(view: View, request: int) -> int:
    """What routing a request takes at most: two nodes, and links for each of its path, and for each that a split
    copies."""
    return view.requests[request].segments + 4 + len(view.sent)


@compiled
def lacks_room(tree: Any, rows: int) -> int:
    """Whether what takes so many rows at most, and one prefix, may need more of them than there are."""
    return int(tree.control.free_rows < rows or tree.control.free_prefixes < 1)


def with_more_room(given: Any, rows: int) -> Any:
    """The same tree with at least twice as much of what it lacks."""
    control, larger = given.control, {}
    for name, count, wanted in (("rows", "free_rows", rows), ("prefixes", "free_prefixes", 1)):
        if control[count] < wanted:
            old = len(getattr(given, name)) if name in given._fields else 0
            size = 2 * old + rows
            control[count] += size - old
            for one in (name, *GROWS_WITH[name]):
                if one in given._fields:
                    larger[one] = _longer(getattr(given, one), size)
    return given._replace(**larger)


def _longer(array: Any, size: int) -> Any:
    longer = made(size, array.dtype) if array.dtype.names else np.zeros(size, array.dtype)
    copy_written(longer, array)
    return longer
