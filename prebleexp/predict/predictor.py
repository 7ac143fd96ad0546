"""A trained predictor: one file, with its card inside."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Protocol

from prebleexp.errors import InvalidInput, PrebleexpError, unknown
from prebleexp.experiment import durable
from prebleexp.predict import kept
from prebleexp.predict.bins import Bins
from prebleexp.predict.minilm import MiniLM
from prebleexp.predict.prompt_features import PromptFeatures
from prebleexp.predict.tfidf import Tfidf
from prebleexp.sim.types import Floats

FORMAT = 1
ENDING = ".safetensors"
NAME = re.compile(r"[A-Za-z][A-Za-z0-9_-]{0,63}")


class Model(Protocol):
    """What tells bins from prompts. Its numbers go into a file as arrays, and come back."""

    def probabilities(self, prompts: Sequence[str]) -> Floats: ...
    def arrays(self) -> dict[str, Any]: ...
    def take(self, arrays: Mapping[str, Any]) -> None: ...


MODELS: Mapping[str, Callable[[], Model]] = {"minilm": MiniLM, "tfidf": Tfidf, "prompt_features": PromptFeatures}


@dataclass(frozen=True)
class Card:
    """What a predictor is, and where it comes from."""

    model: str
    bins: Bins
    edges: str
    """frequency or width"""
    seed: int
    """of the split and of the training"""
    data_sha256: str
    """of the unpacked file"""
    rows: Mapping[str, int]
    """train, validation and test"""
    training: Mapping[str, Any]
    """settings, seconds, rows a second, peak memory, losses"""
    scores: Mapping[str, Any]
    """on the test rows, which training did not see"""
    versions: Mapping[str, str]
    licence: str


@dataclass(frozen=True)
class Predictor:
    name: str
    """that of its file"""
    card: Card
    model: Model


def untrained(model: str, classes: int, seed: int, pretrained: Path | None = None) -> Any:
    """minilm starts from pretrained weights, those of a folder if one is given. Raises InvalidInput for an unknown
    model."""
    if model not in MODELS:
        raise unknown("model", model, MODELS)
    return MiniLM.pretrained(classes, seed, pretrained) if model == "minilm" else MODELS[model]()


def name_of(path: Path) -> str:
    """What a predictor in this file is called. Raises InvalidInput for what could not be a column or a file's name."""
    if path.suffix != ENDING or not NAME.fullmatch(path.stem):
        raise InvalidInput(f"{path} is not valid; a predictor is a file NAME{ENDING}, of letters, digits, _ and -")
    return path.stem


def save(path: Path, card: Card, model: Model) -> None:
    """The card is written beside it too, for people. Raises PrebleexpError if the disk refuses."""
    about = {"format": FORMAT, **asdict(card)}
    kept.write(path, model.arrays(), about)
    try:
        durable.write(path.with_suffix(".json"), (json.dumps(about, indent=1) + "\n").encode())
    except OSError as error:
        raise PrebleexpError(f"{path.with_suffix('.json')} cannot be written: {error.strerror}") from error


def load(path: Path) -> Predictor:
    """Raises InvalidInput, naming the file, if there is none, or it is damaged."""
    name = name_of(path)
    arrays, about = kept.read(path)
    try:
        if about.pop("format", None) != FORMAT:
            raise ValueError("it is of another format")
        bins = Bins(**{field: tuple(map(float, about["bins"][field])) for field in ("edges", "values")})
        card = Card(**{**about, "bins": bins})
        model = MODELS[card.model]()
        model.take(arrays)
    except (KeyError, ValueError, TypeError) as error:
        raise InvalidInput(f"{path} is not a predictor of this version: {error}; train it again") from None
    return Predictor(name, card, model)
