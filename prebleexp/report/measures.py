"""What the figures show: which metric of a run, in which words, and what must be computed from the rows first."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from prebleexp.errors import unknown
from prebleexp.metrics import DECLARED, LOWER, QUANTITIES, STATISTICS
from prebleexp.report.headline import headline
from prebleexp.report.quality import LAYOUT, quality_headline, regret_headline, with_quality
from prebleexp.report.summary import Layout, Point, Row, Value

PLAIN, AWARE = "PREBLE", "length-aware PREBLE"
"""the lines whose difference is the gain of knowing output lengths"""


@dataclass(frozen=True)
class Measure:
    """A quantity on the y axis. `meaning` defines it in the notes under a table, `formula` names a file of
    formulas/."""

    metric: str
    words: str
    unit: str
    meaning: str
    formula: str = ""
    against: str = "request rate"

    @property
    def label(self) -> str:
        return f"{self.words[0].upper()}{self.words[1:]} ({self.unit})"


NORM_LATENCY = Measure(
    "norm_latency_mean_s",
    "average normalised latency",
    "s/token",
    "Time from a request's arrival to its last token, divided by its output tokens; averaged over the n requests of a "
    "run that produced a token. Unfinished ones count as of their last report, so where the finished share is below "
    "100 % this describes the survivors.",
    "normalised_latency",
)
TTFT = Measure(
    "ttft_mean_s",
    "average time to first token",
    "s",
    "Time from a request's arrival to its first token, averaged over the requests of a run that have one. Where the "
    "finished share is below 100 % this describes the survivors.",
)
OVERHEAD = Measure(
    "overhead_mean_s",
    "average scheduling overhead",
    "s",
    "What a routing decision takes: the work that the policy counts, at the costs that were fitted to the paper's "
    "figure 1C (conf/overhead/).",
)
GAIN = Measure(
    "gain",
    "latency of length-aware against plain PREBLE",
    "% difference",
    "Relative difference of the average normalised latency of two runs with the same request stream: below zero, "
    "knowing output lengths gains.",
    against="number of GPUs",
)
REGRET = Measure(
    "regret",
    "latency against the oracle's",
    "% difference",
    "Relative difference of the average normalised latency of two runs with the same request stream, one of which was "
    "told true output lengths: above zero, knowing them would gain.",
    against="what the policy was told",
)
QUALITY = replace(NORM_LATENCY, against="what the policy was told")
VARIANCE = replace(NORM_LATENCY, against="variance of output lengths")


def as_they_are(rows: Sequence[Row]) -> list[Row]:
    return list(rows)


ASKED = {"released": ((1, 300), (0.5, 0.5)), "released_three_point": ((1, 150, 300), (0.25, 0.5, 0.25))}
"""mixes that the public code was asked for, where others came out (Q3): (lengths, probabilities) by output_length"""


def with_variance(rows: Sequence[Row]) -> list[Row]:
    """Rows with the variance of the distribution of output lengths that was asked for."""
    return [{**row, "output_length_variance": _variance(row)} for row in rows]


def _variance(row: Row) -> float | None:
    lengths, probabilities = ASKED.get(str(row.get("output_length")), ((), ()))
    if not lengths:
        texts = row.get("output_length.lengths"), row.get("output_length.probabilities")
        if not all(isinstance(text, str) for text in texts):
            return None
        lengths, probabilities = (tuple(json.loads(str(text))) for text in texts)
    pairs = list(zip(lengths, probabilities, strict=True))
    mean = sum(p * length for length, p in pairs)
    return round(float(sum(p * (length - mean) ** 2 for length, p in pairs)), 6)


def gains(rows: Sequence[Row]) -> list[Row]:
    """A row for every pair of runs, plain and length-aware, with the same request stream."""
    at: dict[tuple[Value, ...], dict[Value, Row]] = {}
    for row in rows:
        place = tuple(row.get(name) for name in ("variant", "gpus", "rps", "seed"))
        at.setdefault(place, {})[row.get("line")] = row
    return [_gain(lines[PLAIN], lines[AWARE]) for lines in at.values() if {PLAIN, AWARE} <= lines.keys()]


def _gain(plain: Row, aware: Row) -> Row:
    one, other = plain.get(NORM_LATENCY.metric), aware.get(NORM_LATENCY.metric)
    gain = None if not one or other is None else 100 * (float(other) / float(one) - 1)
    rate = plain.get("rps")
    return {**aware, "line": f"{rate:g} requests/s" if isinstance(rate, int | float) else "", "gain": gain}


@dataclass(frozen=True)
class Drawing:
    """How a figure comes from the rows of a sweep."""

    measure: Measure
    prepare: Callable[[Sequence[Row]], list[Row]] = as_they_are
    axes: tuple[str, ...] = ("gpus", "rps", "variant", "line")
    """those of a sweep of several parts"""
    where: Layout | None = None
    """which axis goes where, if that does not follow from what was swept"""
    headline: Callable[[Sequence[Point], Layout, str, str], str] = headline


DRAWINGS: Mapping[str, Drawing] = {
    "latency_against_rate": Drawing(NORM_LATENCY),
    "ttft_against_rate": Drawing(TTFT),
    "overhead_against_rate": Drawing(OVERHEAD),
    "latency_against_variance": Drawing(
        VARIANCE, with_variance, ("output_length_variance", "gpus", "rps", "variant", "line")
    ),
    "latency_against_quality": Drawing(QUALITY, with_quality, where=LAYOUT, headline=quality_headline),
    "regret_against_quality": Drawing(REGRET, with_quality, where=LAYOUT, headline=regret_headline),
    "gain_against_gpus": Drawing(GAIN, gains, ("gpus", "variant", "line")),
}


def drawing_of(name: str) -> Drawing:
    """The drawing of this name, or of a metric against the request rate. Raises InvalidInput for another."""
    if name in DRAWINGS:
        return DRAWINGS[name]
    if name not in DECLARED:
        raise unknown("figure", name, [*DRAWINGS, *DECLARED])
    for drawing in DRAWINGS.values():
        if drawing.measure.metric == name:
            return drawing
    metric = DECLARED[name]
    return Drawing(
        Measure(name, _words(name), metric.unit, metric.meaning), headline=headline if metric.better == LOWER else _none
    )


def _words(metric: str) -> str:
    """ "hit ratio", "99th percentile time to first token" """
    for one in QUANTITIES:
        for part, statistic in STATISTICS.items():
            if metric == f"{one.name}_{part}_s":
                return f"{'average' if part == 'mean' else statistic.lower()} {one.meaning.partition(':')[0]}"
    return metric.replace("_", " ")


def _none(points: Sequence[Point], where: Layout, words: str, unit: str) -> str:
    """Headlines name the lowest line, which is not the best one here."""
    return ""
