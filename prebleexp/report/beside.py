"""What a plan says of its best answer besides, in words: what will be seen, how far to believe it, what it bears."""

from __future__ import annotations

from collections.abc import Sequence

from prebleexp.experiment import counting
from prebleexp.hardware import uncertain
from prebleexp.hardware.composed import Composed
from prebleexp.planning.answer import Answer, Verdict
from prebleexp.planning.beside import KEPT, MORE, Beside
from prebleexp.planning.contender import GPUS, USERS
from prebleexp.planning.loss import Lost
from prebleexp.planning.planned import Planned
from prebleexp.planning.promise import ALL
from prebleexp.report import evidence, recorded_plan
from prebleexp.report.contenders import priced
from prebleexp.report.wording import NOTHING, listed, number, seconds, share, whole_percent
from prebleexp.service.batches import FEWEST, LEAST, fewest_sure
from prebleexp.workloads.replayed import Replayed

EXTRAPOLATED = "Beyond what was measured, where step times are extrapolated: {}."
OWN = ("latency", "time to first token")
UNTOLD = "What it was served with, and how busy that was, the log does not say."
HEADS = ("", "mean", "p50", "p95", "p99")
ROWS = {
    "ttft": "time to first token",
    "tpot": "time per output token",
    "itl": "inter-token latency",
    "latency": "latency",
}
FEWEST_DUE = FEWEST * LEAST
"""requests of a minute: of fewer no share is said, as of fewer there is no interval"""
MORE_PERCENT = f"+{whole_percent(MORE - 1)}"


def title(of: Beside) -> str:
    """Of the table of what will be seen."""
    one = of.of
    where = counting.named(one.cell) if one.contender.searched == GPUS else f"{number(of.size)} {_unit(one)}"
    return f"What will be seen with {one.name} {'on' if one.contender.searched == GPUS else 'at'} {where}"


def seen(of: Beside) -> list[tuple[str, ...]]:
    """Lines of `HEADS`: means over request streams. Of requests within all limits there is their share alone."""
    times = [
        (words, *(seconds(of.seen.get(f"{name}_{at}_s")) for at in HEADS[1:]))
        for name, words in ROWS.items()
        if f"{name}_p50_s" in of.seen
    ]
    kept = of.seen.get(KEPT)
    return [*times, *([] if kept is None else [(f"requests within {ALL}", share(kept, 4), *[NOTHING] * 3)])]


def believe(of: Beside) -> list[str]:
    """How far step times are known, and what the answer is if they are as far off as that."""
    cell = of.of.cell
    brought = "hardware" in cell.engine.brings
    supports = [cell.engine.support] if brought else [one.hardware.support for one in cell.kinds]
    said = [EXTRAPOLATED.format(of.beyond)] if of.beyond else []
    said += [f"Step times: {one}." for one in dict.fromkeys(supports) if one]
    said += _took(of)
    found = moved(of)
    if not found:
        why = "there is no figure of how far they may be" if of.off is None else "a run failed"
        return [*said, f"How far the answer moves if step times are off is not known: {why}."]
    if isinstance(cell.hardware, Composed) and uncertain.is_of_others(cell.hardware.evidence):
        return [*said, found, f"These {_off(of)} are the known error of step times (p90) {uncertain.OF_OTHERS}."]
    return [*said, found]


def moved(of: Beside) -> str:
    """The answer if step times are as far off as they may be; empty where that is not known."""
    if of.slower is None or of.faster is None:
        return ""
    return f"{_between(of, of.slower, of.faster, _off(of))}."


def _off(of: Beside) -> str:
    assert of.off is not None
    return whole_percent(of.off)


def _took(of: Beside) -> list[str]:
    """How long requests took by the log itself, beside what they take here."""
    workload = of.of.cell.workload
    if not isinstance(workload, Replayed):
        return []
    said = []
    for what, log, metric in zip(OWN, workload.whole.reading.times, ("latency", "ttft"), strict=False):
        here = [of.seen.get(f"{metric}_{at}_s") for at in ("mean", "p95")]
        if log is not None and None not in here:
            known = f"{seconds((log.mean_s, None))} (mean) and {seconds((log.p95_s, None))} (p95)"
            said.append(
                f"The log's own {what}, {log.field}, is {known}; here it is {' and '.join(map(seconds, here))}."
            )
    return [" ".join([*said, UNTOLD])] if said else []


