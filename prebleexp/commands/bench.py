"""`python -m prebleexp bench`: how fast the simulator is, a table for each of its parts; and than another checkout."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from prebleexp.bench import (
    against,
    checkouts,
    commands,
    decisions,
    engines,
    gaps,
    groups,
    hardware,
    live,
    memory,
    million,
    mock,
    parts,
    pools,
    references,
    route,
    scaling,
    speculation,
    starting,
    streams,
    sweeps,
    throughput,
)
from prebleexp.bench.table import Row, Table
from prebleexp.checks import require
from prebleexp.commands.arguments import Command, Commands, Given, Setting, choice, integer, path
from prebleexp.launch import tables

OF_ALL = (
    path(
        "against",
        "another checkout of this repository, measured by turns with this one: ratios are printed (no routers of your "
        "own)",
    ),
    integer("rounds", f"how often both are measured, with against=; without: {against.ROUNDS}", least=1, most=1000),
    choice("output", "what is printed", "table", "json"),
)


def _print(name: str, table: Table, given: Given) -> int:
    rounds = given["rounds"]
    require(given["against"] is not None or rounds is None, "rounds", rounds, "left out without against=")
    measure = _by_itself(table, given) if given["against"] is None else _by_turns(name, table, given)
    print("prebleexp: measuring; some minutes", file=sys.stderr, flush=True)
    rows = measure()
    if given["output"] == "json":
        print(json.dumps(rows, indent=1))
        return 0
    tables.show(list(rows[0]), [[_text(value) for value in row.values()] for row in rows])
    return 0


def _by_itself(table: Table, given: Given) -> Callable[[], list[Row]]:
    settings: dict[str, Any] = {"root": checkouts.OURS} if table.of_commands else {}
    if "policy" in given.values:
        settings["policies"] = given["policy"]
    if "path" in given.values:
        settings["path"] = given["path"]
    return partial(table.rows, **settings)


def _by_turns(name: str, table: Table, given: Given) -> Callable[[], list[Row]]:
    """With the other checkout. Raises InvalidInput unless it has the table."""
    if table.of_commands:
        root = checkouts.check(given["against"])
        here, there = (partial(table.rows, root=one) for one in (checkouts.OURS, root))
    else:
        root = checkouts.check(given["against"], name)
        settings = [f"policy={','.join(given['policy'])}"] if given.values.get("policy") else []
        settings += [f"path={given['path'].resolve()}"] if given.values.get("path") else []
        here, there = (partial(checkouts.rows, one, name, settings) for one in (checkouts.OURS, root))
    return partial(against.measured, table, here, there, given["rounds"] or against.ROUNDS)


def _text(value: object) -> str:
    if value is None:
        return tables.NOTHING
    return f"{value:.6f}" if isinstance(value, float) else f"{value:,}" if isinstance(value, int) else str(value)


def _policies(like: str | Sequence[str]) -> Setting:
    text = like if isinstance(like, str) else ",".join(like)
    return Setting("policy", "these routers, your own too", text, None, lambda _, text: text.split(","))


def _command(name: str, does: str, table: Table, *settings: Setting, example: str = "") -> Command:
    words = " ".join(filter(None, ("python -m prebleexp bench", name, example)))
    return Command(does, partial(_print, name, table), words, settings=(*settings, *OF_ALL))


COMMANDS: Commands = {
    "": _command(
        "",
        "requests simulated per second of CPU, a line for each policy",
        throughput.TABLE,
        _policies(throughput.POLICIES),
        example="policy=lor,e2",
    ),
    "scaling": _command(
        "scaling",
        "what a decision costs, by the size of the cluster and the length of the run",
        scaling.TABLE,
        _policies(scaling.SCALED),
        example="policy=lor,e2",
    ),
    "decisions": _command(
        "decisions",
        "what a decision takes on 8 and on 256 GPUs, by the processor's clock",
        decisions.TABLE,
        _policies("all"),
        example="policy=lor,e2",
    ),
    "memory": _command(
        "memory",
        "the memory of a million requests on 256 GPUs, each alone",
        memory.TABLE,
        _policies("all of prompts"),
        example="policy=lor,e2",
    ),
    "million": _command(
        "million",
        "a million requests on 256 GPUs, which they can serve, or half of them: CPU seconds and memory, each alone",
        million.TABLE,
        _policies("lor"),
        example="policy=lor,e2",
    ),
    "mock": _command(
        "mock",
        "how late simulated GPUs in real time write tokens, and how far from the simulation a client's measurement is",
        mock.TABLE,
    ),
    "engines": _command(
        "engines",
        "requests per second of CPU by engine, on some streams",
        engines.TABLE,
        _policies("lor"),
        example="policy=lor,e2",
    ),
    "pools": _command(
        "pools",
        "requests per second of CPU with prompts on GPUs of their own",
        pools.TABLE,
        _policies("lor"),
        example="policy=lor,e2",
    ),
    "groups": _command(
        "groups",
        "requests per second of CPU with groups of layers, against one table",
        groups.TABLE,
        _policies("lor"),
        example="policy=lor,e2",
    ),
    "speculation": _command(
        "speculation",
        "requests per second of CPU with drafts, against none",
        speculation.TABLE,
        _policies("lor"),
        example="policy=lor,e2",
    ),
    "gaps": _command(
        "gaps",
        "what it costs to count the gaps between tokens, against a copy that counts none",
        gaps.TABLE,
        _policies("lor"),
        example="policy=lor,e2",
    ),
    "hardware": _command("hardware", "nanoseconds in which hardware says what a step takes", hardware.TABLE),
    "live": _command(
        "live",
        "milliseconds by which a client is late, and what a request costs it; needs prebleexp[live]",
        live.TABLE,
    ),
    "references": _command(
        "references",
        "requests per second of CPU of the public simulators, and of one that steps token by token",
        references.TABLE,
    ),
    "streams": _command(
        "streams",
        "CPU seconds in which long streams are drawn, and traces are drawn and served, each alone",
        streams.TABLE,
        path("path", "a trace of your own too: one of Mooncake's format, or sessions as workload=agents reads them"),
        example="path=conversation_trace.jsonl",
    ),
    "parts": _command("parts", "microseconds of CPU of small parts of a command", parts.TABLE),
    "route": _command(
        "route",
        "microseconds of decisions of a router that runs, and requests/s that it passes on; needs prebleexp[live]",
        route.TABLE,
        _policies(route.POLICIES),
        example="policy=lor,e2",
    ),
    "starting": _command(
        "starting",
        "CPU seconds of short commands, functions compiled and modules imported for them",
        starting.TABLE,
    ),
    "sweeps": _command(
        "sweeps",
        "what a sweep costs besides its simulations, and from the cache; on as many cores as there are",
        sweeps.TABLE,
    ),
    "commands": _command(
        "commands",
        "seconds of the paper's sweep and of a plan, anew and from the cache; on as many cores as there are",
        commands.TABLE,
    ),
}
