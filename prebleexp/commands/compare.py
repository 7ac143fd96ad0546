"""`python -m prebleexp compare A B`: two policies, lines, sweeps or exported archives, paired run by run."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from prebleexp import indexing, unfound
from prebleexp.commands import recordings, sides
from prebleexp.commands.arguments import CACHE_DIR, REPORTS_DIR, Command, Commands, Given, choice, text
from prebleexp.comparison import ATTAINMENT, Comparison, cells_of, metric_of
from prebleexp.errors import InvalidInput
from prebleexp.experiment.cache import Cache
from prebleexp.launch import chosen_options, tables
from prebleexp.launch.naming import folder
from prebleexp.launch.usual import completed
from prebleexp.losses import lost, sentences
from prebleexp.regression import Limit, limit_of
from prebleexp.report import compare_page, compared, frame, listing
from prebleexp.report.compared import Pair
from prebleexp.report.wording import percent_difference, short

METRIC = "norm_latency_mean_s"
OUTPUTS = ("table", "csv", "json")
REPORTS = ("html", "none")
LABELS = ("part", "variant")


def _compare(given: Given) -> int:
    """Print a line for every cell, write the page, and return 1 if `fail_if` holds, else 0.

    Raises InvalidInput if a side does not exist, or nothing can be compared.
    """
    fail_if = given["fail_if"]
    limit = limit_of(fail_if) if fail_if else None
    names, runs = _sides(given)
    usual = _usual(runs)
    metric = metric_of(given["metric"] or (limit.metric if limit else usual))
    if limit is not None and len(names) > 2:
        raise InvalidInput(f"fail_if={fail_if} is of two sides, not {len(names)}: {' '.join(names)}")
    notes = [] if given["sweep"] else sides.pooled(Cache(given["cache_dir"], make=False), names, runs)
    notes += sides.left_aside(Cache(given["cache_dir"], make=False), [given["sweep"]] if given["sweep"] else names)
    notes += _averaged(given, names, runs)
    notes += recordings.caveats(Cache(given["cache_dir"], make=False).database, [run for side in runs for run in side])
    pairs = []
    for name, of_side in zip(names[:-1], runs[:-1], strict=True):
        a, b = completed([one.measured for one in of_side], [one.measured for one in runs[-1]])
        pairs.append(compared.pair(name, a, names[-1], b, metric))
    found, last = pairs[0].found, pairs[-1]
    judged = found
    if limit is not None and limit.metric != metric:
        judged = compared.pair(names[0], last.runs[0], names[-1], last.runs[1], limit.metric).found
    broken = _broken(judged, limit)
    said = compared.sentences(pairs)
    if metric == ATTAINMENT and not given["metric"] and limit is None:
        said += compared.sentences([compared.pair(one.a, one.runs[0], one.b, one.runs[1], METRIC) for one in pairs])
    lost_by = list(dict.fromkeys(line for pair in pairs for line in _losses(pair.found, *_called(pair, pairs))))
    drawn = given["report"] != "none"
    chosen = _chosen(pairs) if drawn or given["output"] == "table" else compare_page.NOBODY
    _print(pairs, given["output"], chosen)
    if drawn:
        path = given["reports_dir"] / folder(*_name(given, "" if metric == usual else metric))
        page = compare_page.render(pairs, given.line, fail_if, broken, [*notes, *lost_by], chosen)
        print(tables.address(frame.write(path / "index.html", page)), file=sys.stderr)
        listing.add(path, listing.About(compare_page.title(pairs), "comparison", given.line, said[0]))
    accounts = [pair.found.account() for pair in pairs if len(pairs) == 1]
    for says in (*(f"prebleexp: {one}" for one in notes), *said, *accounts, *(f"prebleexp: {one}" for one in lost_by)):
        tables.say(says)
    for says in broken:
        print(f"fail_if={fail_if}: {says}", file=sys.stderr)
    if limit is not None and not broken:
        print(f"fail_if={fail_if}: passed{_unsure(judged, limit)}", file=sys.stderr)
    return 1 if broken else 0


def _sides(given: Given) -> tuple[list[str], list[list[sides.Run]]]:
    """The sides, of which the last is compared with each other one, and the runs of each. Raises InvalidInput for what
    is not there, or is asked for wrongly."""
    sweep, names = given["sweep"], list(given.words)
    labels = {name: given[name] for name in LABELS if given[name]}
    if labels and not sweep:
        raise InvalidInput(f"{', '.join(labels)} belong to a sweep of several parts; say which, as sweep=paper")
    if len(names) < 2 and not sweep:
        raise InvalidInput(f"compare takes {SIDES}, not 1: {names[0]}; with sweep=NAME one is compared with each other")
    pairs = [one.split("=", 1) for one in given.others]
    known, filters = sorted(given.values), {name.replace(sides.OF_GROUP, "."): value for name, value in pairs}
    if len(filters) < len(given.others):
        raise InvalidInput(f"a setting is given twice: {' '.join(given.others)}; several values have commas between")
    cache = Cache(given["cache_dir"], make=False)
    if not all(map(sides.is_file, names)):
        indexing.refresh(cache)
    if len(names) == 1:
        names = [*sides.others_of(names[0], cache, sweep), names[0]]
    every = [sides.side(name, cache, sweep, labels) for name in names]
    if len(names) == 1:
        raise InvalidInput(f"sweep={sweep} has no policy beside {names[0]} to compare it with")
    sides.refuse_unknown(filters, [run for of_side in every for run in of_side], known)
    runs = [sides.chosen(of_side, filters) for of_side in every]
    for name, of_side in zip(names, runs, strict=True):
        if not of_side:
            asked = " ".join([*([f"sweep={sweep}"] if sweep else []), *given.others])
            of = " with ".join(filter(None, (name, asked)))
            raise InvalidInput(f"there is no run of {of}: prebleexp cache ls lists them all")
    return names, runs


def _usual(runs: Sequence[Sequence[sides.Run]]) -> str:
    """What is compared where nobody says: the share of requests within the limits where all runs promise some, as that
    is what was asked of them, else latency."""
    promise = all(run.measured.metrics.get(ATTAINMENT) is not None for of_side in runs for run in of_side)
    return ATTAINMENT if promise else METRIC


def _averaged(given: Given, names: Sequence[str], runs: Sequence[Sequence[sides.Run]]) -> list[str]:
    """Of a sweep that was chosen, a sentence for each side whose policy has several values of a field. Raises
    InvalidInput where nobody chose: they were tried for other questions."""
    pairs = [(i, len(names) - 1) for i in range(len(names) - 1)]
    either = [one for pair in pairs for one in (pair, pair[::-1])]
    found = dict.fromkeys(sides.several(names[i], runs[i], runs[j]) for i, j in either if not sides.is_file(names[i]))
    said = [one for one in found if one]
    if said and not given["sweep"]:
        raise InvalidInput(f"{said[0]}, sweep=NAME the runs of one sweep")
    return [f"means are over all values of a field: {one}" for one in said]


def _chosen(pairs: Sequence[Pair]) -> compare_page.Chosen:
    differs = {name: values for pair in pairs for name, values in pair.found.differs.items()}
    columns = [(name, value) for name, values in differs.items() for value in values]
    columns += [column for pair in pairs for column in pair.found.common.items()]
    columns += [column for pair in pairs for cell in pair.found.cells for column in cell.place.items()]
    sides_said = [name for pair in pairs for name in (pair.a, pair.b)]
    return compare_page.Chosen(chosen_options.by_class(columns, sides_said), chosen_options.not_chosen(differs))


def _called(pair: Pair, pairs: Sequence[Pair]) -> tuple[str, str]:
    """What notes call the sides of a pair."""
    return ("A", "B") if len(pairs) == 1 else (f"of {pair.a}", f"of {pair.b}")


def _name(given: Given, metric: str) -> list[str]:
    """What tells its page from those of other comparisons."""
    asked = [given["sweep"], *(given[name] for name in LABELS), *given.others, metric]
    return ["compare", *given.words, *filter(None, asked)]


def _is_side(one: str, arguments: Sequence[str]) -> bool:
    """A name, a file, or, where there are none, one of several values of a setting."""
    if not sides.setting_of(one) or sides.is_file(one):
        return one[:1] not in "-+~"
    named = any(not sides.setting_of(other) or sides.is_file(other) for other in arguments)
    return not named and [sides.setting_of(other) for other in arguments].count(sides.setting_of(one)) > 1


def _broken(found: Comparison, limit: Limit | None) -> list[str]:
    """A line for every cell that is beyond the limit."""
    if limit is None:
        return []
    lines = [
        f"{limit.metric} {percent_difference(cell.difference, cell.half_width)} at {_where(cell.place)}"
        f"{'' if cell.seeds > 1 else ', of one seed, where the value decides'}"
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


def _losses(found: Comparison, a: str = "A", b: str = "B") -> list[str]:
    """Sentences: which requests each side did not serve, and whether routers had nothing to find."""
    of_sides = ([(_where(cell.place), cell.runs[side]) for cell in found.cells] for side in (0, 1))
    said = [f"{name}: {one}" for name, cells in zip((a, b), of_sides, strict=True) for one in sentences(cells)]
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


def _print(pairs: Sequence[Pair], output: str, chosen: compare_page.Chosen) -> None:
    if output == "table":
        tables.show(*compared.table(pairs, (f"{pairs[0].found.metric} of {{}}", "of {}"), tables.number, chosen.said))
    elif output == "json":
        shown = [
            {
                **({"a": pair.a, "b": pair.b} if len(pairs) > 1 else {}),
                "differs": {name: list(values) for name, values in pair.found.differs.items()},
                "common": pair.found.common,
                "cells": pair.found.rows(),
            }
            for pair in pairs
        ]
        print(json.dumps(shown if len(pairs) > 1 else shown[0], indent=1))
    else:
        named = [({"side_a": pair.a, "side_b": pair.b} if len(pairs) > 1 else {}, pair) for pair in pairs]
        tables.write_rows([{**names, **row} for names, pair in named for row in pair.found.rows()], output)


SIDES = "two of: a policy, a line, a sweep, the file of an export; or two values of a setting, as rps=8 rps=16"
MORE = "; of more the last is compared with each other one, and so is one alone, with sweep=NAME"
COMMANDS: Commands = {
    "": Command(
        "two policies, lines, sweeps, exports or values of a setting, paired run by run: where B is better or worse "
        "than A, and by how much",
        _compare,
        "python -m prebleexp compare lor e2 sweep=first metric=p99_ttft fail_if=p99_ttft:+5%",
        words="[A …] B",
        takes=SIDES + MORE,
        settings=(
            text(
                "metric",
                f"what is compared; unless you say {ATTAINMENT} where limits are set, else {METRIC}, or fail_if's",
                "",
            ),
            text("sweep", "only runs of this sweep", ""),
            text("part", "of a sweep of parts", ""),
            text("variant", "of a sweep of parts", ""),
            text(
                "fail_if",
                "like p99_ttft:+5% or hit_ratio:-2%: exit code 1 if B is higher, or lower, by more than that, and with "
                "several seeds surely so",
                "",
            ),
            choice("output", "what is printed", *OUTPUTS),
            choice("report", "whether a page is written", *REPORTS),
            CACHE_DIR,
            REPORTS_DIR,
        ),
        others="only runs with these values, as gpus=8 or policy=lor,e2",
        is_word=_is_side,
    )
}
