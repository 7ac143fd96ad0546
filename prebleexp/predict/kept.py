"""Arrays and what is said of them as one file, which is whole or not there: safetensors, so that reading it runs no
code."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from prebleexp.errors import InvalidInput, PrebleexpError, unreadable
from prebleexp.experiment import durable
from prebleexp.predict.extra import needed

ABOUT, DIGEST = "about", "sha256"


def write(path: Path, arrays: Mapping[str, Any], about: Mapping[str, Any]) -> None:
    """`about` is JSON-able. Raises PrebleexpError if the disk refuses."""
    whole = {name: np.ascontiguousarray(one) for name, one in sorted(arrays.items())}
    text = json.dumps(about, sort_keys=True)
    data = needed("safetensors.numpy").save(whole, metadata={ABOUT: text, DIGEST: _digest(whole, text)})
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        durable.write(path, data)
    except OSError as error:
        raise PrebleexpError(f"{path} cannot be written: {error.strerror}") from error


def read(path: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    """The arrays and `about`. Raises InvalidInput, naming the file, if it cannot be read or is not as it was
    written."""
    open_file = needed("safetensors").safe_open
    try:
        with path.open("rb"):  # what cannot be read says why
            pass
        with open_file(path, framework="np") as file:
            told = file.metadata() or {}
            arrays = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 - it has nothing else
    except OSError as error:
        raise unreadable(str(path), path, error) from None
    except Exception as error:  # safetensors' own has no public base
        raise InvalidInput(f"{path} is damaged: {str(error).splitlines()[0]}") from None
    if ABOUT not in told or told.get(DIGEST) != _digest(arrays, told[ABOUT]):
        raise InvalidInput(f"{path} is damaged: its checksum does not fit")
    return arrays, json.loads(told[ABOUT])


def _digest(arrays: Mapping[str, Any], text: str) -> str:
    found = hashlib.sha256(text.encode())
    for name, one in sorted(arrays.items()):
        found.update(f"{name} {one.dtype} {one.shape}\n".encode())
        found.update(np.ascontiguousarray(one).data)
    return found.hexdigest()
