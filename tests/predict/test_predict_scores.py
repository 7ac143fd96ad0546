"""Scores of predictors, against scikit-learn and by hand."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from prebleexp.lengths.refine import remaining
from prebleexp.predict.bins import Bins, bins
from prebleexp.predict.scores import (
    QUANTILES,
    auroc,
    baselines,
    bin_quantiles,
    calibration,
    confusion,
    pinball,
    rank_correlation,
    scores,
)
from tests.support.predictors import require_extra
from tests.support.sampled import examples

require_extra()
K = 6


def case(seed: int, n: int = 400, k: int = K) -> tuple[Any, Any, Bins]:
    """Probabilities that know something, lengths, and their bins."""
    rng = np.random.default_rng(seed)
    lengths = rng.integers(1, 500, n).astype(np.int32)
    found = bins(lengths, k, "frequency")
    raw = rng.gamma(0.5, size=(n, k)) + 0.8 * np.eye(k)[found.of(lengths)]
    return raw / raw.sum(axis=1, keepdims=True), lengths, found


@settings(max_examples=examples(25), deadline=None)
@given(st.integers(0, 2**32))
def test_scores_are_those_of_scikit_learn(seed: int) -> None:
    """To 1e-9, computed there in another way where there is one."""
    from sklearn import metrics

    probabilities, lengths, found = case(seed)
    truth, told = found.of(lengths), probabilities.argmax(axis=1)
    mine = scores(probabilities, lengths, found)
    report = metrics.classification_report(truth, told, output_dict=True, zero_division=0)
    theirs = {
        "accuracy": report["accuracy"],
        "times_random": K * (truth == told).mean(),
        "mcc": metrics.matthews_corrcoef(truth, told),
        "auroc": metrics.roc_auc_score(truth, probabilities, multi_class="ovr", average="macro"),
        "mae_tokens": metrics.mean_absolute_error(lengths, probabilities @ np.array(found.values)),
        "pinball_tokens": np.mean(
            [
                metrics.mean_pinball_loss(lengths, quantiles, alpha=q)
                for q, quantiles in zip(QUANTILES, bin_quantiles(probabilities, found, QUANTILES).T, strict=True)
            ]
        ),
    }
    for average in ("macro", "weighted"):
        for name, its in (("precision", "precision"), ("recall", "recall"), ("f1", "f1-score")):
            theirs[f"{name}_{average}"] = report[f"{average} avg"][its]
    for name, value in theirs.items():
        assert mine[name] == pytest.approx(value, abs=1e-9), name
    assert confusion(probabilities, truth) == pytest.approx(
        metrics.confusion_matrix(truth, told, normalize="true"), abs=1e-12
    )


def test_a_bin_that_does_not_occur_counts_for_nothing() -> None:
    probabilities, lengths, found = case(1)
    kept = found.of(lengths) != 2
    some, rest = probabilities[kept], lengths[kept]
    assert auroc(some, found.of(rest)) is not None
    assert confusion(some, found.of(rest))[2].tolist() == [0, 0, 1, 0, 0, 0]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert all(value is not None for value in scores(some, rest, found).values())
    assert auroc(some[:1], found.of(rest[:1])) is None


def test_an_oracle_has_the_best_scores_and_a_guess_the_worst() -> None:
    _, lengths, found = case(2, n=4000)
    truth = found.of(lengths)
    best = scores(np.eye(K)[truth], lengths, found)
    assert (best["accuracy"], best["auroc"], best["mcc"], best["calibration_error"]) == (1, 1, 1, 0)
    known = baselines(lengths, found, len(lengths), 0)
    guess = scores(known["random"], lengths, found)
    assert guess["times_random"] == pytest.approx(1, abs=0.15)
    assert guess["auroc"] == pytest.approx(0.5, abs=0.02)
    majority = scores(known["majority class"], lengths, found)
    assert majority["accuracy"] == np.bincount(truth).max() / len(truth)
    assert (majority["auroc"], majority["mcc"], majority["rank_correlation"]) == (0.5, 0, None)


def test_pinball_loss_by_hand() -> None:
    assert pinball(np.array([10, 10], np.int32), np.array([4.0, 14.0]), 0.9) == pytest.approx((0.9 * 6 + 0.1 * 4) / 2)


def test_quantiles_are_linear_between_the_edges() -> None:
    two = Bins((0.0, 10.0, 30.0), (5.0, 20.0))
    assert bin_quantiles(np.array([[0.5, 0.5]]), two, (0.25, 0.5, 0.75)).tolist() == [[5, 10, 20]]


def test_calibration_of_probabilities_that_are_true() -> None:
    rng = np.random.default_rng(0)
    p = rng.uniform(0.5, 1, 100_000)
    truth = (rng.random(100_000) > p).astype(np.int32)
    for said, was, share in calibration(np.stack([p, 1 - p], axis=1), truth):
        assert was == pytest.approx(said, abs=4 * 0.5 / np.sqrt(10_000))
        assert share == pytest.approx(0.1)


def test_rank_correlation_does_not_mind_the_scale() -> None:
    assert rank_correlation(np.array([1.0, 2.0, 9.0]), np.array([10, 20, 21], np.int32)) == 1
    assert rank_correlation(np.ones(3), np.array([1, 2, 3], np.int32)) is None


@pytest.mark.parametrize("produced", [0, 3, 10, 17, 59])
def test_what_is_left_is_the_mean_over_all_that_is_still_possible(produced: int) -> None:
    """Against a sum over all lengths: all in [0, 10) as likely, all in [10, 40), and an exponential tail from 40."""
    found = Bins((0.0, 10.0, 40.0, 60.0), (5.0, 25.0, 50.0))
    prior = np.array([[0.5, 0.3, 0.2]])
    grid = np.arange(0, 400, 1e-3) + 5e-4
    place = found.of(grid)
    density = np.where(place < 2, 1 / np.diff(found.edges)[place], np.exp(-(grid - 40) / 10) / 10)
    weight = prior[0, place] * density
    alive = grid > produced
    truth = (weight[alive] * (grid[alive] - produced)).sum() / weight[alive].sum()
    assert remaining(prior, np.array(found.edges), np.array(found.values), produced)[0] == pytest.approx(
        truth, rel=1e-3
    )


def test_what_has_outgrown_every_bin_is_taken_to_end_soon() -> None:
    found = Bins((0.0, 10.0, 40.0), (5.0, 25.0))
    said = np.array([[1.0, 0.0], [0.5, 0.5]])
    left = remaining(said, np.array(found.edges), np.array(found.values), 500)
    assert left == pytest.approx(15)  # the mean of the last bin's tail, to which nothing was denied
