"""Few-shot ReAct prompts: groups of requests that share instructions and examples, each with a question of its own."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import NamedTuple

import numpy as np

from prebleexp.errors import InvalidInput
from prebleexp.sim.types import Ints, Longs, Workload
from prebleexp.workloads.base import WorkloadSource
from prebleexp.workloads.output_length import OutputLength

# The released generator ends every prompt with 100 random letters and digits. Measured on its recordings with
# Mistral's tokenizer: that many tokens …
SUFFIX_MEAN, SUFFIX_SD, SUFFIX_LEAST, SUFFIX_MOST = 80.35, 3.18, 50, 100
# … whose leading ones agree by chance: most tokens are one of 62 characters, the others pairs of them. Two suffixes
# then share their first token with probability 0.0098, as recorded.
CHARACTERS, SINGLE = 62, 0.78
DEEPEST = 8
"""leading tokens of a suffix that are told apart; that two of a million agree further has a chance below 1e-4"""
MOST_REQUESTS = 100_000_000
MOST = 2**24 - 1
"""of every field"""
LONGEST = 2**31 - 1
"""tokens of a prompt"""

ARRIVALS, GROUPS, SUFFIXES, OUTPUTS = range(4)
"""random streams: a change of one leaves the others as they are"""


@dataclass(frozen=True)
class React(WorkloadSource):
    """The paper's workload (spec: engine-as-released, Workload), with any output lengths and none drawn again.

    A prompt has `common_tokens` that all requests share, then `instruction_tokens` + `examples` · `example_tokens`
    that its group shares, then about 80 of its own. Of the middle only the sum for 4 examples, 1,865, is known from
    the recordings; how it divides is our guess. Arrivals are a Poisson process; the first comes at 0.

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
        for field in fields(self):
            value = getattr(self, field.name)
            least = 0 if field.name == "examples" else 1
            if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= MOST:
                raise InvalidInput(
                    f"workload.{field.name}={value} is not valid; it must be a whole number from {least} to {MOST}"
                )
        if (longest := self.common_tokens + self._group_tokens + SUFFIX_MOST) > LONGEST:
            raise InvalidInput(
                f"workload.examples={self.examples} of workload.example_tokens={self.example_tokens} is not valid; "
                f"prompts would have up to {longest} tokens and must have at most {LONGEST}"
            )

    @property
    def _group_tokens(self) -> int:
        return self.instruction_tokens + self.examples * self.example_tokens

    def draw(self, *, rps: float, duration_s: float, seed: int, output_length: OutputLength) -> Workload:
        if not rps * duration_s <= MOST_REQUESTS:
            raise InvalidInput(
                f"rps={rps} for duration_s={duration_s} is not valid; that must be at most {MOST_REQUESTS:,} requests"
            )
        n = max(1, round(rps * duration_s))
        group = _random(seed, GROUPS).permutation(np.arange(n, dtype=np.int32) % self.groups)
        gaps = _random(seed, ARRIVALS).standard_exponential(n - 1)
        suffixes = _random(seed, SUFFIXES)
        lengths = np.rint(suffixes.normal(SUFFIX_MEAN, SUFFIX_SD, n)).clip(SUFFIX_LEAST, SUFFIX_MOST).astype(np.int32)
        offsets, ids, tokens = self._segments(group, lengths, suffixes)
        return Workload(
            arrival_s=np.concatenate([[0.0], np.cumsum(gaps)]) / rps,
            prompt_tokens=self.common_tokens + self._group_tokens + lengths,
            output_tokens=output_length.draw(n, _random(seed, OUTPUTS)),
            max_new_tokens=np.full(n, self.max_new_tokens, np.int32),
            prefix_group=group,
            segment_offsets=offsets,
            segment_ids=ids,
            segment_tokens=tokens,
        )

    def _segments(self, group: Ints, lengths: Ints, rng: np.random.Generator) -> tuple[Longs, Ints, Ints]:
        """What all share, what the group shares, what of the suffix other prompts share, and the rest."""
        n = len(group)
        levels = _agreements(group, rng)
        segments, own = np.full(n, 3), lengths.copy()
        for level in levels:
            segments[level.prompts] += 1
            own[level.prompts] -= level.tokens
        offsets = np.concatenate([[0], np.cumsum(segments)])
        begin, last = offsets[:-1], offsets[1:] - 1
        ids, tokens = np.zeros(offsets[-1], np.int32), np.empty(offsets[-1], np.int32)
        ids[begin + 1] = 1 + group
        tokens[begin], tokens[begin + 1], tokens[last] = self.common_tokens, self._group_tokens, own
        place, first = begin + 2, 1 + self.groups
        for level in levels:
            rows = place[level.prompts]
            ids[rows], tokens[rows] = first + level.paths, level.tokens
            place[level.prompts] += 1
            first += int(level.paths.max(initial=-1)) + 1
        ids[last] = first + np.arange(n)
        return offsets, ids, tokens


class Agreement(NamedTuple):
    """Segments that prompts share by chance, one of each prompt; arrays of equal length."""

    prompts: Longs
    paths: Longs
    """equal for prompts that share it"""
    tokens: Longs


def _random(seed: int, stream: int) -> np.random.Generator:
    return np.random.Generator(np.random.PCG64(np.random.SeedSequence([seed, stream])))


def _agreements(group: Ints, rng: np.random.Generator) -> list[Agreement]:
    """What suffixes of a group share, from the first token on: cut only where prompts part."""
    prompts, paths = np.arange(len(group)), group.astype(np.int64)
    sharing, tokens = np.zeros((2, len(group)), np.int64)
    levels: list[Agreement] = []
    for _ in range(DEEPEST):
        codes = paths * (CHARACTERS + CHARACTERS**2) + _tokens(len(prompts), rng)
        _, paths, counts = np.unique(codes, return_inverse=True, return_counts=True)
        together = counts[paths] == sharing  # nobody leaves here, so the segment goes on
        if levels:
            levels[-1] = Agreement(*(column[~together] for column in levels[-1]))
        tokens = np.where(together, tokens + 1, 1)
        sharing = counts[paths]
        agree = sharing > 1
        if not agree.any():
            break
        prompts, paths, sharing, tokens = prompts[agree], paths[agree], sharing[agree], tokens[agree]
        levels.append(Agreement(prompts, paths, tokens))
    return levels


def _tokens(count: int, rng: np.random.Generator) -> Longs:
    """(count,) numbers that stand for random tokens: single characters, or pairs of them."""
    pairs = CHARACTERS + rng.integers(CHARACTERS**2, size=count)
    return np.where(rng.random(count) < SINGLE, rng.integers(CHARACTERS, size=count), pairs)
