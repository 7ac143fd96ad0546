"""Two sets of runs against each other: cell by cell, over the seeds that both have, as paired differences."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Any

from prebleexp import records
from prebleexp.errors import InvalidInput, unknown
from prebleexp.intervals import CONFIDENCE, DRAWS_COSTS, mean_interval
from prebleexp.losses import Row, lost, requests, sentences
from prebleexp.metrics import DECLARED, HIGHER, METRICS, NEITHER
from prebleexp.service.batches import Stream, half_width

Value = int | float | str | bool | None
Place = tuple[tuple[str, Value], ...]
ENDED = "n_finished"
ATTAINMENT = "slo_attainment"


class Verdict(Enum):
    """What the 95 % interval of the differences says of B."""

    BETTER = "better"
    WORSE = "worse"
    UNDECIDED = "undecided"
    UNPROVEN = "unproven"
    """of one stream, whose batches, if it has such an interval, do not say that others would agree"""
    EQUAL = "equal"
    DIFFERENT = "different"
    """surely, but neither more nor less of the metric is better"""
    INCOMPARABLE = "incomparable"
    """what looks better has lost requests that the other served, and the metric is of the others"""


@dataclass(frozen=True)
class Measured:
    """A cached run of one of the two sides that are compared."""

    place: Mapping[str, Value]
    """its configuration, without the seed"""
    seed: Value
    metrics: Mapping[str, Any]
    finished: str
    """when, UTC: of two runs of the same cell and seed, by different code, the later counts"""
    streams: Mapping[str, Stream] = field(default_factory=dict, compare=False)
    """of metrics that are shares of its requests, which of them these are, where the run is the only one of its place
    (`prebleexp.launch.streams`)"""

    @classmethod
    def of(cls, columns: Mapping[str, Value], metrics: Mapping[str, Any], provenance: Mapping[str, Any]) -> Measured:
        """Of a run whose content is `flattened` to these columns."""
        place = {name: value for name, value in columns.items() if name != "seed"}
        return cls(place, columns.get("seed"), metrics, str(provenance.get("finished", "")))


@dataclass(frozen=True)
class Cell:
    """A configuration that both sides have. `difference` and `half_width` are relative to the mean of A; None: it has
    no mean but zero, or, of the half-width, one common seed and no batches of its requests."""

    place: Mapping[str, Value]
    """what varies between cells"""
    a: float
    b: float
    difference: float | None
    half_width: float | None
    together: float | None
    """the half-width with which the intervals of all cells hold at once, with 95 % probability; None: of one seed"""
    seeds: int
    verdict: Verdict
    runs: tuple[Sequence[Row], Sequence[Row]]
    """those of A and of B with a seed that both have"""
    draws: bool
    """whether a side has other runs with other seeds: not of a recording, if its router draws nothing"""
    kept: bool
    """whether both sides' requests are there, of one seed"""
    batched: bool
    """whether attainment has an interval, by batches of these"""

    @property
    def finished(self) -> list[float | None]:
        """The shares of requests that A and B finished."""
        counts = ((sum(int(row.get(ENDED) or 0) for row in side), sum(map(requests, side))) for side in self.runs)
        return [part / whole if whole else None for part, whole in counts]


