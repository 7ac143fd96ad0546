"""The page of a single run: what each GPU did over time, how long requests took, which GPU had which prefixes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields
from typing import Any

import numpy as np
import numpy.typing as npt

from prebleexp import losses, moved, scaling_metrics
from prebleexp.experiment.runs import Run, requests_columns
from prebleexp.report import frame
from prebleexp.report.figures import Column, Table
from prebleexp.report.meanings import meanings
from prebleexp.report.timelines import assignment, edges, quantiles, timelines
from prebleexp.report.wording import number, percent
from prebleexp.sim.history import GpuState
from prebleexp.sim.steps import Steps
from prebleexp.sim.types import Longs
from prebleexp.stages import Stage, of_requests

MOST_GROUPS = 40
"""rows of the assignment; the smallest groups beyond are added up"""
COLUMNS = (
    Column("requests", True),
    Column("computing", True),
    Column("hit ratio", True),
    Column("generated tokens", True),
    Column("most waiting", True),
    Column("most running", True),
    Column("most KV", True),
    Column("evicted tokens", True),
)


def render(
    run: Run,
    steps: Steps,
    *,
    gpus: int,
    unit: str = "GPU",
    kv_tokens: Longs,
    title: str,
    subject: str,
    command: str,
    key: str,
    configuration: Mapping[str, str],
    files: Mapping[str, str],
    decisions: Table | None = None,
    host_s: float = 0.0,
    said: Sequence[str] = (),
) -> str:
    """The page's HTML. `subject` is what was simulated; `files` are links by what they are; every step takes `host_s`
    besides the GPU's time; `unit` is what each of `gpus` is called. `said` are sentences of what the requests are, and
    which were not served."""
    return frame.render(
        "run.html.j2",
        scripts=("tables.js", "run.js"),
        charts=True,
        title=title,
        subject=subject,
        command=command,
        key=key,
        configuration=configuration,
        files=files,
        facts=_facts(run),
        losses=losses.as_text(said),
        note=_note(steps, host_s),
        scaled=losses.as_text([one] if (one := scaling_metrics.sentence(run.outcome.history, gpus)) else []),
        moved=losses.as_text([one] if (one := moved.sentence(run.outcome.history)) else []),
        metrics=Table(
            (Column("metric", False), Column("value", True), Column("meaning", False)),
            tuple((name, _exact(run.metrics[name]), text) for name, text in meanings().items() if name in run.metrics),
        ),
        per_gpu=_per_gpu(run, steps, gpus, kv_tokens, unit),
        unit=unit,
        stages=_stages(run),
        grouped=bool((run.workload.prefix_group >= 0).any()),
        decisions=decisions,
        data=frame.packed(_data(run, steps, gpus, kv_tokens, unit)),
    )


def _stages(run: Run) -> Table | None:
    names = [one.name for one in fields(Stage)]
    rows = [tuple(_exact(getattr(one, name)) for name in names) for one in of_requests(requests_columns(run))]
    return Table(tuple(Column(name, True) for name in names), tuple(rows)) if rows else None


def _exact(value: Any) -> str:
    return f"{value:,}" if isinstance(value, int) else number(value, 4)


def _facts(run: Run) -> list[tuple[str, str]]:
    metrics = run.metrics
    share = None if not metrics["n_requests"] else metrics["n_finished"] / metrics["n_requests"]
    return [
        ("requests", f"{metrics['n_requests']:,}"),
        ("finished", percent(share)),
        ("TTFT p99", f"{number(metrics['ttft_p99_s'])} s"),
        ("mean normalised latency", f"{number(metrics['norm_latency_mean_s'])} s/token"),
        ("hit ratio", number(metrics["hit_ratio"])),
        ("ended after", f"{number(metrics['end_s'])} s"),
    ]


def _note(steps: Steps, host_s: float) -> str:
    """What a reader must know of the steps' times."""
    columns = steps.columns()
    computed = columns["prefilled_tokens"] + columns["generated_tokens"] > 0
    backwards = int((computed & (columns["end_s"] - columns["start_s"] < host_s + 1e-9)).sum())
    if not backwards:
        return ""
    return (
        f"{backwards} of {len(columns['gpu'])} steps took less than no time on the GPU: what the hardware costs "
        "is a fit that falls below zero there, where they are taken to cost nothing. "
        "hardware=a6000_mistral_7b_monotone is without that."
    )


