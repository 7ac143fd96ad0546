"""What a page says of a sweep of plans: of each router the greatest load, against that of one of them, on each
workload."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from prebleexp.metrics import HIGHER
from prebleexp.planning.answer import Verdict
from prebleexp.planning.planned import Planned, Ratio, best_first, ratio_of
from prebleexp.report import planned
from prebleexp.report.answer import Answer, Cell, Tone
from prebleexp.report.dots import Dot, DotRow
from prebleexp.report.drawings import Drawings
from prebleexp.report.figures import Column, Data, Entry, Figure, Table, dot_panels
from prebleexp.report.finding import Finding
from prebleexp.report.measure import Measure
from prebleexp.report.palette import STYLES
from prebleexp.report.plan_ratios import times
from prebleexp.report.plan_table import MEANINGS
from prebleexp.report.wording import NOTHING, as_sentence, listed, number, slug

NAME = "capacity"
Workloads = Mapping[str, Sequence[Planned]]
"""the answers on each workload, of which `name` is the line"""
TITLE = "Workload by workload"
NEVER = Cell(Verdict.NEVER.value, Tone.BAD, "")
"""of a line whose limits are too tight even for idle GPUs"""
NOTE = (
    "A line's load is the greatest that keeps the promise on average over request streams. Ratios are over the same "
    "streams, with 95 % jackknife intervals over seeds; each is for one comparison."
)


def by_workload(found: Sequence[Planned]) -> dict[str, list[Planned]]:
    """The answers of a sweep of plans, by its variants."""
    made: dict[str, list[Planned]] = {}
    for one in found:
        made.setdefault(str(one.at["variant"]), []).append(replace(one, name=str(one.at["line"]), at={}))
    return made


def ratios(found: Sequence[Planned], base: str) -> dict[str, Ratio]:
    """Of each line to this one, by line, the greatest first; of those that have an answer."""
    (of_base,) = (one for one in found if one.name == base)
    made = [ratio_of(one, of_base) for one in best_first(found) if one.name != base]
    return {one.one: one for one in made if one is not None}


# ---------------------------------------------------------------- in words
def sentence(workload: str, found: Sequence[Planned], base: str) -> str:
    """Who carries the most on a workload, who cannot be told apart from LOR, say, and who carries the least."""
    (of_base,) = (one for one in found if one.name == base)
    of = ratios(found, base)
    carried = f"{base} {planned.carried(of_base)}"
    if not of:
        return f"On {workload}, no router can be compared: {carried}."
    order = sorted(of.values(), key=lambda one: -one.times)
    first, last = order[0], order[-1]
    said = [f"no router surely carries more than {base}"]
    if first.is_sure and first.times > 1:
        said = [f"{first.one} carries {times(first)} times {base}'s load"]
    alike = [one.one for one in order if not one.is_sure]
    if alike:
        said.append(f"{listed(alike)} cannot be told apart from {base}")
    if last.is_sure and last.times < 1:
        said.append(f"{last.one}, the last, carries {times(last)} times as much")
    return f"On {workload}, where {carried}, {'; '.join(said)}."


def answer(found: Workloads, base: str) -> Answer:
    """A sentence for each workload, with the ratios in a table of words."""
    of = {workload: ratios(each, base) for workload, each in found.items()}
    never = {(name, one.name) for name, each in found.items() for one in each if one.answer.verdict is Verdict.NEVER}
    rows = tuple(
        (line, tuple(NEVER if (name, line) in never else _cell(of[name].get(line)) for name in found))
        for line in _lines(of)
    )
    said = " ".join(sentence(workload, each, base) for workload, each in found.items())
    return Answer(said, f"Load against {base}'s", tuple(found), rows)


def _lines(of: Mapping[str, Mapping[str, Ratio]]) -> list[str]:
    """Those that were planned on the most workloads first, then by how much they carry on average."""
    every = list(dict.fromkeys(line for each in of.values() for line in each))

    def rank(line: str) -> tuple[int, float]:
        found = [each[line].times for each in of.values() if line in each]
        return -len(found), -sum(found) / len(found)

    return sorted(every, key=rank)


def _cell(one: Ratio | None) -> Cell:
    if one is None:
        return Cell("not measured", Tone.NONE, "")
    said = f"{number(one.times)} ×"
    if not one.is_sure:
        return Cell("as much", Tone.NONE, said)
    return Cell("more", Tone.GOOD, said) if one.times > 1 else Cell("less", Tone.BAD, said)


# ---------------------------------------------------------------- as a figure
def figure(found: Workloads, base: str, drawings: Drawings) -> Figure:
    """A panel for each workload, a row for each line: how much more than LOR, say, it carries."""
    measure = Measure(NAME, f"load that is carried against {base}'s", "% difference", "", better=HIGHER)
    of = {workload: ratios(each, base) for workload, each in found.items()}
    rows = {
        workload: [DotRow(line, (_dot(each[line]),)) for line in _lines(of) if line in each]
        for workload, each in of.items()
    }
    says = answer(found, base)
    said = [sentence(workload, each, base) for workload, each in found.items()]
    panels, caption = dot_panels(rows, said, measure, NAME, drawings)
    return Figure(
        name=NAME,
        number="",
        title=f"Load that each router carries against {base}'s",
        command="",
        x=measure.label,
        y="",
        answer=says,
        losses="",
        panels=tuple(panels),
        paired=False,
        left_out=0,
        legend=(Entry("a router, with its 95 % interval", STYLES[0], line=False),),
        caption=caption,
        table=Table(
            (Column("workload", False), *_columns(base)),
            tuple((workload, *line) for workload, each in found.items() for line in lines(each, base)),
        ),
        data=Data(
            ("workload", "line", "rps", "rps_low", "rps_high", "ratio", "ratio_low", "ratio_high", "seeds", "runs"),
            tuple(_datum(workload, one, of[workload]) for workload, each in found.items() for one in best_first(each)),
        ),
    )


def _dot(one: Ratio) -> Dot:
    return Dot(100 * (one.times - 1), 50 * (one.high - one.low), STYLES[0])


def _datum(workload: str, one: Planned, of: Mapping[str, Ratio]) -> tuple[str | float | int | None, ...]:
    answer, ratio = one.answer, of.get(one.name)
    ends = (None, None, None) if ratio is None else (ratio.times, ratio.low, ratio.high)
    return workload, one.name, answer.size, answer.low, answer.high, *ends, answer.seeds, answer.runs


# ---------------------------------------------------------------- as tables
HEADS = ("router", "requests/s", "95 % interval", "of {}'s", "seeds", "runs", "requests", "verdict")


def heads(base: str) -> list[str]:
    """The heads of the columns of `lines`."""
    return [head.format(base) for head in HEADS]


def lines(found: Sequence[Planned], base: str) -> list[tuple[str, ...]]:
    """Of text, a line for each router of a workload, the best first."""
    of = ratios(found, base)
    made: list[tuple[str, ...]] = []
    for one in best_first(found):
        answer = one.answer
        ends = f"{number(answer.low)} to {number(answer.high)}" if answer.low is not None else NOTHING
        ratio = times(of[one.name]) if one.name in of else NOTHING
        counts = (str(answer.seeds), f"{answer.runs:,}", f"{answer.counted:,}")
        made.append((one.name, number(answer.size), ends, ratio, *counts, answer.verdict.value))
    return made


def rows(found: Workloads, base: str) -> list[dict[str, object]]:
    """Flat, with all digits, a row for each router on each workload."""
    made = []
    for workload, each in found.items():
        of = ratios(each, base)
        for one in best_first(each):
            ratio = of.get(one.name)
            ends = (None, None, None) if ratio is None else (ratio.times, ratio.low, ratio.high)
            named = dict(zip(("ratio", "ratio_low", "ratio_high"), ends, strict=True))
            made.append({"workload": workload, "line": one.name} | one.row() | named)
    return made


def _columns(base: str) -> tuple[Column, ...]:
    text = {"router", "verdict", "95 % interval"}
    return tuple(Column(head, head not in text, MEANINGS.get(head, "")) for head in heads(base))


def findings(found: Workloads, base: str) -> list[Finding]:
    """A sentence and a table for each workload, with what a reader must know of the answers."""
    made = []
    for workload, each in found.items():
        warned = [as_sentence(one) for one in planned.warnings(each)]
        of = ratios(each, base)
        numbers = {line: {"ratio": one.times, "low": one.low, "high": one.high} for line, one in of.items()}
        table = Table(_columns(base), tuple(lines(each, base)))
        said = (f"To keep {planned.promised(each[0].contender)}: {sentence(workload, each, base)}", *warned)
        made.append(Finding(slug(workload), workload, workload, said, table, Table((), ()), {"ratios": numbers}))
    return made
