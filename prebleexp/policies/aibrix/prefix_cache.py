"""AIBrix's prefix-cache routing."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np

from prebleexp.checks import is_integer, is_number, positive, require
from prebleexp.policies.aibrix.imbalance import choose, spread
from prebleexp.policies.aibrix.table import Table, expire, lacks_room, put, shares, table, with_more_room
from prebleexp.policies.base import Policy, tuned
from prebleexp.policies.candidates import nth
from prebleexp.policies.choices import any_equal, any_least_outstanding
from prebleexp.policies.loads import Loads, loads, look
from prebleexp.sim.compiled import compiled
from prebleexp.sim.draws import generator
from prebleexp.sim.records import GPUS, NONE, View
from prebleexp.sim.types import Setup

INTERVAL_S = 1.0
"""between two looks at what is unused for too long"""
LOAD_BITS = 31
MOST = (1 << LOAD_BITS) - 1
"""requests; a rank has the percentage above them, and counts them from the most down"""


class Remembered(NamedTuple):
    table: Table
    ready: Any
    """(words,) GPUs that may match, 64 a word"""
    percent: Any
    """(GPUs,) of the prompt in hand that each was sent; -1: nothing, or it may not match"""
    ranks: Any
    """(GPUs,) how good a match each is; -1: none"""
    draws: Any
    loads: Loads


@dataclass(frozen=True)
class PrefixCache(Policy):
    """The best match in whole percents, the least loaded of several, among the GPUs whose requests are not above the
    mean by more than a standard deviation; if there is none, the least loaded of all. Any of equals. If requests are
    too far apart, only the least loaded match. The table keeps what it has of a GPU that is lost, as it does there of a
    pod that comes back by its name.

    Source: AIBrix, commit e3e10f9e4 (after 0.7.0-rc.3), `prefix-cache` with the tokenizer `character`. Verified: its
    recorded decisions, in which nothing is dropped. The table's order and what it drops were read (at later commits),
    not run, and so are unproven.

    Raises InvalidInput, naming the field.
    """

    characters_per_token: float = 4.0
    """that one token stands for (bytes, in fact: it counts those)"""
    block_size: int = 4
    """characters; a block is the nearest number of whole tokens, one at least"""
    block_number: int = tuned(200_000, 20_000, 20_000_000, log=True)
    """blocks that the table holds, of all prompts and GPUs together"""
    eviction_duration_mins: float = 20.0
    """after which an unused block goes"""
    imbalance_abs_count: int = tuned(8, 1, 64, log=True)
    """requests that the most loaded GPU may have more than the least loaded"""
    standard_deviation_factor: float = tuned(1.0, 0.0, 4.0)
    """standard deviations above the mean that a match may be loaded"""

    reads_lengths: ClassVar[bool] = False

    def __post_init__(self) -> None:
        for name in ("characters_per_token", "eviction_duration_mins"):
            positive(f"policy.{name}", getattr(self, name))
        for name, least in (("block_size", 1), ("block_number", 1), ("imbalance_abs_count", 0)):
            value = getattr(self, name)
            require(is_integer(value, least), f"policy.{name}", value, f"an integer >= {least}")
        factor = self.standard_deviation_factor
        require(is_number(factor) and factor >= 0, "policy.standard_deviation_factor", factor, "a number >= 0")

    def start(self, setup: Setup) -> Remembered:
        block = max(1, round(self.block_size / self.characters_per_token))
        made = table(setup, block, self.block_number, 60.0 * self.eviction_duration_mins, INTERVAL_S)
        words = np.zeros(-(-setup.gpus // 64), np.int64)
        percent, ranks = np.zeros((2, setup.gpus), np.int64)
        return Remembered(made, words, percent, ranks, generator(setup.seed), loads(setup))

    def lacks_room(self, mine: Any, view: View, request: int) -> int:
        return lacks_room(mine.table, view, request)

    def with_more_room(self, mine: Any, view: View, request: int) -> Remembered:
        value: Remembered = getattr(mine, "value", mine)
        return value._replace(table=with_more_room(value.table, view, request))

    def route(self, mine: Any, view: View, request: int, now: float) -> int:
        expire(mine.table, now)
        look(mine.loads, view)
        requests = mine.loads.outstanding
        least, most, mean, deviation = spread(requests, view)
        choose(requests, view, least, most - least <= self.imbalance_abs_count, mine.ready)
        shares(mine.table, view, request, mine.ready, mine.percent)
        gpu = best_match(mine, requests, view, mean + self.standard_deviation_factor * deviation)
        if gpu == NONE:
            gpu = any_least_outstanding(mine.draws, requests, view)
        put(mine.table, view, request, gpu, now)
        return gpu


@compiled
def best_match(mine: Remembered, requests: Any, view: View, bound: float) -> int:
    """Of the candidates that match and are not above the bound, any with the highest percentage and, of these, the
    fewest requests; -1: there is none."""
    candidates, percent, ranks, best = view.candidates, mine.percent, mine.ranks, -1
    most = int(min(bound, MOST))
    for i in range(len(candidates)):  # without a branch, some are ranked at a time
        gpu = nth(candidates, len(ranks), i)
        share, load = percent[gpu], requests[gpu]
        ranks[gpu] = -1 if share < 0 or load > most else (share << LOAD_BITS) + MOST - load
        best = max(best, ranks[gpu])
    view.work[GPUS] += len(candidates)
    return NONE if best < 0 else any_equal(mine.draws, candidates, ranks, best)
