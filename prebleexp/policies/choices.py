"""Among the candidates: the least loaded, the first of equals or any of them; two at random."""

from __future__ import annotations

from typing import Any, NamedTuple

from prebleexp.policies.candidates import MOST, gpu_of, nth, with_gpu
from prebleexp.sim.compiled import compiled
from prebleexp.sim.draws import below
from prebleexp.sim.records import GPUS, View

AT_ONCE = 16
"""GPUs"""


class Draws(NamedTuple):
    """What a policy remembers that draws, and nothing else."""

    draws: Any
    """state of a generator"""


@compiled
def least_outstanding(view: View) -> int:
    """The first candidate with the fewest requests that were sent to it and are not finished."""
    sent, candidates, least = view.sent, view.candidates, MOST
    for i in range(len(candidates)):
        gpu = nth(candidates, len(sent), i)
        least = min(least, with_gpu(sent[gpu].outstanding, gpu))
    view.work[GPUS] += len(candidates)
    return gpu_of(least)


@compiled
def any_least_outstanding(draws: Any, loads: Any, view: View) -> int:
    """Any of those, each as likely as the others. `loads`: (GPUs,) `loads.outstanding`."""
    view.work[GPUS] += len(view.candidates)
    return any_least(draws, view.candidates, loads)


@compiled
def any_least(draws: Any, candidates: Any, values: Any) -> int:
    """Any candidate with the least value. Values are of all GPUs."""
    return any_equal(draws, candidates, values, least_of(values, candidates))


@compiled
def any_equal(draws: Any, candidates: Any, values: Any, value: float) -> int:
    """Any of the candidates that have this value, each as likely as the others; the first of all if none has. It draws
    only where there are several."""
    equals = count_equal(values, candidates, value)
    if equals == 0:
        return int(candidates[0])
    return nth_equal(values, candidates, value, below(draws, equals) if equals > 1 else 0)


# ---------------------------------------------------------------- values of all GPUs, of which some are read at a time
@compiled
def least_of(values: Any, candidates: Any) -> Any:
    """The least value of a candidate."""
    least = values[candidates[0]]
    for i in range(len(candidates)):
        least = min(least, values[nth(candidates, len(values), i)])
    return least


@compiled
def count_equal(values: Any, candidates: Any, value: float) -> int:
    """How many candidates have this value."""
    equals = 0
    for i in range(len(candidates)):
        equals += values[nth(candidates, len(values), i)] == value
    return equals


@compiled
def nth_equal(values: Any, candidates: Any, value: float, behind: int) -> int:
    """The candidate of this value behind so many others that have it. It counts them some at a time, which is quicker
    than to look at each."""
    first = 0
    while True:
        here = 0
        for i in range(first, min(first + AT_ONCE, len(candidates))):
            here += values[nth(candidates, len(values), i)] == value
        if here > behind:
            break
        behind -= here
        first += AT_ONCE
    while True:
        gpu = nth(candidates, len(values), first)
        behind -= values[gpu] == value
        if behind < 0:
            return gpu
        first += 1


@compiled
def highest(scores: Any, candidates: Any) -> int:
    """The highest of the candidates' scores: the bits of floats, of all GPUs, since whole numbers are compared some at
    a time."""
    best = _in_order(scores[candidates[0]])
    for i in range(len(candidates)):
        best = max(best, _in_order(scores[nth(candidates, len(scores), i)]))
    return _in_order(best)


@compiled
def _in_order(number: int) -> int:
    """The bits of a float, as a whole number that is among others as the float is; or back again."""
    return number ^ ((number >> 63) & MOST)


@compiled
def two_different(draws: Any, view: View) -> tuple[int, int]:
    """Two candidates, each pair as likely as the others, in either order; the only one twice."""
    count = len(view.candidates)
    first = below(draws, count)
    second = (first + 1 + below(draws, count - 1)) % count if count > 1 else first
    return int(view.candidates[first]), int(view.candidates[second])
