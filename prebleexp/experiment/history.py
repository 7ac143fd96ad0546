"""Which commands ran which runs: a file for each experiment in the cache folder, the truth of which the database's
`experiments` and `experiment_runs` are an index.

An experiment is a name with a set of runs; to run the same again changes its file. What the database may lack waits as
ID.waiting.json, and becomes ID.json when the database has it.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from prebleexp.errors import PrebleexpError
from prebleexp.experiment import durable
from prebleexp.experiment.cache import Cache
from prebleexp.experiment.sealed import Damaged, seal, unseal

WAITING = ".waiting.json"


@dataclass(frozen=True)
class Experiment:
    """A command that was run, and the runs that it is made of."""

    columns: Mapping[str, Any]
    """of its row, with its "id" """
    runs: Sequence[Mapping[str, Any]]
    """rows with the "key" of a run and what it is called here"""

    @property
    def id(self) -> str:
        return str(self.columns["id"])


def note(cache: Cache, experiment: Experiment, started: str) -> Experiment:
    """Write an experiment down as waiting, with when it was first and last run, and how often; returns that.

    Raises PrebleexpError if the disk refuses.
    """
    folder = _folder(cache)
    before = _read(folder / f"{experiment.id}{WAITING}") or _read(_settled(folder, experiment.id))
    dates = {
        "first_run": before.columns["first_run"] if before else started,
        "last_run": started,
        "times_run": before.columns["times_run"] + 1 if before else 1,
    }
    noted = Experiment({**experiment.columns, **dates}, experiment.runs)
    try:
        folder.mkdir(exist_ok=True)
        durable.write(folder / f"{experiment.id}{WAITING}", seal(vars(noted)))
    except OSError as error:
        raise PrebleexpError(f"cache folder {cache.folder} cannot be written: {error.strerror}") from error
    return noted


def waiting(cache: Cache) -> list[Experiment]:
    """Those that the database may lack, or has as they were before."""
    return list(_all(path for path in _files(cache) if path.name.endswith(WAITING)))


def every(cache: Cache) -> list[Experiment]:
    """All, the later of two states of one."""
    paths = {path.name.split(".")[0]: path for path in sorted(_files(cache))}  # ID.json comes before ID.waiting.json
    return list(_all(paths.values()))


def unlisted(cache: Cache) -> set[str]:
    """The ids of those that the database has not had yet."""
    names = {path.name for path in _files(cache)}
    return {id for name in names if name.endswith(WAITING) and f"{(id := name.split('.')[0])}.json" not in names}


def settle(cache: Cache, experiments: Iterable[Experiment]) -> None:
    """Note that the database has these."""
    folder = _folder(cache)
    for one in experiments:
        with suppress(OSError):  # another process was faster, or the folder cannot be written: it waits on
            (folder / f"{one.id}{WAITING}").replace(_settled(folder, one.id))


def _folder(cache: Cache) -> Path:
    return cache.folder / "experiments"


def _settled(folder: Path, id: str) -> Path:
    return folder / f"{id}.json"


def _files(cache: Cache) -> list[Path]:
    return [path for path in _folder(cache).glob("*.json") if not path.name.startswith(".")]


def _all(paths: Iterable[Path]) -> Iterator[Experiment]:
    for path in paths:
        found = _read(path)
        if found is not None:
            yield found


def _read(path: Path) -> Experiment | None:
    """None if there is none, or if it is damaged; then it is set aside."""
    try:
        return Experiment(**unseal(path.read_bytes()))
    except FileNotFoundError:
        return None
    except (OSError, Damaged, TypeError) as error:
        with suppress(OSError):
            path.replace(path.with_suffix(".bad"))
        print(f"experiment {path} is damaged: {error}; left out", file=sys.stderr)
        return None
