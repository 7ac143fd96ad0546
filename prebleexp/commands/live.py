"""`python -m prebleexp live …`: a cell's requests sent to real endpoints; and a measurement beside its simulation.
Both need `pip install 'prebleexp[live]'`."""

from __future__ import annotations

import json
import math
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from prebleexp.checks import positive
from prebleexp.commands.arguments import Command, Commands, Given, choice, integer, number, path, text
from prebleexp.errors import InvalidInput, PrebleexpError
from prebleexp.live import extra

if TYPE_CHECKING:
    from prebleexp.experiment.cell import Cell
    from prebleexp.launch.configure import Job
    from prebleexp.live.http.places import Origin
    from prebleexp.live.measuring.compared import Compared
    from prebleexp.live.measuring.measured import Measured
    from prebleexp.sim.types import Workload

KEY = "OPENAI_API_KEY"
LIVE_DIR = path("live_dir", "where measurements are kept, a folder each", "live")
OUTPUT = choice("output", "how the result is written", "table", "json")
MEASURED_OUTPUT = choice("output", "how the result is written", "table", "json", "vllm_bench")


def _live(given: Given) -> int:
    """Measure each seed; 0, or 1 where the client was late, so that nothing was measured of what was asked for, or
    where somebody stopped it: what came until then is kept. A disk that refuses it ends the measurement, too: it is
    shown, and then said to be lost."""
    extra.check()
    from prebleexp.experiment.provenance import now
    from prebleexp.live.measuring import kept, measured
    from prebleexp.live.measuring.sending import How

    job, origins = _job(given.others), _origins("url", given["url"])
    engines = _origins("metrics", given["metrics"]) if given["metrics"] else origins
    model = given["model"] or measured.served_models(origins)[0]
    real = {"real": True, "planned": False, "auto": given["prompt"] == "ids"}[given["answers"]]
    timeout_s = math.inf if given["timeout_s"] is None else float(positive("timeout_s", given["timeout_s"], "> 0"))
    key = os.environ.get(KEY)
    how = How(origins, model, given["prompt"], real, given["vocabulary"], timeout_s, given["warm_connections"], key)
    name = given["name"] or now().replace(":", "-").removesuffix("Z")
    folder = given["live_dir"] / name
    kept.refuse(folder)
    for cell in job.cells:
        measured.check(cell, how)
    kept.make(folder)
    started, found = now(), list[measured.Measured]()
    lost: PrebleexpError | None = None
    for cell in job.cells:
        workload = measured.stream(cell)
        print(_sending(cell, workload, given["url"]), file=sys.stderr, flush=True)
        found.append(measured.measured(cell, workload, how, engines, given["late_limit_s"]))
        about = {"name": name, "started": started, "settings": list(given.others), "url": given["url"], "model": model}
        about |= {"prompt": how.prompt, "answers": "real" if real else "planned", "vocabulary": how.vocabulary}
        runs = [measured.facts(one) for one in found]
        try:
            kept.write(folder, about | {"runs": runs}, {cell.seed: found[-1].columns})
        except PrebleexpError as error:
            lost = PrebleexpError(f"the measurement of seed {cell.seed} is not kept: {error}")
        if found[-1].stopped or lost is not None:
            break
    _show(given, found, model)
    if len(found) > (lost is not None):
        print(f"prebleexp: kept in {folder}; beside a simulation: prebleexp live compare {folder}", file=sys.stderr)
    if lost is not None:
        raise lost
    return 1 if any(one.lateness.is_late or one.stopped for one in found) else 0


def _sending(cell: Cell, workload: Workload, url: str) -> str:
    """What is about to be sent, and how long that takes at least: whoever starts it may have less time."""
    from prebleexp.launch import tables
    from prebleexp.live.measuring.measured import least_s

    seconds = least_s(cell, workload)  # 0: requests wait for answers alone
    least = f" in at least {tables.number(seconds)} s" if seconds > 0 else ""
    after = f": later turns come after duration_s={cell.duration_s:g}" if seconds > cell.duration_s else ""
    return f"prebleexp: sending seed {cell.seed} to {url}, {len(workload):,} requests{least}{after}"


