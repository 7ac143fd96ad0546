"""Few-shot prompts: groups of requests that share instructions and examples, each with a question of its own."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import NamedTuple

import numpy as np

from prebleexp.checks import integer
from prebleexp.errors import InvalidInput
from prebleexp.sim.types import Floats, Ints, Longs, Workload
from prebleexp.workloads.base import WorkloadSource
from prebleexp.workloads.output_length import OutputLength

MOST_REQUESTS = 100_000_000
MOST = 2**24 - 1
"""of every field"""
LONGEST = 2**31 - 1
"""tokens of a prompt"""

ARRIVALS, GROUPS, QUESTIONS, OUTPUTS = range(4)
"""random streams: a change of one leaves the others as they are"""


class Agreement(NamedTuple):
    """Segments that prompts share by chance, one of each prompt; arrays of equal length."""

    prompts: Longs
    paths: Longs
    """equal for prompts that share it"""
    tokens: Longs


@dataclass(frozen=True)
class Questions:
    """What n requests ask, behind the examples."""

    tokens: Ints
    """(n,)"""
    output_tokens: Ints
    """(n,)"""
    agreements: Sequence[Agreement] = ()
    """leading tokens that questions of a group share, from the first on"""
    predictions: Mapping[str, Floats] = field(default_factory=dict)


@dataclass(frozen=True)
class FewShot(WorkloadSource):
    """A prompt has `common_tokens` that all requests share, then `instruction_tokens` + `examples` · `example_tokens`
    that its group shares, then a question. Arrivals are a Poisson process; the first comes at 0.

    Raises InvalidInput for fields that are not counts, prompts of 2^31 tokens, and more than 100 million requests.
    """

    groups: int = 10
    """of requests that share a prefix, all of one size"""
    examples: int = 4
    """of a prompt"""
    common_tokens: int = 4
    """that all prompts begin with"""
    instruction_tokens: int = 65
    """of a group"""
    example_tokens: int = 450
    """of each example"""
    max_new_tokens: int = 300
    """where generation ends at the latest, and all that lengths=max knows"""

    def __post_init__(self) -> None:
        for one in fields(FewShot):
            value = getattr(self, one.name)
            least = 0 if one.name == "examples" else 1
            integer(f"workload.{one.name}", value, least, MOST)
        if (longest := self.common_tokens + self._group_tokens + self.longest_question) > LONGEST:
            raise InvalidInput(
                f"workload.examples={self.examples} of workload.example_tokens={self.example_tokens} is not valid; "
                f"prompts would have up to {longest} tokens and must have at most {LONGEST}"
            )

    @property
    @abstractmethod
    def longest_question(self) -> int:
        """Tokens of the longest question there is."""

    @abstractmethod
    def questions(self, group: Ints, seed: int, output_length: OutputLength) -> Questions:
        """Those of requests of these groups, (n,)."""

    @property
    def _group_tokens(self) -> int:
        return self.instruction_tokens + self.examples * self.example_tokens

    def draw(self, *, rps: float, duration_s: float, seed: int, output_length: OutputLength) -> Workload:
        if not rps * duration_s <= MOST_REQUESTS:
            raise InvalidInput(
                f"rps={rps} for duration_s={duration_s} is not valid; that must be at most {MOST_REQUESTS:,} requests"
            )
        n = max(1, round(rps * duration_s))
        group = random(seed, GROUPS).permutation(np.arange(n, dtype=np.int32) % self.groups)
        gaps = random(seed, ARRIVALS).standard_exponential(n - 1)
        asked = self.questions(group, seed, output_length)
        offsets, ids, tokens = self._segments(group, asked)
        return Workload(
            arrival_s=np.concatenate([[0.0], np.cumsum(gaps)]) / rps,
            prompt_tokens=self.common_tokens + self._group_tokens + asked.tokens,
            output_tokens=asked.output_tokens,
            max_new_tokens=np.full(n, self.max_new_tokens, np.int32),
            prefix_group=group,
            segment_offsets=offsets,
            segment_ids=ids,
            segment_tokens=tokens,
            predictions=asked.predictions,
        )

    def _segments(self, group: Ints, asked: Questions) -> tuple[Longs, Ints, Ints]:
        """What all share, what the group shares, what of the question other prompts share, and the rest."""
        n = len(group)
        segments, own = np.full(n, 3), asked.tokens.copy()
        for level in asked.agreements:
            segments[level.prompts] += 1
            own[level.prompts] -= level.tokens
        offsets = np.concatenate([[0], np.cumsum(segments)])
        begin, last = offsets[:-1], offsets[1:] - 1
        ids, tokens = np.zeros(offsets[-1], np.int32), np.empty(offsets[-1], np.int32)
        ids[begin + 1] = 1 + group
        tokens[begin], tokens[begin + 1], tokens[last] = self.common_tokens, self._group_tokens, own
        place, first = begin + 2, 1 + self.groups
        for level in asked.agreements:
            rows = place[level.prompts]
            ids[rows], tokens[rows] = first + level.paths, level.tokens
            place[level.prompts] += 1
            first += int(level.paths.max(initial=-1)) + 1
        ids[last] = first + np.arange(n)
        return offsets, ids, tokens


def random(seed: int, stream: int) -> np.random.Generator:
    """The numbers of one of the random streams."""
    return np.random.Generator(np.random.PCG64(np.random.SeedSequence([seed, stream])))
