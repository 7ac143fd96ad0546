"""Scorers of GPUs, each from 0 to 1, and their weighted sum: llm-d's, and BLIS's, which are like them.

Source: dynamo-llmd-research.md, sections 2 and 3.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import numpy as np

from prebleexp.checks import is_number, require
from prebleexp.errors import InvalidInput
from prebleexp.policies.candidates import nth
from prebleexp.policies.looking import news, nth_new
from prebleexp.sim.compiled import compiled
from prebleexp.sim.records import GPUS, View
from prebleexp.sim.types import Setup

Weights = Mapping[str, float] | tuple[tuple[str, float], ...]
"""what each scorer weighs, by its name; they are summed in this order"""

(
    PREFIX,  # the share of the prompt's blocks that are believed there
    REPORTED_PREFIX,  # blocks that the GPU reports to have, from the least (0) to the most (1) that any has
    WAITING,  # requests that wait, from the most (0) to the least (1)
    RUNNING,  # likewise requests in the batch
    WAITING_AND_RUNNING,  # likewise 4 · waiting + running
    FREE_MEMORY,  # the share of KV memory that is free, or could be
    NO_QUEUE,  # a half where nothing waits, else less, the more waits
    IN_FLIGHT,  # 1 where nothing is in flight, else from the most (0) down
    IN_FLIGHT_TOKENS,  # of prompts without a first token those not cached, with this one's, from `MOST_TOKENS` (0) down
    LAST_COLD,  # from the GPU that got the last request of which nobody had a block (0) to that which got none (1)
    LOAD,  # 1 / (1 + waiting + running + in flight)
) = range(11)

MATCH_TOKENS = 8192
"""a match of so many is long"""
MOST_TOKENS = 4_194_304
"""128 requests of 32,768"""
MOST_WAITING = 128


class Scores(NamedTuple):
    scorers: Any
    """of those above, …"""
    weights: Any
    """… and what each weighs"""
    total: Any
    """(GPUs,) of the decision in hand, like …"""
    held: Any
    """… blocks of the prompt believed there, …"""
    reported: Any
    """… what of it the GPU reports to have, …"""
    values: Any
    """… and what a scorer compares"""
    tokens: Any
    """(GPUs,) in flight"""
    cold: Any
    """(GPUs,) those that never got a cold request, then those whose last is longest ago"""
    looked: Any
    """(1,) when GPUs were looked at last (see `prebleexp.policies.looking`)"""
    waiting: Any
    """(GPUs,) requests as of then, …"""
    running: Any
    in_flight: Any
    free: Any
    """… and the share of KV memory that is free, or could be"""


class Prompt(NamedTuple):
    """What scorers know of a prompt."""

    tokens: int
    blocks: int
    block_size: int
    length_weight: float
    """of how long a match is; its share of the prompt has the rest"""
    warm: bool
    """whether any GPU has a block of it"""


def scores(setup: Setup, weights: Iterable[tuple[str, float]], names: Mapping[str, int]) -> Scores:
    """Nothing yet. `names`: what the project calls its scorers."""
    chosen = [(names[name], weight) for name, weight in weights]
    held, reported, tokens = np.zeros((3, setup.gpus), np.int64)
    values, waiting, running, in_flight = np.zeros((4, setup.gpus), np.int32)
    return Scores(
        scorers=np.array([scorer for scorer, _ in chosen]),
        weights=np.array([weight for _, weight in chosen]),
        total=np.zeros(setup.gpus),
        held=held,
        reported=reported,
        values=values,
        tokens=tokens,
        cold=np.arange(setup.gpus),
        looked=np.zeros(1, np.int64),
        waiting=waiting,
        running=running,
        in_flight=in_flight,
        free=np.zeros(setup.gpus),
    )


def checked(weights: Weights, names: Mapping[str, int]) -> tuple[tuple[str, float], ...]:
    """Scorers that weigh something. Raises InvalidInput for other names, weights below 0, and if none weighs
    anything."""
    given = dict(weights)
    for name, weight in given.items():
        if name not in names:
            raise InvalidInput(f"policy.scorers: there is no {name!r}; valid: {', '.join(names)}")
        require(is_number(weight) and weight >= 0, f"policy.scorers.{name}", weight, "a number >= 0")
    chosen = tuple((name, float(weight)) for name, weight in given.items() if weight > 0)
    require(len(chosen) > 0, "policy.scorers", given, "scorers with their weights, one of them above 0")
    return chosen


# ---------------------------------------------------------------- the sum
# What is asked of all GPUs lies side by side, and is asked without a branch, so that some are asked at a time.


@compiled
def add_up(mine: Scores, view: View, candidates: Any, prompt: Prompt) -> None:
    """Write to `total` what each candidate scores."""
    look(mine, view)
    mine.total[:] = 0.0
    for one in range(len(mine.scorers)):
        scorer, weight = mine.scorers[one], mine.weights[one]
        if scorer == PREFIX:
            _add_prefix(mine, candidates, prompt, weight)
        elif scorer == FREE_MEMORY:
            _add_free_memory(mine, candidates, weight)
        elif scorer == NO_QUEUE:
            _add_no_queue(mine, candidates, weight)
        elif scorer == IN_FLIGHT_TOKENS:
            _add_in_flight_tokens(mine, candidates, prompt, weight)
        elif scorer == LAST_COLD:
            _add_last_cold(mine, prompt, weight)
        elif scorer == LOAD:
            _add_load(mine, candidates, weight)
        else:
            _add_compared(mine, candidates, scorer, weight)
    view.work[GPUS] += len(candidates)


@compiled
def look(mine: Scores, view: View) -> None:
    """At the GPUs that have changed."""
    new, gpus = news(mine.looked, view), view.gpus
    for i in range(new):
        gpu = nth_new(view, new, i)
        seen = gpus[gpu]
        mine.waiting[gpu], mine.running[gpu] = seen.queued, seen.running
        mine.in_flight[gpu] = view.sent[gpu].outstanding
        mine.free[gpu] = (seen.kv_free + seen.evictable) / seen.kv_tokens


@compiled
def _add_prefix(mine: Scores, candidates: Any, prompt: Prompt, weight: float) -> None:
    total, held, of_length = mine.total, mine.held, prompt.length_weight
    if prompt.blocks == 0:
        return
    for i in range(len(candidates)):
        gpu = nth(candidates, len(total), i)
        length = min(1.0, float(np.int32(held[gpu] * prompt.block_size)) / MATCH_TOKENS)
        share = float(np.int32(held[gpu])) / prompt.blocks  # of 64 bits they are not made floats side by side
        total[gpu] += weight * (of_length * length * length + (1.0 - of_length) * share)


@compiled
def _add_free_memory(mine: Scores, candidates: Any, weight: float) -> None:
    total, free = mine.total, mine.free
    for i in range(len(candidates)):
        gpu = nth(candidates, len(total), i)
        total[gpu] += weight * free[gpu]


@compiled
def _add_no_queue(mine: Scores, candidates: Any, weight: float) -> None:
    total, waiting = mine.total, mine.waiting
    for i in range(len(candidates)):
        gpu = nth(candidates, len(total), i)
        total[gpu] += weight * (0.5 * (1.0 - min(waiting[gpu], MOST_WAITING) / MOST_WAITING))


@compiled
def _add_in_flight_tokens(mine: Scores, candidates: Any, prompt: Prompt, weight: float) -> None:
    total, in_flight, held = mine.total, mine.tokens, mine.held
    for gpu in candidates:
        tokens = min(MOST_TOKENS, in_flight[gpu] + uncached(prompt, held[gpu]))
        total[gpu] += weight * (1.0 - tokens / MOST_TOKENS)


@compiled
def uncached(prompt: Prompt, held: int) -> int:
    """Tokens of the prompt that are not in so many blocks; a partial block counts as a whole one."""
    return (prompt.blocks - held) * prompt.block_size + max(0, prompt.tokens - prompt.blocks * prompt.block_size)


@compiled
def _add_load(mine: Scores, candidates: Any, weight: float) -> None:
    total = mine.total
    for i in range(len(candidates)):
        gpu = nth(candidates, len(total), i)
        total[gpu] += weight * (1.0 / (1.0 + mine.waiting[gpu] + mine.running[gpu] + mine.in_flight[gpu]))


@compiled
def _add_compared(mine: Scores, candidates: Any, scorer: int, weight: float) -> None:
    """Of one that looks from the highest of some values down, or from the lowest up."""
    total, values = mine.total, mine.values
    _fill(values, mine, scorer)
    least = most = values[candidates[0]]
    for i in range(len(candidates)):
        value = values[nth(candidates, len(total), i)]
        least, most = min(least, value), max(most, value)
    if scorer == IN_FLIGHT:
        least = np.int32(0)
    if most == least:
        for i in range(len(candidates)):
            total[nth(candidates, len(total), i)] += weight
    else:
        best, away = (least, 1) if scorer == REPORTED_PREFIX else (most, -1)
        for i in range(len(candidates)):
            gpu = nth(candidates, len(total), i)
            total[gpu] += weight * (float(np.int32(away * (values[gpu] - best))) / (most - least))


@compiled
def _fill(values: Any, mine: Scores, scorer: int) -> None:
    """With what the scorer compares of each GPU."""
    if scorer == WAITING:
        for gpu in range(len(values)):
            values[gpu] = mine.waiting[gpu]
    elif scorer == RUNNING:
        for gpu in range(len(values)):
            values[gpu] = mine.running[gpu]
    elif scorer == WAITING_AND_RUNNING:
        for gpu in range(len(values)):
            values[gpu] = 4 * mine.waiting[gpu] + mine.running[gpu]
    elif scorer == IN_FLIGHT:
        for gpu in range(len(values)):
            values[gpu] = mine.in_flight[gpu]
    else:
        for gpu in range(len(values)):
            values[gpu] = mine.reported[gpu]


@compiled
def _add_last_cold(mine: Scores, prompt: Prompt, weight: float) -> None:
    last = len(mine.cold) - 1
    for rank, gpu in enumerate(mine.cold):
        mine.total[gpu] += weight * (0.5 if prompt.warm else 1.0 - rank / last if last > 0 else 1.0)


@compiled
def any_of(values: Any) -> bool:
    """Whether one of them is above 0."""
    for value in values:  # noqa: SIM110  # numba has no any()
        if value > 0:
            return True
    return False


# ---------------------------------------------------------------- what becomes of a decision
@compiled
def got_cold(mine: Scores, gpu: int) -> None:
    """The GPU got a request of which nobody has a block, which matters to one scorer alone."""
    for scorer in mine.scorers:
        if scorer == LAST_COLD:
            _move_behind(mine.cold, gpu)


@compiled
def never_cold(scores: Scores, gpu: int) -> None:
    """The GPU is a new one, which comes before all that got any."""
    order, place = scores.cold, 0
    while order[place] != gpu:
        place += 1
    for before in range(place, 0, -1):
        order[before] = order[before - 1]
    order[0] = gpu


@compiled
def _move_behind(order: Any, gpu: int) -> None:
    place = 0
    while order[place] != gpu:
        place += 1
    for behind in range(place + 1, len(order)):
        order[behind - 1] = order[behind]
    order[len(order) - 1] = gpu
