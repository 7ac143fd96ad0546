"""How far each line is from the best of every cell, in every metric: what a router costs whom takes it everywhere.

A cell is what a sweep varies besides its lines and seeds. A ratio is a line's mean over seeds over that of the line
which is best in the same cell and metric, over the same requests. Who wins is picked anew for each cell and metric,
which no router can do: the ratio of one that is never a mistake is near 1 everywhere.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from prebleexp.metrics import DECLARED
from prebleexp.report.answer import Answer
from prebleexp.report.measure import Measure
from prebleexp.report.ranking import CLUSTER, SUMMED, ranked
from prebleexp.report.summary import Layout, Point, Row, Value, grouped
from prebleexp.report.wording import number, plain

METRICS = ("norm_latency_mean_s", "ttft_mean_s", "ttft_p99_s", "latency_p99_s")
SHARES = {"median": 0.5, "90 %": 0.9, "worst": 1.0}
"""of all cells and metrics, that are nearer to the best: what is drawn"""
USUAL = "90 %"
"""what lines are in order of"""
WHERE = Layout("share", "rank", ())
DOUBLINGS = Measure(
    "doublings",
    "times the best of each cell",
    "doublings",
    "A line's average normalised latency, time to first token, p99 time to first token and p99 latency over that of "
    "the line which is best in the same cell and metric, over the same requests: of all these ratios the median, what "
    "90 % are below, and the worst, as the binary logarithm: 1 is twice the best, 10 a thousand times. In front of a "
    "name: its rank by the second. Lines of one rank cannot be told apart from the first of them (Student's t of the "
    "paired differences over seeds, 95 % for all comparisons with it at once).",
    against="share of cells and metrics",
)


@dataclass(frozen=True)
class Ratio:
    """Of a line in a cell and a metric."""

    cell: tuple[Value, ...]
    metric: str
    line: str
    best: str
    """the line that is best there"""
    mean: float
    by_seed: dict[Value, float]


def ratios(rows: Sequence[Row]) -> list[Ratio]:
    """Of all lines, cells and metrics. A line has none in cells where a seed has no such metric."""
    found: list[Ratio] = []
    for cell, members in grouped(rows, lambda row: tuple(row.get(name) for name in CLUSTER)).items():
        lines = {plain(line): of for (line,), of in grouped(members, lambda row: (row.get("line"),)).items()}
        for metric in METRICS:
            values = {line: {row.get("seed"): float(row.get(metric) or 0) for row in of} for line, of in lines.items()}
            known = {line: of for line, of in values.items() if all(of.values())}
            if not known:
                continue
            best = min(known, key=lambda line: _mean(known[line].values()))
            base, least = known[best], _mean(known[best].values())
            found += [
                Ratio(
                    cell,
                    metric,
                    line,
                    best,
                    _mean(of.values()) / least,
                    {seed: value / base[seed] for seed, value in of.items() if seed in base},
                )
                for line, of in known.items()
            ]
    return found


def with_shares(rows: Sequence[Row]) -> list[Row]:
    """A row for each line, seed and share of `SHARES`. `rank` is the line's name behind its rank."""
    of_lines = by_line(ratios(rows))
    counts = grouped(rows, lambda row: (row.get("line"), row.get("seed")))
    found: list[Row] = []
    for line, of in of_lines.items():
        for seed in dict.fromkeys(seed for one in of for seed in one.by_seed):
            inside = sorted(one.by_seed[seed] for one in of if seed in one.by_seed)
            sums = {name: sum(int(row.get(name) or 0) for row in counts[line, seed]) for name in SUMMED}
            for words, share in SHARES.items():
                doublings = math.log2(quantile(inside, share))
                found.append({"line": line, "seed": seed, "share": words, DOUBLINGS.metric: doublings, **sums})
    usual = [row for row in found if row["share"] == USUAL]
    by_seed = {
        line: {row["seed"]: float(row[DOUBLINGS.metric] or 0) for row in of}
        for (line,), of in grouped(usual, lambda row: (row["line"],)).items()
    }
    ranks = ranked(by_seed)
    order = {line: place for place, line in enumerate(ranks)}
    named = [{**row, "rank": f"{ranks[row['line']]}. {plain(row['line'])}"} for row in found]
    return sorted(named, key=lambda row: order[row["line"]])


def by_line(of: Sequence[Ratio]) -> dict[str, list[Ratio]]:
    return {plain(line): members for (line,), members in grouped(of, lambda one: (one.line,)).items()}


def quantile(ascending: Sequence[float], share: float) -> float:
    """The least value that this share is not above."""
    return ascending[max(0, math.ceil(share * len(ascending)) - 1)]


def answer(points: Sequence[Point], where: Layout, measure: Measure) -> Answer:
    """Who is the nearest to the best everywhere, and how near the next and the last are."""
    lines = {plain(name): of for (name,), of in grouped(points, lambda point: (point.at["rank"],)).items()}
    if not lines:
        return Answer("No line has run in any cell.")
    first, *rest = lines
    said = [f"Of {len(lines)} routers, {_name(first)} is the nearest to the best of each cell: {_far(lines[first])}"]
    said += [f"the next, {_name(rest[0])}, {_far(lines[rest[0]])}"] if rest else []
    said += [f"the last, {_name(rest[-1])}, {_far(lines[rest[-1]])}"] if len(rest) > 1 else []
    return Answer(f"{'; '.join(said)}.")


def _name(rank: str) -> str:
    return rank.partition(". ")[2]


def _far(points: Iterable[Point]) -> str:
    at = {plain(point.at["share"]): 2 ** point.interval[0] for point in points if point.interval}
    return ", ".join(f"{number(at[words], 3)} times in the {words}" if words == "median" else
                     f"{number(at[words], 3)} in {words}" if words == USUAL else
                     f"{number(at[words], 3)} at worst" for words in SHARES if words in at)  # fmt: skip


def _mean(values: Iterable[float]) -> float:
    of = list(values)
    return math.fsum(of) / len(of)


def metric_words(metric: str) -> str:
    return DECLARED[metric].words
