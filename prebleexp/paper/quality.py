"""How good the lengths are that a policy is told, and what that does to latency: figures of the sweep `prediction`."""

from __future__ import annotations

from collections.abc import Sequence

from prebleexp.intervals import mean_interval
from prebleexp.report.answer import Answer, Cell, Tone
from prebleexp.report.headline import NO_RUN
from prebleexp.report.measure import Measure
from prebleexp.report.summary import Layout, Point, Row, Value, grouped
from prebleexp.report.wording import condition, listed, plain, signed_percent, signed_range

ORACLE = "oracle"
LATENCY = "norm_latency_mean_s"
NEAR = 1.0
"""percent from the oracle: as good"""
TRAINED, CONFUSED = "a trained predictor", "a predictor's confusion matrix"
WAITED, REFINED = "; each prediction waited for", "; refined as tokens come"
TOLD = {
    "predicted": TRAINED,
    "binned": CONFUSED,
    "mean": "the mean length, for all requests",
    "max": "the greatest length, for all requests",
    "noisy": "the truth with noise",
}
"""by `lengths`, as the table has them"""
NO_ORACLE = "No run that was told the truth is there to compare with, at every load."
ALL_LOADS = "mean of all loads"
LAYOUT = Layout("policy", "told", ("load",))
SUMMED = ("n_finished", "n_requests")
AVERAGED = ("regret", "ttft_p99_s", "hit_ratio")


def with_regret(rows: Sequence[Row]) -> list[Row]:
    """How much higher latency is than that of the same requests with an oracle, in percent: a row for each run under
    its load, and one for each seed with the mean of all loads. The oracle itself is left out."""
    oracle = {_stream(row): row.get(LATENCY) for row in rows if row.get("lengths") == ORACLE}
    quality = {
        line: _mean(members, "told_rank_correlation") or 0.0
        for line, members in grouped(rows, lambda row: (row.get("part"), row.get("line"))).items()
    }
    found = [
        {
            **row,
            "load": ", ".join(condition(axis, row.get(axis)) for axis in ("gpus", "rps")),
            "told": f"{plain(row.get('line'))} ({abs(quality[(row.get('part'), row.get('line'))]):.2f})",
            "regret": _regret(row.get(LATENCY), oracle.get(_stream(row))),
        }
        for row in rows
        if row.get("lengths") != ORACLE
    ]
    return [*_over_loads(found), *found]


def _over_loads(rows: Sequence[Row]) -> list[Row]:
    """A row for each seed that has all loads."""
    loads = {row["load"] for row in rows}
    means: list[Row] = []
    for members in grouped(
        rows, lambda row: (row.get("part"), row["told"], row.get("policy"), row.get("seed"))
    ).values():
        if len({row["load"] for row in members}) == len(loads) and all(row["regret"] is not None for row in members):
            averages = {name: _mean(members, name) for name in AVERAGED}
            sums = {name: sum(int(row.get(name) or 0) for row in members) for name in SUMMED}
            means.append({**members[0], "load": ALL_LOADS, **averages, **sums})
    return means


def regret_answer(points: Sequence[Point], where: Layout, measure: Measure) -> Answer:
    """How far from the oracle policies are when told by trained predictors, what waiting costs, and what is worst;
    with a table of words, a row for each kind of what is told."""
    means = [point for point in points if point.at["load"] == ALL_LOADS and point.interval]
    if not means:
        return Answer(NO_ORACLE if points else NO_RUN)
    kinds = grouped(means, lambda point: (_kind(point.rows[0]),))
    policies = tuple(dict.fromkeys(plain(point.at["policy"]) for point in means))
    order = [f"{told}{more}" for told in TOLD.values() for more in ("", WAITED, REFINED)]
    by_policy = {kind: grouped(of_kind, lambda p: (plain(p.at["policy"]),)) for (kind,), of_kind in kinds.items()}
    rows = [
        (f"Told {kind}", tuple(_cell(by_policy[kind].get((policy,), [])) for policy in policies))
        for kind in order
        if kind in by_policy
    ]
    told = TRAINED if (TRAINED,) in kinds else CONFUSED
    parts = [*_by_policy(told, kinds.get((told,), []), policies), *_waits(means)]
    worst = max(means, key=_value)
    if _value(worst) > NEAR:
        name = plain(worst.rows[0].get("line"))
        parts.append(f"the worst that was tried is {name} with {plain(worst.at['policy'])}: {_percent(worst)}")
    sentence = "; ".join(parts) or f"nothing that was told is further than {NEAR:g} % from the oracle"
    return Answer(f"{sentence[0].upper()}{sentence[1:]}.", "Latency against the oracle's", policies, tuple(rows))


