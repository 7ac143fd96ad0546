"""How good the lengths are that a policy is told, and what that does to latency: figures of the sweep `prediction`."""

from __future__ import annotations

from collections.abc import Sequence

from prebleexp.report.summary import Layout, Point, Row, Value, grouped
from prebleexp.report.wording import listed, number, plain

ORACLE = "oracle"
LATENCY = "norm_latency_mean_s"
NEAR = 1.0
"""percent"""
NO_RUN = "No run of this sweep succeeded, so there is nothing to compare."
NOISY, PREDICTED, CONFUSED = "the truth with noise", "predictions", "bins of a classifier"
TOLD = {
    "max": "the most",
    "mean": "the mean",
    "noisy": NOISY,
    ORACLE: NOISY,
    "predicted": PREDICTED,
    "binned": CONFUSED,
}
"""by `lengths`; an oracle is noise of 0"""
LAYOUT = Layout("told_rank", "told", ("policy", "gpus", "rps"))


def with_quality(rows: Sequence[Row]) -> list[Row]:
    """Rows with what they were told, how good that is (the mean over all runs that were told likewise, so that it is
    one point), and how much higher latency is than that of the same requests with an oracle, in percent."""
    oracle = {_stream(row): row.get(LATENCY) for row in rows if row.get("lengths") == ORACLE}
    told = grouped(rows, lambda row: (row.get("part"), row.get("line")))
    ranks = {name: _mean([row.get("told_rank_correlation") for row in members]) for name, members in told.items()}
    return [
        {
            **row,
            "told": _told(row),
            "told_rank": ranks[(row.get("part"), row.get("line"))],
            "regret": _regret(row.get(LATENCY), oracle.get(_stream(row))),
        }
        for row in rows
    ]


def regret_headline(points: Sequence[Point], where: Layout, metric: str, unit: str) -> str:
    """For every policy, told what it does about as well as told the truth, and told what it does not."""
    sentences = []
    for policy, told in _means(points, where).items():
        near = [name for name, means in told.items() if max(means) <= NEAR]
        far = [f"{name} up to {max(means):+.1f} %" for name, means in told.items() if max(means) > NEAR]
        alike = f" is within {NEAR:g} % of an oracle, or better, told {listed(near)}" if near else ""
        worse = (
            f"{'; it is further off told' if near else ' is further off an oracle told'} {listed(far)}" if far else ""
        )
        sentences.append(f"{policy}{alike}{worse}.")
    return " ".join(sentences) or NO_RUN


def quality_headline(points: Sequence[Point], where: Layout, metric: str, unit: str) -> str:
    """For every policy, between what the metric lies over the panels, by what the policy was told."""
    sentences = []
    for policy, told in _means(points, where).items():
        ranges = [f"told {n} {number(min(means), 2)} to {number(max(means), 2)}" for n, means in told.items()]
        sentences.append(f"{policy}, in {unit}: {listed(ranges)}.")
    return " ".join(sentences) or NO_RUN


def _means(points: Sequence[Point], where: Layout) -> dict[str, dict[str, list[float]]]:
    """By policy and by what it was told, the means of the points that have one."""
    found: dict[str, dict[str, list[float]]] = {}
    for point in points:
        if point.interval:
            of_policy = found.setdefault(plain(point.at["policy"]), {})
            of_policy.setdefault(plain(point.at[where.line]), []).append(point.interval[0])
    return found


def _told(row: Row) -> str:
    told = TOLD.get(str(row.get("lengths")), plain(row.get("lengths")))
    refined = "refined " if row.get("lengths.refine") else ""
    charged = "charged " if row.get("overhead.prediction_s") else ""
    return f"{charged}{refined}{told}"


def _stream(row: Row) -> tuple[Value, ...]:
    return tuple(row.get(name) for name in ("part", "policy", "gpus", "rps", "seed"))


def _regret(one: Value, oracle: Value) -> float | None:
    return None if one is None or not oracle else 100 * (float(one) / float(oracle) - 1)


def _mean(values: Sequence[Value]) -> float | None:
    known = [float(value) for value in values if value is not None]
    return round(sum(known) / len(known), 4) if known else None
