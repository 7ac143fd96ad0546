"""`python -m prebleexp compare A B`: two policies, lines, sweeps or exported archives, paired run by run."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

from prebleexp import indexing, store, unfound
from prebleexp.commands.arguments import CACHE_DIR, REPORTS_DIR, SETTING, Command, Commands, Given, choice, text
from prebleexp.comparison import Comparison, Limit, Measured, cells_of, compare, flattened, limit_of, metric_of
from prebleexp.errors import InvalidInput, unknown
from prebleexp.experiment import archive
from prebleexp.experiment.cache import Cache, Entry
from prebleexp.experiment.counting import counted
from prebleexp.launch import tables
from prebleexp.launch.naming import folder
from prebleexp.launch.usual import completed
from prebleexp.losses import lost, sentences
from prebleexp.report import compare_page, compared, frame, listing
from prebleexp.report.wording import listed, percent_difference, plain, short

METRIC = "norm_latency_mean_s"
MOST_SWEEPS = 5
"""that are named"""


class Run(NamedTuple):
    key: str
    measured: Measured
    asked: Mapping[str, str]
    """its columns as texts"""


OUTPUTS = ("table", "csv", "json")
REPORTS = ("html", "none")
OF_RUNS = ("replications", "workers", "backend", "max_replications", "ci", "keep_requests")
"""what people set for a sweep, and compare does not do"""
LABELS = ("part", "variant")


def _compare(given: Given) -> int:
    """Print a line for every cell, write the page, and return 1 if `fail_if` holds, else 0.

    Raises InvalidInput if a side does not exist, or nothing can be compared.
    """
    fail_if, sweep = given["fail_if"], given["sweep"]
    limit = limit_of(fail_if) if fail_if else None
    metric = metric_of(given["metric"] or (limit.metric if limit else METRIC))
    labels = {name: given[name] for name in LABELS if given[name]}
    if labels and not sweep:
        raise InvalidInput(f"{', '.join(labels)} belong to a sweep of several parts; say which, as sweep=paper")
    sides = given.words
    known, filters = sorted(given.values), dict(one.split("=", 1) for one in given.others)
    if len(filters) < len(given.others):
        raise InvalidInput(f"a setting is given twice: {' '.join(given.others)}; several values have commas between")
    cache = Cache(given["cache_dir"], make=False)
    if not all(map(_is_file, sides)):
        indexing.refresh(cache)
    found_a, found_b = (_side(name, cache, sweep, labels) for name in sides)
    _refuse_unknown(filters, [*found_a, *found_b], known)
    chosen_a, chosen_b = _chosen(found_a, filters), _chosen(found_b, filters)
    a, b = completed([one.measured for one in chosen_a], [one.measured for one in chosen_b])
    for name, side in zip(sides, (a, b), strict=True):
        if not side:
            asked = " ".join([*([f"sweep={sweep}"] if sweep else []), *given.others])
            raise InvalidInput(f"there is no run of {' with '.join(filter(None, (name, asked)))}: see prebleexp runs")
    found = compare(a, b, metric)
    judged = found if limit is None or limit.metric == metric else compare(a, b, limit.metric)
    broken = _broken(judged, limit)
    notes = [*([] if sweep else _pooled(cache, sides, (chosen_a, chosen_b))), *_losses(found)]
    _print(found, given["output"])
    if given["report"] != "none":
        path = given["reports_dir"] / folder(*_name(given, metric))
        page = compare_page.render(found, sides[0], sides[1], given.line, fail_if, broken, notes)
        print(tables.address(frame.write(path / "index.html", page)), file=sys.stderr)
        title = f"{sides[1]} against {sides[0]}"
        listing.add(path, listing.About(title, "comparison", given.line, compared.sentence(found, *sides)))
    for says in (compared.sentence(found, *sides), found.account(), *(f"prebleexp: {one}" for one in notes)):
        tables.say(says)
    for says in broken:
        print(f"fail_if={fail_if}: {says}", file=sys.stderr)
    if limit is not None and not broken:
        print(f"fail_if={fail_if}: passed{_unsure(judged, limit)}", file=sys.stderr)
    return 1 if broken else 0


def _name(given: Given, metric: str) -> list[str]:
    """What tells its page from those of other comparisons."""
    asked = [given["sweep"], *(given[name] for name in LABELS), *given.others, "" if metric == METRIC else metric]
    return ["compare", *given.words, *filter(None, asked)]


def _side(name: str, cache: Cache, sweep: str, labels: Mapping[str, str]) -> list[Run]:
    """The runs of a side, with what filters may ask of them."""
    if _is_file(name):
        with TemporaryDirectory() as scratch:
            taken = Cache(Path(scratch))
            for refused in archive.take_in(taken, Path(name)).refused:
                print(f"{name}: {refused}", file=sys.stderr)
            return [_measured(entry) for entry in _entries(taken, taken.keys())]
    path = cache.database
    if not path.is_file():
        raise InvalidInput(f"there is no file {name!r}, and no database {path}; runs make it")
    if _setting(name):
        return [_measured(entry) for entry in _entries(cache, _keys_with(name, path, sweep, labels))]
    known = store.names(path)
    if sweep and sweep not in known["experiment"]:
        raise unknown("sweep", sweep, known["experiment"])
    if name in known["experiment"] and not sweep:
        keys = store.keys(path, experiment=name)
    elif name in known["line"] and sweep:
        keys = store.keys(path, experiment=sweep, where={"line": name, **labels})
    elif name in known["policy"]:
        keys = store.keys(path, experiment=sweep or None, where={"policy": name, **labels})
    else:
        lines = known["line"] if sweep else []
        raise unknown(
            "policy, line or sweep", name, {*known["policy"], *lines, *([] if sweep else known["experiment"])}
        )
    return [_measured(entry) for entry in _entries(cache, keys)]


def _setting(name: str) -> str:
    """The key of a setting: `engine` of `engine=vllm`."""
    return name.partition("=")[0] if SETTING.match(name) else ""


def _keys_with(setting: str, path: Path, sweep: str, labels: Mapping[str, str]) -> list[str]:
    """The runs that have this value, by its name on the command line."""
    column, _, wanted = setting.partition("=")
    values = {plain(value): value for value in store.values(path, column)}
    if not values:
        raise InvalidInput(f"{setting}: no run has a setting {column}")
    if wanted not in values:
        raise unknown(column, wanted, values)
    return store.keys(path, experiment=sweep or None, where={column: values[wanted], **labels})


def _is_side(one: str, arguments: Sequence[str]) -> bool:
    """A name, a file, or, where there are none, one of two values of a setting."""
    if not _setting(one) or _is_file(one):
        return one[:1] not in "-+~"
    named = any(not _setting(other) or _is_file(other) for other in arguments)
    return not named and [_setting(other) for other in arguments].count(_setting(one)) == 2


def _is_file(name: str) -> bool:
    try:
        return Path(name).is_file()
    except OSError:  # a name that is too long
        return False


def _entries(cache: Cache, keys: Any) -> Iterator[Entry]:
    for key in keys:
        entry = cache.get(key)
        if entry is not None:
            yield entry


def _measured(entry: Entry) -> Run:
    columns = flattened({"cell": counted(entry.content["cell"])})
    asked = {name: plain(value) for name, value in columns.items()}
    return Run(entry.key, Measured.of(columns, entry.metrics, entry.provenance), asked)


def _pooled(cache: Cache, sides: Sequence[str], runs: Sequence[Sequence[Run]]) -> list[str]:
    """A sentence: which sweeps the runs are of, if of several and nobody chose one. Files are of none."""
    if not cache.database.is_file():
        return []
    chosen = store.names(cache.database)["experiment"]
    keys = {one.key for name, of in zip(sides, runs, strict=True) if name not in chosen for one in of}
    counts = store.experiments_of(cache.database, keys)
    named = [f"{name} ({count:,})" for name, count in counts.items()]
    if len(named) > MOST_SWEEPS:
        named[MOST_SWEEPS:] = [f"{len(named) - MOST_SWEEPS} more"]
    if len(counts) < 2:
        return []
    return [f"runs of {len(counts)} sweeps are pooled: {listed(named)}; sweep=NAME takes one"]


def _refuse_unknown(filters: Mapping[str, str], runs: Sequence[Run], known: Sequence[str]) -> None:
    columns = dict.fromkeys(name for one in runs for name in one.asked)
    for name in filters:
        if name in OF_RUNS:
            raise InvalidInput(
                f"{name}= is for sweeps: compare takes the runs that are there; run what is missing first"
            )
        if name not in columns:
            raise unknown("key", name, [*known, *columns])


def _chosen(side: Sequence[Run], filters: Mapping[str, str]) -> list[Run]:
    """Those that have these values, as far as anything on the side has such a column; of a spec the end of its class's
    name will do: lengths=oracle."""
    columns = {name for one in side for name in one.asked}
    wanted = {name: text.split(",") for name, text in filters.items() if name in columns}

    def fits(value: str, text: str) -> bool:
        return text in (value, value.rpartition(".")[2], value.rpartition(".")[2].lower())

    return [
        one
        for one in side
        if all(any(fits(one.asked.get(name, "null"), text) for text in texts) for name, texts in wanted.items())
    ]


def _broken(found: Comparison, limit: Limit | None) -> list[str]:
    """A line for every cell that is beyond the limit."""
    if limit is None:
        return []
    lines = [
        f"{limit.metric} {percent_difference(cell.difference, cell.half_width)} at {_where(cell.place)}"
        for cell in found.cells
        if limit.broken_by(cell)
    ]
    if found.silent[1] > found.silent[0]:
        lines.append(f"B has no {limit.metric} in {cells_of(found.silent[1])}, A in {found.silent[0]}")
    return lines + [
        f"B does not serve {lost(cell.runs[1]):,} requests, A {lost(cell.runs[0]):,}, at {_where(cell.place)}"
        for cell in found.cells
        if limit.evaded_by(cell)
    ]


def _losses(found: Comparison) -> list[str]:
    """Sentences: which requests each side did not serve, and whether routers had nothing to find."""
    of_sides = ([(_where(cell.place), cell.runs[side]) for cell in found.cells] for side in (0, 1))
    said = [f"{name}: {one}" for name, cells in zip("AB", of_sides, strict=True) for one in sentences(cells)]
    return said + unfound.sentences(row for cell in found.cells for side in cell.runs for row in side)


def _unsure(found: Comparison, limit: Limit) -> str:
    """What is beyond the limit but may be chance."""
    beyond = sum(limit.exceeded_by(cell) for cell in found.cells)
    if not beyond:
        return ""
    cells = cells_of(len(found.cells))
    return f"; {cells_of(beyond)} beyond it, not surely so over {cells} at once: more seeds would tell"


def _where(place: Mapping[str, Any]) -> str:
    return " ".join(f"{name}={short(value)}" for name, value in place.items()) or "the only configuration"


def _print(found: Comparison, output: str) -> None:
    if output == "table":
        lossy = compared.lossy(found)
        heads = [*compared.axes(found), f"{found.metric} of A", "of B", "difference", "seeds"]
        heads += [*(("finished of A", "of B") if lossy else ()), "B is"]
        tables.show(heads, compared.lines(found, tables.number, finished=lossy))
        return
    if output == "json":
        differs = {name: list(values) for name, values in found.differs.items()}
        print(json.dumps({"differs": differs, "common": found.common, "cells": found.rows()}, indent=1))
    else:
        tables.write_rows(found.rows(), output)


SIDES = "two of: a policy, a line, a sweep, the file of an export; or two values of a setting, as rps=8 rps=16"
COMMANDS: Commands = {
    "": Command(
        "two policies, lines, sweeps, exports or values of a setting, paired run by run: where B is better or worse "
        "than A, and by how much",
        _compare,
        "python -m prebleexp compare lor e2 sweep=first metric=p99_ttft fail_if=p99_ttft:+5%",
        words="A B",
        takes=SIDES,
        settings=(
            text("metric", f"what is compared; {METRIC}, or that of fail_if, unless you say", ""),
            text("sweep", "only runs of this sweep", ""),
            text("part", "of a sweep of parts", ""),
            text("variant", "of a sweep of parts", ""),
            text("fail_if", "like p99_ttft:+5%: exit code 1 if B is surely higher, by more than that", ""),
            choice("output", "what is printed", *OUTPUTS),
            choice("report", "whether a page is written", *REPORTS),
            CACHE_DIR,
            REPORTS_DIR,
        ),
        others="only runs with these values, as gpus=8 or policy=lor,e2",
        is_word=_is_side,
    )
}
