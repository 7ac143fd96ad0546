"""Sweeps whose parts are plans: of each line the greatest load, against that of one of them.

sweep:
  plan: {against: LOR, tol: 0.05, requests: 4000}     # else as of `prebleexp plan`
  parts:
    chats:
      variant: chats
      overrides: [workload=chats, slo.ttft_s=1]
      params: {gpus: "8"}
      lines: {LOR: [policy=lor], Dynamo KV: [policy=dynamo_kv]}
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

from prebleexp.checks import integer, is_number, require
from prebleexp.errors import InvalidInput, unknown
from prebleexp.launch.parts import Part

MOST = 2**31 - 1
SEEDS = 10_000


@dataclass(frozen=True)
class Plans:
    """Settings of a sweep of plans: the target, how narrow an interval, how many seeds and requests."""

    against: str
    """the line that all others are compared with"""
    tol: float = 0.05
    seeds: int = 8
    most_seeds: int = 64
    requests: int | None = None
    most_requests: int = 200_000


def plans_of(sweep: Mapping[str, Any], parts: Sequence[Part]) -> Plans | None:
    """What a configuration's `sweep.plan` says; None if there is none. Raises InvalidInput for what is not valid."""
    given = sweep.get("plan")
    if given is None:
        return None
    if not isinstance(given, Mapping):
        raise InvalidInput(f"sweep.plan={given} is not valid; it must be a mapping")
    valid = [field.name for field in fields(Plans)]
    for name in given:
        if name not in valid:
            raise unknown("field of sweep.plan", str(name), valid)
    made = Plans(**{"against": "", **given})
    require(is_number(made.tol), "sweep.plan.tol", made.tol, "a share of the answer, between 0 and 1")
    integer("sweep.plan.seeds", made.seeds, 2, SEEDS)
    integer("sweep.plan.most_seeds", made.most_seeds, 2, SEEDS)
    integer("sweep.plan.most_requests", made.most_requests, 10, MOST)
    if made.requests is not None:
        integer("sweep.plan.requests", made.requests, 10, MOST)
    if not parts:
        raise InvalidInput("sweep.plan: there are no parts to plan; sweep.parts has them")
    for part in parts:
        if made.against not in part.lines:
            raise unknown(f"line of part {part.name} in sweep.plan.against:", made.against, part.lines)
    return made
