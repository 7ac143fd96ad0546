"""Which router takes the loss of a GPU best: whose first tokens suffer least in the minute after, and who is back
soonest."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from prebleexp.metrics import DECLARED
from prebleexp.report import ranking
from prebleexp.report.answer import Answer
from prebleexp.report.measure import Measure
from prebleexp.report.ranking import ALL, above, name_of, ranked
from prebleexp.report.summary import Layout, Point, Row, Value
from prebleexp.report.wording import interval, listed, plain

AFTER, RECOVERY = "after_loss_ttft_p99_s", "recovery_s"
DOUBLINGS = Measure(
    "doublings",
    "p99 time to first token after a loss above that of the best",
    "doublings",
    "99th percentile of the time to first token of a line's requests that were due in the minute after the loss, over "
    "that of the line which is best in the same cluster, over the same requests; the geometric mean over clusters, as "
    "the binary logarithm: 1 is twice as long, 10 a thousand times. In front of a name: its rank. Lines of one rank "
    "cannot be told apart from the first of them (Student's t of the paired differences over seeds, 95 % for all "
    "comparisons with it at once).",
    against="router",
)
WHY = {
    AFTER: ("TTFT p99 after, s", DECLARED[AFTER].meaning),
    RECOVERY: ("to recover, s", DECLARED[RECOVERY].meaning),
    "losses": ("lost", DECLARED["losses"].meaning),
    "ttft_p99_s": ranking.WHY["ttft_p99_s"],
}
"""metrics that a table has too: (words, meaning)"""
MOST_NAMED = 4
"""of those that cannot be told apart"""


def with_distance(rows: Sequence[Row]) -> list[Row]:
    """As `ranking.with_distance`, of what follows upon the loss; with what is drawn: routers that were bad before are a
    thousand times as far from the best as others."""
    far = ranking.with_distance(rows, AFTER, WHY)
    return [{**row, DOUBLINGS.metric: math.log2(1 + float(row["distance"] or 0) / 100)} for row in far]


def answer(points: Sequence[Point], where: Layout, measure: Measure) -> Answer:
    """Who takes it best over all kinds of loss, and who is back soonest; with the ranking's table of words."""
    points = [replace(point, metric="distance") for point in points]
    said = ranking.answer(points, where, measure)
    everywhere = [point for point in points if point.at["cluster"] == ALL and point.interval]
    return replace(said, sentence=sentence(everywhere)) if everywhere else said


def sentence(points: Sequence[Point]) -> str:
    """Of the lines of a cluster, the best first."""
    first, last = points[0], points[-1]
    rank, _, name = plain(first.at["rank"]).partition(". ")
    equals = [name_of(one) for one in points[1:] if plain(one.at["rank"]).startswith(f"{rank}. ")]
    text = f"Of {len(points)} routers, {name} takes the loss of a GPU best: of the requests due in the minute after, "
    text += f"99 % have their first token within {_seconds(first, AFTER)}"
    text += f"; {listed(equals)} cannot be told apart from it" if equals else ""
    text += f"; with the last, {name_of(last)}, it is {above(last)}" if len(points) > 1 else ""
    return f"{text}. {_back({name_of(one): one for one in points})}"


def _back(points: dict[str, Point]) -> str:
    """Who is as before soonest, and who takes longest."""
    known = {name: point for name, point in points.items() if point.interval_of(RECOVERY)}
    if not known:
        return "No run lost a GPU."
    times = {name: _by_seed(point) for name, point in known.items()}
    order = ranked({name: of for name, of in times.items() if of})
    first, last = next(iter(order)), list(order)[-1]
    equals = [plain(name) for name in order if name != first and order[name] == order[first]]
    text = f"The soonest to be as before is {plain(first)}, after {_seconds(known[plain(first)], RECOVERY)}"
    if 0 < len(equals) <= MOST_NAMED:
        text += f" ({listed(equals)} cannot be told apart from it)"
    elif equals:
        text += f" ({len(equals)} others cannot be told apart from it)"
    if last == first or last in equals:
        return f"{text}."
    return f"{text}; the last is {plain(last)}, after {_seconds(known[plain(last)], RECOVERY)}."


def _by_seed(point: Point) -> dict[Value, float]:
    return {row.get("seed"): float(value) for row in point.rows if (value := row.get(RECOVERY)) is not None}


def _seconds(point: Point, metric: str) -> str:
    return f"{interval(point.interval_of(metric))} s"
