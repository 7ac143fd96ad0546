"""Sessions of a trace that does not say which requests belong together: read off its prompts."""

from __future__ import annotations

import numpy as np

from prebleexp.sim.types import Ints, Longs
from prebleexp.workloads.blocks import Prompts

PUBLIC = 60
"""a block that more requests have is everybody's: a system prompt, tools"""
LEAST = 2
"""blocks that a next turn shares with the one before it"""


def parents(prompts: Prompts, block: int, prompt_tokens: Longs, output_tokens: Longs) -> Longs:
    """(n,) the request whose next turn each request, in order of arrival, is; −1: of none.

    For d from its blocks − 1 down to 2: j = the latest earlier request with exactly d complete blocks, all equal to its
    first d. That is the one if nobody continued it yet, its last complete block occurs in at most 60 requests, and the
    prompt is no shorter than its prompt and answer (spec: workloads, section 1).
    """
    n, complete = len(prompt_tokens), (prompt_tokens // block).tolist()
    ids, begin, sizes = prompts.ids.tolist(), prompts.offsets.tolist(), prompt_tokens.tolist()
    ends, occurs = (prompt_tokens + output_tokens).tolist(), np.bincount(prompts.ids).tolist()
    latest: dict[int, int] = {}
    """by path of complete blocks"""
    continued = [False] * n
    found = np.full(n, -1, np.int64)
    for i in range(n):
        first = begin[i]
        for d in range(begin[i + 1] - first - 1, LEAST - 1, -1):
            path = ids[first + d - 1]
            j = latest.get(path, -1)
            if j >= 0 and not continued[j] and occurs[path] <= PUBLIC and sizes[i] >= ends[j]:
                found[i], continued[j] = j, True
                break
        if complete[i]:
            latest[ids[first + complete[i] - 1]] = i
    return found


def continuing(prompts: Prompts) -> Longs:
    """(n,) the request whose next turn each request, in order of arrival, is: the latest one whose whole prompt it
    begins with, that nobody continued yet; −1: of none. Prompts are segments of what was said in turn."""
    ids, begin = prompts.ids.tolist(), prompts.offsets.tolist()
    open_at: dict[int, int] = {}
    """by the last segment of a prompt"""
    found = np.full(len(begin) - 1, -1, np.int64)
    for i in range(len(found)):
        path = ids[begin[i] : begin[i + 1]]
        before = next((one for one in reversed(path[:-1]) if one in open_at), None)
        if before is not None:
            found[i] = open_at.pop(before)
        open_at[path[-1]] = i
    return found


def chains(parent: Longs) -> tuple[Ints, Ints]:
    """(n,) sessions, numbered by their first requests, and turns from 0 on, given each request's parent, which stands
    before it."""
    n = len(parent)
    root, turn = np.arange(n), np.zeros(n, np.int32)
    for i in np.flatnonzero(parent >= 0).tolist():
        before = parent[i]
        root[i], turn[i] = root[before], turn[before] + 1
    _, session = np.unique(root, return_inverse=True)
    return session.astype(np.int32), turn


def public(prompts: Prompts) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    """Which segment ids stand in so many prompts that they say nothing of a session: (ids,)."""
    return np.bincount(prompts.ids) > PUBLIC
