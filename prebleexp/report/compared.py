"""A comparison in words: by how much B differs from A, in how many configurations, and which direction is better."""

from __future__ import annotations

from collections.abc import Callable

from prebleexp.comparison import Comparison, Verdict
from prebleexp.metrics import DECLARED, NEITHER
from prebleexp.report.measure import of_metric
from prebleexp.report.wording import listed, percent, percent_difference, short


def lossy(found: Comparison) -> bool:
    """Whether any side did not finish a request."""
    return any(share is not None and share < 1 for cell in found.cells for share in cell.finished)


def axes(found: Comparison) -> list[str]:
    """The keys that tell its cells apart."""
    return list(dict.fromkeys(name for cell in found.cells for name in cell.place))


def lines(found: Comparison, number: Callable[[float | None], str], *, finished: bool) -> list[list[str]]:
    """A line of text for each cell: its place on the `axes`, the means of A and B as `number` writes them, their
    difference, the seeds, the shares that each side `finished` if they are wanted, and how B is."""
    names = axes(found)
    return [
        [
            *(short(cell.place.get(name)) for name in names),
            number(cell.a),
            number(cell.b),
            percent_difference(cell.difference, cell.half_width),
            str(cell.seeds),
            *(map(percent, cell.finished) if finished else ()),
            cell.verdict.value,
        ]
        for cell in found.cells
    ]


def sentence(found: Comparison, a: str, b: str) -> str:
    """The sentence that the page begins with."""
    metric = DECLARED[found.metric]
    better = "neither more nor less" if metric.better == NEITHER else metric.better
    single = all(cell.seeds == 1 for cell in found.cells)
    chance = " There is one seed, so no interval: a difference may be chance." if single else ""
    counts = _counts(found) if len(found.cells) > 1 else ""
    return f"{_difference(found, f'A ({a})', f'B ({b})')}{counts}. {better.capitalize()} is better.{chance}"


def _difference(found: Comparison, a: str, b: str) -> str:
    metric = DECLARED[found.metric]
    if found.count(Verdict.INCOMPARABLE) == len(found.cells):
        return f"{b} and {a} cannot be compared in {metric.words}: one of them lost requests that the other served"
    if found.count(Verdict.EQUAL) == len(found.cells):
        return f"{b} is equal to {a} in {metric.words}"
    if found.overall is None:
        return f"{b} has no relative difference from {a} in {metric.words}, which is 0 in A"
    mean, half = found.overall
    size = f"{abs(mean) * 100:.1f}{'' if half is None else f' ± {half * 100:.1f}'} %"
    how = f"{size} {of_metric(found.metric).words_for(1 if mean > 0 else -1)}"
    many = f", on average over {_compared(found)}" if len(found.cells) > 1 else ""
    if half is not None and abs(mean) <= half:
        return f"{b} and {a} cannot be told apart in {metric.words}: B is {how}{many}"
    return f"{b} is {how} than {a} in {metric.words}{many}"


def _compared(found: Comparison) -> str:
    left = len(found.cells) - found.count(Verdict.INCOMPARABLE)
    if left == len(found.cells):
        return f"{left} configurations"
    return f"the {left} configuration{'' if left == 1 else 's'} that can be compared"


def _counts(found: Comparison) -> str:
    """ "; 3 of 12 are worse, 7 better and 2 undecided" """
    counts = [(found.count(verdict), verdict.value) for verdict in Verdict if found.count(verdict)]
    count, first = counts[0]
    if count == len(found.cells):
        return f"; all {count} are {first}"
    start = f"{count} of {len(found.cells)} {'is' if count == 1 else 'are'} {first}"
    return f"; {listed([start, *(f'{count} {name}' for count, name in counts[1:])])}"
