"""The figures that only the paper's sweeps have, and what must be computed from the rows first."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace

from prebleexp.paper import lengths
from prebleexp.paper.claims import AWARE, PLAIN
from prebleexp.paper.quality import ALL_LOADS, LAYOUT, regret_answer, with_regret
from prebleexp.report import measures
from prebleexp.report.measure import Measure
from prebleexp.report.measures import CHANGES, NORM_LATENCY, Drawing
from prebleexp.report.summary import Layout, Row, Value

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
    "told true output lengths: above zero, knowing them would gain. In brackets after what was told: its rank "
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


DRAWINGS: Mapping[str, Drawing] = {
    **measures.DRAWINGS,
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
    "worth_of_lengths": Drawing(
        lengths.CHANGE, lengths.with_change, where=lengths.LAYOUT, answer=lengths.answer, dots=True, others={}
    ),
    "gain_against_gpus": Drawing(GAIN, gains, where=Layout("line", "gpus", ("variant",)), answer=CHANGES, dots=True),
    "change_by_switch": Drawing(
        SWITCHED, switched, where=Layout("rps", "line", ("gpus", "variant")), answer=CHANGES, dots=True
    ),
}
