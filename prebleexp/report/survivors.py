"""What a page says of each kind of loss: which router takes it best, and who is back soonest."""

from __future__ import annotations

from collections.abc import Sequence

from prebleexp.report.figures import Column, Table
from prebleexp.report.finding import Finding
from prebleexp.report.ranking import ALL, by_seed, numbers_of, ranked, within
from prebleexp.report.summary import Point, Row, grouped
from prebleexp.report.survival import WHY, sentence, with_distance
from prebleexp.report.wording import interval, plain

TITLE = "Loss by loss"
NOTE = (
    "A line is measured over the same requests as the others. Intervals are 95 % confidence intervals over seeds; of "
    "one seed there are none. Where requests that are lost end so, percentiles are over the others."
)


def findings(rows: Sequence[Row]) -> list[Finding]:
    """For each kind of loss: who takes it best, who is back soonest, and all in a table."""
    far = with_distance(rows)
    kinds = list(dict.fromkeys(plain(row["cluster"]) for row in far if row["cluster"] != ALL))
    return [_finding(kind, within(far, kind), i) for i, kind in enumerate(kinds, 1)]


def _finding(kind: str, rows: Sequence[Row], place: int) -> Finding:
    lines = {plain(line): of for (line,), of in grouped(rows, lambda row: (row["line"],)).items()}
    ranks = {plain(line): rank for line, rank in ranked({line: by_seed(of) for line, of in lines.items()}).items()}
    points = {
        line: Point({"cluster": kind, "rank": f"{rank}. {line}"}, tuple(lines[line]), "distance")
        for line, rank in ranks.items()
    }
    columns = (
        Column("rank", True),
        Column("router", False),
        Column("p99 above the best", True, "TTFT p99 after the loss over that of the best, over the same requests."),
        *(Column(words, True, meaning) for words, meaning in WHY.values()),
    )
    table = tuple(
        (ranks[line], line, numbers_of(point), *(interval(point.interval_of(name)) for name in WHY))
        for line, point in points.items()
    )
    numbers = {
        line: {"rank": ranks[line], "distance": point.interval} | {name: point.interval_of(name) for name in WHY}
        for line, point in points.items()
    }
    sentences = (sentence(list(points.values())),)
    return Finding(f"loss-{place}", kind, kind, sentences, Table(columns, table), Table((), ()), {"lines": numbers})
