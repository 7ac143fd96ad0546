"""What needs no run: how many replicas a load takes at least, by what its prompts and outputs cost in full steps.

It is meant to be too low. All tokens of prompts that any request before had are taken to be cached; prompts are
computed in large steps and outputs in the largest batch whose step is within the promised time per output token; what
prompts cost and what outputs cost are not added, as steps that do both overlap them. Only half of that is asked for
still, since a burst may be served after it came. What that cannot do, no run can.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from prebleexp.errors import InvalidInput, significant
from prebleexp.experiment import runs
from prebleexp.experiment.cell import Cell
from prebleexp.hardware.base import Hardware
from prebleexp.planning.contender import Contender

SLACK = 2.0
"""times too low a bound is made"""
CHUNK = 8192
"""tokens of a step that computes prompts"""
MOST_AT_ONCE = 1024
"""requests of a step"""
DRAWN = 2_000
"""requests, of a stream that is drawn"""


class TooSlow(InvalidInput):
    """Not even one request at a time is within the promised time per output token."""

    def __init__(self, alone_s: float, promised_s: float) -> None:
        self.alone_ms, self.promised_ms = significant(alone_s * 1e3), f"{promised_s * 1e3:g}"
        super().__init__(f"a step takes {self.alone_ms} ms for one request, more than the promised {self.promised_ms}")


@dataclass(frozen=True)
class Demand:
    """Average demand of a request stream: rate, and tokens of a request."""

    rps: float | None
    """requests a second; None: users, who have no rate"""
    prompt: float
    """tokens"""
    new: float
    """of these, no request before had"""
    output: float
    """tokens"""

    @classmethod
    def of(cls, contender: Contender) -> Demand:
        cell = contender.cell
        if not contender.is_nested and contender.load:
            cell = replace(cell, duration_s=DRAWN / contender.load)
        stream = runs.draw(cell)
        _, first = np.unique(stream.segment_ids, return_index=True)
        count = len(stream)
        return cls(
            rps=None if cell.workload.users is not None else contender.load,
            prompt=float(stream.prompt_tokens.sum()) / count,
            new=float(stream.segment_tokens[first].sum()) / count,
            output=float(np.minimum(stream.output_tokens, stream.max_new_tokens).sum()) / count,
        )


@dataclass(frozen=True)
class Work:
    """Seconds of a replica for a request, at least."""

    prefill_s: float
    decode_s: float

    @property
    def share(self) -> float:
        """The share of GPU time that prompts take."""
        return self.prefill_s / (self.prefill_s + self.decode_s)


def work(hardware: Hardware, demand: Demand, tpot_s: float | None) -> Work:
    """Raises TooSlow if not even one request at a time is within the promised time per output token."""
    cost, of, mine = hardware.kernels(), hardware.numbers(), hardware.start()
    prefill = float(cost.step_s(of, mine, 1, CHUNK, CHUNK, 0, 0, CHUNK, 0.0)) / CHUNK
    context = demand.prompt + demand.output / 2
    unique = demand.new + demand.output / 2

    def step_s(at_once: int) -> float:
        return float(cost.decode_s(of, mine, at_once, int(at_once * context), int(at_once * unique), 1))

    alone = float(cost.decode_s(of, mine, 1, 1, 1, 1))
    if tpot_s is not None and alone > tpot_s:
        raise TooSlow(alone, tpot_s)
    most, room = 1, hardware.kv_tokens / unique
    while 2 * most <= min(MOST_AT_ONCE, room) and (tpot_s is None or step_s(2 * most) <= tpot_s):
        most *= 2
    return Work(prefill * demand.new, demand.output * step_s(most) / most)


def replicas(of: Work, demand: Demand, target: float) -> int:
    """That it takes at least to keep this share of requests."""
    if demand.rps is None:
        return 1
    return max(1, math.ceil(demand.rps * target * max(of.prefill_s, of.decode_s) / SLACK))


def tpot_of(cell: Cell) -> float | None:
    """The loosest limit on the time per output token that is promised."""
    given = cell.slo.tpot_s
    if given is None or isinstance(given, float | int):
        return given
    return max(most for _, most in given)
