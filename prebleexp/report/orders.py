"""Whether one kind of cluster has its lines in the order of another: Kendall's rank correlation, a value a seed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import combinations

from prebleexp.intervals import mean_interval
from prebleexp.report.figures import Column, Table
from prebleexp.report.finding import Finding
from prebleexp.report.ranking import by_seed, ranked, within
from prebleexp.report.summary import Row, Value, grouped
from prebleexp.report.wording import interval, listed, number, plain

Lines = Mapping[Value, Mapping[Value, float]]
"""by line, by seed: how far it is from the best"""
NAME = "order"
LEAST_LINES = 3
"""two are in one order or the other, and the findings say which"""


def finding(rows: Sequence[Row], variants: Sequence[str]) -> Finding | None:
    """Of the rows of `ranking.with_distance`; None where there is nothing to compare."""
    of = {variant: _lines(within(rows, variant)) for variant in variants}
    if len(variants) < 2 or len(of[variants[0]]) < LEAST_LINES:
        return None
    base, *others = variants
    alike = {variant: mean_interval(_correlations(of[base], of[variant])) for variant in others}
    firsts = {variant: _first(of[variant]) for variant in variants}
    said = [f"{variant} {interval(alike[variant])}" for variant in others]
    everywhere = _names(set.intersection(*firsts.values()))
    sentences = (
        f"Kendall's rank correlation with the order of {base} (1: the same, -1: reversed): {listed(said)}.",
        f"First everywhere, or not to be told apart from the first: {everywhere or 'none'}.",
    )
    columns = (Column("where", False), Column("rank correlation", True), Column("first", False))
    table = tuple((variant, interval(alike.get(variant, (1.0, None))), _names(firsts[variant])) for variant in variants)
    return Finding(
        NAME,
        f"Is the order of {base} that of the others?",
        f"How far the order of {base} is that of {listed(others)}",
        sentences,
        Table(columns, table),
        Table((), ()),
        {"base": base, "rank_correlation": alike, "first": _where(firsts)},
    )


def sentence(found: Finding) -> str:
    """What such a finding says, for the top of a page."""
    alike = [mean for mean, _ in found.numbers["rank_correlation"].values()]
    least, most = (number(one, 2) for one in (min(alike), max(alike)))
    how = least if least == most else f"{least} to {most}"
    first = "; ".join(f"{names or 'none'} on {listed(where)}" for names, where in found.numbers["first"].items())
    others = listed(list(found.numbers["rank_correlation"]))
    return (
        f"On {others} routers are in the order of {found.numbers['base']} with a rank correlation of {how} "
        f"(1: the same, -1: reversed); first: {first}."
    )


def kendall(one: Sequence[float], other: Sequence[float]) -> float:
    """Pairs in the same order less pairs in the other, over all pairs."""
    pairs = list(combinations(zip(one, other, strict=True), 2))
    return sum(_sign(a[0] - b[0]) * _sign(a[1] - b[1]) for a, b in pairs) / len(pairs)


def _correlations(base: Lines, other: Lines) -> list[float]:
    lines = [line for line in base if line in other]
    seeds = [seed for seed in base[lines[0]] if all(seed in of[line] for of in (base, other) for line in lines)]
    return [kendall([base[line][seed] for line in lines], [other[line][seed] for line in lines]) for seed in seeds]


def _first(lines: Lines) -> set[Value]:
    ranks = ranked(lines)
    best = next(iter(ranks.values()))
    return {line for line, rank in ranks.items() if rank == best}


def _where(firsts: Mapping[str, set[Value]]) -> dict[str, list[str]]:
    """By those that are first: where they are."""
    found: dict[str, list[str]] = {}
    for variant, lines in firsts.items():
        found.setdefault(_names(lines), []).append(variant)
    return found


def _names(lines: set[Value]) -> str:
    return listed(sorted(map(plain, lines))) if lines else ""


def _lines(rows: Sequence[Row]) -> dict[Value, dict[Value, float]]:
    return {line: by_seed(of) for (line,), of in grouped(rows, lambda row: (row["line"],)).items()}


def _sign(value: float) -> int:
    return (value > 0) - (value < 0)
