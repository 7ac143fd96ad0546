"""Words and pairs of words, weighted by how rare they are, under a logistic regression."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from prebleexp.predict import regression
from prebleexp.predict.extra import needed
from prebleexp.sim.types import Floats, Ints

MOST_LETTERS = 20_000
"""of a prompt that are looked at"""
MOST_WORDS = 50_000
WORDS: Mapping[str, Any] = {"ngram_range": (1, 2), "sublinear_tf": True, "token_pattern": r"(?u)\w+"}


class Tfidf:
    def fit(self, prompts: Sequence[str], labels: Ints, classes: int, seed: int) -> None:
        text = needed("sklearn.feature_extraction.text")
        vectorizer = text.TfidfVectorizer(**WORDS, max_features=MOST_WORDS)
        rows = vectorizer.fit_transform(_cut(prompts))
        self.words = {word: int(i) for word, i in vectorizer.vocabulary_.items()}
        self.rarity = np.asarray(vectorizer.idf_, np.float64)
        self.weights, self.constants = regression.fit(rows, labels, classes, strength=4.0, seed=seed)

    def probabilities(self, prompts: Sequence[str]) -> Floats:
        """Probabilities of k bins of output length for each of n prompts: (n, k), rows sum to 1."""
        return regression.softmax(self._vectorizer().transform(_cut(prompts)) @ self.weights + self.constants)

    def arrays(self) -> dict[str, Any]:
        words = sorted(self.words, key=self.words.__getitem__)
        text = np.frombuffer(json.dumps(words).encode(), np.uint8)
        return {"words": text, "rarity": self.rarity, "weights": self.weights, "constants": self.constants}

    def take(self, arrays: Mapping[str, Any]) -> None:
        """The reverse of `arrays`. Raises KeyError or ValueError for others."""
        words = json.loads(arrays["words"].tobytes())
        self.words = {str(word): i for i, word in enumerate(words)}
        self.rarity, self.weights, self.constants = (arrays[name] for name in ("rarity", "weights", "constants"))
        if not len(words) == len(self.rarity) == len(self.weights):
            raise ValueError("its sizes do not fit")

    def _vectorizer(self) -> Any:
        if not hasattr(self, "_kept"):
            text = needed("sklearn.feature_extraction.text")
            self._kept = text.TfidfVectorizer(**WORDS, vocabulary=self.words)
            self._kept.idf_ = self.rarity
        return self._kept


def _cut(prompts: Sequence[str]) -> list[str]:
    return [prompt[:MOST_LETTERS] for prompt in prompts]
