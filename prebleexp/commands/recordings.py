"""What runs lack of the recordings that they serve, as their sweep said it, from what the cache has of them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from prebleexp import store
from prebleexp.commands.sides import Run
from prebleexp.errors import InvalidInput
from prebleexp.experiment.cell import Cell
from prebleexp.experiment.cold import cut
from prebleexp.experiment.shape import by_chance, flattened, one_recording
from prebleexp.experiment.understood import doubted
from prebleexp.launch import configs, configure, specs
from prebleexp.launch.from_cache import HASH, Options
from prebleexp.workloads import files
from prebleexp.workloads.replayed import Replayed

PATH = "workload.path"
READ = ("workload", "rps", "duration_s", "output_length", "warm")
"""of a cell, on which the sentences depend"""


def caveats(database: Path, runs: Iterable[Run]) -> list[str]:
    """Sentences, each once. Raises PrebleexpError if the database, which has the names of files, cannot be read."""
    alike: dict[str, list[Run]] = {}
    for run in runs:
        if HASH in run.cell.get("workload", {}):
            alike.setdefault(repr([run.cell.get(name) for name in READ]), []).append(run)
    if not alike:
        return []
    paths = _paths(database, [run for of in alike.values() for run in of])
    options, (usual,) = Options(configs.loader()), configure.cells([])
    cells: list[Cell] = []
    several: list[Cell] = []
    cold: list[Cell] = []
    lost: list[str] = []
    for of in alike.values():
        content = of[0].cell
        if not _is_replayed(content["workload"], options):
            continue
        path = paths.get(content["workload"][HASH])
        cell = None if path is None else _served(content, path, usual, options)
        if cell is None:
            lost.append(path or "a recording")
            continue
        cells.append(cell)
        several += [cell] if len({run.measured.seed for run in of}) > 1 else []
        cold += [] if "warm" in content else [cell]
    said = [*flattened(cells), *by_chance(cells), *one_recording(several), *cut(cold), *doubted(cells)]
    return said + [
        f"{path} is not there as it was read, so what its sweep said of its busy times, of its caches and of what in "
        "it is doubtful is not said again"
        for path in dict.fromkeys(lost)
    ]


def _paths(database: Path, runs: Sequence[Run]) -> dict[str, str]:
    """Of a file's contents, by their hash, its name."""
    hashes = {run.key: run.cell["workload"][HASH] for run in runs}
    names = store.values(database, PATH) if database.is_file() else []
    listed = {str(name): store.keys(database, where={PATH: name}) for name in names}
    return {hashes[key]: name for name, keys in listed.items() for key in keys if key in hashes}


def _is_replayed(workload: Mapping[str, Any], options: Options) -> bool:
    """What a cache says is not imported, unless it is of an option."""
    option = options.nearest("workload", workload)
    return option is not None and issubclass(specs.located("workload", option, workload["_target_"]), Replayed)


def _served(content: Mapping[str, Any], path: str, usual: Cell, options: Options) -> Cell | None:
    """A cell that serves as much of the same recording; None if the file is not there, or is another by now."""
    fields = {name: value for name, value in content["workload"].items() if name != HASH}
    own = {name: content[name] for name in ("rps", "duration_s") if name in content}
    try:
        if files.digest(path) != content["workload"][HASH]:
            return None
        own["workload"] = specs.build("workload", path, {**fields, "path": path})
        lengths = content.get("output_length")
        if lengths is not None and options.nearest("output_length", lengths) is not None:
            own["output_length"] = specs.build("output_length", "", lengths)
        return replace(usual, **own)
    except InvalidInput:
        return None
