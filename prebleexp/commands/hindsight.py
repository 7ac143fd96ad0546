"""`python -m prebleexp hindsight …`: how much better than the best router an assignment is that knows what comes."""

from __future__ import annotations

import sys
from collections.abc import Callable

from prebleexp.commands.arguments import Command, Commands, Given, integer, text

ROUTERS = "lor,least_work,e2,lmetric,least_prefill_work,llmd_precise,marginal_delay"
"""unless policy= says which"""
ALL = "all"


def _hindsight(given: Given) -> int:
    """Print a line for each router, and one for the search; 0. Raises InvalidInput for what is not valid."""
    from prebleexp.launch import configure, tables
    from prebleexp.launch.loads import files_of
    from prebleexp.planning.hindsight import search
    from prebleexp.report.frontier import METRICS, metric_words

    metrics = METRICS if given["metric"] == ALL else (str(given["metric"]),)
    _check(metrics)
    said = [one.removeprefix("policy=") for one in given.others if one.startswith("policy=")]
    others = [one for one in given.others if not one.startswith("policy=")]
    names = [one for one in (said[-1] if said else ROUTERS).split(",") if one]
    cells = {name: configure.cells([*others, f"policy={name}"])[0] for name in names}
    made = search(cells, metrics, given["runs"], _told(given["runs"]))
    heads = ["assignment", *(f"{metric_words(one)}, times the best" for one in metrics), "all"]
    lines = [
        [one.name, *(tables.number(ratio, 3) for ratio in made.ratios(one).values()), f"{one.ratio(made.best):.3f}"]
        for one in (*made.routers, made.found)
    ]
    tables.show(heads, lines)
    ratio, requests = made.found.ratio(made.best), len(made.found.gpus)
    print(
        f"prebleexp: {requests:,} requests, {made.served:,} runs of which {made.kept:,} were better: an assignment "
        f"that knows all that comes is at {ratio:.3f} of the best of {len(names)} routers, picked anew for each "
        "metric. At least so much was to be won; more may be",
        file=sys.stderr,
    )
    for line in files_of(cells[names[0]]):
        tables.say(f"prebleexp: {line}")
    return 0


def _check(metrics: tuple[str, ...]) -> None:
    from prebleexp.checks import one_of
    from prebleexp.metrics import DECLARED

    for one in metrics:
        one_of("metric", one, (ALL, *(name for name in DECLARED if name.endswith("_s"))))


def _told(most: int) -> Callable[[int, float], None]:
    """Shows how far it is, where somebody looks."""

    def told(served: int, ratio: float) -> None:
        if sys.stderr.isatty() and (served % 50 == 0 or served == most):
            print(f"\rprebleexp: {served:,} of {most:,} runs, {ratio:.3f}", end="", file=sys.stderr, flush=True)

    return told


COMMANDS: Commands = {
    "": Command(
        "how much better than the best router an assignment is that knows all that comes, by local search over a small "
        "run's assignments",
        _hindsight,
        "python -m prebleexp hindsight policy=lor,lmetric,marginal_delay gpus=4 rps=20 duration_s=10",
        settings=(
            integer("runs", "that the search takes", 2_000, 1, 1_000_000),
            text("metric", "what is made small; all: the four of +sweeps=frontier, by their geometric mean", ALL),
        ),
        others="the run: policy=lor,lmetric (where it begins, and what it is compared with), workload=… gpus=4 …",
    )
}
