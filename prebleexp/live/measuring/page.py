"""The page of a measurement beside its simulation."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from prebleexp.experiment.cell import Cell
from prebleexp.live.measuring.compared import Columns, Compared, means
from prebleexp.live.measuring.lateness import NO_MEASUREMENT
from prebleexp.metrics import DECLARED
from prebleexp.report import cumulative, frame, listing, page, subject
from prebleexp.report.answer import Answer
from prebleexp.report.cumulative import Distribution
from prebleexp.report.figures import Column, Table
from prebleexp.report.page import Aside, Report, Sweep
from prebleexp.report.wording import number, signed_percent
from prebleexp.sim.types import State

SHORT_S = 0.5
"""times to first token below it are drawn in milliseconds, and with them all others"""
MEASURED, SIMULATED = "measured", "simulated"
SAID = {"ttft_mean_s": "mean time to first token", "tpot_mean_s": "mean time per output token"}
DRAWN = {"ttft_s": "Time to first token", "tpot_s": "Time per output token", "latency_s": "Latency"}


def write(
    folder: Path,
    about: Mapping[str, Any],
    cells: Sequence[Cell],
    kept: Sequence[Columns],
    found: Sequence[Compared],
    says: Sequence[str],
    command: str,
) -> Path:
    """Of each seed in order the cell, what was measured and the comparison. Raises InvalidInput for a folder that
    cannot be written."""
    title = f"{about['name']}: measured and simulated"
    answer = Answer(sentence(found, says))
    figure = cumulative.figure(
        "distributions",
        "Requests, measured and simulated",
        answer,
        _distributions(kept, found),
        "Each line says which share of finished requests had no more; marks are the median and the p90. "
        "Times count from when a request was sent.",
        _metrics(found),
    )
    asides = [_request_by_request(found), *_phases(found[0]), *_stages(found[0])]
    asides.append(Aside("To know of this measurement", [f"{one[0].upper()}{one[1:]}." for one in says], is_caveat=True))
    rows = [
        {"key": f"seed {cell.seed}"} | cell.columns() | one.simulated.metrics | {"seconds": one.simulated.seconds}
        for cell, one in zip(cells, found, strict=True)
    ]
    settings = json.dumps(about["settings"], indent=1)
    sweep = Sweep(folder.name, title, command, settings, ("policy",), "measurement", subject.of(cells))
    provenance = {
        "measured at": str(about["url"]),
        "model": str(about["model"]),
        "measured, UTC": str(about["started"]),
    }
    report = Report(sweep, rows, [figure], provenance=provenance, measure="ttft_mean_s", asides=asides)
    with frame.into(folder):
        written = page.write(folder, report)
        seeds = f"{len(found)} seed{'s' if len(found) > 1 else ''}"
        listing.add(folder, listing.About(title, f"measurement of {seeds}", command, answer.sentence, folder.name))
    return written


def sentence(found: Sequence[Compared], says: Sequence[str] = ()) -> str:
    """By how much the simulation is off, with what intervals there are; what `says` that nothing was measured stands
    before it."""
    parts = [
        f"{SAID[one.metric]} {signed_percent(one.ratio[0] - 1, one.ratio[1])}"
        for one in means(found)
        if one.metric in SAID and one.ratio is not None
    ]
    text = f"Simulated against measured: {', '.join(parts)}." if parts else "No request was finished."
    doubts = [f"{one[0].upper()}{one[1:]}." for one in dict.fromkeys(says) if one.startswith(NO_MEASUREMENT)]
    return " ".join([*doubts, text])


def _distributions(kept: Sequence[Columns], found: Sequence[Compared]) -> list[Distribution]:
    made = []
    for name, title in DRAWN.items():
        measured = np.concatenate([_finished(one, name.replace("_s", "_sent_s"), name) for one in kept])
        simulated = np.concatenate([_finished(one.columns, name, name) for one in found])
        if len(measured) and len(simulated):
            made.append(Distribution(title, "seconds", {MEASURED: measured, SIMULATED: simulated}))
    short = all(np.median(values) < SHORT_S for one in made[:1] for values in one.lines.values())
    return [cumulative.in_milliseconds(one) for one in made] if short else made


def _finished(columns: Columns, name: str, other: str) -> Any:
    """Its values, or those of the other column where there is no such one."""
    values = np.asarray(columns[name if name in columns else other], np.float64)[columns["state"] == State.FINISHED]
    return values[values > 0]


def _metrics(found: Sequence[Compared]) -> Table:
    columns = (Column("metric", False), *(Column(one, True) for one in (MEASURED, SIMULATED, "ratio")))
    rows = [
        (_named(one.metric), *map(number, (one.measured, one.simulated, one.ratio and one.ratio[0])))
        for one in means(found)
    ]
    return Table(columns, tuple(rows))


def _named(metric: str) -> str:
    """With its unit, which values of a time need."""
    unit = DECLARED[metric].unit
    return f"{DECLARED[metric].words}, {unit}" if unit.partition("/")[0] in ("s", "tokens") else DECLARED[metric].words


def _request_by_request(found: Sequence[Compared]) -> Aside:
    heads = ("of finished requests", "requests", "mean, s", "median off, s", "p90 off, s", "rank correlation")
    rows = tuple(
        (DRAWN[f"{one.name}_s"], f"{one.requests:,}", *map(number, (one.bias_s, one.p50_s, one.p90_s, one.correlation)))
        for one in found[0].agreements
    )
    columns = tuple(Column(head, i > 0) for i, head in enumerate(heads))
    return Aside("Request by request", ["Simulated less measured, of the first seed."], Table(columns, rows))


def _phases(of: Compared) -> list[Aside]:
    if not of.phases:
        return []
    columns = (Column("of a request, ms", False), Column(MEASURED, True), Column(SIMULATED, True))
    rows = tuple((one.name, *(number(None if s is None else 1e3 * s) for s in one[1:])) for one in of.phases)
    said = "Means, which add up to the latency. Queue, prefill and decode are measured by the engines themselves."
    return [Aside("What a request's time is made of", [said], Table(columns, rows))]


def _stages(of: Compared) -> list[Aside]:
    if not of.stages:
        return []
    heads = ("stage", "requests/s", "TTFT measured, s", "simulated", "TPOT measured, s", "simulated ")
    rows = tuple(
        (
            str(one.stage),
            *map(number, (one.offered_rps, one.ttft_mean_s, two.ttft_mean_s, one.tpot_mean_s, two.tpot_mean_s)),
        )
        for one, two in of.stages
    )
    return [Aside("By stage", ["Of the first seed."], Table(tuple(Column(head, True) for head in heads), rows))]