def _per_gpu(run: Run, steps: Steps, gpus: int, kv_tokens: Longs, unit: str) -> Table:
    columns, outcome = steps.columns(), run.outcome
    queues = steps.queues()[1]
    rows = []
    for g in range(gpus):
        here = columns["gpu"] == g
        computing = float((columns["end_s"] - columns["start_s"])[here].sum()) / max(outcome.end_s, 1e-9)
        hit, computed = int(outcome.gpu_hit_tokens[g]), int(outcome.gpu_prefilled_tokens[g])
        rows.append(
            (
                str(g),
                f"{outcome.gpu_requests[g]:,}",
                percent(min(computing, 1.0)),
                number(hit / (hit + computed) if hit + computed else None),
                f"{int(columns['generated_tokens'][here].sum()):,}",
                f"{int(queues[:, g].max(initial=0)) if len(queues) else 0:,}",
                f"{int(columns['running'][here].max(initial=0)):,}",
                percent(float(outcome.gpu_peak_kv_tokens[g] / kv_tokens[g])),
                f"{int(outcome.gpu_evicted_tokens[g]):,}",
            )
        )
    return Table((Column(unit, True), *COLUMNS), tuple(rows))


def _data(run: Run, steps: Steps, gpus: int, kv_tokens: Longs, unit: str) -> dict[str, Any]:
    groups, counts = assignment(run, gpus)
    names = [f"{group}" if group >= 0 else "none" for group in groups]
    if len(names) > MOST_GROUPS:
        rest = counts[MOST_GROUPS - 1 :].sum(axis=0, keepdims=True)
        names = [*names[: MOST_GROUPS - 1], f"{len(names) - MOST_GROUPS + 1} others"]
        counts = np.concatenate([counts[: MOST_GROUPS - 1], rest])
    return {
        "gpus": gpus,
        "unit": unit,
        "edges": _short(edges(run.outcome.end_s)),
        "series": [
            {
                "name": one.name,
                "label": one.label,
                "mean": _short(one.mean),
                "low": None if one.low is None else _short(one.low),
                "high": None if one.high is None else _short(one.high),
            }
            for one in timelines(run, steps, gpus, kv_tokens)
        ],
        "distributions": [
            {"label": label, "values": _short(quantiles(values)), "n": int((~np.isnan(values)).sum())}
            for label, values in (("time to first token", run.outcome.ttft_s), ("latency", run.outcome.latency_s))
        ],
        "scale": _scale(run),
        "groups": names,
        "assignment": counts.tolist(),
    }


def _scale(run: Run) -> list[dict[str, Any]]:
    """How many GPUs were ready, starting and draining from a time on, and wanted at a look; to the end of the run."""
    history, end_s = run.outcome.history, run.outcome.end_s
    counts = list(scaling_metrics.over_time(history))
    found = {
        "ready": [(one.at_s, one.ready) for one in counts],
        "starting": [(one.at_s, one.of[GpuState.STARTING]) for one in counts],
        "draining": [(one.at_s, one.of[GpuState.DRAINING]) for one in counts],
        "wanted": [(one.at_s, one.wanted) for one in history.decisions],
    }
    return [
        {"what": what, "t": float(f"{at_s:.7g}"), "gpus": count}
        for what, steps in found.items()
        if any(count for _, count in steps)
        for at_s, count in [*steps, (max(end_s, steps[-1][0]), steps[-1][1])]
    ]


def _short(values: npt.NDArray[np.float64]) -> Any:
    """Nested lists of numbers with five digits; NaN is null."""
    if values.ndim > 1:
        return [_short(row) for row in values]
    return [None if np.isnan(value) else float(f"{value:.5g}") for value in values.tolist()]