@dataclass(frozen=True)
class Comparison:
    metric: str
    cells: tuple[Cell, ...]
    differs: Mapping[str, tuple[Value, Value]]
    """what tells the sides apart: (of A, of B)"""
    common: Mapping[str, Value]
    """the same in all cells"""
    left_out: int
    """configurations that only one side has"""
    silent: tuple[int, int]
    """those of both in which A, and in which B, has no value: nothing was served"""
    overall: tuple[float, float | None] | None
    """mean of the cells' relative differences, each cell counting alike, and its half-width, over the seeds that all
    of them have; without those that are incomparable, or have no such difference. None: there is no cell or no seed"""

    def count(self, verdict: Verdict) -> int:
        return sum(cell.verdict is verdict for cell in self.cells)

    def rows(self) -> list[dict[str, Any]]:
        """A row for each cell, with all digits; differences and half-widths are shares of the mean of A."""
        return [
            {
                **cell.place,
                "metric": self.metric,
                "a": cell.a,
                "b": cell.b,
                "difference": cell.difference,
                "half_width_95": cell.half_width,
                "seeds": cell.seeds,
                "finished_a": cell.finished[0],
                "finished_b": cell.finished[1],
                "verdict": cell.verdict.value,
            }
            for cell in self.cells
        ]

    def account(self) -> str:
        """How B is, and in how many cells, in a line."""
        counts = [f"{self.count(verdict)} {verdict.value}" for verdict in Verdict if self.count(verdict)]
        rest = f"; {self.left_out} only on one side" if self.left_out else ""
        for name, count in zip("AB", self.silent, strict=True):
            rest += f"; {name} has no value in {cells_of(count)}" if count else ""
        return f"{cells_of(len(self.cells))}: B is {', '.join(counts)}{rest}"


def cells_of(count: int) -> str:
    """A number of cells in words: "1 cell", "2 cells"."""
    return f"{count} cell" if count == 1 else f"{count} cells"


def flattened(content: Mapping[str, Any]) -> dict[str, Value]:
    """What a key is a hash of, as columns: "gpus", "policy" (its class), "policy.window_s" …"""
    cell = dict(content["cell"])
    if isinstance(groups := cell.get("cluster"), list):
        cell["cluster"] = {"groups": groups}
    columns: dict[str, Value] = {}
    for name, value in cell.items():
        columns |= _columns(name, value) if isinstance(value, Mapping) else {name: value}
    return columns


def _columns(name: str, value: Mapping[str, Any]) -> dict[str, Value]:
    """Of a spec, and of those within it."""
    columns: dict[str, Value] = {}
    for part, one in value.items():
        column = name if part == "_target_" else f"{name}.{part}"
        if isinstance(one, Mapping) and "_target_" in one:
            columns |= _columns(column, one)
        else:
            columns[column] = json.dumps(one) if isinstance(one, list | dict) else one
    return columns


def compare(a: Sequence[Measured], b: Sequence[Measured], metric: str) -> Comparison:
    """Pair the runs of two sides by configuration and seed.

    Columns that have one value all over A and another all over B are what differs; those that one side has several
    values of and the other nothing (lor reads no lengths) tell cells apart, and the other side's run is the same in
    each; the rest must be equal. Raises InvalidInput if a side is empty, or nothing is common.
    """
    for name, side in (("A", a), ("B", b)):
        if not side:
            raise InvalidInput(f"{name} has no runs")
    places = records.named([run.place for run in (*a, *b)])
    every = [replace(run, place=place) for run, place in zip((*a, *b), places, strict=True)]
    a, b = every[: len(a)], every[len(a) :]
    differs = _differing(a, b)
    ones, others = _by_place(a, differs), _by_place(b, differs)
    alone = _of_one_side(a, b)
    partners: dict[Place, list[Place]] = {}
    for other in others:
        partners.setdefault(_without(other, alone), []).append(other)
    matched = [(place, other) for place in ones for other in partners.get(_without(place, alone), ())]
    pairs = {tuple(sorted({*place, *other})): _pairs(ones[place], others[other]) for place, other in matched}
    common = {place: runs for place, runs in pairs.items() if _values(runs, metric)}
    if not common:
        raise InvalidInput(_why_nothing(a, b, differs, bool(pairs), metric))
    places = [dict(place) for place in common]
    names = dict.fromkeys(name for place in places for name in place)
    fixed = {name: places[0].get(name) for name in names if len({place.get(name) for place in places}) == 1}
    cells = [_cell(place, runs, metric, len(common), fixed) for place, runs in common.items()]
    order = sorted(cells, key=lambda cell: [_rank(value) for value in cell.place.values()])
    left_out = len(ones) + len(others) - len({one for one, _ in matched}) - len({other for _, other in matched})
    silent = [[all(pair[i].metrics.get(metric) is None for pair in runs) for runs in pairs.values()] for i in (0, 1)]
    overall = _overall(cells, list(common.values()), metric)
    return Comparison(metric, tuple(order), differs, fixed, left_out, (sum(silent[0]), sum(silent[1])), overall)