def _show(given: Given, found: Sequence[Measured], model: str) -> None:
    from prebleexp.commands import as_vllm_bench, benchmarked
    from prebleexp.launch import tables
    from prebleexp.launch.rows import means
    from prebleexp.live.measuring.as_client import as_client
    from prebleexp.metrics import DECLARED, FIRST

    rows = [one.run.metrics for one in found]
    if given["output"] == "vllm_bench":
        first = found[0]
        as_vllm_bench.printed(benchmarked.Benchmarked(first.cell, as_client(first), ()), model)
    elif given["output"] == "json":
        print(json.dumps([{"seed": one.cell.seed} | one.run.metrics for one in found], indent=1))
    else:
        lines = []
        for metric, value in means(rows).items():
            if value is not None and (metric in FIRST or (metric.startswith("n_") and value[0])):
                half = [] if len(rows) == 1 else ["" if value[1] is None else tables.number(value[1], 2)]
                lines.append([metric, tables.number(value[0]), *half, DECLARED[metric].unit, DECLARED[metric].words])
        heads = ["measured"] if len(rows) == 1 else [f"mean of {len(rows)} seeds", "± 95 %"]
        tables.show(["metric", *heads, "unit", "which is"], lines, title=f"measured at {given['url']}")
    for sentence in dict.fromkeys(said for one in found for said in one.says):
        tables.say(f"prebleexp: {sentence}")


def _compare(given: Given) -> int:
    extra.check()
    from prebleexp.launch import tables
    from prebleexp.live.measuring import compared, kept, page
    from prebleexp.waiting import waiting

    of = kept.read(Path(given.words[0]).expanduser())
    job = _job([*of.about["settings"], *given.others])
    of_seed = {cell.seed: cell for cell in job.cells}
    cells, measured, found = [], [], []
    for run in [one for one in of.about["runs"] if one["seed"] in of_seed]:
        cell, columns = of_seed[run["seed"]], of.requests(run["seed"])
        made, watched = compared.simulated(cell, columns, given["arrivals"])
        cells.append(cell)
        measured.append(columns)
        found.append(compared.compared(run, columns, made, watched, given["arrivals"]))
    if not found:
        raise InvalidInput(f"{of.folder} has no measurement of seed {job.cells[0].seed}; valid: {of.seeds}")
    if given["output"] == "json":
        print(json.dumps([_as_json(one) for one in found], indent=1))
    else:
        _show_compared(of.about, found)
    said = [*(one for run in of.about["runs"] for one in run["says"]), *_said(of.about, cells[0], found, given.others)]
    for sentence in dict.fromkeys(said):
        tables.say(f"prebleexp: {sentence}")
    if job.settings.report != "none":
        with waiting("drawing the page"):
            folder = job.settings.reports_dir / f"live-{of.folder.absolute().name}"
            written = page.write(folder, of.about, cells, measured, found, list(dict.fromkeys(said)), given.line)
        print(tables.address(written), file=sys.stderr)
    print(page.sentence(found, said), file=sys.stderr)
    return 0


