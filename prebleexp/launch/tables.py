"""Results as text: tables for people, JSON and CSV for programs."""

from __future__ import annotations

import csv
import json
import math
import sys
from collections.abc import Mapping, Sequence
from dataclasses import fields
from itertools import chain
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Literal, TextIO

from prebleexp.experiment import counting
from prebleexp.experiment.cell import Cell
from prebleexp.experiment.results import Result
from prebleexp.hardware.domain import farthest
from prebleexp.launch.parts import Place
from prebleexp.launch.priced import COST, costs
from prebleexp.launch.rows import failure, means
from prebleexp.losses import requests as asked_for
from prebleexp.losses import unserved
from prebleexp.metrics import DECLARED, FIRST
from prebleexp.planning.prices import Prices
from prebleexp.stages import Stage

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

NOTHING = "–"
TINY = 1e-9
"""half-widths below which are written with an exponent"""
IF_ANY = ("n_", "host_hit_ratio", "disk_hit_ratio", "shared_hit_ratio", "peer_hit_ratio", "moves", "stopped_mean_s")
"""how the names of those begin that are shown where they are not 0"""
SHOWN = 20
"""lines of a sweep that a terminal gets, and of what is yet to compute"""
SHOWN_FAILURES = 20
MOST_WIDE = 10_000
"""characters a table might take"""
USUAL = ("norm_latency_mean_s", "ttft_p99_s", "hit_ratio")
"""metrics that each table of a sweep has"""
ATTAINMENT = "slo_attainment"


def write_rows(
    rows: Sequence[Mapping[str, Any]], output: str, file: IO[str] | None = None, names: Sequence[str] | None = None
) -> None:
    """Rows as a JSON list or as CSV; a column that a row lacks is null, or empty. `names` of columns, if there may be
    no row."""
    file = sys.stdout if file is None else file
    names = list(dict.fromkeys(chain.from_iterable(rows))) if names is None else names
    if output == "json":
        json.dump([{name: one.get(name) for name in names} for one in rows], file, indent=1, allow_nan=False)
        file.write("\n")
        return
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(names)
    writer.writerows(map(one.get, names) for one in rows)


def metrics(results: Sequence[Result]) -> None:
    """The metrics of one configuration that people look at first, and who was not served: values, or means with 95 %
    intervals where there are several seeds."""
    rows = [result.metrics for result in results if result.metrics is not None]
    if not rows:
        return
    cell = results[0].cell
    of = f"({cell.names['workload']}, {_made_of(cell)})"
    title = f"{cell.called('policy')} on {counting.words(cell)} {cell.load.words} {of}"
    heads = ["value"] if len(rows) == 1 else [f"mean of {len(rows)} seeds", "± 95 %"]
    found = means(rows, of_one=cell.draws_costs)
    lines = []
    for name, value in found.items():
        mean, half_width = value or (None, None)
        if name not in FIRST and not (name.startswith(IF_ANY) and mean):
            continue
        values = [number(mean), "" if half_width is None else number(half_width, 2)][: len(heads)]
        lines.append([name, *values, DECLARED[name].unit, DECLARED[name].words])
    show(["metric", *heads, "unit", "which is"], lines, title=title)
    print(f"… {len(found) - len(lines)} more: output=json prints all; docs/metrics.md defines them")
    brought = "hardware" in cell.engine.brings
    supports = [cell.engine.support] if brought else [one.hardware.support for one in cell.kinds]
    for support in dict.fromkeys(one for one in supports if one):
        print(f"step times: {support}")
    if cell.draws_costs:
        print("step times: each seed draws what measurements leave open of them; ± is of one draw, not of a mean")
    _say_beyond(results)


def _say_beyond(results: Sequence[Result], begin: str = "", file: IO[str] | None = None) -> None:
    """Which runs had larger steps than were measured. Of several kinds of GPU it is not known which had."""
    runs = [
        (one.cell.hardware.domain.columns(), one.metrics)
        for one in results
        if one.metrics is not None and "hardware" not in one.cell.engine.brings and not one.cell.cluster.groups
    ]
    if farther := farthest(runs):
        print(f"{begin}beyond what was measured: {farther}", file=file)


def stages(rows: Sequence[Stage]) -> None:
    """A line for each stage, if there are any."""
    if rows:
        names = [one.name for one in fields(Stage)]
        lines = [[number(getattr(row, name)) for name in names] for row in rows]
        show(names, lines, title="stages of the first seed whose requests are kept")


def _made_of(cell: Cell) -> str:
    if "hardware" in cell.engine.brings:
        return cell.called("hardware")
    return str(cell.cluster.columns()["groups"] or cell.hardware.title or cell.names["hardware"])


