"""What a policy's default settings cost against the best that were tried.

The best setting is chosen by the first half of the seeds, and measured by the others: the least of many noisy means is
lower than what it is the mean of.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from prebleexp.report.answer import Answer, Cell, Tone
from prebleexp.report.measure import Measure
from prebleexp.report.summary import Layout, Point, Row, Value, grouped
from prebleexp.report.wording import listed, number, plain, signed_percent

METRIC = "norm_latency_mean_s"
WHERE = Layout("tried", "policy", ())
BEST, WORST = "best setting tried", "worst setting tried"
CHANGE = Measure(
    "change",
    "change of latency by the setting",
    "% difference",
    "Relative difference of the average normalised latency of two runs with the same requests, of which one has the "
    "policy's default settings. Below zero, the other setting gains.",
    against="policy",
)
NOTE = " Settings were chosen by one half of the seeds, and are measured by the other."


def with_change(rows: Sequence[Row]) -> list[Row]:
    """For each policy and seed a row for the best setting and one for the worst, each against the default, which is the
    first that was tried. `settings` are those that differ from it."""
    seeds = sorted({row.get("seed") for row in rows}, key=lambda seed: float(seed or 0))
    choosing, measuring = (seeds, seeds) if len(seeds) == 1 else (seeds[: len(seeds) // 2], seeds[len(seeds) // 2 :])
    found: list[Row] = []
    for of_policy in grouped([row for row in rows if row.get(METRIC)], lambda row: (row.get("policy"),)).values():
        names = sorted({name for row in of_policy for name in row if name.startswith("policy.")})
        tried = list(grouped(of_policy, lambda row: tuple(row.get(name) for name in names)).items())  # noqa: B023
        default = tried[0]
        order = sorted(tried, key=lambda one: _mean(one[1], choosing))
        base = {row.get("seed"): _value(row) for row in default[1]}
        for kind, (values, of_setting) in ((BEST, order[0]), (WORST, order[-1])):
            differs = [
                f"{name.removeprefix('policy.')}={_short(value)}"
                for name, value, usual in zip(names, values, default[0], strict=True)
                if value != usual
            ]
            found += [
                {**row, "tried": kind, "settings": ", ".join(differs), "change": 100 * (_value(row) / base[seed] - 1)}
                for row in of_setting
                if (seed := row.get("seed")) in measuring and seed in base
            ]
    return found


def answer(points: Sequence[Point], where: Layout, measure: Measure) -> Answer:
    """Whose default costs most, and whose is as good as what was tried; with a row of words for each policy."""
    best = [point for point in points if point.at["tried"] == BEST and point.interval]
    if not best:
        return Answer("No policy has run with more than its default, so there is nothing to compare.")
    gains = sorted((point for point in best if _sure(point)), key=_change)
    said = [
        f"the default of {plain(point.at['policy'])} costs {_cost(point)} against {_settings(point)}" for point in gains
    ]
    rest = [plain(point.at["policy"]) for point in best if point not in gains]
    if rest:
        said.append(f"nothing that was tried is surely better than the default of {listed(rest)}")
    text = "; ".join(said)
    rows = tuple(
        (plain(point.at["policy"]), (_cell(point), Cell("", Tone.NONE, _settings(point) or "the default")))
        for point in (*gains, *(point for point in best if point not in gains))
    )
    return Answer(f"{text[0].upper()}{text[1:]}.", "Router", ("best setting against the default", "best setting"), rows)


def _cell(point: Point) -> Cell:
    mean, half = point.interval or (0.0, None)
    numbers = signed_percent(mean / 100, None if half is None else half / 100)
    return Cell("gains", Tone.GOOD, numbers) if _sure(point) else Cell("as good", Tone.NONE, numbers)


def _cost(point: Point) -> str:
    """Of the default, relative to the best setting."""
    return signed_percent(1 / (1 + _change(point) / 100) - 1, None).lstrip("+")


def _sure(point: Point) -> bool:
    mean, half = point.interval or (0.0, None)
    return mean < 0 and half is not None and -mean > half


def _change(point: Point) -> float:
    return point.interval[0] if point.interval else 0.0


def _settings(point: Point) -> str:
    return plain(point.rows[0].get("settings"))


def _short(value: Value) -> str:
    return number(value) if isinstance(value, float) else plain(value)


def _mean(rows: Sequence[Row], seeds: Sequence[Value]) -> float:
    values = [_value(row) for row in rows if row.get("seed") in seeds]
    return math.fsum(values) / len(values) if values else math.inf


def _value(row: Row) -> float:
    return float(row[METRIC] or 0)