def _between(of: Beside, slower: Answer, faster: Answer, off: str) -> str:
    """ "18 to 21 H100 if steps are 7 % slower or faster than the model says"; where one of both has no answer, each."""
    one = of.of
    many = one.contender.searched == GPUS
    form = "g" if many else ""
    names = {name.upper() for _, name, _ in counting.kinds(one.cell)}
    unit = (names.pop() if len(names) == 1 else "GPUs") if many else _unit(one)
    if slower.size is None or faster.size is None:
        said = [
            f"{_none(many, answer)} if steps are {off} {which}"
            if answer.size is None
            else f"{_size(answer, form)} {unit} if steps are {off} {which}"
            for which, answer in (("slower", slower), ("faster", faster))
        ]
        return f"{said[0][0].upper()}{said[0][1:]} than the model says; {said[1]}"
    ends = list(dict.fromkeys((_size(faster, form), _size(slower, form))))
    ends = ends if many else ends[::-1]
    same = f"still {ends[0]}" if len(ends) == 1 else " to ".join(ends)
    return f"{same[0].upper()}{same[1:]} {unit} if steps are {off} slower or faster than the model says"


def _none(many: bool, answer: Answer) -> str:
    """That the promise is not kept."""
    if not many:
        return "nothing is borne"
    return f"no number of GPUs{'' if answer.every is None else f' up to {answer.every:g}'} is enough"


def _size(answer: Answer, form: str = "") -> str:
    how = "" if answer.verdict is Verdict.FOUND else f"{answer.verdict.value} "
    return f"{how}{format(answer.size, form) if form else number(answer.size)}"


def _unit(of: Planned) -> str:
    return "users" if of.contender.load_key == USERS else "requests/s"


def headroom(of: Beside) -> list[str]:
    """What more load does on the same GPUs."""
    said = []
    if of.most is not None and of.most.size is not None:
        ends = "" if of.most.low is None else f" ({number(of.most.low)} to {number(of.most.high)})"
        said.append(f"holds to {_size(of.most)}{ends} {_unit(of.of)}")
    if of.grown is not None:
        load = None if of.of.load is None else f"{number(of.of.load * MORE)} {_unit(of.of)}"
        verdict = of.of.contender.to_keep.verdict(of.grown.kept, of.grown.ends)
        said.append(f"at {MORE_PERCENT}{'' if load is None else f' ({load})'} it {verdict}")
        if of.grown.kept < of.of.answer.target and of.more is not None:
            said.append(_takes(of.of, of.more))
    return [f"{line[0].upper()}{line[1:]}." for line in ["; ".join(said)] if line]


def _takes(one: Planned, more: Answer) -> str:
    """ "that load takes 14 H100 at 35.0 an hour (9 to 16 for others like it)" """
    if more.size is None:
        return f"{_none(True, more)} for that load"
    there = one.at_size(more.size)
    least = "" if more.verdict is Verdict.FOUND else "more than "
    return f"that load takes {least}{priced(one, there)}{recorded_plan.others(more)}"


def loss(of: Beside) -> list[str]:
    """What the loss of a replica does, and of how many requests that is known."""
    known = of.spare if of.lost is None else of.lost
    if known is None:
        return []
    one = of.of
    each, name = one.contender.each, next(iter(counting.kinds(one.cell)))[1]
    what = f"{each} {name.upper() or 'GPUs'}" if each > 1 else f"1 {name.upper() or 'GPU'}"
    what = f"a replica of {what}" if each > 1 else what
    alone = ["There is one replica: without it the service is down."] if one.is_alone else []
    minute = "busiest minute" if known.busiest else "minute after"
    if known.requests < FEWEST_DUE:
        count = f"{known.requests:,} request{'' if known.requests == 1 else 's'}"
        too_few = f"the {minute} has {count}, and {FEWEST_DUE} is the least that says something"
        return [*alone, f"What the loss of {what} does is not known: {too_few}."]
    which = "that minute" if known.busiest else "the minute after"
    streams = f" in {known.streams} streams" if known.streams > 1 else ""
    to_keep, requests = one.contender.to_keep, f"the {known.requests:,} requests of {which}{streams}"
    good = f"points is the margin of {requests}" if to_keep.is_margin else f"of {requests} are within {to_keep.within}"
    said = []
    if of.lost is not None:
        said.append(f"{_surely(of, of.lost)} {good}{_unharmed(of, of.lost)}{_kept(of, of.lost)}")
    enough = of.enough
    one_more = one.cell.gpus + each
    is_enough = enough is not None and enough.verdict is Verdict.FOUND and enough.size == one_more
    if of.spare is not None and not (said and is_enough):
        kept, verdict = _surely(of, of.spare), _kept(of, of.spare)
        more = counting.named(one.at_size(one_more))
        alike = f"{kept} {good}{_unharmed(of, of.spare)} where there were {more}"
        last = f"with one more, {more}, {kept}" if said else alike
        said.append(f"{last}{verdict}")
    if enough is not None and enough.size is not None:
        said.append(f"the promise is kept in that minute, too, with {_survivors(one, enough, known)}")
    elif enough is not None:
        said.append(f"{_none(True, enough)} to keep the promise in that minute, too")
    when = " as the busiest minute begins" if known.busiest else ""
    return [*alone, f"If {what} is lost{when}, {'; '.join(said)}.", *_rivals(of, known), *_untold(one, known)]