def summary(
    axes: Sequence[str],
    jobs: Sequence[Sequence[Result]],
    places: Sequence[Place] = (),
    page: Path | None = None,
    metrics: Sequence[str] = (),
    prices: Prices | None = None,
) -> None:
    """A line per configuration of a sweep. A terminal gets the first `SHOWN` lines; all are on `page`."""
    heads, lines = summarised(axes, jobs, places, metrics, prices)
    if sys.stdout.isatty():
        show_first(heads, lines, page)
    else:
        show(heads, lines)
    _say_beyond([one for results in jobs for one in results], "prebleexp: ", sys.stderr)


def show_first(heads: Sequence[str], lines: Sequence[Sequence[str]], page: Path | None = None) -> None:
    """A table's first `SHOWN` lines, and how many more there are, and where."""
    most = SHOWN if len(lines) > SHOWN + 1 else len(lines)
    show(heads, lines[:most])
    if most < len(lines):
        print(f"… {len(lines) - most:,} more: {page or 'output=csv prints all'}")


def summarised(
    axes: Sequence[str],
    jobs: Sequence[Sequence[Result]],
    places: Sequence[Place] = (),
    metrics: Sequence[str] = (),
    prices: Prices | None = None,
) -> tuple[list[str], list[list[str]]]:
    """Heads, and a line per configuration with its place on the axes; in a sweep of several parts, with what each job
    is called there. What was promised, and the `metrics` that are asked for, come first. Who was refused,
    or not finished, has a column where there are any."""
    named = [vars(place) for place in places] or [{} for _ in jobs]
    labels = ("part", "line") if places else ()
    axes = [axis for axis in axes if axis in labels or any(axis in one[0].cell.columns() for one in jobs)]
    if not places:
        axes = axes or ["gpus", "rps", "policy"]
    axes = _with_gpus(axes, [results[0].cell for results in jobs])
    measured = [result.metrics for results in jobs for result in results if result.metrics is not None]
    promised = [ATTAINMENT] if any(one.get(ATTAINMENT) is not None for one in measured) else []
    asked = [name for name in dict.fromkeys((*metrics, *promised)) if name in DECLARED and name not in USUAL]
    averaged = (*asked, *USUAL)
    heads = [*axes, *asked, *USUAL, *([COST] if prices is not None else []), "finished"]
    lines: list[list[str]] = []
    others = []
    seen = set()
    for results, name in zip(jobs, named, strict=True):
        if (which := (results[0].key, *name.values())) in seen:  # as of rps=1,1
            continue
        seen.add(which)
        users = {"users": results[0].cell.workload.users}
        rows = [result.metrics | users for result in results if result.metrics is not None]
        at = results[0].cell.columns() | name
        of = means([{name: row[name] for name in averaged} for row in rows], of_one=results[0].cell.draws_costs)
        finished = sum(int(one["n_finished"] or 0) for one in rows)
        requests = sum(map(asked_for, rows))
        ratio = (of.get("hit_ratio") or (None,))[0]
        shown = [_interval(of.get(metric)) for metric in (*asked, "norm_latency_mean_s", "ttft_p99_s")]
        shown.append(number(ratio, 3))
        shown += [_interval(costs(prices, results))] if prices is not None else []
        shown.append(f"{finished:,}/{requests:,}" if rows else NOTHING)
        lines.append([*(number(at.get(axis)) for axis in axes), *shown])
        others.append(unserved(rows))
    for what in unserved(()):
        if any(one[what] for one in others):
            heads.append(what)
            for line, one in zip(lines, others, strict=True):
                line.append(number(one[what]))
    return heads, lines


def _with_gpus(axes: Sequence[str], cells: Sequence[Cell]) -> Sequence[str]:
    """Where replicas of several sizes make the clusters differ, how many GPUs they have is said."""
    several = len({cell.gpus for cell in cells}) > 1 and any(cell.gpus != cell.replicas for cell in cells)
    return ["gpus", *axes] if several and "gpus" not in axes else axes


def address(page: Path) -> str:
    """Where a page is: on a terminal as what can be clicked."""
    return page.resolve().as_uri() if sys.stderr.isatty() else str(page)


def answer(sentence: str, output: str) -> None:
    """Of an answer: on standard output beside a table, else on standard error, as programs read what is printed."""
    say(sentence, sys.stdout if output == "table" else sys.stderr)


def say(sentence: str, file: TextIO | None = None) -> None:
    """On standard error, unless `file` is given: a sentence, on a terminal in lines that are broken between words, and
    in no number."""
    file = file or sys.stderr
    if not file.isatty():
        print(sentence, file=file)
        return
    import re
    import shutil
    import textwrap

    kept = re.sub(r"(?<=\d) (?=%|[a-zµ]?s\b|GB\b|tokens\b|[A-Z]+\d)|(?<=±) | (?=±)", "\xa0", sentence)
    width = max(40, shutil.get_terminal_size().columns)
    lines = textwrap.wrap(kept, width, break_long_words=False, break_on_hyphens=False)
    print("\n".join(lines).replace("\xa0", " "), file=file)


