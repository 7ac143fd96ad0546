"""Requests as long as those of Azure's traces of 2023, at random, without the traces."""

from __future__ import annotations

import csv
import hashlib
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import ClassVar

import numpy as np

from prebleexp.checks import is_integer, one_of, require
from prebleexp.errors import InvalidInput
from prebleexp.sim.types import Ints, Workload
from prebleexp.workloads.base import WorkloadSource
from prebleexp.workloads.few_shot import ARRIVALS, MOST_REQUESTS, QUESTIONS, random
from prebleexp.workloads.output_length import OutputLength

FILE = Path(__file__).parent / "measured" / "azure_2023.csv"
"""its origin and licence are in the README beside it"""
TRACES = ("conversations", "code")
LENGTHS = ("prompt_tokens", "output_tokens")


@dataclass(frozen=True)
class AzureLengths(WorkloadSource):
    """Each request has prompt and output as long as one of a part of the trace that ships, drawn with replacement.
    Prompts share nothing. Arrivals are a Poisson process; the first comes at 0. A seed has the same lengths at every
    rate.

    Generation ends after as many tokens as the longest answer has, which is all that lengths=max knows.

    Source: Patel et al., "Splitwise", ISCA 2024. Raises InvalidInput for a trace that there is not, for `longest`
    shorter than any request, and for more than 100 million requests.
    """

    trace: str = "conversations"
    """conversations or code"""
    longest: int | None = None
    """only requests of at most so many tokens, prompt and output together; null: all"""

    own_outputs: ClassVar[bool] = True

    def __post_init__(self) -> None:
        one_of("workload.trace", self.trace, TRACES)
        prompts, outputs = lengths(self.trace)
        least = int((prompts + outputs).min())
        valid = self.longest is None or is_integer(self.longest, least, 2**31 - 1)
        require(valid, "workload.longest", self.longest, f"null or an integer >= {least}, the shortest request")

    def identity(self) -> dict[str, object]:
        """Its fields, and the file that ships."""
        return asdict(self) | {"sha256": hashlib.sha256(FILE.read_bytes()).hexdigest()}

    def draw(self, *, rps: float, duration_s: float, seed: int, output_length: OutputLength) -> Workload:
        if not rps * duration_s <= MOST_REQUESTS:
            raise InvalidInput(
                f"rps={rps} for duration_s={duration_s} is not valid; that must be at most {MOST_REQUESTS:,} requests"
            )
        n = max(1, round(rps * duration_s))
        prompts, outputs = lengths(self.trace)
        if self.longest is not None:
            fit = prompts + outputs <= self.longest
            prompts, outputs = prompts[fit], outputs[fit]
        rows = random(seed, QUESTIONS).integers(len(prompts), size=n)
        gaps = random(seed, ARRIVALS).standard_exponential(n - 1)
        return Workload(
            arrival_s=np.concatenate([[0.0], np.cumsum(gaps)]) / rps,
            prompt_tokens=prompts[rows],
            output_tokens=outputs[rows],
            max_new_tokens=np.full(n, outputs.max(), np.int32),
            prefix_group=np.full(n, -1, np.int32),
            segment_offsets=np.arange(n + 1),
            segment_ids=np.arange(n, dtype=np.int32),
            segment_tokens=prompts[rows],
        )


@cache
def lengths(trace: str) -> tuple[Ints, Ints]:
    """Tokens of prompts and of outputs, (rows,) each."""
    with FILE.open(encoding="utf-8", newline="") as file:
        rows = [row for row in csv.DictReader(file) if row["trace"] == trace]
    prompts, outputs = (np.array([int(row[name]) for row in rows], np.int32) for name in LENGTHS)
    return prompts, outputs
