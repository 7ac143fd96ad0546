"""AIBrix's prefix-cache-preble routing."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np

from prebleexp.checks import is_integer, is_number, one_of, require
from prebleexp.policies.aibrix import preble_window
from prebleexp.policies.aibrix.imbalance import choose, spread
from prebleexp.policies.aibrix.preble_cost import FITS
from prebleexp.policies.aibrix.preble_window import UNUSED_S, Window, expire, send, take_up, window
from prebleexp.policies.base import Policy, tuned
from prebleexp.policies.loads import Loads, loads, look
from prebleexp.sim.compiled import compiled
from prebleexp.sim.draws import below, generator
from prebleexp.sim.records import GPUS, NODES, NONE, View
from prebleexp.sim.types import Setup


class Remembered(NamedTuple):
    window: Window
    ready: Any
    """(words,) GPUs that may be chosen, 64 a word"""
    draws: Any
    loads: Loads


@dataclass(frozen=True)
class PrefixCachePreble(Policy):
    """AIBrix's router of this name. It is not PREBLE's E2 (that is `e2`): it neither redirects nor replicates hot
    prefixes, its costs are of fixed GPUs, and a node costs its GPUs one decode, however many requests end there.

    Of a request of which more than half is in the tree: the GPUs of the deepest node that has any, of these the one
    with the fewest requests in the window that end in nodes which it was sent; any of equals. Else the GPU for which
    these nodes cost least, the first of equals. If requests are too far apart, only the least loaded GPUs count. Of a
    GPU that is lost nothing is forgotten, as there of a pod that comes back by its name.

    Source: AIBrix, near commit e3e10f9e4, `prefix-cache-preble`, and its tree. Read, not run: all of it is unproven. In
    particular how nodes go together (here the deepest first) and who of equals is taken depend on the order of hash
    maps there.

    Raises InvalidInput, naming the field.
    """

    target_gpu: str = "V100"
    """whose costs: V100 or A6000, with Mistral 7B"""
    decoding_length: int = 45
    """output tokens that a node is taken to decode"""
    sliding_window_period: float = tuned(3.0, 0.2, 5.0, log=True)
    """minutes over which requests count"""
    imbalance_abs_count: int = tuned(8, 1, 64, log=True)
    """requests that the most loaded GPU may have more than the least loaded"""

    reads_lengths: ClassVar[bool] = False

    def __post_init__(self) -> None:
        one_of("policy.target_gpu", self.target_gpu, tuple(FITS))
        for name in ("decoding_length", "imbalance_abs_count"):
            value = getattr(self, name)
            require(is_integer(value, 0), f"policy.{name}", value, "an integer >= 0")
        period, most = self.sliding_window_period, UNUSED_S / 60
        valid = is_number(period) and 0 < period <= most
        require(valid, "policy.sliding_window_period", period, f"a number of minutes > 0, at most {most:g}")

    def start(self, setup: Setup) -> Remembered:
        made = window(setup, 60.0 * self.sliding_window_period, self.decoding_length, FITS[self.target_gpu])
        return Remembered(made, np.zeros(-(-setup.gpus // 64), np.int64), generator(setup.seed), loads(setup))

    def lacks_room(self, mine: Any, view: View, request: int) -> int:
        return preble_window.lacks_room(mine.window)

    def with_more_room(self, mine: Any, view: View, request: int) -> Remembered:
        value: Remembered = getattr(mine, "value", mine)
        return value._replace(window=preble_window.with_more_room(value.window))

    def route(self, mine: Any, view: View, request: int, now: float) -> int:
        expire(mine.window, view, now)
        leaf, matched = take_up(mine.window, view, request, now)
        look(mine.loads, view)
        requests = mine.loads.outstanding
        least, most, _, _ = spread(requests, view)
        choose(requests, view, least, most - least <= self.imbalance_abs_count, mine.ready)
        gpu = NONE
        if 2 * matched > view.requests[request].prompt_tokens:
            gpu = least_of_deepest(mine.window, view, leaf, mine.ready, mine.draws)
        if gpu == NONE:
            gpu = cheapest(mine.window, view, mine.ready)
        send(mine.window, view, leaf, gpu, now)
        return gpu


@compiled
def least_of_deepest(mine: Window, view: View, leaf: int, ready: Any, draws: Any) -> int:
    """Of the deepest node from `leaf` up that any GPU of those was sent: any with the least load; -1: there is none."""
    node = leaf
    while node != NONE:
        view.work[NODES] += 1
        chosen, equals = NONE, 0
        for word in range(len(ready)):
            gpus = ready[word] & mine.sent[node, word]
            if gpus != 0:
                for gpu in range(64 * word, min(64 * word + 64, len(mine.load))):
                    if (gpus >> (gpu & 63)) & 1 == 1:
                        if chosen == NONE or mine.load[gpu] < mine.load[chosen]:
                            chosen, equals = gpu, 0
                        equals += mine.load[gpu] == mine.load[chosen]
        if chosen != NONE:
            behind = below(draws, equals) if equals > 1 else 0
            least = mine.load[chosen]
            while behind > 0:
                chosen += 1
                behind -= mine.load[chosen] == least and is_in(ready, chosen) and is_in(mine.sent[node], chosen)
            return chosen
        node = int(mine.tree.rows[node].parent)
    return NONE


@compiled
def cheapest(mine: Window, view: View, ready: Any) -> int:
    """The first of those for which the nodes that it was sent cost least."""
    best = NONE
    for gpu in view.candidates:
        if is_in(ready, gpu) and (best == NONE or mine.cost[gpu] < mine.cost[best]):
            best = int(gpu)
    view.work[GPUS] += len(view.candidates)
    return best


@compiled
def is_in(gpus: Any, gpu: int) -> bool:
    """Whether it is one of them, 64 a word."""
    return (gpus[gpu >> 6] >> (gpu & 63)) & 1 == 1
