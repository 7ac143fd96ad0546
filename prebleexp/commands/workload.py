"""`python -m prebleexp workload describe …`: what a stream of requests looks like, before anything serves it; and
`workload export …`: the stream as a file."""

from __future__ import annotations

import json
import math
import sys
from dataclasses import asdict
from typing import Any

from prebleexp.commands.arguments import Command, Commands, Given, choice, path
from prebleexp.described import SHARES, Description, Quantiles, describe
from prebleexp.errors import InvalidInput
from prebleexp.experiment import runs
from prebleexp.experiment.shape import by_chance
from prebleexp.experiment.warming import before
from prebleexp.launch import configure, tables
from prebleexp.sim.types import Workload
from prebleexp.workloads import exported, recorded
from prebleexp.workloads.reading import Understood

UNITS = {
    "input": "input, tokens",
    "output": "output, tokens",
    "turns": "turns of a session",
    "gap": "start to start of turns, s",
    "think": "answer to next turn, s",
}


def _describe(given: Given) -> int:
    """Raises InvalidInput for what is not valid."""
    cell = configure.job_of_command(given.others).cells[0]
    workload = runs.draw(cell)
    found = describe(workload, cell.workload.blocks_of)
    taken, first = cell.workload.understood, before(cell, workload)
    warm = None if first is None else first.workload
    if given["output"] == "json":
        said: dict[str, Any] = (
            {}
            if taken is None
            else {"file": dict(taken.facts) | {"doubts": list(taken.doubts), "found_share": taken.found_share}}
        )
        said |= {} if warm is None else {"warm": {"requests": len(warm), "prompt_tokens": _tokens(warm)}}
        print(json.dumps(_plain(asdict(found) | said)))
    else:
        if taken is not None:
            _show_file(taken)
        _show(found, warm, 0.0 if taken is None else taken.found_share)
        for line in by_chance([cell]):
            print(f"\n! {line}")
    if given["out"] is not None:
        from prebleexp.report import stream

        stream.save(given["out"], workload, found, f"workload={cell.names['workload']}")
        print(given["out"], file=sys.stderr)
    return 0


def _export(given: Given) -> int:
    """Raises InvalidInput for what is not valid, PrebleexpError where the disk refuses."""
    if given["out"] is None:
        raise InvalidInput("out is missing; give the file to write as out=stream.jsonl")
    workload = runs.draw(configure.job_of_command(given.others).cells[0])
    FORMATS[given["format"]](workload, given["out"])
    print(f"{given['out']}: {len(workload):,} requests", file=sys.stderr)
    return 0


def _show_file(taken: Understood) -> None:
    tables.show(["the file was taken for", ""], [list(fact) for fact in taken.facts])
    for doubt in taken.doubts:
        print(f"! {doubt}")
    print()


def _tokens(warm: Workload) -> int:
    return int(warm.prompt_tokens.sum())


def _show(found: Description, warm: Workload | None, recorder: float) -> None:
    number = tables.number
    rows = [
        ("requests", f"{found.requests:,}"),
        ("seconds", number(found.span_s, 6)),
        ("requests/s", number(found.rate)),
        ("variance / mean of counts", ", ".join(f"{_n(value)} in {s:g} s" for s, value in found.dispersion.items())),
        ("CV of gaps", _n(found.gap_cv)),
        ("gamma shape of gaps", _n(found.gamma_shape)),
        ("sessions", f"{found.sessions:,}"),
        ("… of several turns", f"{found.several:,}"),
    ]
    if (peak := found.busiest) is not None:
        times = f"{number(peak.rps)}, {number(peak.times, 3)} times the average"
        rows.insert(3, (f"… in the busiest {peak.of}", times))
    if warm is not None:
        rows.append(("warmed before it by", f"{len(warm):,} requests of {_tokens(warm):,} prompt tokens"))
    tables.show(["of the stream", ""], [list(row) for row in rows])
    print()
    heads = ["quantiles", *(f"p{100 * share:g}" for share in SHARES), "mean"]
    tables.show(heads, [[label, *_quantiles(getattr(found, name))] for name, label in UNITS.items()])
    print()
    sizes = {f"{size / 1e6:g} M tokens": share for size, share in found.reuse.items()} | {"unlimited": found.unlimited}
    sizes |= {"the recorder's own": recorder} if recorder else {}
    tables.show(["cache", "prompt tokens found"], [[name, f"{share:.1%}"] for name, share in sizes.items()])


def _n(value: float) -> str:
    return tables.NOTHING if math.isnan(value) else tables.number(value)


def _quantiles(of: Quantiles) -> list[str]:
    return [_n(value) for value in (*of.at, of.mean)]


def _plain(value: Any) -> Any:
    """NaN is null in JSON."""
    if isinstance(value, dict):
        return {str(key): _plain(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(one) for one in value]
    return None if isinstance(value, float) and math.isnan(value) else value


FORMATS = {"mooncake": exported.write, "parquet": recorded.save}
COMMANDS: Commands = {
    "export": Command(
        "a stream of requests as a file: lines of JSON as Mooncake's traces, which aiperf, vLLM's benchmark and Dynamo "
        "replay; or all of it as Parquet, for workload=recorded",
        _export,
        "python -m prebleexp workload export workload=chats rps=4 duration_s=60 out=chats.jsonl",
        settings=(
            path("out", "the file that is written"),
            choice("format", "what it is", *FORMATS),
        ),
        others="the stream, as that of a run is set (prebleexp --help): workload=, rps=, duration_s=, seed=",
    ),
    "describe": Command(
        "what a stream of requests looks like: rate, burstiness, lengths, sessions, and what a cache finds",
        _describe,
        "python -m prebleexp workload describe workload=mooncake workload.path=FILE workload.load=recorded out=it.svg",
        settings=(
            path("out", "a picture too: .svg, .pdf or .png"),
            choice("output", "what is printed", "table", "json"),
        ),
        others="the stream, as that of a run is set (prebleexp --help): workload=, rps=, duration_s=, seed=",
    ),
}
