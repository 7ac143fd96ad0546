"""What a page says of a router for all cells: every router's distances in one table, and the cells where the first one
loses, and to whom."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from prebleexp.intervals import mean_interval
from prebleexp.report.figures import Column, Table
from prebleexp.report.finding import Finding
from prebleexp.report.frontier import METRICS, SHARES, Ratio, by_line, metric_words, quantile, ratios, with_shares
from prebleexp.report.ranking import CLUSTER
from prebleexp.report.summary import Row, Value, grouped
from prebleexp.report.wording import number, percent, plain

TITLE = "Router by router, and where the first one loses"
NOTE = (
    "A ratio is of means over seeds, to the line that is best in the same cell and metric. One line is surely better "
    "than another in a cell if the 95 % interval of their paired differences over seeds is on one side of zero."
)
LOSS = 1.05
"""a ratio above which the first line loses a cell"""
CLOSE = 0.01
"""an attainment by so much below the best of a cell is as good"""
ATTAINED = "slo_attainment"


def findings(rows: Sequence[Row]) -> list[Finding]:
    """Of all lines, and of the cells in which the first one loses."""
    of_lines = by_line(ratios(rows))
    if not of_lines:
        return []
    order = list(dict.fromkeys(plain(row["line"]) for row in with_shares(rows)))
    first = order[0]
    return [_table(rows, order, of_lines), _losses(first, of_lines[first], len({one.cell for one in of_lines[first]}))]


def _table(rows: Sequence[Row], order: Sequence[str], of_lines: Mapping[str, Sequence[Ratio]]) -> Finding:
    values, first = _values(rows), order[0]
    attained, table, numbers = _attained(rows), [], {}
    for line in order:
        of = of_lines[line]
        each = [[one.mean for one in of if one.metric == metric] for metric in METRICS]
        means = [math.exp(math.fsum(map(math.log, one)) / len(one)) if one else None for one in each]
        most = [max(one, default=None) for one in each]
        everything = sorted(one.mean for one in of)
        against = [_sure(values, first, line, metric) for metric in METRICS]
        kept = attained.get(line)
        numbers[line] = {
            "cells": len({one.cell for one in of}),
            "geometric_mean": dict(zip(METRICS, means, strict=True)),
            "largest": dict(zip(METRICS, most, strict=True)),
            "shares": {words: quantile(everything, share) for words, share in SHARES.items()},
            "first_better_worse": dict(zip(METRICS, against, strict=True)),
            "attained": None if kept is None else {"mean": kept[0], "as_good_as_the_best": kept[1]},
        }
        table.append(
            (
                line,
                f"{len({one.cell for one in of})}",
                *(number(mean, 4) for mean in means),
                *(number(one, 3) for one in most),
                *(f"{better}, {worse}" if line != first else "" for better, worse in against),
                *(("", "") if kept is None else (number(kept[0], 3), percent(kept[1]))),
            )
        )
    columns = (
        Column("router", False),
        Column("cells", True),
        *(Column(f"{metric_words(one)}", True, "Geometric mean of the ratios.") for one in METRICS),
        *(Column(f"most: {metric_words(one)}", True, "The largest ratio of any cell.") for one in METRICS),
        *(
            Column(f"{first}, {metric_words(one)}", True, f"Cells where {first} is surely better, and surely worse.")
            for one in METRICS
        ),
        Column("promise kept", True, "Share of requests within their service level, the mean over cells."),
        Column("as good", True, f"Cells where that is within {CLOSE} of the best router's there."),
    )
    best = of_lines[first]
    mean = math.exp(math.fsum(math.log(one.mean) for one in best) / len(best))
    worst = max(best, key=lambda one: one.mean)
    said = (
        f"{first} is {number(mean, 4)} times the best of each cell and metric in the geometric mean, and "
        f"{number(worst.mean, 3)} times at worst: {metric_words(worst.metric)} of {cell_words(worst.cell)}, where "
        f"{worst.best} is the best."
    )
    table_of = Table(columns, tuple(table))
    return Finding("frontier-1", "all routers", "Every router's ratios", (said,), table_of, Table((), ()), numbers)


def _losses(first: str, of: Sequence[Ratio], cells: int) -> Finding:
    lost = sorted((one for one in of if one.mean > LOSS), key=lambda one: -one.mean)
    where = len({one.cell for one in lost})
    said = f"{first} is more than {percent(LOSS - 1)} above the best in {where} of {cells} cells, in some metric."
    columns = (Column("cell", False), Column("metric", False), Column("times the best", True), Column("best", False))
    table = tuple((cell_words(one.cell), metric_words(one.metric), number(one.mean, 3), one.best) for one in lost)
    numbers = {"cells": cells, "lost": [[*one.cell, one.metric, one.mean, one.best] for one in lost]}
    claim = f"Where {first} loses, and to whom"
    return Finding("frontier-2", "losses", claim, (said,), Table(columns, table), Table((), ()), numbers)


def cell_words(cell: Sequence[Value]) -> str:
    at = dict(zip(CLUSTER, cell, strict=True))
    where = plain(at["variant"] or at["part"])
    return f"{where}, {plain(at['gpus'])} GPUs, {number(float(at['rps'] or 0))} requests/s"


Values = Mapping[tuple[str, str], Mapping[tuple[Value, ...], Mapping[Value, float]]]


def _values(rows: Sequence[Row]) -> Values:
    """By line and metric: by cell and seed."""
    found: dict[tuple[str, str], dict[tuple[Value, ...], dict[Value, float]]] = {}
    for row in rows:
        cell = tuple(row.get(name) for name in CLUSTER)
        for metric in METRICS:
            if (value := row.get(metric)) is not None:
                of = found.setdefault((plain(row.get("line")), metric), {}).setdefault(cell, {})
                of[row.get("seed")] = float(value)
    return found


def _sure(values: Values, first: str, other: str, metric: str) -> tuple[int, int]:
    """In how many cells the first line is surely better, and surely worse."""
    better = worse = 0
    ours, theirs = values.get((first, metric), {}), values.get((other, metric), {})
    for cell in ours.keys() & theirs.keys():
        both = ours[cell].keys() & theirs[cell].keys()
        differences = [ours[cell][seed] - theirs[cell][seed] for seed in both]
        if len(differences) > 1:
            mean, half = mean_interval(differences)
            better += half is not None and mean < -half
            worse += half is not None and mean > half
    return better, worse


def _attained(rows: Sequence[Row]) -> dict[str, tuple[float, float]]:
    """Of each line: the mean over cells of the share within the service level, and in what share of cells that is as
    good as the best router's."""
    means: dict[tuple[Value, ...], dict[str, float]] = {}
    for at, of in grouped(rows, lambda row: (*(row.get(name) for name in CLUSTER), row.get("line"))).items():
        known = [float(value) for row in of if (value := row.get(ATTAINED)) is not None]
        if known:
            means.setdefault(at[:-1], {})[plain(at[-1])] = math.fsum(known) / len(known)
    found: dict[str, list[tuple[float, bool]]] = {}
    for lines in means.values():
        best = max(lines.values())
        for line, value in lines.items():
            found.setdefault(line, []).append((value, value >= best - CLOSE))
    return {
        line: (math.fsum(value for value, _ in of) / len(of), sum(good for _, good in of) / len(of))
        for line, of in found.items()
    }
