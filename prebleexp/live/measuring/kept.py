"""Measurements on disk: a folder each, with what was asked in `about.json` and the requests of each seed as Parquet.

No prompts are kept, and no key of an API.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from prebleexp.errors import InvalidInput, PrebleexpError
from prebleexp.experiment import durable

FORMAT = 1
ABOUT = "about.json"


class Kept(NamedTuple):
    folder: Path
    about: Mapping[str, Any]

    @property
    def seeds(self) -> list[int]:
        return [int(one["seed"]) for one in self.about["runs"]]

    def requests(self, seed: int) -> dict[str, np.ndarray[Any, Any]]:
        """Columns of one of the runs; NaN where there is nothing. Raises InvalidInput for a file that is none."""
        import pyarrow as pa
        import pyarrow.parquet as pq

        path = _requests(self.folder, seed)
        try:
            table = pq.read_table(path)
        except (OSError, pa.ArrowException) as error:
            raise InvalidInput(f"{path} cannot be read: {error}") from None
        return {name: table[name].to_numpy() for name in table.column_names}


def refuse(folder: Path) -> None:
    """Raises InvalidInput for a folder that has a measurement: none is lost."""
    if (folder / ABOUT).exists():
        raise InvalidInput(f"{folder} has a measurement already; give another name=, or remove it")


def make(folder: Path) -> None:
    """Raises InvalidInput where the disk refuses: better before a measurement than after it."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InvalidInput(_refused(folder, error)) from error


def write(folder: Path, about: Mapping[str, Any], requests: Mapping[int, Mapping[str, Any]]) -> None:
    """The requests first. Raises PrebleexpError where the disk refuses."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        for seed, columns in requests.items():
            with durable.writing(_requests(folder, seed)) as file:
                pq.write_table(pa.table({name: pa.array(one) for name, one in columns.items()}), file)
        durable.write(folder / ABOUT, json.dumps({"format": FORMAT} | dict(about), indent=1, allow_nan=False).encode())
    except OSError as error:
        raise PrebleexpError(_refused(folder, error)) from error


def read(folder: Path) -> Kept:
    """Raises InvalidInput for a folder that has no measurement."""
    try:
        about = json.loads((folder / ABOUT).read_text(encoding="utf-8"))
        known = about["format"] == FORMAT and isinstance(about["settings"], Sequence) and len(about["runs"]) > 0
    except (OSError, ValueError, LookupError, TypeError):
        known = False
    if not known:
        raise InvalidInput(f"{folder} has no measurement; give a folder that prebleexp live has written")
    return Kept(folder, about)


def _refused(folder: Path, error: OSError) -> str:
    return f"{folder} cannot be written: {error.strerror or error}"


def _requests(folder: Path, seed: int) -> Path:
    return folder / f"seed-{seed}.parquet"