def _show_compared(about: Any, found: Sequence[Compared]) -> None:
    from prebleexp.launch import tables
    from prebleexp.live.measuring.compared import means

    lines = []
    for one in means(found):
        ratio, half = one.ratio or (None, None)
        spread = [] if len(found) == 1 else ["" if half is None else tables.number(half, 2)]
        values = [*map(tables.number, (one.measured, one.simulated)), tables.number(ratio, 3)]
        lines.append([one.metric, *values, *spread])
    heads = ["metric", "measured", "simulated", "simulated / measured", *([] if len(found) == 1 else ["± 95 %"])]
    tables.show(heads, lines, title=f"{about['name']}, measured at {about['url']}, beside its simulation")
    print()
    heads = ["request by request", "requests", "bias s", "median off s", "p90 off s", "rank correlation"]
    agreements = [
        [one.name, f"{one.requests:,}", *map(tables.number, (one.bias_s, one.p50_s, one.p90_s, one.correlation))]
        for one in found[0].agreements
    ]
    tables.show(heads, agreements)
    if found[0].phases:
        print()
        lines = [
            [one.name, *(tables.number(None if of is None else 1e3 * of) for of in one[1:])] for one in found[0].phases
        ]
        tables.show(["of a request, ms", "measured", "simulated"], lines)
    if found[0].stages:
        print()
        lines = [
            [str(one.stage), *map(tables.number, (one.ttft_mean_s, two.ttft_mean_s, one.tpot_mean_s, two.tpot_mean_s))]
            for one, two in found[0].stages
        ]
        tables.show(["stage", "ttft measured", "ttft simulated", "tpot measured", "tpot simulated"], lines)


def _said(about: Any, cell: Cell, found: Sequence[Compared], others: Sequence[str]) -> list[str]:
    from prebleexp.commands.benchmarked import served_by
    from prebleexp.commands.taken import by_default

    said = [f"simulated: {served_by(cell)}", *by_default(cell, [*about["settings"], *others])]
    said += [
        f"{one.same_gpu:.1%} of requests were sent to the GPU of the simulation"
        for one in found
        if one.same_gpu is not None
    ][:1]
    return said


def _as_json(one: Compared) -> dict[str, Any]:
    return {
        "metrics": {
            row.metric: {"measured": row.measured, "simulated": row.simulated, "ratio": row.ratio} for row in one.rows
        },
        "requests": [of._asdict() for of in one.agreements],
        "phases": [of._asdict() for of in one.phases],
        "same_gpu": one.same_gpu,
    }


def _job(settings: Sequence[str]) -> Job:
    from prebleexp.launch import configure

    return configure.job_of_command(list(settings))


def _origins(name: str, urls: str | None) -> list[Origin]:
    from prebleexp.live.http.places import origin

    if not urls:
        raise InvalidInput(f"{name} is missing; give the URL of a server as {name}=http://127.0.0.1:8000")
    return [origin(name, one.strip()) for one in urls.split(",")]


COMMANDS: Commands = {
    "": Command(
        "send the requests of a workload to real endpoints, in an open loop, and measure what a simulation tells: the "
        f"same metrics, of the same requests. An API's key is taken from {KEY}, and written nowhere",
        _live,
        "python -m prebleexp live url=http://127.0.0.1:8000 workload=chats rps=4 duration_s=30 slo.ttft_s=0.5",
        settings=(
            text("url", "servers as OpenAI's, several by commas: requests go to them in turn"),
            text("model", "its name there; by default what /v1/models says first"),
            choice("prompt", "ids of tokens, which have exactly the planned lengths; or words", "ids", "text", "chat"),
            choice(
                "answers",
                "what later turns have of earlier answers: what came, or made-up tokens",
                "auto",
                "real",
                "planned",
            ),
            integer("vocabulary", "ids of tokens are below it", 1000, 100, 2**31 - 1),
            text("metrics", "engines whose /metrics are read before and after; by default those of url="),
            number("timeout_s", "of a whole request; by default none"),
            number("late_limit_s", "how late a single request may be sent", 0.1),
            integer("warm_connections", "opened ahead to each server", 8, 0, 4096),
            text("name", "of the folder; by default the time"),
            LIVE_DIR,
            MEASURED_OUTPUT,
        ),
        others="what is sent, and what a simulation of it would be, as for a run (prebleexp --help)",
    ),
    "compare": Command(
        "a measurement beside the simulation of the same requests",
        _compare,
        "python -m prebleexp live compare live/NAME hardware/gpu=h100",
        words="FOLDER",
        takes="one folder, of a measurement",
        settings=(
            choice("arrivals", "when simulated requests come: when they were sent, or due", "sent", "due"),
            OUTPUT,
        ),
        others="what is simulated otherwise than the measurement's settings have it",
    ),
}
