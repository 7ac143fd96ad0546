"""What the page of a plan has besides figures: what will be seen, how far to believe it, and the caveats in a box."""

from __future__ import annotations

from collections.abc import Sequence

from prebleexp.planning.beside import Beside
from prebleexp.planning.planned import Planned
from prebleexp.report import beside, planned
from prebleexp.report.figures import Column, Table
from prebleexp.report.page import Aside
from prebleexp.report.wording import as_sentence


def asides(found: Sequence[Planned], of: Beside | None, left_out: Sequence[str] = ()) -> list[Aside]:
    """Of the best contender, and what a reader must know of all; of what was `left_out`, too."""
    made = []
    if of is not None:
        columns = tuple(Column(head, bool(head)) for head in beside.HEADS)
        note = ["Means over request streams, with 95 % intervals, of each stream's percentiles."]
        if of.of.contender.is_recorded:
            note = ["Of the requests of the recording."]
        made.append(Aside(beside.title(of), note, Table(columns, tuple(beside.seen(of)))))
        made += [Aside(title, said) for title, said in beside.sections(of)]
    warned = [as_sentence(one) for one in planned.warnings(found, left_out)]
    return [*made, *([Aside("To know before this is used", warned, is_caveat=True)] if warned else [])]