def _differing(a: Sequence[Measured], b: Sequence[Measured]) -> dict[str, tuple[Value, Value]]:
    found = {}
    for name in dict.fromkeys(name for run in (*a, *b) for name in run.place):
        of_a, of_b = ({run.place.get(name) for run in side} for side in (a, b))
        if len(of_a) == len(of_b) == 1 and of_a != of_b:
            found[name] = (of_a.pop(), of_b.pop())
    return found


def _of_one_side(a: Sequence[Measured], b: Sequence[Measured]) -> set[str]:
    """Columns that no run of one side has: nothing there depends on them."""
    of_a, of_b = ({name for run in side for name, value in run.place.items() if value is not None} for side in (a, b))
    return of_a ^ of_b


def _without(place: Place, names: set[str]) -> Place:
    return tuple((name, value) for name, value in place if name not in names)


def _by_place(side: Sequence[Measured], without: Mapping[str, object]) -> dict[Place, dict[Value, Measured]]:
    found: dict[Place, dict[Value, Measured]] = {}
    for run in side:
        known = {name: value for name, value in run.place.items() if name not in without and value is not None}
        place = tuple(sorted(known.items()))
        of_place = found.setdefault(place, {})
        if run.seed not in of_place or of_place[run.seed].finished < run.finished:
            of_place[run.seed] = run
    return found


def _pairs(one: Mapping[Value, Measured], other: Mapping[Value, Measured]) -> list[tuple[Measured, Measured]]:
    """Runs with a common seed; one without a seed (a recording, a router that draws nothing) has every seed."""
    either = (None in one) != (None in other)
    seeds = sorted({*one, *other} - {None} if either else {*one} & {*other}, key=_rank)
    return [(one.get(seed) or one[None], other.get(seed) or other[None]) for seed in seeds]


def _values(runs: Sequence[tuple[Measured, Measured]], metric: str) -> list[tuple[float, float]]:
    pairs = [(one.metrics.get(metric), other.metrics.get(metric)) for one, other in runs]
    return [(float(x), float(y)) for x, y in pairs if x is not None and y is not None]


def _cell(
    place: Place, runs: Sequence[tuple[Measured, Measured]], metric: str, cells: int, fixed: Mapping[str, object]
) -> Cell:
    pairs = _values(runs, metric)
    count = len(pairs)
    a, b = (math.fsum(side) / count for side in zip(*pairs, strict=True))
    differences = [y - x for x, y in pairs]
    of_one = any(run.place.get(DRAWS_COSTS) for pair in runs for run in pair)
    mean, half = mean_interval(differences, of_one=of_one)
    every = 1 - (1 - CONFIDENCE) / cells
    together = mean_interval(differences, every, of_one=of_one)[1]
    if half is None:
        half = _of_batches(runs[0], metric)
    scale = abs(a)
    of_a, of_b = ([{**one.place, **one.metrics} for one in side] for side in zip(*runs, strict=True))
    verdict = _verdict(pairs, mean, half, metric)
    flattered = {Verdict.BETTER: (of_b, of_a), Verdict.WORSE: (of_a, of_b)}.get(verdict)
    if flattered and loses_more(*flattered, metric):
        verdict = Verdict.INCOMPARABLE
    return Cell(
        place={name: value for name, value in place if name not in fixed},
        a=a,
        b=b,
        difference=mean / scale if scale else None,
        half_width=None if half is None or not scale else half / scale,
        together=None if together is None or not scale else together / scale,
        seeds=count,
        verdict=verdict,
        runs=(of_a, of_b),
        draws=any(run.seed is not None for pair in runs for run in pair),
        kept=all(run.streams for run in runs[0]),
        batched=_of_batches(runs[0], ATTAINMENT) is not None,
    )


