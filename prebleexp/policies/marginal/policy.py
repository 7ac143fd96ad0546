"""Least marginal delay."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

from prebleexp.checks import flag, is_number, require
from prebleexp.policies.base import Policy
from prebleexp.policies.decisions import Decisions
from prebleexp.policies.marginal.book import (
    OWN,
    TERMS,
    Book,
    arrival_rate,
    arrive,
    begin,
    book,
    expect,
    found,
    in_use,
    late_s,
    leave,
    meet,
    most_held,
    send,
)
from prebleexp.policies.marginal.choice import choose
from prebleexp.policies.marginal.explained import note
from prebleexp.policies.marginal.price import Asked
from prebleexp.policies.marginal.rent import turn
from prebleexp.policies.marginal.room import admitted, ended, stay_s
from prebleexp.policies.prefix_index import forget, forget_all, insert, matches, store
from prebleexp.sim.records import GPUS, View
from prebleexp.sim.types import Setup

EXPLAIN = "explain"


@dataclass(frozen=True)
class MarginalDelay(Policy):
    """The GPU where the request adds the least delay, its own and that of all others there; the first of equals.

    What a delay weighs is said in seconds before a first token: a request's cost is `ttft_weight` · TTFT +
    `norm_latency_weight` · latency / output tokens + `latency_weight` · latency. What it adds to the costs of others is
    what economists call its externality and routing in networks its marginal delay (Gallager 1977): who pays for it
    chooses as is best for all (Pigou 1920; of queues Naor 1969, Bell and Stidham 1983). The sum is in
    `prebleexp.policies.marginal.price`.

    The router goes by its own book of who waits and who decodes, by what it has sent and is told of caches, by
    what GPUs report of their memory and of how many requests they have, by their cost models and by expected outputs.
    Who was sent by another gateway counts as one who decodes, with a usual prompt and an output as this one's. Its rule
    is this project's, and is nobody's product; docs/policies.md says where it loses.

    Raises InvalidInput for a weight that is no number >= 0, and for an `explain` that is not true or false."""

    ttft_weight: float = 2.0
    """what a second before the first token costs. It is above 1, since that is what users wait for"""
    norm_latency_weight: float = 5.0
    """tokens: what a second of latency costs, times the output tokens of the request. Short answers cannot wait"""
    latency_weight: float = 0.1
    """what a second of latency costs, however long the answer: long ones can wait a little"""
    tail_weight: float = 5.0
    """what a second before the first token costs in addition, from two standard deviations above recent waits on.
    Few wait so long, and they are the tail that users complain of; where all wait long, it is no tail"""
    others_weight: float = 3.0
    """what a second costs by which others wait longer for their first tokens, against one's own. Above 1, since those
    who come next wait for them too. One by which a prompt holds up those who decode costs as one's own"""
    others_decode_weight: float = 4.0
    """the same of a second by which others decode longer. It is above that of waiting, since a batch that has grown
    ends later and so meets more others"""
    copy_weight: float = 3.0
    """what a second costs in which is computed what another GPU has, besides the delay: a copy takes the place of
    others' prefixes, and a session that moves for little moves again"""
    memory_weight: float = 6.0
    """what a second costs in which is computed anew what a copy drove out, if the tokens that are computed there while
    a request stays drive out what is asked for again then. Above 1, since what is computed anew drives out more"""
    settle_weight: float = 300.0
    """what a second costs in which is computed what no GPU has more than half of, times the share of the GPU's KV that
    such prompts took in the last minute, and the share of prompts that is found. High, since many follow a prefix to
    where it settled, for as long as it stays: where prefixes hardly fit, those settled evenly all stay"""
    rent_weight: float = 0.4
    """how much of a price above the mean of all GPUs is rent, paid for a copy of the prefix. Below 1, since prices
    weigh others' seconds by more than 1; 0: none is bought. Nothing is paid for what is above the mean by no more than
    chance makes loads differ"""
    explain: bool = False
    """whether the terms of each decision are kept, for `prebleexp trace`; decisions are the same"""

    def __post_init__(self) -> None:
        for one in fields(self):
            value = getattr(self, one.name)
            if one.name == EXPLAIN:
                flag(f"policy.{one.name}", value)
            else:
                require(is_number(value) and value >= 0, f"policy.{one.name}", value, "a number >= 0")

    def start(self, setup: Setup) -> Book:
        return book(setup, explained=setup.requests if self.explain else 0)

    def route(self, mine: Any, view: View, request: int, now: float) -> int:
        matches(mine.held, view, request, mine.hits)
        view.work[GPUS] += len(view.candidates)
        row = view.requests[request]
        output = max(1.0, float(row.expected_output))
        weight = self.norm_latency_weight / output + self.latency_weight
        length, most, first = int(row.prompt_tokens), most_held(mine, view.candidates), self.ttft_weight + weight
        arrive(mine, now, length, most)
        meet(mine, view)
        coming = arrival_rate(mine) / len(view.candidates)
        settles = found(mine) if 2 * most < length else 0.0
        late = (self.tail_weight, late_s(mine))
        weights = (self.ttft_weight, *late, self.others_weight, self.others_decode_weight, self.copy_weight)
        asked = Asked(
            length,
            int(row.max_new_tokens),
            output,
            weight,
            first,
            in_use(mine, view, request),
            stay_s(mine),
            most,
            settles,
            coming,
            *weights,
            self.memory_weight,
            self.settle_weight,
            self.rent_weight,
        )
        best, price, heir, rent = choose(mine, view, request, asked, now)
        if self.explain:
            note(mine, view, request, asked, best, heir, rent, now)
        expect(mine, best, price.wait_s, now)
        turn(mine, view, price.new)
        send(mine, view, request, best, price.new, max(price.new, length - asked.used), price.ms, weight)
        insert(mine.held, view, request, best)
        return best

    def explained(self, mine: Any) -> Decisions | None:
        return Decisions(TERMS, OWN, mine.decisions) if self.explain else None

    def first_token(self, mine: Any, view: View, request: int, now: float) -> None:
        begin(mine, view, request)
        admitted(mine, view, int(view.requests[request].gpu))

    def finished(self, mine: Any, view: View, request: int, now: float) -> None:
        ended(mine, view, request, now)
        leave(mine, view, request)

    def changed(self, mine: Any, view: View, gpu: int, now: float) -> None:
        forget_all(mine.held, gpu)

    def stored(self, mine: Any, view: View, request: int, gpu: int, tokens: int, now: float) -> None:
        store(mine.held, view, request, gpu, tokens)

    def evicted(self, mine: Any, view: View, request: int, gpu: int, tokens: int, now: float) -> None:
        forget(mine.held, view, request, gpu, tokens)
