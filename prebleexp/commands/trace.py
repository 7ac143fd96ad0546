"""`python -m prebleexp trace …`: one run, with every batch step written down, as a page and as a trace for Perfetto."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from prebleexp import losses, scaling_metrics
from prebleexp.commands.arguments import Command, Commands, Given
from prebleexp.errors import InvalidInput
from prebleexp.experiment import counting, durable, runs
from prebleexp.experiment.cache import Cache
from prebleexp.experiment.cell import Cell
from prebleexp.experiment.key import contents, digest
from prebleexp.launch import configs, configure
from prebleexp.launch.loads import files_of
from prebleexp.report import frame, listing, perfetto, run_page
from prebleexp.report.wording import plain
from prebleexp.sim.steps import Steps

TRACE = "trace.json"
KEY_LETTERS = 12


def _trace(given: Given) -> int:
    """Of several replications the first is traced. Raises InvalidInput for what is not valid."""
    job = _job(given.words, given.others)
    cell = job.cells[0]
    key = digest(contents([cell])[0])
    steps = Steps()
    run = runs.run(cell, on_event=steps)
    steps.since(run.outcome.begun.at_s if run.outcome.begun else 0.0)
    folder = job.settings.reports_dir / f"trace-{key[:KEY_LETTERS]}"
    kv_tokens = np.repeat([one.hardware.kv_tokens for one in cell.kinds], [one.replicas for one in cell.sizes])
    configuration = {name: plain(value) for name, value in cell.columns().items() if value is not None}
    said = files_of(cell)
    page = run_page.render(
        run,
        steps,
        gpus=cell.replicas,
        kv_tokens=kv_tokens,
        title=_title(cell),
        command=given.line,
        key=key,
        configuration=configuration,
        files={"Every step, for ui.perfetto.dev": TRACE},
        host_s=cell.engine.host_step_s,
        said=said,
    )
    with frame.into(folder), durable.writing(folder / TRACE) as file:
        count = perfetto.write(file, run, steps, cell.replicas, kv_tokens, {"key": key} | configuration)
    path = frame.write(folder / "index.html", page)
    listing.add(folder, listing.About(_title(cell), "trace of one run", given.line))
    if job.settings.output == "json":
        print(json.dumps({"key": key, "page": str(path), "trace": str(folder / TRACE), "metrics": run.metrics}))
    else:
        print(path, folder / TRACE, sep="\n")
    print(f"{run.metrics['n_requests']:,} requests, {count:,} events", file=sys.stderr)
    horizon = {"horizon": cell.horizon, "duration_s": cell.duration_s, "users": cell.workload.users}
    for sentence in (*said, scaling_metrics.sentence(run.outcome.history, cell.replicas)):
        if sentence:
            print(f"prebleexp: {sentence}", file=sys.stderr)
    for sentence in losses.sentences([("", [run.metrics | horizon])]):
        print(f"prebleexp: {sentence}", file=sys.stderr)
    return 0


def _job(keys: Sequence[str], settings: Sequence[str]) -> configure.Job:
    from prebleexp.launch import from_cache

    loader = configs.loader()
    if not keys:
        return _one(settings, loader)
    given = dict(one.split("=", 1) for one in settings if "=" in one)
    folder = Path(given.get("cache_dir", "cache")).expanduser()
    if not folder.is_dir():
        raise InvalidInput(f"cache_dir={folder} is not a folder")
    run = Cache(folder, make=False).run(keys[0])
    key, content = run.key, run.content["cell"]
    job = _one([*from_cache.overrides_of(key, content, loader), *settings], loader)
    from_cache.check_files(key, content, job.cells[0])
    return job


def _one(overrides: Sequence[str], loader: Any) -> configure.Job:
    try:
        return configure.job(overrides, loader)
    except InvalidInput as error:
        if "add -m" in str(error):
            raise InvalidInput(f"{str(error).partition(';')[0]}; trace is of one configuration") from None
        raise


def _title(cell: Cell) -> str:
    return f"{cell.called('policy')} on {counting.words(cell)} {cell.load.words}, seed {cell.seed}"


COMMANDS: Commands = {
    "": Command(
        "one run, step by step: a page of what each GPU did when, and a trace for ui.perfetto.dev",
        _trace,
        "python -m prebleexp trace gpus=8 rps=64 policy=e2",
        words="[KEY]",
        takes="one key",
        others="the run, as one is set without trace (prebleexp --help); KEY is that of a run in the cache, as "
        "output=json and the table runs have it, of which the first letters will do",
    )
}
