"""The sides of a comparison: which runs of the cache, or of an exported archive, a word on the command line stands
for."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

from prebleexp import records, store
from prebleexp.commands.arguments import SETTING
from prebleexp.commands.chosen import Named
from prebleexp.comparison import Measured, flattened
from prebleexp.errors import InvalidInput, unknown
from prebleexp.experiment import archive
from prebleexp.experiment.cache import Cache, Entry
from prebleexp.experiment.counting import counted
from prebleexp.launch.streams import with_streams
from prebleexp.report.wording import listed, plain

MOST_SWEEPS = 5
"""that are named"""
MOST_VALUES = 4
"""likewise"""
OF_RUNS = ("replications", "workers", "backend", "max_replications", "ci", "keep_requests")
"""what people set for a sweep, and compare does not do"""
OF_POLICY = "policy."
OF_GROUP = "/"
"""in the key of an option of a group within another, as hardware/gpu, whose column is hardware.gpu"""


class Run(NamedTuple):
    key: str
    measured: Measured
    asked: Mapping[str, str]
    """its columns as texts"""
    cell: Mapping[str, Any]
    """what its key says of it"""


def side(name: str, cache: Cache, sweep: str, labels: Mapping[str, str]) -> list[Run]:
    """The runs of a side, with what filters may ask of them."""
    if is_file(name):
        with TemporaryDirectory() as scratch:
            taken = Cache(Path(scratch))
            for refused in archive.take_in(taken, Path(name)).refused:
                print(f"{name}: {refused}", file=sys.stderr)
            return _measured(taken, taken.keys())
    path = cache.database
    if not path.is_file():
        raise InvalidInput(f"there is no file {name!r}, and no database {path}; runs make it")
    if setting_of(name):
        return _measured(cache, _keys_with(name, path, sweep, labels))
    known = store.names(path)
    if sweep and sweep not in known["experiment"]:
        raise unknown("sweep", sweep, known["experiment"])
    if name in known["experiment"] and not sweep:
        keys = store.keys(path, experiment=name, asides=False)
    elif name in known["line"] and sweep:
        keys = store.keys(path, experiment=sweep, where={"line": name, **labels}, asides=False)
    elif name in known["policy"]:
        keys = store.keys(path, experiment=sweep or None, where={"policy": name, **labels}, asides=False)
    else:
        _refuse_failed(name, path)
        lines = known["line"] if sweep else []
        raise unknown(
            "policy, line or sweep", name, {*known["policy"], *lines, *([] if sweep else known["experiment"])}
        )
    return _measured(cache, keys)


def _refuse_failed(name: str, database: Path) -> None:
    """Raises InvalidInput, with the error, if all runs of a policy failed."""
    messages = store.failed(database, name)
    if messages:
        more = f" (and {len(messages) - 1} other errors)" if len(messages) > 1 else ""
        raise InvalidInput(f"{name} has no run to compare: all that were tried failed, with: {messages[0]}{more}")


def others_of(name: str, cache: Cache, sweep: str) -> list[str]:
    """The other policies of a sweep. Raises InvalidInput for a sweep that does not exist."""
    known = store.names(cache.database)
    if sweep not in known["experiment"]:
        raise unknown("sweep", sweep, known["experiment"])
    others = [one for one in known["policy"] if one != name]
    return [one for one in others if store.keys(cache.database, experiment=sweep, where={"policy": one})]


def several(one: str, runs: Sequence[Run], others: Sequence[Run]) -> str:
    """Which field of its policy has several values on a side, of a policy that the other side has not: means over these
    are of no router that there is. Empty where none has."""
    theirs = {name for run in others for name in run.asked}
    names = dict.fromkeys(name for run in runs for name in run.asked if name.startswith(OF_POLICY))
    for name in (name for name in names if name not in theirs):
        values = list(dict.fromkeys(run.asked[name] for run in runs if name in run.asked))
        if len(values) > 1:
            shown = sorted(values, key=_as_number)
            more = ["…"] if len(values) > MOST_VALUES else []
            return (
                f"{one} has {len(values)} values of {name} ({', '.join([*shown[:MOST_VALUES], *more])}): "
                f"{name}={shown[0]} takes one"
            )
    return ""


def _as_number(text: str) -> tuple[bool, float, str]:
    try:
        return False, float(text), text
    except ValueError:
        return True, 0.0, text


def setting_of(name: str) -> str:
    """The key of a setting: `engine` of `engine=vllm`."""
    return name.partition("=")[0] if SETTING.match(name) else ""


def _keys_with(setting: str, path: Path, sweep: str, labels: Mapping[str, str]) -> list[str]:
    """The runs that have this value, by its name on the command line."""
    column, _, wanted = setting.partition("=")
    column = column.replace(OF_GROUP, ".")
    values = {plain(value): value for value in store.values(path, column)}
    if not values:
        raise InvalidInput(f"{setting}: no run has a setting {column}")
    if wanted not in values:
        raise unknown(column, wanted, values)
    return store.keys(path, experiment=sweep or None, where={column: values[wanted], **labels}, asides=False)


def is_file(name: str) -> bool:
    try:
        return Path(name).is_file()
    except OSError:  # a name that is too long
        return False


def _entries(cache: Cache, keys: Iterable[str]) -> Iterator[Entry]:
    for key in keys:
        entry = cache.get(key)
        if entry is not None:
            yield entry


def _measured(cache: Cache, keys: Iterable[str]) -> list[Run]:
    runs = [_run(entry) for entry in _entries(cache, keys)]
    streams = with_streams(cache, [run.key for run in runs], [run.measured for run in runs])
    return [run._replace(measured=measured) for run, measured in zip(runs, streams, strict=True)]


def _run(entry: Entry) -> Run:
    columns = flattened({"cell": counted(entry.content["cell"])})
    asked = {name: plain(one) for column in columns.items() for name, one in records.columns(*column).items()}
    return Run(entry.key, Measured.of(columns, entry.metrics, entry.provenance), asked, entry.content["cell"])


def pooled(cache: Cache, sides: Sequence[str], runs: Sequence[Sequence[Run]]) -> list[str]:
    """A sentence: which sweeps the runs are of, if of several and nobody chose one. Files are of none."""
    if not cache.database.is_file():
        return []
    chosen = store.names(cache.database)["experiment"]
    others = (of for name, of in zip(sides, runs, strict=True) if name not in chosen and not is_file(name))
    keys = {one.key for of in others for one in of}
    counts = store.experiments_of(cache.database, keys)
    named = [f"{name} ({count:,})" for name, count in counts.items()]
    if len(named) > MOST_SWEEPS:
        named[MOST_SWEEPS:] = [f"{len(named) - MOST_SWEEPS} more"]
    if len(counts) < 2:
        return []
    return [f"runs of {len(counts)} sweeps are pooled: {listed(named)}; sweep=NAME takes one"]


def left_aside(cache: Cache, names: Sequence[str]) -> list[str]:
    """A sentence for each of these sweeps that is a plan: which of its runs are not compared."""
    found = []
    for name in dict.fromkeys(names if cache.database.is_file() else ()):
        every, asked = (len(store.keys(cache.database, experiment=name, asides=asides)) for asides in (True, False))
        if every > asked:
            found.append(
                f"of the {every} runs of {name}, which is a search, {every - asked} are left out: those for headroom, "
                "losses and what else it says besides its answer; all sizes that it tried are in"
            )
    return found


def refuse_unknown(filters: Mapping[str, str], runs: Sequence[Run], known: Sequence[str]) -> None:
    columns = dict.fromkeys(name for one in runs for name in one.asked)
    for name in filters:
        if name in OF_RUNS:
            raise InvalidInput(
                f"{name}= is for sweeps: compare takes the runs that are there; run what is missing first"
            )
        if name not in columns:
            raise unknown("key", name, [*known, *columns])


def chosen(side: Sequence[Run], filters: Mapping[str, str]) -> list[Run]:
    """Those that have these values, as far as anything on the side has such a column; of a spec that is the option, as
    policy=lor, or the end of its class's name."""
    columns, named = {name for one in side for name in one.asked}, Named()
    wanted = {name: text.split(",") for name, text in filters.items() if name in columns}

    def fits(one: Run, name: str, texts: Sequence[str]) -> bool:
        value, spec = one.asked.get(name, "null"), one.cell.get(name)
        of_class = value.rpartition(".")[2]
        if {value, of_class, of_class.lower()} & {*texts}:
            return True
        return isinstance(spec, Mapping) and "_target_" in spec and named.option(name, spec) in texts

    return [one for one in side if all(fits(one, name, texts) for name, texts in wanted.items())]
