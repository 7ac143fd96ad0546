"""A plan in words and numbers: what is borne, or how many GPUs it takes, with which router, how surely."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from prebleexp.cluster.replicas import Size
from prebleexp.experiment import counting
from prebleexp.experiment.cold import cut
from prebleexp.experiment.shape import by_chance, flattened, one_recording
from prebleexp.experiment.understood import doubted
from prebleexp.planning.answer import Answer, Spot, Verdict
from prebleexp.planning.contender import GPUS, USERS, Contender
from prebleexp.planning.contender_names import brief
from prebleexp.planning.planned import Planned, best_first, enough_for_others
from prebleexp.planning.promise import ToKeep
from prebleexp.report import evidence, plan_ratios, stored
from prebleexp.report import recorded_plan as recorded
from prebleexp.report.contenders import MOST_NAMED, beside_gpus, named, priced
from prebleexp.report.crowded import crowded
from prebleexp.report.wording import NOTHING, condition, listed, number, percent
from prebleexp.service.doubtful import doubts

HOURS = "GPU-hours/1M req"
COSTS = ("gpu_hours_per_million", "cost_per_hour", "cost_per_million")
NONE_BORNE = "nothing, since the limits are too tight even for idle GPUs,"


def sentence(found: Sequence[Planned]) -> str:
    """The sentence that the page begins with."""
    order = best_first(found)
    first = order[0].contender
    many = first.searched == GPUS
    bear = "bears" if first.cell.gpus == 1 else "bear"
    subject = f"{condition(first.load_key, first.load)} need" if many else f"{cluster(found)} {bear}"
    if first.is_recorded:
        subject = f"{recorded.stream(order)} needs"
    elif many and len({one.contender.load for one in found}) > 1:
        subject = "the load needs"
    if all(one.answer.verdict is Verdict.NEVER for one in found):
        if many:
            return f"No number of GPUs{_up_to(order)} keeps {promised(first)}: {_least_bad(order[0])}."
        return f"Not even idle GPUs keep {promised(first)}: the limits are too tight."
    alike: dict[str, list[Planned]] = {}
    for one in order:
        alike.setdefault(_clause(one), []).append(one)
    said = [f"{clause} with {_with(of, found)}{evidence.of_several(of, found)}" for clause, of in alike.items()]
    left = sum(len(of) for of in list(alike.values())[MOST_NAMED:])
    rest = f", and {left} more {'is' if left == 1 else 'are'} in the table" if left else ""
    parts = [f"To keep {promised(first)}, {subject} {'; '.join(said[:MOST_NAMED])}{rest}."]
    compared = _untested(found) if many else plan_ratios.comparisons(found)
    parts += [f"{one}." for one in [*_for_others(found), *compared]]
    return " ".join(parts)


def _for_others(found: Sequence[Planned]) -> list[str]:
    """What is enough for streams like a recording, too, where the first answer is the recording's alone."""
    of = enough_for_others(found) if found[0].contender.is_recorded else None
    if of is None:
        return []
    gpus, alike = of
    short = beside_gpus(found)
    who = named([short[one.name] for one in alike], list(short.values()))
    known = evidence.of_several(alike, found)
    return [f"Enough for all others like it is {priced(alike[0], alike[0].at_size(gpus))} with {who}{known}"]


def _untested(found: Sequence[Planned]) -> list[str]:
    """Of the best that need one replica each, where these have several routers."""
    routers = list(dict.fromkeys(str(one.at["policy"]) for one in found if "policy" in one.at and one.is_alone))
    if not best_first(found)[0].is_alone or len(routers) < 2:
        return []
    return [f"One replica leaves nothing to route, so {listed(routers)} do the same: which is better was not tested"]