def _of_batches(pair: tuple[Measured, Measured], metric: str) -> float | None:
    """Of one stream that both sides served, where the metric is a share of its requests."""
    a, b = (run.streams.get(metric) for run in pair)
    return None if a is None or b is None else half_width(a, b)


def _overall(
    cells: Sequence[Cell], runs: Sequence[Sequence[tuple[Measured, Measured]]], metric: str
) -> tuple[float, float | None] | None:
    """Seeds are the replications: a cell's request stream is another cell's too, so cells are not independent."""
    by_seed = [
        {one.seed: (y - x) / abs(cell.a) for one, other in pairs for x, y in _values([(one, other)], metric)}
        for cell, pairs in zip(cells, runs, strict=True)
        if cell.difference is not None and cell.verdict is not Verdict.INCOMPARABLE
    ]
    seeds = [seed for seed in by_seed[0] if all(seed in cell for cell in by_seed)] if by_seed else []
    if not seeds:
        return None
    of_one = any(run.place.get(DRAWS_COSTS) for pairs in runs for pair in pairs for run in pair)
    if len(cells) == 1 and len(seeds) == 1:
        return cells[0].difference or 0.0, cells[0].half_width
    return mean_interval([math.fsum(cell[seed] for cell in by_seed) / len(by_seed) for seed in seeds], of_one=of_one)


def _verdict(pairs: Sequence[tuple[float, float]], mean: float, half: float | None, metric: str) -> Verdict:
    better = DECLARED[metric].better
    if all(x == y for x, y in pairs):
        return Verdict.EQUAL
    if half is None or abs(mean) <= half:
        return Verdict.UNDECIDED if len(pairs) > 1 else Verdict.UNPROVEN
    if better == NEITHER:
        return Verdict.DIFFERENT
    return Verdict.BETTER if (mean > 0) == (better == HIGHER) else Verdict.WORSE


def loses_more(one: Sequence[Row], other: Sequence[Row], metric: str) -> bool:
    """Whether a metric, unless it counts all requests, is of fewer on one side, since it lost the others."""
    counts_all = metric.startswith("n_") or DECLARED[metric].of_all
    return not counts_all and lost(one) > lost(other)


def _why_nothing(
    a: Sequence[Measured], b: Sequence[Measured], differs: Mapping[str, object], paired: bool, metric: str
) -> str:
    if paired:
        served = ((name, [{**run.place, **run.metrics} for run in side]) for name, side in (("A", a), ("B", b)))
        said = (f"{name}: {one}" for name, rows in served for one in sentences([(name, rows)]))
        return "; ".join([f"A and B have no seed in common for which both have {metric}", *said])
    for name in dict.fromkeys(name for run in (*a, *b) for name in run.place):
        of_a, of_b = ({run.place.get(name) for run in side} for side in (a, b))
        if name not in differs and not of_a & of_b:
            say = [", ".join(sorted(map(str, values))[:4]) for values in (of_a, of_b)]
            return f"A and B have no configuration in common: {name} is {say[0]} in A and {say[1]} in B"
    return "A and B have no configuration in common"


def metric_of(text: str) -> str:
    """A metric by its name, or as ttft_p99 or p99_ttft. Raises InvalidInput for one that does not exist."""
    parts = text.removesuffix("_s").split("_")
    turned = "_".join([*parts[1:], parts[0]])
    for name in (text, f"{text}_s", turned, f"{turned}_s"):
        if name in METRICS:
            return name
    raise unknown("metric", text, METRICS)


def _rank(value: Value) -> tuple[bool, float, str]:
    numeric = isinstance(value, int | float)
    return (not numeric, float(value) if isinstance(value, int | float) else 0.0, str(value))
