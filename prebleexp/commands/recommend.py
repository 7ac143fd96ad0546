"""`python -m prebleexp recommend …`: what to deploy so that a promise is kept for the least money."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from prebleexp.commands.arguments import Command, Commands, Given, Setting, choice, flag, integer, number
from prebleexp.planning.prices import KEY, Prices, read

if TYPE_CHECKING:
    from prebleexp.recommending.outlook import Outlook

DRY = "--dry"
MOST = "most_gpus"


def _recommend(given: Given) -> int:
    """Print the candidates, write the page and the files that deploy them; 0. Raises InvalidInput for what is not
    valid, or if nothing keeps the promise; PrebleexpError if runs fail."""
    from prebleexp import publish
    from prebleexp.commands import recommended
    from prebleexp.experiment.shape import by_chance
    from prebleexp.experiment.understood import doubted
    from prebleexp.launch import naming, tables
    from prebleexp.launch.loads import files_of
    from prebleexp.launch.narrow import narrowed
    from prebleexp.recommending import asked, outlook, recommender, table, words
    from prebleexp.recommending.candidates import alike
    from prebleexp.recommending.deployment import model_names
    from prebleexp.waiting import waiting

    lines = [one for one in given.others if one != DRY]
    wanted = asked.asked(lines, given.values)
    if DRY in given.others:
        return _show(outlook.outlook(lines, wanted))
    made = recommender.recommend(lines, wanted)
    shown = words.shown(made)
    if given["output"] == "table":
        best = alike(made.candidates)
        heads, rows, gone = narrowed(table.heads(shown), table.lines(shown, best), table.SPARE)
        tables.show(heads, rows)
        if gone:
            print(f"… also {', '.join(gone)}: on the page, and output=csv prints all", file=sys.stderr)
        for line in [*words.marks(made), *table.notes(made, shown), *words.routers(shown)[:1]]:
            print(line)
    else:
        best = alike(made.candidates)
        tables.write_rows([{"alike": one in best, **one.row()} for one in made.candidates], given["output"])
    print(f"{words.searched(made)}; {made.tally()}; {made.seconds:.1f} s", file=sys.stderr)
    name = naming.page("recommend", lines)
    with waiting("bringing the database up to date"):
        publish.load(made, name, given.line)
    with waiting(f"writing the files of {name}"):
        deployed, page = recommended.write(made, shown, name, given.line)
    for one in deployed:
        print(f"to deploy: {one}", file=sys.stderr)
    print(model_names.sentence([one.cell for one in shown]), file=sys.stderr)
    if page is not None:
        print(tables.address(page), file=sys.stderr)
    first = made.candidates[0].cell
    among = (*by_chance([first]), *doubted([first]))  # the caveats
    for line in (*(one for one in files_of(first) if not one.endswith(among)), *words.caveats(made)):
        tables.say(f"prebleexp: {line}")
    for said in (*(" ".join(lines) for _, lines in words.strained(made)), words.sentence(made)):
        tables.answer(said, given["output"])
    return 0


def _show(outlook: Outlook) -> int:
    from prebleexp.launch import tables

    tables.show(["round", "designs", "runs in the cache", "to come"], outlook.lines())
    print(outlook.says(), file=sys.stderr)
    return 0


def _most(name: str, value: str) -> Any:
    found = read(value)
    return {key: _whole(one) for key, one in found.items()} if isinstance(found, dict) else _whole(found)


def _whole(value: Any) -> Any:
    return int(value) if isinstance(value, float) and value.is_integer() else value


COMMANDS: Commands = {
    "": Command(
        "what to deploy so that a service level is kept for the least money: which GPUs, how many in a replica, how "
        "many replicas, split or whole, which budget of the engine, which router; with intervals, and the files "
        "that deploy it",
        _recommend,
        "python -m prebleexp recommend rps=12 slo.ttft_s=1 slo.target=0.9 price_per_gpu_hour='{h100: 2.5, h200: 3.5}'",
        settings=(
            Setting(
                KEY,
                "of each kind of GPU that can be had, as {h100: 2.5, h200: 3.5}; of one price for all, hardware/gpu= "
                "says which",
                "X",
                read=lambda name, value: Prices(read(value)).of,
            ),
            Setting(MOST, "that can be had, of each kind: one number, or {h100: 16, h200: 8}", "64", 64, _most),
            flag("whole", "true: no replicas for prompts alone"),
            number("tol", "half the width of an interval, as a share of the answer", 0.05),
            integer("seeds", "request streams of the last round, at first", 8, 2, 10_000),
            integer("most_seeds", "if the interval is wider than tol", 16, 2, 10_000),
            integer("requests", "of a run of the last round", None, 10),
            choice("output", "how the candidates are printed", "table", "json", "csv"),
        ),
        others="what comes and what is promised, as for a run, and several values of what may be chosen: "
        "hardware.tensor_parallel=2,4 policy=llmd,dynamo_kv engine.max_num_seqs=128,256; --dry: how many runs "
        "that takes",
    )
}
"""A search over deployments as one command; its runs are cached cells."""