def _with(of: Sequence[Planned], found: Sequence[Planned]) -> str:
    """Who needs as many GPUs, and what they have besides: of a recording their intervals, each with those that have it,
    else what a single one needs on average."""
    answer = of[0].answer
    if of[0].contender.searched != GPUS or answer.verdict is not Verdict.FOUND:
        return named(of, found)
    short = beside_gpus(found)
    of, found = [short[one.name] for one in of], list(short.values())
    if of[0].contender.is_recorded:
        alike: dict[str, list[Planned]] = {}
        for one in of:
            alike.setdefault(recorded.others(one.answer), []).append(one)
        return listed([f"{named(some, found)}{ends}" for ends, some in alike.items()])
    on_average = f" ({int(answer.likely or 0)} on average over request streams)"
    return f"{named(of, found)}{on_average if len(of) == 1 and answer.likely != answer.size else ''}"


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
    """The unit of a contender's load."""
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
        return (
            f"no number{_up_to([one])} is enough ({_least_bad(one)})" if one.contender.searched == GPUS else NONE_BORNE
        )
    if one.contender.searched == GPUS:
        if one.contender.is_recorded and one.contender.cell.cluster.groups:
            return recorded.of_groups(one)
        if answer.verdict is Verdict.AT_LEAST:
            return f"more than {counting.named(one.at_size(answer.likely))}"
        money = "" if one.price is None else f" at {number(one.price)} an hour"
        return f"{counting.named(one.cell)}{money}"
    if answer.verdict is Verdict.FOUND:
        return f"{level(answer)} {of}"
    how = "at least" if answer.verdict is Verdict.AT_LEAST else "at most"
    return f"{how} {number(answer.size)} {of}"


def _up_to(of: Sequence[Planned]) -> str:
    """Up to how many GPUs each number was tried: " up to 64"."""
    every = [one.answer.every for one in of if one.answer.every is not None]
    return f" up to {min(every):,g}" if every else ""


def _least_bad(one: Planned) -> str:
    """What the most GPUs that were tried keep, and those that keep the most: too little, because limits are too tight,
    or because the router leaves most of them idle, or spreads what each has cached."""
    most = max(one.answer.curve, key=lambda spot: spot.size)
    best = max(one.answer.curve, key=lambda spot: (spot.kept, spot.size))
    said = [_kept(spot, one.contender.to_keep) for spot in dict.fromkeys((most, best))]
    return said[0] if len({*said}) == 1 else f"{said[0]}, and at best {said[1]}"


def _kept(spot: Spot, to_keep: ToKeep) -> str:
    gpus, said = f"{spot.size:,g} GPU{'' if spot.size == 1 else 's'}", to_keep.said(spot.kept)
    if to_keep.is_margin:
        return f"{gpus} {'is' if spot.size == 1 else 'are'} {said.lstrip('−')} points short of the promise"
    return f"{gpus} keep{'s' if spot.size == 1 else ''} {said}"


def how(one: Planned) -> str:
    """What stands before a number: nothing where it was found."""
    if one.answer.verdict is Verdict.FOUND:
        return ""
    return "more than " if one.contender.searched == GPUS else f"{one.answer.verdict.value} "


def level(answer: Answer) -> str:
    """The size of an answer with its 95 % interval: "38.2 (36.9 to 39.6)"."""
    if answer.low is None or answer.high is None or answer.size is None:
        return number(answer.size)
    return f"{number(answer.size)} ({number(answer.low)} to {number(answer.high)})"


def warnings(found: Sequence[Planned], left_out: Sequence[str] = ()) -> list[str]:
    """What a reader must know of these answers: each once, with those that it is of; first what was `left_out`."""
    first = found[0].contender
    cells = [one.contender.cell for one in found]
    said = [*flattened(cells), *by_chance(cells), *cut(cells), *doubted(cells), *left_out]
    said += recorded.warnings(found) if first.is_recorded else one_recording([one.served for one in found])
    said += [line for slo in {one.contender.cell.slo for one in found} for line in doubts(slo)]
    said += [] if first.is_recorded else plan_ratios.different_streams(found)
    said += [*crowded(found), *stored.of_contenders(found), *_hopeless(found)]

    def of(name: str) -> tuple[str, list[float]]:
        values = [(one, getattr(one.answer, name)) for one in found if one.answer.size is not None]
        known = [(who, value) for who, value in values if value is not None]
        return named([who for who, _ in known], found) if known else "", [value for _, value in known]

    vague = [one for one in found if not one.answer.precise]
    if vague:
        seeds = max(one.answer.seeds for one in vague)
        said.append(f"the answer of {named(vague, found)} is not known as well as was asked for, after {seeds} seeds")
    who, misses = of("misses")
    if who:
        said.append(
            f"with {who}, no more than {_range(misses, lambda one: f'{one:.0f}')} requests of a run miss at "
            "the target: the interval may be too narrow, and longer runs would tell"
        )
    who, rise = of("rise")
    if who:
        said.append(_risen(who, max(rise), first))
    who, grows = of("grows")
    if who:
        said.append(
            f"with {who}, requests in the system still grow there, by {_range(grows, percent)} of the "
            "arrivals: it is overloaded, or its runs are too short to settle, and longer ones would find less"
        )
    return said


