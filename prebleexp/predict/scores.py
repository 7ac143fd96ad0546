"""How good a predictor is: as a classifier of bins, and as what a scheduler goes by, an estimate in tokens."""

from __future__ import annotations

import warnings
from collections.abc import Mapping

import numpy as np

from prebleexp.predict.bins import Bins
from prebleexp.predict.extra import needed
from prebleexp.sim.types import Floats, Ints

QUANTILES = (0.1, 0.5, 0.9)
CALIBRATION_GROUPS = 10
PUBLISHED: Mapping[str, float] = {
    "accuracy": 0.24,
    "f1_macro": 0.22,
    "precision_macro": 0.23,
    "recall_macro": 0.24,
    "auroc": 0.85,
    "mcc": 0.20,
    "times_random": 4.8,
}
"""of the MiniLM classifier of Arango et al., table 1, on Alpaca-52K. The paper does not say how F1, precision and
recall are averaged; its accuracy equals its recall, as it would with either mean over bins of equal frequency."""


def scores(probabilities: Floats, lengths: Ints, bins: Bins) -> dict[str, float | None]:
    """Scores of probabilities, shape (n, k), for n requests of these lengths in tokens; None where one is not defined.

    Precision, recall and F1 are the plain mean over bins ("macro") and the mean by how often each bin occurs
    ("weighted"); AUROC is one bin against the rest, the plain mean over the bins that occur. A bin's probability is
    spread evenly between its edges for the pinball loss, the mean over `QUANTILES`.
    """
    metrics = needed("sklearn.metrics")
    truth, told = bins.of(lengths), probabilities.argmax(axis=1)
    labels = list(range(len(bins)))
    accuracy = float(metrics.accuracy_score(truth, told))
    found: dict[str, float | None] = {
        "accuracy": accuracy,
        "times_random": accuracy * len(bins),
        "mcc": float(metrics.matthews_corrcoef(truth, told)),
        "auroc": auroc(probabilities, truth),
    }
    for average in ("macro", "weighted"):
        parts = metrics.precision_recall_fscore_support(truth, told, labels=labels, average=average, zero_division=0)
        for name, value in zip(("precision", "recall", "f1"), parts[:3], strict=True):
            found[f"{name}_{average}"] = float(value)
    mean = bins.mean(probabilities)
    found["mae_tokens"] = float(np.abs(mean - lengths).mean())
    found["rank_correlation"] = rank_correlation(mean, lengths)
    quantiles = bin_quantiles(probabilities, bins, QUANTILES)
    found["pinball_tokens"] = float(np.mean([pinball(lengths, quantiles[:, i], q) for i, q in enumerate(QUANTILES)]))
    found["calibration_error"] = sum(share * abs(said - was) for said, was, share in calibration(probabilities, truth))
    return found


def auroc(probabilities: Floats, truth: Ints) -> float | None:
    """Bins that do not occur, or are all that occurs, have none."""
    score = needed("sklearn.metrics").roc_auc_score
    present = [i for i in range(probabilities.shape[1]) if 0 < (truth == i).sum() < len(truth)]
    return float(np.mean([score(truth == i, probabilities[:, i]) for i in present])) if present else None


def bin_quantiles(probabilities: Floats, bins: Bins, quantiles: tuple[float, ...]) -> Floats:
    """(n, quantiles) tokens; between the edges of a bin it is linear."""
    below = np.concatenate([np.zeros((len(probabilities), 1)), probabilities.cumsum(axis=1)], axis=1)
    edges = np.array(bins.edges)
    return np.array([np.interp(quantiles, row / row[-1], edges) for row in below])


def pinball(lengths: Ints, told: Floats, quantile: float) -> float:
    """Mean quantile (pinball) loss in tokens of predicted lengths `told`; 0 is best."""
    error = lengths - told
    return float(np.maximum(quantile * error, (quantile - 1) * error).mean())


def calibration(probabilities: Floats, truth: Ints) -> list[tuple[float, float, float]]:
    """Groups of equally many requests by how sure the predictor was: (mean probability of the bin it told, how often it
    was that, share of requests)."""
    told, said = probabilities.argmax(axis=1), probabilities.max(axis=1)
    groups = [group for group in np.array_split(np.argsort(said, kind="stable"), CALIBRATION_GROUPS) if len(group)]
    return [
        (float(said[group].mean()), float((told[group] == truth[group]).mean()), len(group) / len(said))
        for group in groups
    ]


def rank_correlation(told: Floats, lengths: Ints) -> float | None:
    """Spearman's; None where one side is constant."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        value = float(needed("scipy.stats").spearmanr(told, lengths).statistic)
    return None if np.isnan(value) else value


def confusion(probabilities: Floats, truth: Ints) -> Floats:
    """(k, k) of requests in bin i, the share told bin j; a bin that does not occur counts as told right."""
    k = probabilities.shape[1]
    counts = np.zeros((k, k))
    np.add.at(counts, (truth, probabilities.argmax(axis=1)), 1)
    totals = counts.sum(axis=1, keepdims=True)
    return np.asarray(np.where(totals > 0, counts / np.maximum(totals, 1), np.eye(k)), np.float64)


def baselines(train: Ints, bins: Bins, n: int, seed: int) -> dict[str, Floats]:
    """Probabilities, shape (n, k): of one that always says how often each bin was among the training's lengths (so
    that it tells the most frequent), and of one that guesses."""
    frequency = np.bincount(bins.of(train), minlength=len(bins)) / len(train)
    guesses = np.random.default_rng(seed).dirichlet(np.ones(len(bins)), n)
    return {"majority class": np.tile(frequency, (n, 1)), "random": guesses}
