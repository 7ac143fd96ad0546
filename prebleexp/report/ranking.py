"""Lines ranked over all clusters of a sweep: how far each is from the best of each cluster, and who cannot be told
apart.

A cluster is what a sweep varies besides its lines and seeds. In each, a line's latency is divided by that of the line
which is best there, over the same requests; a line's distance is the geometric mean of these ratios, so that one
overloaded cluster does not decide all.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from types import MappingProxyType

from prebleexp.intervals import CONFIDENCE, mean_interval
from prebleexp.report.answer import Answer, Cell, Tone
from prebleexp.report.measure import Measure
from prebleexp.report.summary import Layout, Point, Row, Value, grouped
from prebleexp.report.wording import listed, number, plain, signed_percent

METRIC = "norm_latency_mean_s"
CLUSTER = ("part", "variant", "gpus", "rps", "hardware.kv_tokens")
ALL = "all clusters"
WHERE = Layout("over", "rank", ("cluster",))
MEAN = "mean of all clusters"
DISTANCE = Measure(
    "distance",
    "latency above that of the best",
    "%",
    "Average normalised latency of a line over that of the line which is best in the same cluster, over the same "
    "requests; the geometric mean over clusters. In front of a name: its rank. Lines of one rank cannot be told apart "
    "from the first of them (Student's t of the paired differences over seeds, 95 % for all comparisons with it at "
    "once).",
    against="router",
)
WHY = {
    "hit_ratio": ("hit ratio", "Prompt tokens found in the prefix cache over all prompt tokens of all prefills."),
    "requests_max_over_mean": (
        "busiest over mean",
        "Requests sent to the busiest GPU over the mean of all GPUs: 1 is perfect balance.",
    ),
    "ttft_mean_s": ("TTFT, s", "Time to first token: waiting in queues, and the prefill."),
    "ttft_p99_s": ("TTFT p99, s", "Time to first token that 99 % of a run's requests stay below."),
}
"""metrics that say why: (words, meaning)"""
CLOSE = 0.05
"""a share above the best that is as good as it in the table of words"""
FAR = 0.5
TWICE = 1.0
MOST_ROWS = 6
"""of the table of words: the figure has all"""
SUMMED = ("n_finished", "n_requests")


def with_distance(
    rows: Sequence[Row], metric: str = METRIC, why: Mapping[str, tuple[str, str]] = MappingProxyType(WHY)
) -> list[Row]:
    """A row for each line and seed: of all clusters, and of each variant. `rank` is the line's name behind its rank.
    A line that was not run in all clusters is left out: it would be measured by easier ones, or harder ones. Distances
    are in `metric`; of those in `why`, rows have the mean."""
    clusters = {_at(row) for row in rows}
    lines = grouped([row for row in rows if row.get(metric)], lambda row: (row.get("line"),)).values()
    each = _ratios([row for line in lines if {_at(row) for row in line} == clusters for row in line], metric)
    found: list[Row] = []
    for cluster in dict.fromkeys((ALL, *(plain(row.get("variant")) for row in each))):
        inside = [row for row in each if cluster in (ALL, plain(row.get("variant")))]
        count = len({_at(row) for row in inside})
        for (line, seed), members in grouped(inside, lambda row: (row.get("line"), row.get("seed"))).items():
            if len(members) == count:  # the seed has all of them
                found.append({"cluster": cluster, "line": line, "seed": seed, "over": MEAN, **_mean(members, why)})
    ranks = ranked({line: by_seed(of) for (line,), of in grouped(within(found, ALL), lambda r: (r["line"],)).items()})
    order = list(ranks)
    found = [{**row, "rank": f"{ranks[row['line']]}. {plain(row['line'])}"} for row in found if row["line"] in ranks]
    return sorted(found, key=lambda row: (row["cluster"] != ALL, order.index(row["line"])))


def _ratios(rows: Sequence[Row], metric: str) -> list[dict[str, Value]]:
    """The rows with what they have `above` the best line of their cluster, a logarithm."""
    found = []
    for members in grouped(rows, _at).values():
        lines = grouped(members, lambda row: (row.get("line"),))
        best = min(lines.values(), key=lambda of: math.fsum(float(row[metric] or 0) for row in of) / len(of))
        base = {row.get("seed"): float(row[metric] or 0) for row in best}
        found += [
            {**row, "above": math.log(float(row[metric] or 0) / base[row.get("seed")])}
            for of in lines.values()
            for row in of
            if row.get("seed") in base
        ]
    return found


def _mean(members: Sequence[Row], why: Mapping[str, tuple[str, str]]) -> dict[str, Value]:
    above = math.fsum(float(row["above"] or 0) for row in members) / len(members)
    averages: dict[str, Value] = {"distance": 100 * math.expm1(above)}
    for name in why:
        known = [float(value) for row in members if (value := row.get(name)) is not None]
        averages[name] = math.fsum(known) / len(known) if known else None
    return averages | {name: sum(int(row.get(name) or 0) for row in members) for name in SUMMED}


def ranked(lines: Mapping[Value, Mapping[Value, float]]) -> dict[Value, str]:
    """Lines in order, by what they have for each seed, with their ranks: "1", or "2–4" for those that cannot be told
    apart from the first of them."""
    order = sorted(lines, key=lambda line: math.fsum(lines[line].values()) / len(lines[line]))
    found: dict[Value, str] = {}
    while len(found) < len(order):
        first, *rest = order[len(found) :]
        group = [first]
        for line in rest:
            if _apart(lines[line], lines[first], len(rest)):
                break
            group.append(line)
        low, high = len(found) + 1, len(found) + len(group)
        found |= dict.fromkeys(group, str(low) if low == high else f"{low}–{high}")
    return found


def _apart(one: Mapping[Value, float], other: Mapping[Value, float], comparisons: int) -> bool:
    differences = [value - other[seed] for seed, value in one.items() if seed in other]
    if len(differences) < 2:
        return True
    mean, half = mean_interval(differences, 1 - (1 - CONFIDENCE) / comparisons)
    return abs(mean) > (half or 0)


# ---------------------------------------------------------------- in words
def answer(points: Sequence[Point], where: Layout, measure: Measure) -> Answer:
    """Who is first over all clusters and who cannot be told apart from it, with a table of words: a row for each line,
    a column for each variant."""
    of_all = [point for point in points if point.at["cluster"] == ALL and point.interval]
    if not of_all:
        return Answer("No line has run in all clusters, so there is nothing to rank.")
    variants = tuple(dict.fromkeys(plain(point.at["cluster"]) for point in points if point.at["cluster"] != ALL))
    at = {(plain(point.at["cluster"]), point.at["rank"]): point for point in points}
    columns = variants if len(variants) > 1 else (ALL,)
    rows = tuple(
        (plain(point.at["rank"]), tuple(_cell(at.get((name, point.at["rank"]))) for name in columns))
        for point in of_all[:MOST_ROWS]
    )
    question = "Router" if len(of_all) <= MOST_ROWS else f"The first {MOST_ROWS} of {len(of_all)}"
    return Answer(_sentence(of_all), question, columns, rows)


def _sentence(points: Sequence[Point]) -> str:
    first, *rest = points
    rank, _, name = plain(first.at["rank"]).partition(". ")
    equals = [name_of(point) for point in rest if plain(point.at["rank"]).startswith(f"{rank}. ")]
    said = [f"Of {len(points)} routers, {name} is the fastest over all clusters, {above(first)}"]
    if equals:
        said.append(f"{listed(equals)} cannot be told apart from it")
    others = [point for point in rest if name_of(point) not in equals]
    if others:
        said.append(f"the next, {name_of(others[0])}, is at {above(others[0])}")
    if len(others) > 1:
        said.append(f"the last, {name_of(others[-1])}, at {above(others[-1])}")
    return f"{'; '.join(said)}."


def name_of(point: Point) -> str:
    return plain(point.at["rank"]).partition(". ")[2]


def above(point: Point) -> str:
    """ "12 ± 1 % above the best of each", "6.6 times the best"."""
    mean, half = point.interval or (0.0, None)
    if round(mean, 6) >= 100 * TWICE:
        return f"{number(1 + mean / 100, 2)} times the best"
    share = signed_percent(mean / 100, None if half is None else half / 100).lstrip("+")
    return f"{share} above the best of each" if mean else "the best in each"


def numbers_of(point: Point) -> str:
    """ "+12 ± 1 %", "6.6 ×"."""
    mean, half = point.interval or (0.0, None)
    if mean >= 100 * TWICE:
        return f"{number(1 + mean / 100, 2)} ×"
    return signed_percent(mean / 100, None if half is None else half / 100)


def _cell(point: Point | None) -> Cell:
    if point is None or not point.interval:
        return Cell("not measured", Tone.NONE, "")
    (mean, _), numbers = point.interval, numbers_of(point)
    if mean <= 100 * CLOSE:
        return Cell("good", Tone.GOOD, numbers)
    return Cell("slow", Tone.BAD, numbers) if mean > 100 * FAR else Cell("middling", Tone.MIDDLING, numbers)


def within(rows: Sequence[Row], cluster: str) -> list[Row]:
    return [row for row in rows if row["cluster"] == cluster]


def by_seed(rows: Sequence[Row]) -> dict[Value, float]:
    return {row["seed"]: float(row["distance"] or 0) for row in rows}


def _at(row: Row) -> tuple[Value, ...]:
    return tuple(row.get(name) for name in CLUSTER)
