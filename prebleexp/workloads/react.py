"""Few-shot ReAct prompts: groups of requests that share instructions and examples, each with a question of its own."""

from __future__ import annotations

from dataclasses import dataclass, fields

import numpy as np

from prebleexp.errors import InvalidInput
from prebleexp.sim.types import Ints, Longs, Workload
from prebleexp.workloads.base import WorkloadSource
from prebleexp.workloads.output_length import OutputLength

# The released generator ends every prompt with 100 random letters and digits. Measured on its recordings with Mistral's tokenizer: that many tokens …
SUFFIX_MEAN, SUFFIX_SD, SUFFIX_LEAST, SUFFIX_MOST = 80.35, 3.18, 50, 100
# … whose leading ones agree by chance: most tokens are one of 62 characters, the others pairs of them.
CHARACTERS, SINGLE = 62, 0.756
DEEPEST = 8
"""leading tokens of a suffix that are drawn; the chance that two suffixes of a million agree so far is below 1e-4"""

ARRIVALS, GROUPS, SUFFIXES, OUTPUTS = range(4)
"""random streams: a change of one leaves the others as they are"""


@dataclass(frozen=True)
class React(WorkloadSource):
    """The paper's workload (spec: engine-as-released, Workload), with any output lengths and none drawn again.

    A prompt has `common_tokens` that all requests share, then `instruction_tokens` + `examples` · `example_tokens` that its group shares, then about
    80 of its own. Of the middle only the sum for 4 examples, 1,865, is known from the recordings; how it divides is our guess.
    Arrivals are a Poisson process; the first comes at 0. Raises InvalidInput for fields that are not counts.
    """

    groups: int = 10
    examples: int = 4
    common_tokens: int = 4
    instruction_tokens: int = 65
    example_tokens: int = 450
    max_new_tokens: int = 300

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            least = 0 if field.name == "examples" else 1
            if isinstance(value, bool) or not isinstance(value, int) or not least <= value < 2**24:
                raise InvalidInput(f"workload.{field.name}={value} is not valid; it must be a whole number >= {least}")

    def draw(self, *, rps: float, duration_s: float, seed: int, output_length: OutputLength) -> Workload:
        n = max(1, round(rps * duration_s))
        group = _random(seed, GROUPS).permutation(np.arange(n, dtype=np.int32) % self.groups)
        gaps = _random(seed, ARRIVALS).standard_exponential(n - 1)
        suffixes = _random(seed, SUFFIXES)
        suffix_tokens = np.rint(suffixes.normal(SUFFIX_MEAN, SUFFIX_SD, n)).clip(SUFFIX_LEAST, SUFFIX_MOST).astype(np.int32)
        shared = self.instruction_tokens + self.examples * self.example_tokens
        offsets, ids, tokens = self._segments(group, suffix_tokens, _leading_tokens(n, suffixes), shared)
        return Workload(
            arrival_s=np.concatenate([[0.0], np.cumsum(gaps)]) / rps,
            prompt_tokens=self.common_tokens + shared + suffix_tokens,
            output_tokens=output_length.draw(n, _random(seed, OUTPUTS)),
            max_new_tokens=np.full(n, self.max_new_tokens, np.int32),
            prefix_group=group,
            segment_offsets=offsets,
            segment_ids=ids,
            segment_tokens=tokens,
        )

    def _segments(self, group: Ints, suffix_tokens: Ints, leading: Ints, shared: int) -> tuple[Longs, Ints, Ints]:
        """CSR segments: what all share, what the group shares, one token for every leading token shared with another prompt, the rest."""
        n = len(group)
        columns, depth = _shared_paths(group, leading)
        rows = [np.zeros(n, np.int64), 1 + group.astype(np.int64)]
        first = 1 + self.groups
        for paths in columns:
            rows.append(first + paths)
            first += int(paths.max()) + 1
        rows.append(first + np.arange(n))
        sizes = [np.full(n, self.common_tokens), np.full(n, shared), *(np.ones(n, np.int64) for _ in columns), suffix_tokens - depth]
        present = np.ones((n, len(rows)), bool)
        for level in range(len(columns)):
            present[:, 2 + level] = depth > level
        offsets = np.concatenate([[0], np.cumsum(present.sum(axis=1))])
        return offsets, np.stack(rows, axis=1)[present].astype(np.int32), np.stack(sizes, axis=1)[present].astype(np.int32)


def _random(seed: int, stream: int) -> np.random.Generator:
    return np.random.default_rng([seed, stream])


def _leading_tokens(n: int, rng: np.random.Generator) -> Ints:
    """(n, DEEPEST) numbers that stand for the first tokens of the suffixes."""
    single = rng.random((n, DEEPEST)) < SINGLE
    ones = rng.integers(CHARACTERS, size=(n, DEEPEST), dtype=np.int32)
    pairs = CHARACTERS + rng.integers(CHARACTERS**2, size=(n, DEEPEST), dtype=np.int32)
    return np.where(single, ones, pairs)


def _shared_paths(group: Ints, leading: Ints) -> tuple[list[Longs], Longs]:
    """For each depth the number of the path that a prompt takes, and for each prompt how many leading tokens it shares with another."""
    paths = group.astype(np.int64)
    depth = np.zeros(len(group), np.int64)
    columns: list[Longs] = []
    for level in range(leading.shape[1]):
        codes = paths * (CHARACTERS + CHARACTERS**2) + leading[:, level]
        _, paths, counts = np.unique(codes, return_inverse=True, return_counts=True)
        shared = counts[paths] > 1
        if not shared.any():
            break
        depth += shared
        columns.append(paths)
    return columns, depth