def _untold(one: Planned, minute: Lost) -> list[str]:
    """That a minute has too few requests for others like it, however many GPUs there are."""
    if _is_told(one, minute):
        return []
    share = one.contender.to_keep.strictest
    return [
        f"Whether such a minute of others like it keeps {share * 100:g} % cannot be told from {minute.requests:,} "
        f"requests, however many GPUs there are: that takes {fewest_sure(share):,}, and none that misses."
    ]


def _is_told(one: Planned, minute: Lost) -> bool:
    return not one.contender.is_recorded or minute.requests >= fewest_sure(one.contender.to_keep.strictest)


def _survivors(one: Planned, enough: Answer, minute: Lost) -> str:
    """ "14 H100 at 35.0 an hour (N + 2; 96.1 % of that minute and 99.2 % of all, the lesser 88.0 % to 99.0 %; 13 or
    more for others like it)", with how many replicas that are more than the answer has."""
    there = one.at_size(enough.size)
    more = there.replicas - one.cell.replicas
    said = [f"N + {more}"] if more else []
    alone = enough.alone
    if alone is not None:
        to_keep = one.contender.to_keep
        of_minute, of_all = (
            f"{to_keep.said(kept)}{' points' if to_keep.is_margin else ''}"
            for kept in alone.of_both or (alone.kept, alone.kept)
        )
        which = "the lesser" if _is_told(one, minute) else "that of all"
        ends = "" if alone.ends is None else f", {which} {' to '.join(map(to_keep.said, alone.ends))}"
        said.append(f"{of_minute} of that minute and {of_all} of all{ends}")
    if enough.low is not None:
        over_all = "" if _is_told(one, minute) else " over all"
        said.append(f"{recorded_plan.ends(enough.low, enough.high)} for others like it{over_all}")
    known = f" ({'; '.join(said)})" if said else ""
    more_than = "" if enough.verdict is Verdict.FOUND else "more than "
    return f"{more_than}{priced(one, there)}{known}"


def _rivals(of: Beside, minute: Lost) -> list[str]:
    """What other contenders take to survive a loss, once where it is the same, and on what that rests if it is not what
    the answer rests on."""
    own = "" if of.enough is None or of.enough.size is None else _survivors(of.of, of.enough, minute)
    takes: dict[str, list[str]] = {}
    for one, answer in of.others:
        if answer.size is not None:
            there = f"{_survivors(one, answer, minute)}{evidence.of_several([one], [of.of, one])}"
            takes.setdefault(there, []).append(one.name)
    said = [
        f"{listed(names)} take{'s' if len(names) == 1 else ''} {'the same' if there == own else there}"
        for there, names in sorted(takes.items(), key=lambda of: of[0] != own)
    ]
    never: dict[str, list[str]] = {}
    for one, answer in of.others:
        if answer.size is None:
            never.setdefault(_none(True, answer), []).append(one.name)
    said += [f"{none} with {listed(names)}" for none, names in never.items()]
    return [f"To survive such a loss, {'; '.join(said)}."] if said else []


def _kept(of: Beside, minute: Lost) -> str:
    """Whether that keeps the promise, where it isn't said how many GPUs do."""
    if of.enough is not None:
        return ""
    return f", which {'keeps' if minute.kept >= of.of.contender.to_keep.target else 'breaks'} the promise"


def _unharmed(of: Beside, minute: Lost) -> str:
    """ " (97.4 % without the loss)", which says how much of a miss is the loss's."""
    return "" if minute.unharmed is None else f" ({of.of.contender.to_keep.said(minute.unharmed)} without the loss)"


def _surely(of: Beside, minute: Lost) -> str:
    """What is kept with its half-width, where that is not nothing; with the ends of its interval, where that would go
    beyond none or all, or is of one stream."""
    to_keep, half = of.of.contender.to_keep, minute.half_width or 0.0
    none = to_keep.nothing
    ends = minute.ends
    if ends is None and (minute.kept - half < none or minute.kept + half > none + 1):
        ends = max(minute.kept - half, none), min(minute.kept + half, none + 1)
    if ends is None:
        return to_keep.said(minute.kept, half)
    return f"{to_keep.said(minute.kept)} ({to_keep.said(ends[0])} to {to_keep.said(ends[1])})"


def sections(of: Beside) -> Sequence[tuple[str, list[str]]]:
    """What a plan says beside its table: (title, sentences) of belief, headroom, loss of a GPU, and what is not
    known."""
    unknown = [f"{one[0].upper()}{one[1:]}." for one in of.unknown]
    found = [("How far to believe it", believe(of)), ("Headroom", headroom(of)), ("The loss of a GPU", loss(of))]
    return [(title, said) for title, said in (*found, ("Not known", unknown)) if said]
