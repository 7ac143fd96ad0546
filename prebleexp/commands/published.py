"""`python -m prebleexp published`: the shipped model against experiments that others published."""

from __future__ import annotations

import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from prebleexp.commands.arguments import CACHE_DIR, Command, Commands, Given, choice, integer, path
from prebleexp.errors import PrebleexpError

if TYPE_CHECKING:
    from prebleexp.published.ladders import Error, Measured

SWEEP = "published_llmd"
ALL, LADDERS, CLOSED_LOOPS = "all", "ladders", "closed_loops"


def _published(given: Given) -> int:
    """Print a row for each arm and metric; 0. Raises InvalidInput for figures that are not valid, PrebleexpError if a
    run fails."""
    from prebleexp.launch import tables
    from prebleexp.published import ladders

    data, which = given["data"], given["of"]
    measured = ladders.read(data or ladders.SHIPPED)  # before anything is computed
    rows: list[Error] = []
    if which in (ALL, LADDERS):
        rows += of_ladders(measured, given["replications"], given["cache_dir"])
    if which == CLOSED_LOOPS or (which == ALL and data is None):
        rows += of_closed_loops()
    if given["output"] == "table":
        lines = [
            [one.experiment, one.arm, one.metric, f"{one.n:,}", f"{one.median_error:.1%}", f"{one.p90_error:.1%}"]
            for one in rows
        ]
        tables.show(list(asdict(rows[0])), lines)
        print(
            "others, some minutes: +sweeps=published_splitwise, published_distserve, published_mooncake",
            file=sys.stderr,
        )
    else:
        tables.write_rows([asdict(one) for one in rows], given["output"])
    return 0


def of_ladders(measured: Measured, replications: int, cache_dir: Path) -> list[Error]:
    """Each arm as each of the lines of the sweep that may be it."""
    from prebleexp.launch.multirun import Multirun
    from prebleexp.launch.session import Session
    from prebleexp.report import ladders as page

    overrides = [f"+sweeps={SWEEP}", f"replications={replications}", f"cache_dir='{cache_dir}'", "report=none"]
    multirun = Multirun.of(overrides)
    session = Session(multirun.settings)
    multirun.launch(session)
    for failed in session.failed:
        assert failed.error is not None
        raise PrebleexpError(f"a run of {SWEEP} failed: {failed.error.message}")
    return page.compared(page.simulated(session.ladders), measured)


def of_closed_loops() -> list[Error]:
    """What `hardware check simulated=true` says of measurements that ship, each predicted by a fit that left it out."""
    from prebleexp.commands.hardware_check import table_of
    from prebleexp.hardware.checked import ALL as EVERY
    from prebleexp.hardware.checked import SOME
    from prebleexp.hardware.parameters import MEASURED
    from prebleexp.published.ladders import Error

    found = []
    for row in table_of(MEASURED, True):
        whose = [str(row[name]) for name in ("gpu", "engine", "model", "precision", "origin")]
        if set(whose[3:]) <= {SOME, EVERY} or row["metric"] == "kv_tokens":
            arm = " ".join(one for one in whose if one != SOME)
            found.append(Error(CLOSED_LOOPS, arm, row["metric"], row["n"], row["median_error"], row["p90_error"]))
    return found


COMMANDS: Commands = {
    "": Command(
        "hold the shipped model against experiments that others published: routing ladders of llm-d's guides, served "
        "stage by stage as sweeps/published_llmd.yaml says, and closed loops; median and 90th percentile of |simulated "
        "/ published − 1|, as shares (0.04 is 4 %), of a mean over streams of requests. Nothing is fitted to the "
        "ladders, and closed loops are predicted by a fit that left them out. An arm `optimized` is held against both "
        "profiles that it may be",
        _published,
        "python -m prebleexp published data=my_measurements output=json",
        settings=(
            path(
                "data",
                "a folder with routing_ladders.csv, of the columns that prebleexp/published/README.md lists; only that "
                "is compared; without it: what ships",
            ),
            choice("of", "what is compared", ALL, LADDERS, CLOSED_LOOPS),
            integer("replications", "streams of requests", 3, 1, 1000),
            CACHE_DIR,
            choice("output", "how to print", "table", "json", "csv"),
        ),
    )
}
