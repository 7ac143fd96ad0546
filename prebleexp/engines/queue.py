"""In which order a GPU's queue is admitted (see `prebleexp.engines.continuous.Continuous`)."""

from __future__ import annotations

from typing import Any

from prebleexp.sim.compiled import compiled

LPM, FCFS, PRIORITY_GROUPS = range(3)
"""in the order of `continuous.QUEUES`"""


@compiled
def put_in_order(self: Any, mine: Any, requests: Any, g: int, queue: Any) -> None:
    """Sort rows of `WAITING` whose `cached` is known. Equal ones come in order of arrival."""
    for i in range(len(queue)):
        row = queue[i]
        row.rank = row.number if self.queue != LPM else -int(row.cached) << 32 | int(row.number)
    _sort(queue, mine.merge)
    if self.queue == PRIORITY_GROUPS:
        _take_turns(self, mine, requests, g, queue)
        _sort(queue, mine.merge)


@compiled
def _sort(queue: Any, merge: Any) -> None:
    """Lowest rank first; stable. Bottom-up merge sort that skips what is in order, as most of a queue is."""
    width = 1
    while width < len(queue):
        for left in range(0, len(queue) - width, 2 * width):
            middle, right = left + width, min(left + 2 * width, len(queue))
            if queue[middle - 1].rank <= queue[middle].rank:
                continue
            for k in range(left, middle):
                merge[k] = queue[k]
            i, j = left, middle
            for k in range(left, right):
                if j == right or (i < middle and merge[i].rank <= queue[j].rank):
                    queue[k] = merge[i]
                    i += 1
                else:
                    queue[k] = queue[j]
                    j += 1
        width *= 2


@compiled
def _group(self: Any, requests: Any, row: Any) -> int:
    return self.groups * int(row.cached) // requests[row.request].prompt_tokens


@compiled
def _take_turns(self: Any, mine: Any, requests: Any, g: int, queue: Any) -> None:
    """Rank a queue that is in order of arrival by rounds, within a round by group, the highest first.

    `turns` counts what each group had of the round; where no group has requests and turns left, a new round begins.
    """
    turns, ahead = mine.turns[g], mine.turns[len(mine.gpus)]
    ahead[:] = 0
    for i in range(len(queue)):
        row = queue[i]
        group = _group(self, requests, row)
        a_round = (turns[group] + ahead[group]) // max(1, group)
        row.rank = (a_round * (self.groups + 1) + self.groups - group) << 32 | ahead[group]
        ahead[group] += 1


@compiled
def count_turn(self: Any, mine: Any, requests: Any, g: int, row: Any) -> None:
    """A request is admitted: of all that wait it was the first of its round."""
    if self.queue != PRIORITY_GROUPS:
        return
    group, turns = _group(self, requests, row), mine.turns[g]
    first = turns[group] // max(1, group)  # so many rounds are over
    turns[group] += 1
    if first > 0:
        for other in range(self.groups + 1):
            turns[other] = max(0, turns[other] - first * max(1, other))
