"""What can be counted in a prompt, under a logistic regression: its length, how it asks, and for what."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from prebleexp.predict import regression
from prebleexp.sim.types import Floats, Ints

MOST_LETTERS = 20_000
"""of a prompt that are looked at"""
OPENINGS = ("what", "how", "why", "who", "when", "where", "which", "is", "are", "can", "does", "do")
ASKED_FOR = (
    *("write", "list", "explain", "describe", "summarize", "generate", "create", "compare", "translate", "classify"),
    *("rewrite", "edit", "identify", "name", "calculate", "story", "essay", "poem", "code", "function", "table"),
    *("step", "json", "bullet", "one word", "short", "brief", "detail", "paragraph", "sentence", "example"),
    *("imagine", "pretend"),
)
COUNTED = (r"\d", r"\n", r"\?", r"[,;:]", r'"', r"[A-Z]")
ARRAYS = ("mean", "scale", "weights", "constants")


class PromptFeatures:
    def fit(self, prompts: Sequence[str], labels: Ints, classes: int, seed: int) -> None:
        rows = _rows(prompts)
        self.mean, self.scale = rows.mean(axis=0), np.maximum(rows.std(axis=0), 1e-9)
        self.weights, self.constants = regression.fit(self._scaled(rows), labels, classes, strength=1.0, seed=seed)

    def probabilities(self, prompts: Sequence[str]) -> Floats:
        """Probabilities of k bins of output length for each of n prompts: (n, k), rows sum to 1."""
        return regression.softmax(self._scaled(_rows(prompts)) @ self.weights + self.constants)

    def arrays(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in ARRAYS}

    def take(self, arrays: Mapping[str, Any]) -> None:
        """The reverse of `arrays`. Raises KeyError or ValueError for others."""
        self.mean, self.scale, self.weights, self.constants = (arrays[name] for name in ARRAYS)
        if not len(self.mean) == len(self.scale) == len(self.weights) == len(_features("")):
            raise ValueError("its sizes do not fit")

    def _scaled(self, rows: Floats) -> Floats:
        return np.asarray((rows - self.mean) / self.scale, np.float64)


def _rows(prompts: Sequence[str]) -> Floats:
    return np.array([_features(prompt[:MOST_LETTERS]) for prompt in prompts], np.float64)


def _features(prompt: str) -> list[float]:
    lower = prompt.lower()
    words = re.findall(r"\w+", lower)
    size = np.log1p(len(words))
    counts = [np.log1p(len(re.findall(pattern, prompt))) for pattern in COUNTED]
    flags = [words[:1] == [word] for word in OPENINGS] + [word in lower for word in ASKED_FOR]
    return [float(one) for one in (size, size**2, np.log1p(len(prompt)), *counts, *flags)]
