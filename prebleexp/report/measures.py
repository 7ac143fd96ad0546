"""What the figures show by name: which metric of a run, and what must be computed from the rows first."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from prebleexp.errors import unknown
from prebleexp.metrics import METRICS
from prebleexp.report.answer import Answer
from prebleexp.report.headline import changes, headline
from prebleexp.report.measure import Measure, of_metric
from prebleexp.report.quality import ALL_LOADS, LAYOUT, regret_answer, with_regret
from prebleexp.report.summary import Layout, Point, Row, Value

PLAIN, AWARE = "PREBLE", "length-aware PREBLE"
"""the lines whose difference is the gain of knowing output lengths"""


NORM_LATENCY = Measure(
    "norm_latency_mean_s",
    "average normalised latency",
    "s/token",
    "Time from a request's arrival to its last token, divided by its output tokens; averaged over the n requests of a "
    "run that produced a token. Unfinished ones count as of their last report, so where the finished share is below "
    "100 % this describes the survivors.",
    formula="normalised_latency",
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
    "change of latency by knowing output lengths",
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
    "told true output lengths: above zero, knowing them would gain. In brackets behind what was told: its rank "
    "correlation with the true lengths.",
)
SWITCHED = Measure(
    "change",
    "change of latency by the switch",
    "% difference",
    "Relative difference of the average normalised latency of two runs with the same request stream, of which one has "
    "what the line's name says after the comma.",
)
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


def switched(rows: Sequence[Row]) -> list[Row]:
    """A row for every run of a line such as "LOR, overhead charged": its difference from the run of "LOR"."""

    def at(row: Row, line: str) -> tuple[Value, ...]:
        return (line, *(row.get(name) for name in ("part", "variant", "gpus", "rps", "seed")))

    runs = {at(row, str(row.get("line"))): row.get(NORM_LATENCY.metric) for row in rows}
    found: list[Row] = []
    for row in rows:
        base, switch, _ = str(row.get("line")).partition(", ")
        one, other = row.get(NORM_LATENCY.metric), runs.get(at(row, base))
        if switch and other:
            found.append({**row, "change": None if one is None else 100 * (float(one) / float(other) - 1)})
    return found


def said(headline: Callable[[Sequence[Point], Layout, Measure], str]) -> Callable[..., Answer]:
    """An answer that is a sentence alone."""
    return lambda points, where, measure: Answer(headline(points, where, measure))


SAID, CHANGES = said(headline), said(changes)


@dataclass(frozen=True)
class Drawing:
    """How a figure comes from the rows of a sweep."""

    measure: Measure
    prepare: Callable[[Sequence[Row]], list[Row]] = as_they_are
    axes: tuple[str, ...] = ("gpus", "rps", "variant", "line")
    """those of a sweep of several parts"""
    where: Layout | None = None
    """which axis goes where, if that does not follow from what was swept"""
    answer: Callable[[Sequence[Point], Layout, Measure], Answer] = SAID
    dots: bool = False
    """dots in place of lines: a row for each line, a dot for each x"""
    main: str = ""
    """of dots, the only panel that is drawn; a thin line goes from the least to the greatest of the others"""
    note: str = ""
    """for the caption"""


DRAWINGS: Mapping[str, Drawing] = {
    "latency_against_rate": Drawing(NORM_LATENCY),
    "ttft_against_rate": Drawing(TTFT),
    "overhead_against_rate": Drawing(OVERHEAD),
    "latency_against_variance": Drawing(
        VARIANCE, with_variance, ("output_length_variance", "gpus", "rps", "variant", "line")
    ),
    "regret_against_quality": Drawing(
        REGRET,
        with_regret,
        where=LAYOUT,
        answer=regret_answer,
        dots=True,
        main=ALL_LOADS,
        note=" Thin lines go from the best load to the worst. In brackets: the rank correlation of what was told and "
        "the true lengths.",
    ),
    "gain_against_gpus": Drawing(GAIN, gains, where=Layout("line", "gpus", ("variant",)), answer=CHANGES, dots=True),
    "change_by_switch": Drawing(
        SWITCHED, switched, where=Layout("rps", "line", ("gpus", "variant")), answer=CHANGES, dots=True
    ),
}


def drawing(name: str) -> Drawing:
    """A drawing by its name, or of a metric by the metric's. Raises InvalidInput for a name that is neither."""
    if name in METRICS:
        return Drawing(of_metric(name))
    if name not in DRAWINGS:
        raise unknown("figure", name, DRAWINGS)
    return DRAWINGS[name]
