"""What the figures show by name: which metric of a run, and what must be computed from the rows first."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from prebleexp.errors import unknown
from prebleexp.metrics import METRICS
from prebleexp.report import cliff, feature_sets, frontier, ranking, survival, tuned, tuning, worth
from prebleexp.report.answer import Answer
from prebleexp.report.headline import changes, headline
from prebleexp.report.measure import Measure, of_metric
from prebleexp.report.summary import Layout, Point, Row

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


Others = Mapping[str, tuple[str, str]]
"""metrics that a table has too: (words, meaning)"""
USUAL: Others = {
    "ttft_p99_s": (
        "TTFT p99, s",
        "Time to first token that 99 % of a run's requests stay below; mean over the seeds. Requests without a first "
        "token are not in it.",
    ),
    "hit_ratio": ("hit ratio", "Prompt tokens found in the prefix cache over all prompt tokens of all prefills."),
}


def as_they_are(rows: Sequence[Row]) -> list[Row]:
    return list(rows)


def said(headline: Callable[[Sequence[Point], Layout, Measure], str]) -> Callable[..., Answer]:
    """An answer that is a sentence alone."""
    return lambda points, where, measure: Answer(headline(points, where, measure))


SAID, CHANGES, TUNED = said(headline), said(changes), said(tuned.sentence)


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
    others: Others = field(default_factory=lambda: USUAL)


RANKING = Drawing(
    ranking.DISTANCE,
    ranking.with_distance,
    where=ranking.WHERE,
    answer=ranking.answer,
    dots=True,
    main=ranking.ALL,
    note=" Thin lines go from the kind of cluster that suits a router best to the one that suits it worst.",
    others=ranking.WHY,
)
DRAWINGS: Mapping[str, Drawing] = {
    "latency_against_rate": Drawing(NORM_LATENCY),
    "ttft_against_rate": Drawing(TTFT),
    "overhead_against_rate": Drawing(OVERHEAD),
    "ranking": RANKING,
    "sessions": replace(RANKING, answer=worth.answer),
    "survival": replace(
        RANKING,
        measure=survival.DOUBLINGS,
        prepare=survival.with_distance,
        answer=survival.answer,
        note=" Thin lines go from the kind of loss that a router takes best to the one that it takes worst.",
        others=survival.WHY,
    ),
    "together": replace(
        RANKING,
        answer=feature_sets.answer,
        note=" Thin lines go from the load that suits a set best to the one that suits it worst.",
    ),
    "reuse": Drawing(
        cliff.REUSE,
        cliff.reuse,
        where=cliff.WHERE,
        answer=cliff.answer,
        dots=True,
        others={},
    ),
    "frontier": Drawing(
        frontier.DOUBLINGS,
        frontier.with_shares,
        where=frontier.WHERE,
        answer=frontier.answer,
        dots=True,
        others={},
    ),
    "tuning": Drawing(
        tuning.CHANGE,
        tuning.with_change,
        where=tuning.WHERE,
        answer=tuning.answer,
        dots=True,
        note=tuning.NOTE,
    ),
}


def drawing(name: str) -> Drawing:
    """A drawing by its name, or of a metric by the metric's. Raises InvalidInput for a name that is neither."""
    if name in METRICS:
        return Drawing(of_metric(name))
    if name not in DRAWINGS:
        raise unknown("figure", name, DRAWINGS)
    return DRAWINGS[name]
