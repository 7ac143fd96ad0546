"""Predictions, scores and confusion matrices that come with the package, as tests/train_predictors.py writes them."""

from pathlib import Path

FOLDER = Path(__file__).resolve().parent
