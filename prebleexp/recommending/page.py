"""The page of a recommendation."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from prebleexp.recommending import candidates as points_of
from prebleexp.recommending import table, words
from prebleexp.recommending.candidates import KEPT, Candidate, Point, alike
from prebleexp.recommending.deployment import model_names
from prebleexp.recommending.recommender import Recommender
from prebleexp.report import pareto
from prebleexp.report.figures import Column, Figure, Table
from prebleexp.report.page import Aside
from prebleexp.report.pareto import Front, Priced

NAME = "fronts"
TIMES = (
    ("ttft_p95_s", "p95 time to first token, s", 1.0),
    ("tpot_p95_s", "p95 time per output token, ms", 1000.0),
)
NUMERIC = ("price/h",)


def title(made: Recommender) -> str:
    contender = made.candidates[0].design.contender
    load = "this recording" if contender.is_recorded else words.subject(contender).removesuffix(" take")
    return f"What should serve {load}?"


def figure(made: Recommender) -> Figure:
    """The figure of Pareto fronts: price per hour against how the promise is kept, TTFT and TPOT, with intervals."""
    to_keep, fronts = made.candidates[0].to_keep, []
    labels = {(one.design.name, one.replicas): str(i) for i, one in enumerate(words.shown(made), 1)}
    label = f"{to_keep.label}, {'points' if to_keep.is_margin else '%'}"
    for metric, panel, scale in ((KEPT, label, 100.0), *TIMES):
        known = [one for one in made.points if metric in one.seen]
        if known:
            line = points_of.front(known, metric, higher=metric == KEPT)
            found = {id(one): _priced(one, metric, labels) for one in known}
            target = to_keep.target if metric == KEPT else None
            best = [found[id(one)] for one in line]
            fronts.append(Front(panel, list(found.values()), best, scale, target, is_time=metric != KEPT))
    return pareto.figure(NAME, "Price against what it buys", words.sentence(made), fronts)


def _priced(one: Point, metric: str, labels: Mapping[tuple[str, int], str]) -> Priced:
    mean, half = one.seen[metric]
    label = labels.get((one.design.name, one.replicas), "")
    return Priced(one.name, one.price, mean, half, one.keeps, str(one.design.at["gpu"]).upper(), label)


def asides(made: Recommender, shown: Sequence[Candidate], deployed: Sequence[Path]) -> list[Aside]:
    """The candidates, where their files are, and what a reader must know."""
    heads = table.heads(shown)
    shown_as = Table(
        tuple(Column(head, head in NUMERIC) for head in heads),
        tuple(map(tuple, table.lines(shown, alike(made.candidates)))),
    )
    said = [
        *words.marks(made),
        *table.notes(made, shown),
        *words.routers(shown),
    ]
    found = [Aside("What to deploy", said, shown_as)]
    found += [Aside(title, sentences) for title, sentences in words.strained(made)]
    if deployed:
        files = [f"{one.name}: {', '.join(sorted(file.name for file in one.iterdir()))}." for one in deployed]
        files.append(f"{model_names.sentence([one.cell for one in shown])}.")
        found.append(Aside("Files, in deployments/ beside this page", files))
    return [*found, Aside("To know before this is used", words.caveats(made), is_caveat=True)]
