"""A comparison in words: by how much B differs from A, in how many configurations, and which direction is better."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from prebleexp.comparison import ATTAINMENT, Comparison, Measured, Value, Verdict, compare
from prebleexp.errors import InvalidInput
from prebleexp.metrics import DECLARED, LOWER, NEITHER
from prebleexp.report import explained
from prebleexp.report.explained import Level
from prebleexp.report.measure import of_metric
from prebleexp.report.wording import NOTHING, decimals, listed, percent, percent_difference, short

RULE = "the 95 % interval of the paired differences has zero in it"


@dataclass(frozen=True)
class Pair:
    """Two sides by their names, their runs, and what was found."""

    a: str
    b: str
    runs: tuple[Sequence[Measured], Sequence[Measured]]
    found: Comparison

    @property
    def why(self) -> str:
        """What else differs where the two surely do, in a sentence without its full stop; else empty."""
        if not _sure(self.found):
            return ""
        levels = []
        for name in (one for one in explained.LOOKED_AT if one != self.found.metric):
            try:
                other = compare(*self.runs, name)
            except InvalidInput:  # neither side has it
                continue
            if _sure(other):
                a, b = (math.fsum(side) / len(side) for side in zip(*((c.a, c.b) for c in other.cells), strict=True))
                levels.append(Level(name, b, a))
        lower = self.found.overall is not None and self.found.overall[0] < 0
        return explained.sentence(self.b, self.a, lower == (DECLARED[self.found.metric].better == LOWER), levels)


def pair(a: str, of_a: Sequence[Measured], b: str, of_b: Sequence[Measured], metric: str) -> Pair:
    """Raises InvalidInput if there is nothing to compare."""
    return Pair(a, b, (of_a, of_b), compare(of_a, of_b, metric))


def _sure(found: Comparison) -> bool:
    """Whether the two differ on average by more than the interval of that."""
    return found.overall is not None and found.overall[1] is not None and abs(found.overall[0]) > found.overall[1]


def table(
    pairs: Sequence[Pair],
    of: Sequence[str],
    number: Callable[[float | None], str],
    said: Callable[[Value], str] | None = None,
) -> tuple[list[str], list[list[str]]]:
    """Heads and lines of all cells; of several pairs the first column says who it is. `of` are the heads of the
    values of both sides, in which {} stands for the side."""
    names = list(dict.fromkeys(name for one in pairs for name in axes(one.found)))
    shares, several = any(lossy(one.found) for one in pairs), len(pairs) > 1
    a, b = ("it", pairs[0].b) if several else ("A", "B")
    heads = [f"{b} against"] if several else []
    heads += [*names, of[0].format(a), of[1].format(b), "difference", "seeds"]
    heads += [*((f"finished of {a}", f"of {b}") if shares else ()), f"{b} is"]
    rows = [
        [*([one.a] if several else []), *line]
        for one in pairs
        for line in lines(one.found, number, finished=shares, names=names, said=said)
    ]
    return heads, rows


def lossy(found: Comparison) -> bool:
    """Whether any side did not finish a request."""
    return any(share is not None and share < 1 for cell in found.cells for share in cell.finished)


def axes(found: Comparison) -> list[str]:
    """The keys that tell its cells apart."""
    return list(dict.fromkeys(name for cell in found.cells for name in cell.place))


def lines(
    found: Comparison,
    number: Callable[[float | None], str],
    *,
    finished: bool,
    names: Sequence[str] | None = None,
    said: Callable[[Value], str] | None = None,
) -> list[list[str]]:
    """A line of text for each cell: its place on the `axes`, or on those of `names`, the means of A and B as `number`
    writes them, their difference, the seeds, the shares that each side `finished` if they are wanted, and how B is.
    `said` writes a place."""
    names = axes(found) if names is None else names
    return [
        [
            *((said or value_of)(cell.place.get(name, found.common.get(name))) for name in names),
            number(cell.a),
            number(cell.b),
            percent_difference(cell.difference, cell.half_width),
            str(cell.seeds),
            *(map(percent, cell.finished) if finished else ()),
            cell.verdict.value,
        ]
        for cell in found.cells
    ]


def value_of(value: Value) -> str:
    """As the user would write it; a dash where a cell has no such setting."""
    return NOTHING if value is None else short(value)


def sentences(pairs: Sequence[Pair]) -> list[str]:
    """What a page begins with: the answer of each pair, and what else differs where it is sure."""
    if len(pairs) > 1:
        return _each(pairs)
    return [sentence(pairs[0].found, pairs[0].a, pairs[0].b), *filter(None, [_reason(pairs[0]).strip()])]


def _reason(of: Pair) -> str:
    return f" {why}." if (why := of.why) else ""


def _each(pairs: Sequence[Pair]) -> list[str]:
    """A sentence for all pairs, each of which has the last side in common."""
    said = [f"{_difference(one.found, one.a, one.b, one.b)}{_counts(one.found)}.{_reason(one)}" for one in pairs]
    better = DECLARED[pairs[0].found.metric].better
    last = ["neither more nor less is better" if better == NEITHER else f"{better} is better"]
    last += [f"undecided is where {RULE}"] if any(one.found.count(Verdict.UNDECIDED) for one in pairs) else []
    text = "; ".join([*last, *dict.fromkeys(one for pair in pairs for one in _chance(pair.found))])
    return [*said, f"{text[0].upper()}{text[1:]}."]


def _chance(found: Comparison) -> list[str]:
    """What intervals there are where a side has one request stream."""
    if any(cell.seeds > 1 for cell in found.cells):
        return []
    if any(cell.half_width is not None for cell in found.cells):
        rule = "; unproven is where that has zero in it" if found.count(Verdict.UNPROVEN) else ""
        return [f"there is one stream, whose batches of requests, in pairs, give the interval for others like it{rule}"]
    return ["; ".join(["there is one seed, so no interval: a difference may be chance", *_way_to_one(found)])]


def _way_to_one(found: Comparison) -> list[str]:
    """What has an interval where one request stream has none in this metric: others, or attainment by its batches."""
    runs = [row for cell in found.cells for side in cell.runs for row in side]
    ways = ["replications=5 gives one"] if any(cell.draws for cell in found.cells) else []
    has_one = f"metric={ATTAINMENT} has one, of batches of the stream"
    if all(cell.batched for cell in found.cells):
        ways.append(has_one)
    elif all(row.get(f"{ATTAINMENT}_low") is not None for row in runs):
        ways += [] if any(cell.kept for cell in found.cells) else [f"with keep_requests=first {has_one}"]
    elif not ways:
        ways.append(f"with limits, as slo.ttft_s=500ms, {has_one}")
    return [" and ".join(ways)] if ways else []


def sentence(found: Comparison, a: str, b: str) -> str:
    """The sentence that the page begins with."""
    metric = DECLARED[found.metric]
    better = "neither more nor less" if metric.better == NEITHER else metric.better
    chance = "".join(f" {one[0].upper()}{one[1:]}." for one in _chance(found))
    rule = f", where {RULE}" if len(found.cells) > 1 and found.count(Verdict.UNDECIDED) else ""
    differ = _difference(found, f"A ({a})", f"B ({b})", "B")
    return f"{differ}{_counts(found)}{rule}. {better.capitalize()} is better.{chance}"


def _difference(found: Comparison, a: str, b: str, short: str) -> str:
    """`short`: what B is called the second time."""
    metric = DECLARED[found.metric]
    if found.count(Verdict.INCOMPARABLE) == len(found.cells):
        return f"{b} and {a} cannot be compared in {metric.words}: one of them lost requests that the other served"
    if found.count(Verdict.EQUAL) == len(found.cells):
        return f"{b} is equal to {a} in {metric.words}"
    if found.overall is None:
        return f"{b} has no relative difference from {a} in {metric.words}, which is 0 in A"
    mean, half = found.overall
    how = _by(found, [(mean, half)])
    many = f", on average over {_compared(found)}" if len(found.cells) > 1 else ""
    unsure = half is not None and abs(mean) <= half and any(cell.seeds > 1 for cell in found.cells)
    if _turns(found):
        ways = [[cell for cell in found.cells if cell.verdict is one] for one in (Verdict.BETTER, Verdict.WORSE)]
        first, then = (_by(found, [(cell.difference or 0.0, cell.half_width) for cell in way]) for way in ways)
        said = f"{b} is {first} than {a} in {metric.words} in {len(ways[0])} of {len(found.cells)} configurations"
        average = f"it is {'not to be told from it' if unsure else how}"
        return f"{said}, and {then} in {len(ways[1])}; on average over {_compared(found)} {average}"
    if unsure:
        return f"{b} and {a} cannot be told apart in {metric.words}: {short} is {how}{many}"
    return f"{b} is {how} than {a} in {metric.words}{many}"


def _by(found: Comparison, differences: Sequence[tuple[float, float | None]]) -> str:
    """ "3.1 ± 0.5 % faster", or "20.3 to 77.5 % faster" of several, all of one sign."""
    mean, half = differences[0]
    digits = decimals(*(differences[0] if len(differences) == 1 else ()))
    sizes = [f"{size * 100:.{digits}f}" for size in sorted(abs(one) for one, _ in differences)]
    around = "" if half is None else f" ± {half * 100:.{digits}f}"
    size = f"{sizes[0]}{around}" if len(sizes) == 1 else " to ".join(dict.fromkeys((sizes[0], sizes[-1])))
    return f"{size} % {of_metric(found.metric).words_for(1 if mean > 0 else -1)}"


def _turns(found: Comparison) -> bool:
    """Whether B is surely better in some cells and surely worse in others, so that an average alone would mislead."""
    decided = [cell for cell in found.cells if cell.verdict in (Verdict.BETTER, Verdict.WORSE)]
    return len({cell.verdict for cell in decided}) > 1 and all(cell.difference is not None for cell in decided)


def _compared(found: Comparison) -> str:
    left = len(found.cells) - found.count(Verdict.INCOMPARABLE)
    if left == len(found.cells):
        return f"{left} configurations"
    return f"the {left} configuration{'' if left == 1 else 's'} that can be compared"


def _counts(found: Comparison) -> str:
    """ "; one by one, 3 of 12 are worse, 7 better and 2 undecided" """
    if len(found.cells) < 2:
        return ""
    told = (Verdict.BETTER, Verdict.WORSE) if _turns(found) else ()
    counts = [(n, verdict.value) for verdict in Verdict if verdict not in told and (n := found.count(verdict))]
    if told:
        return f"; {listed([f'{n} {name}' for n, name in counts])}" if counts else ""
    count, first = counts[0]
    if count == len(found.cells):
        return f"; one by one, {'both' if count == 2 else f'all {count}'} are {first}"
    start = f"{count} of {len(found.cells)} {'is' if count == 1 else 'are'} {first}"
    return f"; one by one, {listed([start, *(f'{count} {name}' for count, name in counts[1:])])}"
