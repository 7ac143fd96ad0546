"""What a page says of single runs that others measured: each number beside the simulated one, and whether it is as near
as the support sentence states."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from prebleexp.experiment.cell import Cell
from prebleexp.hardware.composed import Composed
from prebleexp.hardware.parameters import Support
from prebleexp.published import cases
from prebleexp.published.cases import Compared
from prebleexp.report.figures import Column, Table
from prebleexp.report.finding import Finding
from prebleexp.report.wording import number

TITLE = "Run by run"
NOTE = (
    "Measured numbers are those that the owners of the runs published; nothing is fitted to them. Stated is the error "
    "that nine tenths of the measurements are within which stand behind the step times: of TTFT for first tokens, "
    "else of TPOT; where nothing like a run was measured, how far step times are then drawn apart. Of counts nothing "
    "is stated."
)
HEADS = (
    Column("run", False),
    Column("number", False),
    Column("measured", True),
    Column("simulated", True),
    Column("off", True),
    Column("stated", True, "The 90th percentile of errors of what was measured."),
    Column("within", False),
)
Runs = Mapping[tuple[str, str], Sequence[tuple[Cell, Mapping[str, Any]]]]
"""by part and line"""


def compared(runs: Runs) -> list[Compared]:
    """Every number that ships and was simulated."""
    first = {key: of[0] for key, of in runs.items() if of}
    return cases.compared(cases.read(), {key: (known(cell), metrics) for key, (cell, metrics) in first.items()})


def known(cell: Cell) -> Support | None:
    """How well the step times of a run are known."""
    hardware = cell.hardware
    return hardware.evidence if isinstance(hardware, Composed) else None


def findings(runs: Runs) -> list[Finding]:
    every = compared(runs)
    found = []
    for part in dict.fromkeys(one.of.part for one in every):
        of = [one for one in every if one.of.part == part]
        timed = [one for one in of if one.within is not None]
        near = sum(one.within is True for one in timed)
        said = [f"{near} of {len(timed)} numbers are as near as is stated."] if timed else []
        said += [f"Not so: {one.of.line}, {one.of.metric}: {_off(one)}." for one in timed if not one.within]
        rows = tuple(tuple(cells(one)) for one in of)
        shown = [{**vars(one.of), "simulated": one.simulated, "off": one.off, "within": one.within} for one in of]
        found.append(Finding(part, part, part, tuple(said), Table(HEADS, rows), Table((), ()), {"numbers": shown}))
    return found


def cells(one: Compared) -> list[str]:
    """Of a row of the table, but for its part."""
    of = one.of
    metric = f"{of.metric}, times {of.over}" if of.over else of.metric
    stated = "–" if math.isnan(one.stated) else f"{100 * one.stated:.0f} %" + (" (theory)" if one.theory else "")
    within = {None: "–", True: "yes", False: "no"}[one.within]
    return [of.line, metric, f"{of.measured:,.6g}", number(one.simulated, 4), _off(one), stated, within]


def _off(one: Compared) -> str:
    return f"{100 * one.off:+.1f} %"
