"""The paper's few-shot ReAct prompts, whose questions are random letters and digits."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from prebleexp.sim.types import Ints, Longs
from prebleexp.workloads.few_shot import OUTPUTS, QUESTIONS, Agreement, FewShot, Questions, random
from prebleexp.workloads.output_length import OutputLength

# The released generator ends every prompt with 100 random letters and digits. Measured on its recordings with
# Mistral's tokenizer: that many tokens …
SUFFIX_MEAN, SUFFIX_SD, SUFFIX_LEAST, SUFFIX_MOST = 80.35, 3.18, 50, 100
# … whose leading ones agree by chance: most tokens are one of 62 characters, the others pairs of them. Two suffixes
# then share their first token with probability 0.0098, as recorded.
CHARACTERS, SINGLE = 62, 0.78
DEEPEST = 8
"""leading tokens of a suffix that are told apart; that two of a million agree further has a chance below 1e-4"""


@dataclass(frozen=True)
class React(FewShot):
    """The paper's workload (spec: engine-as-released, Workload), with any output lengths and none drawn again.

    A question has about 80 tokens. Of what groups share only the sum for 4 examples, 1,865, is known from the
    recordings; how it divides is our guess.
    """

    @property
    def longest_question(self) -> int:
        return SUFFIX_MOST

    def questions(self, group: Ints, seed: int, output_length: OutputLength) -> Questions:
        suffixes, n = random(seed, QUESTIONS), len(group)
        lengths = np.rint(suffixes.normal(SUFFIX_MEAN, SUFFIX_SD, n)).clip(SUFFIX_LEAST, SUFFIX_MOST).astype(np.int32)
        return Questions(lengths, output_length.draw(n, random(seed, OUTPUTS)), _agreements(group, suffixes))


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
