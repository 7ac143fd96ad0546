"""Look at trained predictors on rows that none of them has seen, and write down what they say of each."""

from __future__ import annotations

import io
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from prebleexp.errors import InvalidInput, PrebleexpError
from prebleexp.experiment import durable
from prebleexp.intervals import mean_interval
from prebleexp.predict import predictor
from prebleexp.predict.bins import Bins
from prebleexp.predict.data import TEST, TRAIN, Instructions
from prebleexp.predict.predictor import Card
from prebleexp.predict.refinement import refinement
from prebleexp.predict.scores import baselines, calibration, confusion, scores
from prebleexp.predict.speed import speed
from prebleexp.sim.types import Floats, Ints

LENGTHS = ("prompt_tokens", "output_tokens")
PREDICTIONS, NUMBERS = "predictions.parquet", "evaluation.json"


@dataclass(frozen=True)
class Evaluated:
    """A predictor, or a baseline, over n rows and k bins."""

    name: str
    bins: Bins
    scores: Mapping[str, float | None]
    calibration: Sequence[tuple[float, float, float]]
    confusion: Floats
    """(k, k)"""
    refinement: Sequence[Mapping[str, float]]
    expected: Floats
    """(n,) tokens"""
    right: Floats
    """(n,) 1 where the bin told was the right one, else 0"""
    card: Card | None = None
    """None: a baseline"""
    speed: Mapping[str, float] | None = None


@dataclass(frozen=True)
class Evaluation:
    """Of several predictors over the same rows."""

    prompt_tokens: Ints
    output_tokens: Ints
    data_sha256: str
    seed: int
    predictors: tuple[Evaluated, ...]
    baselines: tuple[Evaluated, ...]
    """two for every kind of bins"""
    threads: int

    def __len__(self) -> int:
        return len(self.output_tokens)


def evaluate(data: Instructions, paths: Sequence[Path], threads: int) -> Evaluation:
    """On the rows of `data` that the predictors' split holds back for tests: a row is on one side by its prompt, so
    that also in another file a prompt of the training is not among them.

    Raises InvalidInput for files that are not predictors, or were trained with different seeds.
    """
    if len({path.stem for path in paths}) < len(paths):
        raise InvalidInput(f"predictors={','.join(map(str, paths))} is not valid; two have the same name")
    loaded = [predictor.load(path) for path in paths]
    seeds = sorted({one.card.seed for one in loaded})
    if len(seeds) > 1:
        raise InvalidInput(f"the predictors were trained with seeds {seeds}; only those of one seed share a test split")
    split = data.split(seeds[0])
    test, train = (data.take(np.flatnonzero(split == part)) for part in (TEST, TRAIN))
    if not len(test):
        raise InvalidInput("none of the rows is in the test split")
    of_predictors, of_baselines = [], dict[Bins, list[Evaluated]]()
    for one, path in zip(loaded, paths, strict=True):
        probabilities = one.model.probabilities(test.prompts)
        cost = speed(path, test.prompts, threads)
        of_predictors.append(_evaluated(one.name, probabilities, test.output_tokens, one.card.bins, one.card, cost))
        if one.card.bins not in of_baselines:
            known = baselines(train.output_tokens, one.card.bins, len(test), seeds[0])
            suffix = "" if one.card.edges == "frequency" else f", bins of equal {one.card.edges}"
            of_baselines[one.card.bins] = [
                _evaluated(f"{name}{suffix}", said, test.output_tokens, one.card.bins) for name, said in known.items()
            ]
    return Evaluation(
        test.prompt_tokens,
        test.output_tokens,
        data.sha256,
        seeds[0],
        tuple(of_predictors),
        tuple(one for pair in of_baselines.values() for one in pair),
        threads,
    )


def _evaluated(
    name: str,
    probabilities: Floats,
    lengths: Ints,
    bins: Bins,
    card: Card | None = None,
    cost: Mapping[str, float] | None = None,
) -> Evaluated:
    truth = bins.of(lengths)
    return Evaluated(
        name,
        bins,
        scores(probabilities, lengths, bins),
        calibration(probabilities, truth),
        confusion(probabilities, truth),
        refinement(probabilities, lengths, bins),
        bins.mean(probabilities),
        (probabilities.argmax(axis=1) == truth).astype(np.float64),
        card,
        cost,
    )


def write(folder: Path, found: Evaluation) -> None:
    """Write what the rest of prebleexp reads: predictions.parquet, for workload=instructions and lengths=predicted;
    NAME.confusion.json of each predictor, its confusion matrix for lengths=binned; and evaluation.json, all numbers.

    Raises PrebleexpError if the disk refuses.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    columns = {name: pa.array(getattr(found, name)) for name in LENGTHS}
    columns |= {one.name: pa.array(one.expected.astype(np.float32)) for one in found.predictors}
    sink = io.BytesIO()
    pq.write_table(pa.table(columns), sink, compression="zstd")
    files = {PREDICTIONS: sink.getvalue(), NUMBERS: _json(numbers(found))}
    files |= {f"{one.name}.confusion.json": _json(binned(one)) for one in found.predictors}
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, content in files.items():
            durable.write(folder / name, content)
    except OSError as error:
        raise PrebleexpError(f"{folder} cannot be written: {error.strerror}") from error


def binned(one: Evaluated) -> dict[str, Any]:
    """A confusion matrix as `prebleexp.lengths.binned.Binned` reads it."""
    return {"edges": one.bins.edges, "values": one.bins.values, "matrix": one.confusion.tolist()}


def numbers(found: Evaluation) -> dict[str, Any]:
    """Everything but the predictions, as JSON-able values."""
    return {
        "rows": len(found),
        "data_sha256": found.data_sha256,
        "seed": found.seed,
        "threads": found.threads,
        "predictors": {one.name: _numbers(one) for one in found.predictors},
        "baselines": {one.name: _numbers(one) for one in found.baselines},
        "differences": [
            _difference(one, other, found.output_tokens)
            for one in found.predictors
            for other in found.predictors
            if one.card and other.card and one.card.model == "minilm" != other.card.model and one.bins == other.bins
        ],
    }


def _difference(one: Evaluated, other: Evaluated, lengths: Ints) -> dict[str, Any]:
    """Of two predictors over the same rows: means of the rows' differences, with the half-widths of 95 % intervals."""
    errors = [np.abs(side.expected - lengths) for side in (one, other)]
    return {
        "one": one.name,
        "other": other.name,
        "accuracy": mean_interval((one.right - other.right).tolist()),
        "mae_tokens": mean_interval((errors[0] - errors[1]).tolist()),
    }


def _numbers(one: Evaluated) -> dict[str, Any]:
    return {
        "card": asdict(one.card) if one.card else None,
        "edges": one.bins.edges,
        "scores": one.scores,
        "speed": one.speed,
        "calibration": one.calibration,
        "refinement": one.refinement,
        "confusion": one.confusion.round(4).tolist(),
    }


def _json(value: Any) -> bytes:
    return (json.dumps(value, indent=1) + "\n").encode()
