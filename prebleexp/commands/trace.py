"""`python -m prebleexp trace …`: one run, with every batch step written down, as a page and as a trace for Perfetto."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from dataclasses import fields, replace
from pathlib import Path

import numpy as np

from prebleexp import losses, moved, scaling_metrics
from prebleexp.checks import require
from prebleexp.commands.arguments import Command, Commands, Given, integer
from prebleexp.errors import InvalidInput
from prebleexp.experiment import counting, durable, load, runs
from prebleexp.experiment.cache import Cache
from prebleexp.experiment.cell import Cell
from prebleexp.experiment.key import contents, digest
from prebleexp.launch import configs, configure
from prebleexp.launch.loads import files_of
from prebleexp.policies.base import Policy
from prebleexp.policies.decisions import Decision, watched
from prebleexp.report import frame, listing, perfetto, run_page, subject, why
from prebleexp.report.wording import plain
from prebleexp.sim.steps import Steps

TRACE, DECISIONS = "trace.json", "decisions.json"
KEY_LETTERS = 12
SAID_MB = 10
"""from how many megabytes on the size of a trace is said before it is written"""
EXPLAIN = "explain"
"""the field by which a policy is told to keep its reasons"""


def _trace(given: Given) -> int:
    """Of several replications the first is traced. Raises InvalidInput for what is not valid."""
    asked = given["why"]
    job = _job(given.words, given.others)
    if asked is not None and _explains(job.cells[0]):
        job = _job(given.words, [*given.others, f"policy.{EXPLAIN}=true"])
    cell = job.cells[0]
    key = digest(contents([cell])[0])
    steps = Steps()
    policy, decided = watched(cell.policy)
    run = runs.run(replace(cell, policy=policy), on_event=steps)
    begun_s, before = (run.outcome.begun.at_s, run.outcome.begun.requests) if run.outcome.begun else (0.0, 0)
    steps.since(begun_s)
    asked_then = (one for one in decided() if one.request >= before)
    decisions = [one._replace(request=one.request - before, at_s=one.at_s - begun_s) for one in asked_then]
    said_of = None if asked is None else _of(decisions, asked, run.metrics["n_requests"])
    folder = job.settings.reports_dir / f"trace-{key[:KEY_LETTERS]}"
    kv_tokens = np.repeat([one.hardware.kv_tokens for one in cell.kinds], [one.replicas for one in cell.sizes])
    configuration = {name: plain(value) for name, value in cell.columns().items() if value is not None}
    lost = losses.sentences([("", [{**run.metrics, **load.asked(cell)}])])
    said = files_of(cell)
    page = run_page.render(
        run,
        steps,
        gpus=cell.replicas,
        unit=counting.unit(cell),
        kv_tokens=kv_tokens,
        title=_title(cell),
        subject=subject.of([cell]),
        command=given.line,
        key=key,
        configuration=configuration,
        files={"Every step, for ui.perfetto.dev": TRACE} | ({"Why every request": DECISIONS} if decisions else {}),
        decisions=why.table(decisions),
        host_s=cell.engine.host_step_s,
        said=[*said, *lost],
    )
    if (size := perfetto.megabytes(run, steps)) > SAID_MB:
        print(f"prebleexp: writing {folder / TRACE}, about {size:.0f} MB", file=sys.stderr, flush=True)
    with frame.into(folder), durable.writing(folder / TRACE) as file:
        count = perfetto.write(
            file, run, steps, cell.replicas, kv_tokens, {"key": key} | configuration, counting.unit(cell)
        )
    if decisions:
        durable.write(folder / DECISIONS, json.dumps(why.records(decisions), indent=1).encode())
    path = frame.write(folder / "index.html", page)
    listing.add(folder, listing.About(_title(cell), "trace of one run", given.line))
    if job.settings.output == "json":
        print(json.dumps({"key": key, "page": str(path), "trace": str(folder / TRACE), "metrics": run.metrics}))
    else:
        print(path, folder / TRACE, sep="\n")
    print(f"{run.metrics['n_requests']:,} requests, {count:,} events", file=sys.stderr)
    if said_of:
        print(f"prebleexp: {said_of} (seconds, each as the policy weighs it)", file=sys.stderr)
    history = run.outcome.history
    for sentence in (*said, scaling_metrics.sentence(history, cell.replicas), moved.sentence(history), *lost):
        if sentence:
            print(f"prebleexp: {sentence}", file=sys.stderr)
    return 0


def _explains(cell: Cell) -> bool:
    """Whether its policy must be told to keep its reasons. Raises InvalidInput if it keeps none."""
    kind = type(cell.policy)
    if kind.explained is Policy.explained:
        name = cell.called("policy")
        raise InvalidInput(
            f"why is not valid with policy={name}, which keeps no reasons; a policy keeps them with `explained` "
            "(docs/policy.md), as marginal_delay does"
        )
    return any(one.name == EXPLAIN for one in fields(kind))


def _of(decisions: Sequence[Decision], request: int, requests: int) -> str:
    """Why it went where it did. Raises InvalidInput for a request that does not exist."""
    require(request < requests, "why", request, f"a request of this run, from 0 to {requests - 1}")
    found = [one.sentence for one in decisions if one.request == request]
    return found[0] if found else f"request {request} was never routed"


def _job(keys: Sequence[str], settings: Sequence[str]) -> configure.Job:
    from prebleexp.launch import from_cache

    loader = configs.loader()
    if not keys:
        return configure.job(settings, loader)
    given = dict(one.split("=", 1) for one in settings if "=" in one)
    folder = Path(given.get("cache_dir", "cache")).expanduser()
    if not folder.is_dir():
        raise InvalidInput(f"cache_dir={folder} is not a folder")
    run = Cache(folder, make=False).run(keys[0])
    key, content = run.key, run.content["cell"]
    job = configure.job([*from_cache.overrides_of(key, content, loader), *settings], loader)
    from_cache.check_files(key, content, job.cells[0])
    return job


def _title(cell: Cell) -> str:
    return f"{cell.called('policy')} on {counting.words(cell)} {cell.load.words}, seed {cell.seed}"


COMMANDS: Commands = {
    "": Command(
        "one run, step by step: a page of what each GPU did when, and a trace for ui.perfetto.dev",
        _trace,
        "python -m prebleexp trace gpus=8 rps=64 policy=e2",
        words="[KEY]",
        takes="one key",
        settings=(integer("why", "of which request to print why it went where it did", least=0),),
        others="the run, as one is set without trace (prebleexp --help); KEY is that of a run in the cache, as "
        "output=json and the table runs have it, of which the first letters will do",
    )
}
