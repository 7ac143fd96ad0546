"""production-stack's prefixaware routing: a trie of text chunks that forgets nothing."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np

from prebleexp.checks import is_integer, positive, require
from prebleexp.policies.base import Policy, tuned
from prebleexp.policies.bits import fill, nth_of, size
from prebleexp.policies.production_stack import arrivals
from prebleexp.policies.production_stack.arrivals import Arrivals, arrived, fewest
from prebleexp.sim.compiled import compiled
from prebleexp.sim.draws import below, generator
from prebleexp.sim.records import GPUS, SEGMENTS, View
from prebleexp.sim.types import Setup

CHUNK = 128
"""characters"""


class Trie(NamedTuple):
    """Which GPUs were sent each chunk, and all before it.

    Every prompt that goes through a segment has all chunks that end in it, so what holds for one of them does for all.
    The last chunk is shorter, and so another one than any that goes on: it stands for the whole prompt.
    """

    chunk: int
    """tokens"""
    ids: int
    """segment ids"""
    holders: Any
    """(2 · ids,) who was sent a prompt through segment i, and at ids + i one that ends with it. 0: nobody; −g: GPU
    g − 1 alone, as is so of nearly all; else all in that row of `several`"""
    several: Any
    """(rows, words) GPUs, 64 a word"""
    used: Any
    """(1,) rows of `several` in use, the first of which is of nobody"""
    asked: Any
    """(words,) the candidates of the decision in hand"""


class Remembered(NamedTuple):
    trie: Trie
    arrivals: Arrivals
    draws: Any


@dataclass(frozen=True)
class PrefixAware(Policy):
    """Any of the GPUs that were sent the most leading chunks of the prompt, each as likely as the others; no load.

    With `prefix_min_match_length` a shorter match is none: then the first GPU that never got a request, else that with
    the fewest arrivals of late. What is remembered grows with the prompts, as it does there, and no GPU that is lost is
    forgotten.

    Source: production-stack, commit a6c01db05 (after vllm-stack-0.1.9), `prefixaware`. Verified: its recorded
    decisions. One token stands for `characters_per_token` characters, a chunk for the nearest number of whole tokens.

    Raises InvalidInput, naming the field.
    """

    characters_per_token: float = 4.0
    """that one token stands for"""
    prefix_min_match_length: int = tuned(0, 0, 8192)
    """characters, counted in whole chunks; a shorter match is none"""
    request_stats_window: float = 60.0
    """seconds over which arrivals count"""

    reads_lengths: ClassVar[bool] = False

    def __post_init__(self) -> None:
        positive("policy.characters_per_token", self.characters_per_token)
        least = self.prefix_min_match_length
        require(is_integer(least, 0), "policy.prefix_min_match_length", least, "an integer >= 0")
        positive("policy.request_stats_window", self.request_stats_window, "a number of seconds > 0")

    def start(self, setup: Setup) -> Remembered:
        chunk, ids = max(1, round(CHUNK / self.characters_per_token)), setup.segment_ids
        words = -(-setup.gpus // 64)
        several, used = np.zeros((setup.gpus + 1, words), np.int64), np.ones(1, np.int64)
        trie = Trie(chunk, ids, np.zeros(2 * ids, np.int32), several, used, np.zeros(words, np.int64))
        return Remembered(trie, arrivals.arrivals(setup, self.request_stats_window), generator(setup.seed))

    def lacks_room(self, mine: Any, view: View, request: int) -> int:
        return int(arrivals.lacks_room(mine.arrivals) != 0 or _free(mine.trie) < _rows(view, request))

    def with_more_room(self, mine: Any, view: View, request: int) -> Remembered:
        value: Remembered = getattr(mine, "value", mine)
        if _free(value.trie) < _rows(view, request):
            old = value.trie.several
            more = np.zeros((2 * len(old) + _rows(view, request), old.shape[1]), np.int64)
            more[: len(old)] = old
            return value._replace(trie=value.trie._replace(several=more))
        return value._replace(arrivals=arrivals.with_more_room(value.arrivals))

    def route(self, mine: Any, view: View, request: int, now: float) -> int:
        chunks, row = longest(mine.trie, view, request)
        if chunks * CHUNK < self.prefix_min_match_length:
            gpu = fewest(mine.arrivals, view, now)
        elif chunks == 0:
            gpu = view.candidates[below(mine.draws, len(view.candidates))]
        else:
            gpu = any_holder(mine.trie, row, mine.draws, view)
        if self.prefix_min_match_length > 0:
            arrived(mine.arrivals, gpu, now)
        insert(mine.trie, view, request, gpu)
        return gpu


@compiled
def longest(trie: Trie, view: View, request: int) -> tuple[int, int]:
    """The most leading chunks of the prompt that any candidate was sent, and the row of those that were."""
    prompt, ids, ends = view.requests[request], view.prompts.ids, view.prompts.ends
    first, tokens = int(prompt.first_segment), int(prompt.prompt_tokens)
    fill(trie.asked, view.candidates, len(view.sent))
    whole = trie.ids + ids[first + prompt.segments - 1]
    if tokens % trie.chunk != 0 and _any(trie, whole):
        return tokens // trie.chunk + 1, whole
    low, high = 0, int(prompt.segments)  # whoever was sent a segment was sent those before it
    while low < high:
        middle = (low + high) >> 1
        view.work[SEGMENTS] += 1
        if _any(trie, ids[first + middle]):
            low = middle + 1
        else:
            high = middle
    chunks = ends[first + low - 1] // trie.chunk if low > 0 else 0
    if chunks == 0:
        return 0, 0
    while low > 1 and ends[first + low - 2] >= chunks * trie.chunk:  # no chunk ends in what is beyond
        low -= 1
    return chunks, ids[first + low - 1]


@compiled
def holds(trie: Trie, row: int, gpu: int) -> bool:
    who = trie.holders[row]
    if who <= 0:
        return who == -1 - gpu
    return (trie.several[who, gpu >> 6] >> (gpu & 63)) & 1 == 1


@compiled
def add(trie: Trie, row: int, gpu: int) -> None:
    """The GPU is one of those in the row."""
    who = int(trie.holders[row])
    if who == 0:
        trie.holders[row] = -1 - gpu
    elif not holds(trie, row, gpu):
        if who < 0:
            trie.holders[row] = trie.used[0]
            trie.used[0] += 1
            _set(trie, row, -1 - who)
        _set(trie, row, gpu)


@compiled
def _set(trie: Trie, row: int, gpu: int) -> None:
    trie.several[trie.holders[row], gpu >> 6] |= np.int64(1) << np.int64(gpu & 63)


@compiled
def _free(trie: Trie) -> int:
    """Rows for segments that several were sent."""
    return len(trie.several) - int(trie.used[0])


@compiled
def _rows(view: View, request: int) -> int:
    """Of these, how many routing the request takes at most."""
    return int(view.requests[request].segments) + 1


@compiled
def any_holder(trie: Trie, row: int, draws: Any, view: View) -> int:
    """One of the candidates in a row, each as likely as the others. There is one."""
    who, count = int(trie.holders[row]), 0
    view.work[GPUS] += len(view.candidates)
    if who < 0:
        return -1 - who
    for word in range(len(trie.asked)):
        count += size(trie.several[who, word] & trie.asked[word])
    behind, word = below(draws, count) if count > 1 else 0, 0
    while behind >= size(trie.several[who, word] & trie.asked[word]):
        behind -= size(trie.several[who, word] & trie.asked[word])
        word += 1
    return 64 * word + nth_of(trie.several[who, word] & trie.asked[word], behind)


@compiled
def insert(trie: Trie, view: View, request: int, gpu: int) -> None:
    """The prompt is sent to the GPU."""
    prompt, ids = view.requests[request], view.prompts.ids
    at = int(prompt.first_segment + prompt.segments) - 1
    add(trie, trie.ids + ids[at], gpu)
    while at >= prompt.first_segment and not holds(trie, ids[at], gpu):  # those before are held, if one is
        view.work[SEGMENTS] += 1
        add(trie, ids[at], gpu)
        at -= 1


@compiled
def _any(trie: Trie, row: int) -> bool:
    """Whether a candidate is in the row."""
    who = int(trie.holders[row])
    if who <= 0:
        return who < 0 and (trie.asked[(-1 - who) >> 6] >> ((-1 - who) & 63)) & 1 == 1
    for word in range(len(trie.asked)):  # noqa: SIM110
        if trie.several[who, word] & trie.asked[word] != 0:
            return True
    return False
