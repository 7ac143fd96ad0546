"""A plan in words and numbers: what is borne, or how many GPUs it takes, with which router, how surely."""

from __future__ import annotations

from collections.abc import Sequence

from prebleexp.cluster.replicas import Size
from prebleexp.experiment import counting
from prebleexp.planning.answer import Answer, Verdict
from prebleexp.planning.contender import GPUS, USERS, Contender
from prebleexp.planning.planned import Planned, Ratio, best_first, ratios
from prebleexp.report import recorded_plan as recorded
from prebleexp.report.wording import NOTHING, condition, number, percent

MOST_NAMED = 3
"""contenders of a sentence"""


def sentence(found: Sequence[Planned]) -> str:
    """What the page begins with."""
    order = best_first(found)
    first = order[0].contender
    many = first.searched == GPUS
    bear = "bears" if first.cell.gpus == 1 else "bear"
    subject = f"{condition(first.load_key, first.load)} need" if many else f"{cluster(found)} {bear}"
    if first.is_recorded:
        subject = f"{recorded.stream(order)} needs"
    elif many and len({one.contender.load for one in found}) > 1:
        subject = "The load needs"
    if all(one.answer.verdict is Verdict.NEVER for one in found):
        return f"Not even idle GPUs keep {promised(first)}: the limits are too tight."
    said = [_clause(one) for one in order[:MOST_NAMED]]
    rest = f", and {len(order) - MOST_NAMED} more are in the table" if len(order) > MOST_NAMED else ""
    parts = [f"To keep {promised(first)}, {subject} {'; '.join(said)}{rest}."]
    parts += [f"{_compared(one, many)}." for one in ratios(found)[: MOST_NAMED - 1]]
    parts += [f"{one[0].upper()}{one[1:]}." for one in warnings(found)]
    return " ".join(parts)


def cluster(found: Sequence[Planned]) -> str:
    """What bears the load, as far as it is the same for all: "8 H100 (4 replicas of 2)", "8 H100", "8 GPUs"."""
    cells = [one.contender.cell for one in found]
    words = {counting.named(one) for one in cells}
    if len(words) == 1:
        return words.pop()
    if len({one.gpus for one in cells}) > 1:
        return "the clusters"
    names = {name for one in cells for _, name, _ in counting.kinds(one)}
    return counting.of_kind(Size(cells[0].gpus, cells[0].gpus), names.pop() if len(names) == 1 else "")


def promised(of: Contender) -> str:
    """What is to be kept, in words."""
    count = of.to_keep.count
    return of.to_keep.words if count <= MOST_NAMED else f"all {count} limits of slo={of.cell.names['slo']}"


def unit(of: Contender) -> str:
    """Of loads."""
    return "users" if of.load_key == USERS else "requests/s"


def carried(one: Planned) -> str:
    """ "carries 38.2 (36.9 to 39.6) requests/s" """
    answer = one.answer
    if answer.verdict is Verdict.NEVER:
        return "carries nothing: the limits are too tight even for idle GPUs"
    how = "" if answer.verdict is Verdict.FOUND else f"{answer.verdict.value} "
    return f"carries {how}{level(answer)} {unit(one.contender)}"


def _clause(one: Planned) -> str:
    answer, of = one.answer, unit(one.contender)
    if answer.verdict is Verdict.NEVER:
        return f"no number with {one.name}: the limits are too tight even for idle GPUs"
    if one.contender.searched == GPUS:
        if one.contender.is_recorded and one.contender.cell.cluster.groups:
            return recorded.of_groups(one)
        if answer.verdict is Verdict.AT_LEAST:
            return f"more than {counting.named(one.at_size(answer.likely))} with {one.name}"
        if one.contender.is_recorded:
            return f"{counting.named(one.cell)} with {one.name}{recorded.others(answer)}"
        likely = answer.likely != answer.size
        average = f" ({int(answer.likely or 0)} on average over request streams)" if likely else ""
        return f"{counting.named(one.cell)} with {one.name}{average}"
    if answer.verdict is Verdict.FOUND:
        return f"{level(answer)} {of} with {one.name}"
    how = "at least" if answer.verdict is Verdict.AT_LEAST else "at most"
    return f"{how} {number(answer.size)} {of} with {one.name}"


def level(answer: Answer) -> str:
    """ "38.2 (36.9 to 39.6)" """
    if answer.low is None or answer.high is None or answer.size is None:
        return number(answer.size)
    return f"{number(answer.size)} ({number(answer.low)} to {number(answer.high)})"


