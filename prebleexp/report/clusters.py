"""What a page says of each kind of cluster of a ranking: who is first there, by how much, and why."""

from __future__ import annotations

from collections.abc import Sequence

from prebleexp.report import orders
from prebleexp.report.figures import Column, Table
from prebleexp.report.finding import Finding
from prebleexp.report.ranking import ALL, DISTANCE, WHY, above, by_seed, numbers_of, ranked, with_distance, within
from prebleexp.report.summary import Point, Row, grouped
from prebleexp.report.wording import interval, listed, number, percent, plain

NOTE = (
    "A line of a kind of cluster is measured in all its clusters, over the same requests as the others. Intervals are "
    "95 % confidence intervals over seeds; of one seed there are none."
)


def findings(rows: Sequence[Row]) -> list[Finding]:
    """Whether one order of lines holds everywhere; and for each kind of cluster who is first there, by how much, and
    why."""
    far = with_distance(rows)
    variants = list(dict.fromkeys(plain(row["cluster"]) for row in far if row["cluster"] != ALL))
    order = orders.finding(far, variants)
    each = [_finding(variant, within(far, variant), i) for i, variant in enumerate(variants, 1)]
    return [order, *each] if order else each


def _finding(variant: str, rows: Sequence[Row], place: int) -> Finding:
    lines = {plain(line): of for (line,), of in grouped(rows, lambda row: (row["line"],)).items()}
    ranks = {plain(line): rank for line, rank in ranked({line: by_seed(of) for line, of in lines.items()}).items()}
    points = {line: Point({"cluster": variant}, tuple(of), "distance") for line, of in lines.items()}
    first, *rest = ranks
    equals = [line for line in rest if ranks[line] == ranks[first]]
    said = [f"{first} is the fastest, {above(points[first])}"]
    if equals:
        said.append(f"{listed(equals)} cannot be told apart from it")
    said += [f"{line} is at {above(points[line])}" for line in rest[len(equals) : len(equals) + 1]]
    last = rest[-1] if len(rest) > len(equals) + 1 else ""
    if last:
        said.append(f"{last}, the last, at {above(points[last])}")
    sentences = [f"{'; '.join(said)}."]
    if last:
        sentences.append(_why(first, points[first], last, points[last]))
    columns = (
        Column("rank", True),
        Column("router", False),
        Column("latency above the best", True, DISTANCE.meaning),
        *(Column(words, True, meaning) for words, meaning in WHY.values()),
    )
    table = tuple(
        (rank, line, numbers_of(points[line]), *(_level(points[line], name) for name in WHY))
        for line, rank in ranks.items()
    )
    numbers = {
        line: {"rank": ranks[line], "distance": points[line].interval} | {n: points[line].interval_of(n) for n in WHY}
        for line in ranks
    }
    return Finding(
        f"cluster-{place}", variant, variant, tuple(sentences), Table(columns, table), Table((), ()), {"lines": numbers}
    )


def _why(first: str, one: Point, last: str, other: Point) -> str:
    """What the first does otherwise than the last."""
    names = ("hit_ratio", "requests_max_over_mean", "ttft_mean_s")
    hits, busy, wait = ([point.interval_of(name) for point in (one, other)] for name in names)
    said = []
    if all(hits):
        shares = [percent(hit[0]) for hit in hits if hit]
        said.append(f"{first} finds {shares[0]} of prompt tokens in caches ({last}: {shares[1]})")
    if all(busy):
        times = [number(one[0]) for one in busy if one]
        said.append(f"its busiest GPU gets {times[0]} times the mean's requests ({times[1]})")
    if all(wait):
        seconds = [number(one[0]) for one in wait if one]
        said.append(f"a first token takes {seconds[0]} s ({seconds[1]} s)")
    return f"Why: {listed(said)}." if said else ""


def _level(point: Point, name: str) -> str:
    return interval(point.interval_of(name))
