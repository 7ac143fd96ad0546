"""`python -m prebleexp compare A B`: two policies, lines, sweeps or exported archives, paired run by run."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from prebleexp import indexing, store
from prebleexp.commands import line
from prebleexp.commands.arguments import Given
from prebleexp.comparison import Comparison, Limit, Measured, cells_of, compare, flattened, limit_of, metric_of
from prebleexp.errors import InvalidInput, unknown
from prebleexp.experiment import archive
from prebleexp.experiment.cache import Cache, Entry
from prebleexp.launch import tables
from prebleexp.losses import lost, sentences
from prebleexp.report import compare_page, compared, frame, listing
from prebleexp.report.wording import percent_difference, plain, short, slug

METRIC = "norm_latency_mean_s"
Run = tuple[Measured, Mapping[str, str]]
"""with its columns as texts"""
OUTPUTS = ("table", "csv", "json")
REPORTS = ("html", "none")
OF_RUNS = ("replications", "workers", "backend", "max_replications", "ci", "keep_requests")
"""what people set for a sweep, and compare does not do"""
LABELS = ("part", "variant")


def run(arguments: Sequence[str]) -> int:
    """Print a line for every cell, write the page, and return 1 if `fail_if` holds, else 0.

    Raises InvalidInput if a side does not exist, or nothing can be compared.
    """
    sides = [one for one in arguments if "=" not in one or _is_file(one)]
    given = Given(one for one in arguments if one not in sides)
    output = given.choice("output", OUTPUTS)
    report = given.choice("report", REPORTS)
    fail_if, metric_name, sweep = (given.text(name) or "" for name in ("fail_if", "metric", "sweep"))
    folder, pages = given.path("cache_dir", "cache"), given.path("reports_dir", "reports")
    if len(sides) != 2:
        raise InvalidInput("compare takes two of: a policy, a line, a sweep, the file of an export")
    limit = limit_of(fail_if) if fail_if else None
    metric = metric_of(metric_name or (limit.metric if limit else METRIC))
    labels = given.texts(LABELS)
    if labels and not sweep:
        raise InvalidInput(f"{', '.join(labels)} belong to a sweep of several parts; say which, as sweep=paper")
    known, filters = sorted(given.known), given.rest()
    cache = Cache(folder, make=False)
    if not all(map(_is_file, sides)):
        indexing.refresh(cache)
    found_a, found_b = (_side(name, cache, sweep, labels) for name in sides)
    _refuse_unknown(filters, [*found_a, *found_b], known)
    a, b = _chosen(found_a, filters), _chosen(found_b, filters)
    found = compare(a, b, metric)
    judged = found if limit is None or limit.metric == metric else compare(a, b, limit.metric)
    broken = _broken(judged, limit)
    losses = _losses(found)
    _print(found, output)
    if report != "none":
        path = pages / slug(f"compare-{sides[0]}-{sides[1]}")
        command = line("compare", *arguments)
        page = compare_page.render(found, sides[0], sides[1], command, fail_if, broken, losses)
        print(tables.address(frame.write(path / "index.html", page)), file=sys.stderr)
        title = f"{sides[1]} against {sides[0]}"
        listing.add(path, listing.About(title, "comparison", command, compared.sentence(found, *sides)))
    for text in (compared.sentence(found, *sides), found.account(), *(f"prebleexp: {one}" for one in losses)):
        print(text, file=sys.stderr)
    for text in broken:
        print(f"fail_if={fail_if}: {text}", file=sys.stderr)
    if limit is not None and not broken:
        print(f"fail_if={fail_if}: passed{_unsure(judged, limit)}", file=sys.stderr)
    return 1 if broken else 0


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
            "policy, line or sweep", name, [*known["policy"], *lines, *([] if sweep else known["experiment"])]
        )
    return [_measured(entry) for entry in _entries(cache, keys)]


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
    columns = flattened(entry.content)
    asked = {name: plain(value) for name, value in columns.items()}
    return Measured.of(columns, entry.metrics, entry.provenance), asked


def _refuse_unknown(filters: Mapping[str, str], runs: Sequence[Run], known: Sequence[str]) -> None:
    columns = dict.fromkeys(name for _, asked in runs for name in asked)
    for name in filters:
        if name in OF_RUNS:
            raise InvalidInput(
                f"{name}= is for sweeps: compare takes the runs that are there; run what is missing first"
            )
        if name not in columns:
            raise unknown("key", name, [*known, *columns])


def _chosen(side: Sequence[Run], filters: Mapping[str, str]) -> list[Measured]:
    """Those that have these values, as far as anything on the side has such a column; of a spec the end of its class's
    name will do: lengths=oracle."""
    columns = {name for _, asked in side for name in asked}
    wanted = {name: text.split(",") for name, text in filters.items() if name in columns}

    def fits(value: str, text: str) -> bool:
        return text in (value, value.rpartition(".")[2], value.rpartition(".")[2].lower())

    return [
        run
        for run, asked in side
        if all(any(fits(asked.get(name, "null"), text) for text in texts) for name, texts in wanted.items())
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
    """Sentences: which requests each side did not serve."""
    of_sides = ([(_where(cell.place), cell.runs[side]) for cell in found.cells] for side in (0, 1))
    return [f"{name}: {one}" for name, cells in zip("AB", of_sides, strict=True) for one in sentences(cells)]


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
