"""The evaluation that comes with the package: what came of what `python -m tests.train_predictors` trains."""

from pathlib import Path

FOLDER = Path(__file__).resolve().parent