def _compared(one: Ratio, many: bool) -> str:
    if not one.is_sure:
        return f"{one.one} and {one.other} cannot be told apart"
    what = "as many GPUs" if many else "as much"
    verb = "takes" if many else "bears"
    return f"{one.one} {verb} {times(one)} times {what} as {one.other}"


def times(one: Ratio) -> str:
    """ "1.23 (1.19 to 1.27)" """
    return f"{number(one.times)} ({number(one.low)} to {number(one.high)})"


def warnings(found: Sequence[Planned]) -> list[str]:
    """What a reader must know of these answers."""
    said = recorded.warnings(found) if found[0].contender.is_recorded else []
    for one in found:
        answer = one.answer
        if not answer.precise:
            said.append(f"the answer of {one.name} is not known as well as was asked for, after {answer.seeds} seeds")
        if answer.misses is not None:
            said.append(
                f"with {one.name}, no more than {answer.misses:.0f} requests of a run miss at the target: its interval "
                "may be too narrow, and longer runs would tell"
            )
        if answer.rise is not None:
            said.append(
                f"with {one.name}, a request stream kept up to {percent(answer.rise)} more where it should keep less: "
                "its answer is one of several crossings"
            )
        if answer.grows is not None:
            said.append(
                f"with {one.name}, requests in the system still grow there, by {percent(answer.grows)} of the "
                "arrivals: it is overloaded, or its runs are too short to settle, and longer ones would find less"
            )
    return said


def heads(found: Sequence[Planned]) -> list[str]:
    """Of the columns of `lines`."""
    axes = list(dict.fromkeys(name for one in found for name in one.at))
    first = found[0].contender
    if first.is_recorded:
        return [*axes, *_counts(found), *recorded.HEADS, *costs(found), "runs", "of requests", "verdict"]
    sizes = ["GPUs", "on average"] if first.searched == GPUS else [unit(first), "95 % interval"]
    sizes = [*_counts(found), *sizes[first.searched == GPUS :]]
    return [*axes, *sizes, "of the first", *costs(found), "seeds", "runs", "of requests", "verdict"]


def _counts(found: Sequence[Planned]) -> list[str]:
    """Columns of how many GPUs and replicas there are: where they are the answer, or clusters differ in them, and
    nothing else says so."""
    axes = {name for one in found for name in one.at}
    several = found[0].contender.searched == GPUS or len({one.contender.cell.gpus for one in found}) > 1
    split = any(one.contender.cell.gpus != one.contender.cell.replicas for one in found)
    said = {"GPUs": several and "gpus" not in axes, "replicas": split}
    return [name for name, is_shown in said.items() if is_shown]


def _counted(one: Planned, columns: Sequence[str]) -> list[str]:
    found = {"GPUs": one.gpus, "replicas": one.cell.replicas}
    return [NOTHING if one.gpus is None else str(found[name]) for name in columns]


def costs(found: Sequence[Planned]) -> list[str]:
    """What is said of costs: of users, who have no rate, nothing."""
    if found[0].contender.load_key == USERS:
        return []
    return ["GPU-hours of 1M", *(["cost of 1M"] if any(one.price is not None for one in found) else [])]


def lines(found: Sequence[Planned]) -> list[list[str]]:
    """Of text, a line for each contender, the best first."""
    axes = list(dict.fromkeys(name for one in found for name in one.at))
    of_first = {one.other: one for one in ratios(found)}
    said, counts = costs(found), _counts(found)
    made = []
    for one in best_first(found):
        answer, row = one.answer, one.row()
        at = [str(one.at.get(axis, "")) for axis in axes]
        cost = [number(row[name]) for name in ("gpu_hours_per_million", "cost_per_million")][: len(said)]
        if one.contender.is_recorded:
            numbers = [f"{answer.runs:,}", f"{answer.counted:,}"]
            made.append([*at, *_counted(one, counts), *recorded.cells(one), *cost, *numbers, recorded.verdict(one)])
            continue
        if one.contender.searched == GPUS:
            sizes = [NOTHING if answer.likely is None else f"{answer.likely:g}"]
        else:
            ends = answer.low is not None
            sizes = [number(answer.size), f"{number(answer.low)} to {number(answer.high)}" if ends else NOTHING]
        ratio = of_first.get(one.name)
        relative = NOTHING if ratio is None else times(Ratio(ratio.other, ratio.one, *_inverse(ratio)))
        made.append(
            [
                *at,
                *_counted(one, counts),
                *sizes,
                relative,
                *cost,
                str(answer.seeds),
                f"{answer.runs:,}",
                f"{answer.counted:,}",
                answer.verdict.value,
            ]
        )
    return made


def _inverse(one: Ratio) -> tuple[float, float, float]:
    return 1 / one.times, 1 / one.high, 1 / one.low
