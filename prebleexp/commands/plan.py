"""`python -m prebleexp plan …`: how many GPUs a load takes, or how large a load a cluster bears, per router."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from prebleexp.commands.arguments import Command, Commands, Given, Setting, flag, integer, number
from prebleexp.planning.prices import KEY, Prices, read

if TYPE_CHECKING:
    from prebleexp.launch.multirun import Multirun
    from prebleexp.launch.plan_outlook import Outlook
    from prebleexp.launch.planner import Planner

DRY = "--dry"


def _plan(given: Given) -> int:
    """Print a line for each contender, write the page; 0. Raises InvalidInput for what cannot be planned,
    PrebleexpError if a run fails."""
    from prebleexp import publish
    from prebleexp.launch import asked_plan, plan_outlook, planner, tables
    from prebleexp.launch.naming import page as called
    from prebleexp.report import beside, planned
    from prebleexp.waiting import waiting

    others = [one for one in given.others if one != DRY]
    asked = asked_plan.asked(others, given.values)
    if DRY in given.others:
        return _show(plan_outlook.outlook(others, asked))
    plan = planner.plan(others, asked)
    _print(plan)
    print(f"{plan.tally()}; {plan.seconds:.1f} s", file=sys.stderr)
    name = called("plan", others)
    with waiting("bringing the database up to date"):
        publish.load(plan, name, given.line)
    if plan.settings.report != "none":
        with waiting(f"drawing the page {name}"):
            page = publish.plan(plan, name, given.line)
        print(tables.address(page), file=sys.stderr)
    for line in _notices(plan):
        tables.say(f"prebleexp: {line}")
    besides = [] if plan.beside is None else [line for _, lines in beside.sections(plan.beside) for line in lines]
    for line in (*besides, planned.sentence(plan.found)):
        tables.answer(line, plan.settings.output)
    return 0


def _notices(plan: Planner) -> list[str]:
    """How files were read, and what a reader must know of the answer."""
    from prebleexp.experiment.understood import taken_for
    from prebleexp.report import monthly, planned
    from prebleexp.report.wording import as_sentence

    taken = taken_for([one.contender.cell for one in plan.found])
    known = [*planned.warnings(plan.found, plan.left_out), *monthly.said(plan.found)]
    return [*taken, *map(as_sentence, known)]


def sweep(multirun: Multirun, overrides: Sequence[str], command: str) -> int:
    """A sweep of plans: print a line for each router on each workload, write the page; 0. Raises as a plan does."""
    from prebleexp import publish
    from prebleexp.experiment.understood import doubted, taken_for
    from prebleexp.launch import planner, tables
    from prebleexp.report import capacity
    from prebleexp.waiting import waiting

    plan = planner.sweep(multirun, overrides)
    settings = plan.settings
    assert settings.plans is not None
    found, base = capacity.by_workload(plan.found), settings.plans.against
    if settings.output == "table":
        made = [[workload, *line] for workload, each in found.items() for line in capacity.lines(each, base)]
        tables.show(["workload", *capacity.heads(base)], made)
    else:
        tables.write_rows(capacity.rows(found, base), settings.output)
    print(f"{plan.tally()}; {plan.seconds:.1f} s", file=sys.stderr)
    with waiting("bringing the database up to date"):
        publish.load(plan, settings.sweep, command)
    if settings.report != "none":
        with waiting(f"drawing the page {settings.sweep}"):
            page, _ = publish.capacity(plan, command)
        print(tables.address(page), file=sys.stderr)
    cells = [one.contender.cell for one in plan.found]
    for line in (*taken_for(cells), *doubted(cells)):
        tables.say(f"prebleexp: {line}")
    for workload, each in found.items():
        tables.say(capacity.sentence(workload, each, base))
    return 0


def sweep_survey(multirun: Multirun, overrides: Sequence[str]) -> int:
    """Prints for each contender of a sweep of plans which runs are in the cache and which are to come; computes
    none."""
    from prebleexp.launch import plan_outlook

    return _show(plan_outlook.sweep_outlook(multirun, overrides))


def _show(outlook: Outlook) -> int:
    from prebleexp.launch import tables

    tables.show(["contender", "runs in the cache", "to come"], outlook.lines())
    for line in (*outlook.left_out, outlook.says()):
        print(line, file=sys.stderr)
    return 0


def _print(plan: Planner) -> None:
    from prebleexp.launch import tables
    from prebleexp.launch.narrow import narrowed
    from prebleexp.planning import planned as best
    from prebleexp.report import beside, planned

    if plan.settings.output == "table":
        heads, lines, gone = narrowed(planned.heads(plan.found), planned.lines(plan.found), planned.spare(plan.found))
        tables.show(heads, lines)
        if gone:
            print(f"… also {', '.join(gone)}: on the page, and output=csv prints all", file=sys.stderr)
        if plan.beside is not None:
            tables.show(beside.HEADS, beside.seen(plan.beside), title=beside.title(plan.beside))
    else:
        tables.write_rows(best.rows(plan.found), plan.settings.output)


COMMANDS: Commands = {
    "": Command(
        "how large a load a cluster bears (gpus= given), or how many GPUs a load takes (rps= given), per policy, so "
        "that a service level is kept; with intervals over request streams",
        _plan,
        "python -m prebleexp plan gpus=8 policy=lor,e2 slo.ttft_s=0.5 slo.tpot_s=0.05",
        settings=(
            number("tol", "half the width of the interval, as a share of the answer", 0.05),
            integer("seeds", "request streams, at first", 8, 2, 10_000),
            integer("most_seeds", "if the interval is wider than tol", 64, 2, 10_000),
            integer("requests", "of a run; else as many as show 100 misses, 4,000 at least", None, 10),
            integer("most_requests", "of a run, where too few miss", 200_000, 10),
            flag(
                "answer_only",
                "true: nothing besides the answer, neither what will be seen nor headroom nor the loss of a GPU, which "
                "take about as many runs again",
            ),
            Setting(
                KEY,
                "of one GPU, or of each kind, as {h100: 2.5, h200: 3.5}: adds what a million requests cost, and orders "
                "by that",
                "X",
                read=lambda name, value: Prices(read(value)).of,
            ),
        ),
        others="what is planned, as for a run: policy=lor,e2 slo=… gpus=8, or rps=64; --dry: how many runs that takes",
    )
}
