"""A plan for one recording, in words: the fewest GPUs for it, what is said of others like it, and what is not known."""

from __future__ import annotations

from collections.abc import Sequence

from prebleexp.experiment import counting
from prebleexp.experiment import drawn as draws
from prebleexp.experiment.shape import kept
from prebleexp.planning.answer import Answer, Verdict
from prebleexp.planning.planned import Planned
from prebleexp.report.contenders import named
from prebleexp.report.wording import NOTHING, number
from prebleexp.service.batches import FEWEST, LEAST, WORST, count

SIMILAR, OF_SIMILAR = "for similar", "of similar"
FEW = 5
"""batches with a miss: with fewer, an interval is too narrow"""


COLD = BUSY = 0.5
"""of the misses, from which on it is said that they are of the beginning, or of a busy stretch"""


def stream(found: Sequence[Planned]) -> str:
    """The recording with its requests and their rate: "the recording (2,000 requests, 7.38/s)"."""
    of = found[0]
    rate = "" if of.load is None else f", {number(of.load)}/s"
    scaled = "" if kept(of.cell) is None else ", scaled with its busy hours"
    return f"the recording ({of.answer.counted:,} requests{rate}{scaled})"


def others(answer: Answer) -> str:
    """ " (4 to 6 for others like it)"."""
    return "" if answer.low is None else f" ({ends(answer.low, answer.high)} for others like it)"


def ends(low: float, high: float | None) -> str:
    both = [f"{low:g}", *([] if high is None else [f"{high:g}"])]
    return " to ".join(dict.fromkeys(both)) + ("" if high is not None else " or more")


def of_groups(one: Planned) -> str:
    """Whether what there is of them does."""
    enough = one.answer.verdict is Verdict.FOUND
    money = "" if one.price is None or not enough else f" at {number(one.price)} an hour"
    return f"{'' if enough else 'more than '}{counting.named(one.cell)}{money}"


def heads(found: Sequence[Planned]) -> tuple[str, ...]:
    """The columns of a recording in place of those of several seeds."""
    measures = dict.fromkeys(one.contender.to_keep.measure for one in found)
    return SIMILAR, measures.popitem()[0] if len(measures) == 1 else "kept", OF_SIMILAR


def verdict(one: Planned) -> str:
    """The verdict as a table has it."""
    if one.answer.verdict is Verdict.AT_LEAST:
        return "not enough"
    return str(one.answer.verdict.value)


def cells(one: Planned) -> list[str]:
    """The cells of the columns `heads`."""
    alone = one.answer.alone
    if alone is None:
        return [NOTHING] * 3
    answer, said = one.answer, one.contender.to_keep.said
    interval = NOTHING if alone.ends is None else " to ".join(map(said, alone.ends))
    return [NOTHING if answer.low is None else ends(answer.low, answer.high), said(alone.kept), interval]


def warnings(found: Sequence[Planned]) -> list[str]:
    """What one stream does not say."""
    known = [(one, one.answer.alone) for one in found if one.answer.alone is not None]
    said = ["this is one recorded stream: how other days would be is not known"]
    if not known:
        return said
    requests = known[0][0].answer.counted
    batches = count(requests)
    if not batches:
        said.append(f"{requests:,} requests are too few for an interval, which takes {FEWEST * LEAST}")
        return said
    said[0] += (
        f". The intervals for others like it come from how much its {batches} batches of {requests // batches:,} "
        "requests in a row differ"
    )
    few = [(one, alone.missed) for one, alone in known if alone.missed is not None and alone.missed < FEW]
    if few:
        counts = " to ".join(dict.fromkeys(f"{of(missed for _, missed in few):g}" for of in (min, max)))
        some = "none" if counts == "0" else f"only {counts}"
        said.append(
            f"misses fall into {some} of {batches} batches with {named([one for one, _ in few], found)}: how often a "
            "bad stretch comes cannot be told from so few, and the true range is wider than the one that is given"
        )
    busy = [(one, worst) for one, alone in known if (alone.missed or 0) >= FEW and (worst := alone.worst or 0.0) > BUSY]
    if busy:
        shares = " to ".join(dict.fromkeys(f"{of(worst for _, worst in busy):.0%}" for of in (min, max)))
        said.append(
            f"{shares.replace('%', ' %')} of the misses fall into {WORST} of {batches} batches with "
            f"{named([one for one, _ in busy], found)}: the interval is that of one or two busy stretches. The fewest "
            "GPUs in it are for streams with hardly any, and how often they come one stream does not say"
        )
    cold = [one for one, alone in known if alone.first is not None and alone.first > COLD]
    if cold:
        said.append(
            f"most misses are in the first batch with {named(cold, found)}, as caches are empty at first: slo.warmup_s "
            "leaves those out"
        )
    if any("seed" in one.cell.workload.obeys for one in found):
        said.append(
            "where the copies of its sessions begin, or which sessions are left out, was drawn once, alike for all: "
            "another seed may need more or fewer"
        )
    drawn = [one for one, _ in known if not one.is_alone and draws.routes(one.cell)]
    if drawn:
        said.append(
            f"routing with {named(drawn, found)} has random draws, which were made once: other seeds may keep more or "
            "less"
        )
    return said
