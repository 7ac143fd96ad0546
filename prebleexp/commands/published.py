"""`python -m prebleexp published`: the shipped model against experiments that others published."""

from __future__ import annotations

import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from prebleexp.commands.arguments import CACHE_DIR, Command, Commands, Given, choice, integer, path
from prebleexp.errors import PrebleexpError

if TYPE_CHECKING:
    from prebleexp.launch.session import Session
    from prebleexp.published.ladders import Error, Measured, Simulated

SWEEP = "published_llmd"
MEASURED_CASES = "measured_cases"
ALL, LADDERS, CASES, CLOSED_LOOPS = "all", "ladders", "cases", "closed_loops"
SPLITWISE, DISTSERVE = "splitwise", "distserve"


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
    if which == CASES or (which == ALL and data is None):
        rows += of_cases(given["cache_dir"])
    if which == CLOSED_LOOPS or (which == ALL and data is None):
        rows += of_closed_loops()
    for one in (SPLITWISE, DISTSERVE):
        if which == one or (which == ALL and data is None):
            rows += of_carried(one, given["cache_dir"])
    if given["output"] == "table":
        lines = [
            [one.experiment, one.arm, one.metric, f"{one.n:,}", f"{one.median_error:.1%}", f"{one.p90_error:.1%}"]
            for one in rows
        ]
        tables.show(list(asdict(rows[0])), lines)
        print("Mooncake's needs a trace: +sweeps=published_mooncake workload.path=… (docs/tiers.md)", file=sys.stderr)
    else:
        tables.write_rows([asdict(one) for one in rows], given["output"])
    return 0


def of_ladders(measured: Measured, replications: int, cache_dir: Path) -> list[Error]:
    """Each arm as each of the lines of the sweep that may be it."""
    from prebleexp.launch import configure
    from prebleexp.launch.multirun import Multirun
    from prebleexp.published.ladders import check
    from prebleexp.report import ladders

    parts = Multirun.of([f"+sweeps={SWEEP}"]).settings.parts
    check(measured, {part.name: configure.cells(part.overrides)[0].workload.rates for part in parts})
    return ladders.compared(simulated_ladders(replications, cache_dir), measured)


def simulated_ladders(replications: int, cache_dir: Path) -> dict[tuple[str, str], Simulated]:
    """What is simulated of each ladder, by the names of its experiment and line."""
    from prebleexp.report import ladders

    return ladders.simulated(session_of(SWEEP, cache_dir, f"replications={replications}").ladders)


def of_cases(cache_dir: Path) -> list[Error]:
    """Single runs: for each part of the sweep and metric, how far its lines are off."""
    from prebleexp.published import cases
    from prebleexp.report import cases as page

    return cases.errors(page.compared(session_of(MEASURED_CASES, cache_dir).by_line))


def session_of(sweep: str, cache_dir: Path, *given: str) -> Session:
    """Of a sweep that is done. Raises PrebleexpError if a run failed."""
    from prebleexp.launch.multirun import Multirun
    from prebleexp.launch.session import Session

    multirun = Multirun.of([f"+sweeps={sweep}", *given, f"cache_dir='{cache_dir}'", "report=none"])
    session = Session(multirun.settings)
    multirun.launch(session)
    for failed in session.failed:
        assert failed.error is not None
        raise PrebleexpError(f"a run of {sweep} failed: {failed.error.message}")
    return session


def of_carried(experiment: str, cache_dir: Path) -> list[Error]:
    """What clusters carry within their limits, as a plan finds it."""
    from prebleexp.launch import planner
    from prebleexp.launch.multirun import Multirun
    from prebleexp.published import carried
    from prebleexp.report import capacity

    overrides = [f"+sweeps=published_{experiment}", f"cache_dir='{cache_dir}'", "report=none"]
    found = capacity.by_workload(planner.sweep(Multirun.of(overrides), overrides).found)
    loads = {(variant, one.name): one.answer.size or 0.0 for variant, each in found.items() for one in each}
    return carried.errors(experiment, loads)


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
        if row["gpu"] in (SOME, EVERY):
            arm = EVERY if row["gpu"] == EVERY else " ".join(one for one in whose if one != SOME)
            found.append(Error(CLOSED_LOOPS, arm, row["metric"], row["n"], row["median_error"], row["p90_error"]))
    return found


COMMANDS: Commands = {
    "": Command(
        "hold the shipped model against experiments that others published: routing ladders of llm-d's guides, served "
        "stage by stage as sweeps/published_llmd.yaml says, single runs as sweeps/measured_cases.yaml says, closed "
        "loops, what Splitwise's and DistServe's clusters carry; median and "
        "90th percentile of |simulated / published − 1|, as shares (0.04 is 4 %), of a mean over "
        "streams of requests. Nothing is fitted to any of it, but to closed loops, which are predicted by a fit that "
        "left them out. An arm `optimized` is held against both profiles that it may be. Five minutes; half a minute "
        "for ladders alone",
        _published,
        "python -m prebleexp published data=my_measurements output=json",
        settings=(
            path(
                "data",
                "a folder with routing_ladders.csv, of the columns that prebleexp/published/README.md lists; only that "
                "is compared; without it: what ships",
            ),
            choice("of", "what is compared", ALL, LADDERS, CASES, CLOSED_LOOPS, SPLITWISE, DISTSERVE),
            integer("replications", "streams of requests", 3, 1, 1000),
            CACHE_DIR,
            choice("output", "how to print", "table", "json", "csv"),
        ),
    )
}