def _hopeless(found: Sequence[Planned]) -> list[str]:
    """Whom no number of GPUs helps, and why, where the sentence has no room for it."""
    if found[0].contender.searched != GPUS or len({_clause(one) for one in found}) <= MOST_NAMED:
        return []
    never = [one for one in found if one.answer.verdict is Verdict.NEVER]
    alike: dict[str, list[Planned]] = {}
    for one in never:
        alike.setdefault(f"{_up_to([one])} is enough", []).append(one)
    return [
        f"no number of GPUs{up_to} with {named(of, found)}: {_least_bad(max(of, key=_best))}"
        for up_to, of in alike.items()
    ]


def _best(one: Planned) -> float:
    return max(spot.kept for spot in one.answer.curve)


def _risen(who: str, rise: float, first: Contender) -> str:
    points = f"{rise * 100:.1f} points"
    if first.searched == GPUS:
        return (
            f"with {who}, more GPUs kept up to {points} less, as where a prefix cache is spread over them: each number "
            "smaller than the answer was tried, and a larger one may break the promise"
        )
    return (
        f"with {who}, a request stream kept up to {points} more at a greater load than at a smaller one: the share "
        "crosses the target at several loads, and the answer is one of them"
    )


def _range(values: Sequence[float], said: Callable[[float], str]) -> str:
    return " to ".join(dict.fromkeys((said(min(values)), said(max(values)))))


def heads(found: Sequence[Planned]) -> list[str]:
    """The heads of the columns of `lines`."""
    axes = axis_heads(found)
    first = found[0].contender
    if first.is_recorded:
        return [*axes, *_counts(found), *recorded.heads(found), *costs(found), "runs", "requests", "verdict"]
    sizes = ["GPUs", "on average"] if first.searched == GPUS else [unit(first), "95 % interval"]
    sizes = [*_counts(found), *sizes[first.searched == GPUS :]]
    return [*axes, *sizes, "of the first", *costs(found), "seeds", "runs", "requests", "verdict"]


def axis_heads(found: Sequence[Planned]) -> list[str]:
    """Keys without the group that they are of, where that tells them apart."""
    return list(brief(dict.fromkeys(name for one in found for name in one.at)).values())


def spare(found: Sequence[Planned]) -> list[str]:
    """Heads of columns that a narrow table can do without, the first first."""
    told = all(one.answer.verdict is Verdict.FOUND for one in found)
    priced = any(one.price is not None for one in found)
    least = ["requests", "runs", "seeds", *([HOURS] if priced else []), *(["verdict"] if told else [])]
    return [*least, HOURS, "replicas", "cost/1M req", recorded.OF_SIMILAR]


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
    priced = any(one.price is not None for one in found)
    return [HOURS, *(["price/h", "cost/1M req"] if priced else [])]


def lines(found: Sequence[Planned]) -> list[list[str]]:
    """Of text, a line for each contender, the best first."""
    axes = list(dict.fromkeys(name for one in found for name in one.at))
    of_first = plan_ratios.of_first(found)
    said, counts = costs(found), _counts(found)
    made = []
    for one in best_first(found):
        answer, row = one.answer, one.row()
        at = [str(one.at.get(axis, "")) for axis in axes]
        cost = [number(row[name]) for name in COSTS[: len(said)]]
        if one.contender.is_recorded:
            numbers = [f"{answer.runs:,}", f"{answer.counted:,}"]
            made.append([*at, *_counted(one, counts), *recorded.cells(one), *cost, *numbers, recorded.verdict(one)])
            continue
        if one.contender.searched == GPUS:
            sizes = [NOTHING if answer.likely is None else f"{answer.likely:g}"]
        else:
            ends = answer.low is not None
            sizes = [number(answer.size), f"{number(answer.low)} to {number(answer.high)}" if ends else NOTHING]
        made.append(
            [
                *at,
                *_counted(one, counts),
                *sizes,
                of_first.get(one.name, NOTHING),
                *cost,
                str(answer.seeds),
                f"{answer.runs:,}",
                f"{answer.counted:,}",
                answer.verdict.value,
            ]
        )
    return made
