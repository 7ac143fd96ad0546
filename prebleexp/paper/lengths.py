"""What knowing output lengths wins, by how much they vary and how good the guess is: the figure of the sweep
`lengths`."""

from __future__ import annotations

from collections.abc import Sequence

from prebleexp.report.answer import Answer
from prebleexp.report.headline import NO_RUN
from prebleexp.report.measure import Measure
from prebleexp.report.summary import Layout, Point, Row, Value, grouped
from prebleexp.report.wording import listed, plain, signed_percent

NOTHING, ORACLE = "max", "oracle"
LATENCY = "norm_latency_mean_s"
LAYOUT = Layout("policy", "line", ("variant",))
CHANGE = Measure(
    "known",
    "change of latency by what is known of lengths",
    "% difference",
    "Relative difference of the average normalised latency of two runs with the same router and request stream, one of "
    "which was told the greatest length for all requests, which is to know nothing, mean of all loads: below zero, "
    "knowing more wins.",
)


def with_change(rows: Sequence[Row]) -> list[Row]:
    """A row for each router, seed and kind of knowledge that has all loads of its variant: the mean of its changes."""
    base = {_stream(row): row.get(LATENCY) for row in rows if row.get("lengths") == NOTHING}
    loads = {variant: len({_load(row) for row in of}) for (variant,), of in grouped(rows, _variant).items()}
    found: list[Row] = []
    for members in grouped(
        rows, lambda row: (*_variant(row), row.get("line"), row.get("policy"), row.get("seed"))
    ).values():
        first = members[0]
        changes = [_change(row.get(LATENCY), base.get(_stream(row))) for row in members]
        known = [one for one in changes if one is not None]
        if first.get("lengths") != NOTHING and len(known) == loads[first.get("variant")]:
            sums = {name: sum(int(row.get(name) or 0) for row in members) for name in ("n_finished", "n_requests")}
            found.append({**first, CHANGE.metric: sum(known) / len(known), **sums})
    return found


def answer(points: Sequence[Point], where: Layout, measure: Measure) -> Answer:
    """What the truth wins each router where lengths vary least and most, and who cannot use it."""
    truth = [point for point in points if point.interval and point.rows[0].get("lengths") == ORACLE]
    if not truth:
        return Answer(NO_RUN)
    said, idle = [], []
    for (policy,), of in grouped(truth, lambda point: (plain(point.at["policy"]),)).items():
        values = [(point.interval[0], plain(point.at["variant"])) for point in of if point.interval]
        best, worst = min(values), max(values)
        if best[0] == worst[0] == 0:
            idle.append(plain(policy))
        else:
            ends = (f"{signed_percent(change / 100, None)} ({variant})" for change, variant in (best, worst))
            said.append(f"{policy} {' to '.join(ends)}")
    sentence = f"To know output lengths changes latency by {'; '.join(said)}" if said else "No router reads lengths"
    more = f"; {listed(idle)} {'do' if len(idle) > 1 else 'does'} not read them" if idle and said else ""
    return Answer(f"{sentence}{more}.")


def _variant(row: Row) -> tuple[Value, ...]:
    return (row.get("variant"),)


def _load(row: Row) -> tuple[Value, ...]:
    return (row.get("gpus"), row.get("rps"))


def _stream(row: Row) -> tuple[Value, ...]:
    return tuple(row.get(name) for name in ("variant", "policy", "gpus", "rps", "seed"))


def _change(one: Value, base: Value) -> float | None:
    return None if one is None or not base else 100 * (float(one) / float(base) - 1)
