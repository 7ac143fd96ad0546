"""Multinomial logistic regression: scikit-learn fits it, plain arrays keep it."""

from __future__ import annotations

from typing import Any

import numpy as np

from prebleexp.predict.extra import needed
from prebleexp.sim.types import Floats, Ints

NEVER = -1e9
"""constant of a class that did not occur"""


def fit(rows: Any, labels: Ints, classes: int, *, strength: float, seed: int) -> tuple[Floats, Floats]:
    """Weights, shape (features, classes), and constants, shape (classes,). `strength` is the inverse of the
    regularisation's. At least two classes must occur."""
    model = needed("sklearn.linear_model").LogisticRegression(C=strength, max_iter=300, random_state=seed)
    model.fit(rows, labels)
    weights, constants = np.zeros((rows.shape[1], classes)), np.full(classes, NEVER)
    constants[model.classes_] = 0.0
    told = model.classes_[-len(model.coef_) :]  # of two classes, scikit-learn has weights for the second alone
    weights[:, told], constants[told] = model.coef_.T, model.intercept_
    return weights, constants


def softmax(scores: Any) -> Floats:
    """Probabilities from scores (n, k), by row; each row sums to 1."""
    powers = np.exp(scores - scores.max(axis=1, keepdims=True))
    return np.asarray(powers / powers.sum(axis=1, keepdims=True), np.float64)
