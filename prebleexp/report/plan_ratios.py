"""How the contenders of a plan compare, over the request streams that two have in common."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from prebleexp.planning.contender import GPUS
from prebleexp.planning.planned import Planned, Ratio, best_first, ratios
from prebleexp.report.contenders import MOST_NAMED
from prebleexp.report.wording import listed, number

UNKNOWN = "not known"
"""where both have an answer"""


def times(one: Ratio) -> str:
    """A ratio of sizes with its 95 % interval: "1.23 (1.19 to 1.27)"."""
    return f"{number(one.times)} ({number(one.low)} to {number(one.high)})"


def of_first(found: Sequence[Planned]) -> Mapping[str, str]:
    """How many times the first's load, or GPUs, each of the others has, by name; of those with a bracket."""
    known = {one.other: Ratio(one.other, one.one, 1 / one.times, 1 / one.high, 1 / one.low) for one in ratios(found)}
    closed = _closed(found)
    return {one.name: times(known[one.name]) if one.name in known else UNKNOWN for one in closed[1:]}


def comparisons(found: Sequence[Planned]) -> list[str]:
    """Of the first with others, in sentences: whom it surely beats, who cannot be told apart from it, and of whom that
    is not known."""
    of = ratios(found)
    said = [f"{one.one} bears {times(one)} times as much as {one.other}" for one in of if one.is_sure][: MOST_NAMED - 1]
    same = [one.other for one in of if not one.is_sure]
    closed = _closed(found)
    unknown = [one.name for one in closed[1:] if one.name not in {each.other for each in of}]
    if same:
        said.append(f"{_some(same)} cannot be told apart from {closed[0].name}")
    if unknown:
        said.append(
            f"how {_some(unknown)} compare{'s' if len(unknown) == 1 else ''} with {closed[0].name} is not known: the "
            "streams that both have crossed the target at no loads that were tried"
        )
    return said


def different_streams(found: Sequence[Planned]) -> list[str]:
    """That contenders have different numbers of request streams, and what is over which."""
    counts = sorted({one.answer.seeds for one in _closed(found)})
    if len(counts) < 2:
        return []
    gpus = found[0].contender.searched == GPUS
    answers, of_two = ("numbers of GPUs", "ratios") if gpus else ("loads", "ratios and the order")
    return [
        f"contenders have {counts[0]} to {counts[-1]} request streams: {answers} are over all that each has, {of_two} "
        "over those that two have in common"
    ]


def _closed(found: Sequence[Planned]) -> list[Planned]:
    return [one for one in best_first(found) if one.answer.bracket is not None]


def _some(names: Sequence[str]) -> str:
    """As many as the sentence has room for, and how many more there are."""
    left = len(names) - MOST_NAMED
    return listed([*names[:MOST_NAMED], f"{left} more"] if left > 0 else names)
