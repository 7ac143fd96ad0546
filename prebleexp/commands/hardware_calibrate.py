"""`python -m prebleexp calibrate hardware data=my_runs.csv`: step times of one's own engine from a few benchmarks."""

from __future__ import annotations

import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from prebleexp.commands.arguments import Command, Given, Setting, path
from prebleexp.commands.hardware_check import sizes
from prebleexp.errors import InvalidInput
from prebleexp.experiment import durable
from prebleexp.hardware import measurements, own_runs, steps
from prebleexp.hardware.domain import Domain
from prebleexp.hardware.equations import Array
from prebleexp.hardware.fitting import Labelled
from prebleexp.hardware.own_runs import SETTINGS, Calibrated
from prebleexp.launch import configs
from prebleexp.launch.from_cache import Options

SIMULATED = ("vllm", "sglang")
"""engines whose batching is simulated under the name that measurements have for them; others are served by the first"""


def _calibrate(given: Given) -> int:
    """Raises InvalidInput for what is not valid."""
    if given["data"] is None:
        raise InvalidInput(
            "data= is missing; give a CSV of your runs, results of bench_serving as JSON, or what `hardware measure` "
            "wrote"
        )
    if steps.are_steps(given["data"]):
        own = steps.read(given["data"], sizes()).of_engine(given["engine"] or "any")
        return _keep(given, STEPS, own, own_runs.calibrate_steps(own))
    known = {column: given[name] for column, name in SETTINGS.items() if given[name] is not None}
    loops = measurements.loops_of(own_runs.read(given["data"], known), sizes())
    return _keep(given, RUNS, loops, own_runs.calibrate(loops))


@dataclass(frozen=True)
class Kind:
    """How one says what was fitted to."""

    many: str
    one: str
    metric: str
    level: str
    against: str


RUNS = Kind("runs", "run", "TPOT", "measured", "benchmarks of one's own")
STEPS = Kind("whole steps", "step", "step times", "steps measured", "steps of one's own")


def _keep(given: Given, kind: Kind, rows: Labelled, found: Calibrated) -> int:
    """Say how good it is, and write it."""
    labels = dict(zip(own_runs.ONE, rows.keys(own_runs.ONE)[0], strict=True))
    name = "_".join((labels["gpu"], _option("model", labels["model"]), labels["precision"], f"tp{labels['tp']}"))
    file = given["to"] or Path(f"conf/hardware/{name}_{labels['engine']}.yaml")
    if file.exists():
        raise InvalidInput(f"{file} exists; give another name with to=")
    print(f"{len(rows)} {kind.many} of {labels['model']} in {labels['precision']} on {labels['tp']} {labels['gpu']}")
    print(f"{kind.metric} by what ships: {_said(found.before)}")
    print(f"{kind.metric} of each {kind.one} by a fit to the others: {_said(found.left_out)}")
    if np.isfinite(found.ttft_left_out).any():
        print(f"TTFT likewise: {_said(found.ttft_left_out)}")
    file.parent.mkdir(parents=True, exist_ok=True)
    durable.write(file, _yaml(labels, kind, found, rows.domain()).encode())
    print(file)
    if file.parent == Path("conf/hardware"):
        served = labels["engine"] if labels["engine"] in SIMULATED else SIMULATED[0]
        print(f"use it: python -m prebleexp hardware={file.stem} engine={served}", file=sys.stderr)
    return 0


def _said(errors: Array) -> str:
    errors = errors[np.isfinite(errors)]
    return f"median {np.median(errors):.1%}, largest {errors.max():.1%}".replace("%", " %")


def _option(group: str, name: str) -> str:
    """The file in conf/hardware/ that has what measurements call this."""
    options = Options(configs.loader()).configs(f"hardware/{group}")
    return next(option for option, config in options.items() if config["name"] == name)


def _yaml(labels: dict[str, str], kind: Kind, found: Calibrated, domain: Domain) -> str:
    """As conf/hardware/composed.yaml, with these parameters."""
    median, p90 = np.median(found.left_out), np.quantile(found.left_out, 0.9)
    mapping: dict[str, Any] = asdict(found.parameters)
    lines = [
        f"# Fitted to {len(found.before)} {kind.against}: python -m prebleexp calibrate hardware --help",
        "defaults:",
        f"  - gpu: {_option('gpu', labels['gpu'])}",
        f"  - model: {_option('model', labels['model'])}",
        "  - _self_",
        "_target_: prebleexp.hardware.composed.Composed",
        f"engine: {labels['engine']}",
        f"tensor_parallel: {labels['tp']}",
        f"precision: {labels['precision']}",
        f"kv_precision: {labels['kv']}",
        "utilisation: 0.9",
        "kv_tokens: null",
        "context_length: null",
        "parameters:",
        *(f"  {name}: {float(f'{value:.4g}')!r}" for name, value in mapping.items()),
        f"evidence:  # each {kind.one} by a fit to the others",
        f"  level: {kind.level}",
        f"  against: {kind.against}",
        f"  n: {len(found.before)}",
        f"  median: {median:.4f}",
        f"  p90: {p90:.4f}",
        "  domain:",
        *(f"    {name}: {round(value, 4)!r}" for name, value in asdict(domain).items()),
        "source: prebleexp calibrate hardware",
    ]
    return "\n".join(lines) + "\n"


CALIBRATE = Command(
    "fit step times to benchmarks of your own, about 8 of one configuration that differ in clients and lengths; say "
    "how good they are by leaving each out; and write them as an option of hardware=, to use and to share",
    _calibrate,
    "python -m prebleexp calibrate hardware data=my_runs.csv",
    settings=(
        path(
            "data",
            "a CSV with the columns of closed_loop.csv (prebleexp/hardware/measured/README.md), or results of vLLM's "
            "or SGLang's bench_serving with a fixed max_concurrency: .json, .jsonl, or a folder of them; or the CSV "
            "that `hardware measure` wrote: its whole steps say all but what a request takes beside the GPU",
        ),
        Setting("gpu", "where the data does not say it: one of conf/hardware/gpu/, as h200", "NAME"),
        Setting(
            "engine", "likewise: vllm, sglang or trtllm; of measured steps: whose parameters are begun with", "NAME"
        ),
        Setting("model", "likewise: a name of conf/hardware/model/, as llama-3.1-70b", "NAME"),
        Setting("precision", "likewise, of weights", "bf16|fp8|fp4|int4"),
        Setting("kv_precision", "likewise, of the KV cache; else bf16 if the weights are, and fp8", "bf16|fp8"),
        Setting("tensor_parallel", "likewise: GPUs that serve one copy of the model", "N"),
        path("to", "the file to write; without it: conf/hardware/, by the configuration"),
    ),
)
