"""`python -m prebleexp trace …`: one run, with every batch step written down, as a page and as a trace for Perfetto."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from prebleexp import losses
from prebleexp.commands import line
from prebleexp.errors import InvalidInput
from prebleexp.experiment import durable, runs
from prebleexp.experiment.cache import Cache
from prebleexp.experiment.cell import Cell
from prebleexp.experiment.key import contents, digest
from prebleexp.launch import configs, configure
from prebleexp.report import frame, listing, perfetto, run_page
from prebleexp.report.wording import plain
from prebleexp.sim.steps import Steps

TRACE = "trace.json"
KEY_LETTERS = 12


def run(arguments: Sequence[str]) -> int:
    """`arguments` are overrides, or the key of a run in the cache with overrides of settings; of several replications
    the first is traced. Returns the exit code. Raises InvalidInput for what is not valid."""
    job = _job(arguments)
    cell = job.cells[0]
    key = digest(contents([cell])[0])
    steps = Steps()
    run = runs.run(cell, on_event=steps)
    folder = job.settings.reports_dir / f"trace-{key[:KEY_LETTERS]}"
    kv_tokens = cell.hardware.kv_tokens
    configuration = {name: plain(value) for name, value in cell.columns().items() if value is not None}
    page = run_page.render(
        run,
        steps,
        gpus=cell.gpus,
        kv_tokens=kv_tokens,
        title=_title(cell),
        command=line("trace", *arguments),
        key=key,
        configuration=configuration,
        files={"Every step, for ui.perfetto.dev": TRACE},
        host_s=float(getattr(cell.engine, "step_cost_s", 0.0)),
    )
    with frame.into(folder), durable.writing(folder / TRACE) as file:
        count = perfetto.write(file, run, steps, cell.gpus, kv_tokens, {"key": key} | configuration)
    path = frame.write(folder / "index.html", page)
    listing.add(folder, listing.About(_title(cell), "trace of one run", line("trace", *arguments)))
    if job.settings.output == "json":
        print(json.dumps({"key": key, "page": str(path), "trace": str(folder / TRACE), "metrics": run.metrics}))
    else:
        print(path, folder / TRACE, sep="\n")
    print(f"{run.metrics['n_requests']:,} requests, {count:,} events", file=sys.stderr)
    horizon = {"horizon": cell.horizon, "duration_s": cell.duration_s}
    for sentence in losses.sentences([("", [run.metrics | horizon])]):
        print(f"prebleexp: {sentence}", file=sys.stderr)
    return 0


def _job(arguments: Sequence[str]) -> configure.Job:
    from prebleexp.launch import from_cache

    keys = [one for one in arguments if "=" not in one and one[0] not in "+~-"]
    settings = [one for one in arguments if one not in keys]
    loader = configs.loader()
    if not keys:
        return _one(settings, loader)
    if len(keys) > 1:
        raise InvalidInput(f"trace takes one key, not {len(keys)}: {' '.join(keys)}")
    given = dict(one.split("=", 1) for one in settings if "=" in one)
    folder = Path(given.get("cache_dir", "cache")).expanduser()
    if not folder.is_dir():
        raise InvalidInput(f"cache_dir={folder} is not a folder")
    key, content = from_cache.content_of(keys[0], Cache(folder, make=False))
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
    gpus = "1 GPU" if cell.gpus == 1 else f"{cell.gpus} GPUs"
    return f"{cell.names['policy']} on {gpus} at {plain(float(cell.rps))} requests/s, seed {cell.seed}"