def failures(results: Sequence[Result], axes: Sequence[str]) -> None:
    """On standard error: which runs failed, and why."""
    failed = [failure(result) for result in results if result.error is not None]
    heads = [axis for axis in (*axes, "seed", "error") if axis == "error" or any(axis in one for one in failed)]
    heads = list(dict.fromkeys(heads))
    lines = [[number(one.get(name)).splitlines()[0] for name in heads] for one in failed[:SHOWN_FAILURES]]
    show(heads, lines, title=f"{len(failed)} runs failed" if len(failed) > 1 else "1 run failed", file=sys.stderr)
    if len(failed) > SHOWN_FAILURES:
        print(f"… and {len(failed) - SHOWN_FAILURES} more", file=sys.stderr)


def show(heads: Sequence[str], lines: Sequence[Sequence[str]], *, title: str = "", file: IO[str] | None = None) -> None:
    """A table: drawn where it is a terminal, aligned plain text elsewhere."""
    file = sys.stdout if file is None else file
    numeric = [all(_is_numeric(line[i]) for line in lines) for i in range(len(heads))]
    if title:
        file.write(f"{title}\n")
    if file.isatty():
        _draw(heads, lines, numeric, file)
        return
    widths = [max(len(line[i]) for line in (heads, *lines)) for i in range(len(heads))]
    for line in (heads, *lines):
        cells = [
            text.rjust(w) if right else text.ljust(w) for text, w, right in zip(line, widths, numeric, strict=True)
        ]
        file.write("  ".join(cells).rstrip() + "\n")


def _draw(heads: Sequence[str], lines: Sequence[Sequence[str]], numeric: Sequence[bool], file: IO[str]) -> None:
    """No number and no word is broken: a table that is too wide is turned, and has a column for each of its lines, as
    many at a time as there is room for."""
    from rich.console import Console

    console = Console(file=file)
    if len(heads) < 2 or _least_width(console, heads, lines, numeric) <= console.width:
        console.print(_drawn(heads, lines, numeric))
        return
    left = [*lines]
    while left:
        for count in range(len(left), 0, -1):
            head, *turned = ([*one] for one in zip(heads, *left[:count], strict=True))
            right = [False, *[True] * count]
            if count == 1 or _least_width(console, head, turned, right) <= console.width:
                break
        console.print(_drawn(head, turned, right))
        del left[:count]


def _drawn(heads: Sequence[str], lines: Sequence[Sequence[str]], right: Sequence[bool]) -> Table:
    from rich import box
    from rich.markup import escape
    from rich.table import Table

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, collapse_padding=True)
    for head, to_the_right in zip(heads, right, strict=True):
        justify: Literal["left", "right"] = "right" if to_the_right else "left"
        table.add_column(escape(head), justify=justify, overflow="fold", no_wrap=to_the_right)
    for line in lines:
        table.add_row(*map(escape, line))
    return table


def _least_width(console: Console, heads: Sequence[str], lines: Sequence[Sequence[str]], right: Sequence[bool]) -> int:
    """That a table needs if texts are wrapped between words, and numbers are not."""
    from rich.measure import Measurement

    def narrow(line: Sequence[str]) -> list[str]:
        pairs = zip(line, right, strict=True)
        return [text if whole else max(text.split(), key=len, default="") for text, whole in pairs]

    table = _drawn(narrow(heads), [narrow(line) for line in lines], right)
    return Measurement.get(console, console.options.update(max_width=MOST_WIDE), table).maximum


def _is_numeric(text: str) -> bool:
    return text[:1].isdigit() or text[:2].lstrip("-").isdigit() or text in ("", NOTHING)


def _interval(value: tuple[float, float | None] | None) -> str:
    if value is None:
        return NOTHING
    mean, half_width = value
    if half_width is None:
        return number(mean)
    small = TINY <= half_width < 1e-4  # of which `number` has an exponent, beside a mean that has none
    half = f"{half_width:.{1 - math.floor(math.log10(half_width))}f}" if small else number(half_width, 2)
    return f"{number(mean)} ± {half}"


def number(value: object, digits: int = 4) -> str:
    """A number with `digits` significant digits, integers in full."""
    if value is None:
        return NOTHING
    if not isinstance(value, float):
        return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value)
    if value.is_integer() and abs(value) < 1e15:
        return f"{int(value):,}"
    return f"{value:,.0f}" if abs(value) >= 10**digits else f"{value:,.{digits}g}"