def _by_policy(told: str, points: Sequence[Point], policies: Sequence[str]) -> list[str]:
    """How far from the oracle each policy is with the best and the worst of these."""
    values = {policy: [_value(p) for p in points if plain(p.at["policy"]) == policy] for policy in policies}
    near = [policy for policy, of in values.items() if of and max(map(abs, of)) <= NEAR]
    start = f"with {told.replace('a trained', 'any trained')}, latency is"
    parts = []
    if near:
        most = max(abs(value) for policy in near for value in values[policy])
        parts.append(f"within {most:.1f} % of the oracle's ({listed(near)})")
    far = {policy: of for policy, of in values.items() if of and policy not in near}
    parts += [f"{_higher(min(of), max(of))} ({policy})" for policy, of in far.items()]
    return [f"{start} {listed(parts)}"] if parts else []


def _higher(low: float, high: float) -> str:
    if low < 0 < high:
        return signed_range(low, high)
    sizes = sorted((abs(low), abs(high)))
    return f"{signed_range(*sizes).replace('+', '')} {'higher' if high > 0 else 'lower'}"


def _waits(points: Sequence[Point]) -> list[str]:
    """What it costs most that requests wait for their predictions."""
    found = []
    free = {_source(point): point for point in points if not _seconds(point)}
    for point in points:
        base = free.get(_source(point)) if _seconds(point) else None
        common = [seed for seed in point.values if base is not None and seed in base.values]
        if base is not None and common:
            found.append((*mean_interval([point.values[seed] - base.values[seed] for seed in common]), point))
    if not found:
        return []
    mean, half, point = max(found, key=lambda one: one[0])
    costs = signed_percent(mean / 100, None if half is None else half / 100).lstrip("+")
    name = plain(point.rows[0].get("line")).partition(",")[0]
    return [f"waiting {_seconds(point) * 1000:.2g} ms for {name} costs {costs}"]


def _cell(points: Sequence[Point]) -> Cell:
    values = [_value(point) for point in points]
    if not values:
        return Cell("not measured", Tone.NONE, "")
    numbers = _percent(points[0]) if len(points) == 1 else signed_range(min(values), max(values))
    words = {_word(point) for point in points}
    if "worse" in words:
        return Cell(
            "worse" if len(words) == 1 else "as good to worse", Tone.BAD if len(words) == 1 else Tone.MIDDLING, numbers
        )
    if "undecided" in words:
        return Cell("undecided", Tone.NONE, numbers)
    return Cell("better" if words == {"better"} else "as good", Tone.GOOD, numbers)


def _word(point: Point) -> str:
    mean, half = point.interval or (0.0, None)
    if half is not None and half > NEAR and abs(mean) <= half:
        return "undecided"
    if abs(mean) <= NEAR:
        return "as good"
    return "worse" if mean > 0 else "better"


def _kind(row: Row) -> str:
    told = TOLD.get(str(row.get("lengths")), plain(row.get("lengths")))
    return f"{told}{WAITED if row.get('overhead.prediction_s') else REFINED if row.get('lengths.refine') else ''}"


def _source(point: Point) -> tuple[Value, ...]:
    """Who told, and whom."""
    return (
        point.at["policy"],
        *(point.rows[0].get(name) for name in ("lengths", "lengths.predictor", "lengths.refine")),
    )


def _seconds(point: Point) -> float:
    return float(point.rows[0].get("overhead.prediction_s") or 0)


def _value(point: Point) -> float:
    return point.interval[0] if point.interval else 0.0


def _percent(point: Point) -> str:
    mean, half = point.interval or (0.0, None)
    return signed_percent(mean / 100, None if half is None else half / 100)


def _stream(row: Row) -> tuple[Value, ...]:
    return tuple(row.get(name) for name in ("part", "policy", "gpus", "rps", "seed"))


def _regret(one: Value, oracle: Value) -> float | None:
    return None if one is None or not oracle else 100 * (float(one) / float(oracle) - 1)


def _mean(rows: Sequence[Row], name: str) -> float | None:
    known = [float(value) for row in rows if (value := row.get(name)) is not None]
    return sum(known) / len(known) if known else None
