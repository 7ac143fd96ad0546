"""`python -m prebleexp calibrate hardware data=my_runs.csv`: step times of one's own engine from a few benchmarks."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from prebleexp.commands import calibrated, ladder_arms
from prebleexp.commands.arguments import Command, Given, Setting, choice, integer, number, path
from prebleexp.commands.calibrated import Found, Stage
from prebleexp.commands.hardware_check import sizes
from prebleexp.errors import InvalidInput, unknown
from prebleexp.experiment import durable
from prebleexp.hardware import measurements, own_runs, steps, verdict
from prebleexp.hardware.composed import Composed
from prebleexp.hardware.equations import Array
from prebleexp.hardware.fitting import Labelled
from prebleexp.hardware.own_runs import SETTINGS, Calibrated
from prebleexp.hardware.parameters import Parameters, Support
from prebleexp.launch import configs
from prebleexp.launch.from_cache import Options

SIMULATED = ("vllm", "sglang")
"""engines whose batching is simulated under the name that measurements have for them; others are served by the first"""


def _calibrate(given: Given) -> int:
    """Raises InvalidInput for what is not valid."""
    with calibrated.printed(given["output"]) as found:
        return _fit(given, found)


def _fit(given: Given, found: Found) -> int:
    if given["data"] is None:
        raise InvalidInput(
            "data= is missing; give a CSV of your runs, results of bench_serving as JSON, or what `hardware measure` "
            "wrote"
        )
    if ladder_arms.takes(given["data"]):
        return _ladder(given, found)
    _refuse_others(given)
    if steps.are_steps(given["data"]):
        own = steps.read(given["data"], sizes()).of_engine(given["engine"] or "any")
        return _keep(given, STEPS, own, own_runs.calibrate_steps(own), found)
    known = {column: given[name] for column, name in SETTINGS.items() if given[name] is not None}
    loops = measurements.loops_of(own_runs.read(given["data"], known), sizes())
    return _keep(given, RUNS, loops, own_runs.calibrate(loops), found)


def _ladder(given: Given, found: Found) -> int:
    """Likewise of a benchmark at several rates."""
    from prebleexp.commands import ladder_calibrate  # numba: closed loops and steps need none

    fitted = ladder_calibrate.calibrated(
        given, _named(given), found, is_free=lambda hardware: _file(given, _labels(hardware))
    )
    if fitted is None:
        return 0
    hardware, support = fitted
    labels = _labels(hardware)
    assert isinstance(hardware.parameters, Parameters)
    found.file = _write(_file(given, labels), labels, hardware.parameters, support, "stage")
    return 0


def _labels(hardware: Composed) -> dict[str, str]:
    return {
        "gpu": hardware.gpu.name,
        "engine": str(hardware.engine),
        "model": hardware.model.name,
        "precision": hardware.precision,
        "tp": str(hardware.tensor_parallel),
        "kv": str(hardware.kv_precision),
        "utilisation": f"{hardware.utilisation:g}",
    }


def _named(given: Given) -> list[str]:
    """The command's own settings as overrides of a run."""
    found = [f"hardware/{name}={_option(name, given[name])}" for name in ("gpu", "model") if given[name] is not None]
    of = ("precision", "kv_precision", "tensor_parallel")
    found += [f"hardware.{name}={given[name]}" for name in of if given[name] is not None]
    if (engine := given["engine"]) is not None:
        found += [f"engine={engine if engine in SIMULATED else SIMULATED[0]}", f"hardware.engine={engine}"]
    if given["gpu"] is not None and given["model"] is None:
        raise InvalidInput("model= is missing; give a name of conf/hardware/model/, as llama-3.1-70b")
    if not found and not any(one.startswith(("hardware", "+sweeps=")) for one in given.others):
        raise InvalidInput(
            "a ladder does not say what served it; set gpu=, model=, engine=, and precision= if not bf16"
        )
    return found


def _refuse_others(given: Given) -> None:
    """Refuse keys that only a ladder has."""
    if given.others:
        name = given.others[0].partition("=")[0]
        raise unknown("setting", name, [one.name for one in CALIBRATE.settings])
    for name in ("fit", "experiment"):
        if given[name] is not None:
            raise InvalidInput(f"{name}={given[name]} is of ladders, and {given['data']} is none: it has no rates")


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


def _keep(given: Given, kind: Kind, rows: Labelled, made: Calibrated, found: Found) -> int:
    """Say how good it is, and write it."""
    labels = dict(zip(own_runs.ONE, rows.keys(own_runs.ONE)[0], strict=True))
    file = _file(given, labels)
    found.of = (
        f"{len(rows)} {kind.many} of {labels['model']} in {labels['precision']} on {labels['tp']} {labels['gpu']}"
    )
    taken = "" if given["kv_precision"] else ", as it is taken where neither the file nor kv_precision= says it"
    print(f"{found.of}; KV cache in {labels['kv']}{taken}")
    print(f"{kind.metric} by what ships: {_said(made.before)}")
    print(f"{kind.metric} of each {kind.one} by a fit to the others: {_said(made.left_out)}")
    if np.isfinite(made.ttft_left_out).any():
        print(f"TTFT likewise: {_said(made.ttft_left_out)}")
    found.stages = [
        Stage("", f"{kind.one} {i}", kind.metric, None, float(before), float(after))
        for i, (before, after) in enumerate(zip(made.before, made.left_out, strict=True), 1)
    ]
    print(calibrated.worst(found.stages))
    found.judge(made.score)
    if made.score < verdict.SURE and given["write"] != "always":
        print("nothing is written; write=always writes the fit nevertheless")
        return 0
    median, p90 = float(np.median(made.left_out)), float(np.quantile(made.left_out, 0.9))
    support = Support(kind.level, kind.against, len(made.before), median, p90, rows.domain())
    found.file = _write(file, labels, made.parameters, support, kind.one)
    return 0


def _file(given: Given, labels: Mapping[str, str]) -> Path:
    """Raises InvalidInput if it is there."""
    name = "_".join((labels["gpu"], _option("model", labels["model"]), labels["precision"], f"tp{labels['tp']}"))
    file: Path = given["to"] or Path(f"conf/hardware/{name}_{labels['engine']}.yaml")
    if file.exists():
        raise InvalidInput(f"{file} exists; give another name with to=")
    return file


def _write(file: Path, labels: Mapping[str, str], parameters: Parameters, support: Support, one: str) -> str:
    """And say where, and how to use it."""
    file.parent.mkdir(parents=True, exist_ok=True)
    durable.write(file, _yaml(labels, parameters, support, one).encode())
    print(file)
    if file.parent == Path("conf/hardware"):
        served = labels["engine"] if labels["engine"] in SIMULATED else SIMULATED[0]
        print(f"use it: python -m prebleexp hardware={file.stem} engine={served}", file=sys.stderr)
    return str(file)


def _said(errors: Array) -> str:
    errors = errors[np.isfinite(errors)]
    return f"median {np.median(errors):.1%}, largest {errors.max():.1%}".replace("%", " %")


def _option(group: str, name: str) -> str:
    """The file in conf/hardware/ that has what measurements call this."""
    options = Options(configs.loader()).configs(f"hardware/{group}")
    found = {config["name"]: option for option, config in options.items()}
    if name not in found:
        raise unknown(group, name, list(found))
    return found[name]


def _yaml(labels: Mapping[str, str], parameters: Parameters, support: Support, one: str) -> str:
    """As conf/hardware/composed.yaml, with these parameters."""
    mapping: dict[str, Any] = asdict(parameters)
    lines = [
        f"# Fitted to {support.n} {support.against}: python -m prebleexp calibrate hardware --help",
        "defaults:",
        f"  - gpu: {_option('gpu', labels['gpu'])}",
        f"  - model: {_option('model', labels['model'])}",
        "  - _self_",
        "_target_: prebleexp.hardware.composed.Composed",
        f"engine: {labels['engine']}",
        f"tensor_parallel: {labels['tp']}",
        f"precision: {labels['precision']}",
        f"kv_precision: {labels['kv']}",
        f"utilisation: {labels.get('utilisation', '0.9')}",
        "kv_tokens: null",
        "context_length: null",
        "parameters:",
        *(f"  {name}: {float(f'{value:.4g}')!r}" for name, value in mapping.items()),
        f"evidence:  # each {one} by a fit to the others",
        f"  level: {support.level}",
        f"  against: {support.against}",
        f"  n: {support.n}",
        f"  median: {support.median:.4f}",
        f"  p90: {support.p90:.4f}",
        "  domain:",
        *(f"    {name}: {round(value, 4)!r}" for name, value in asdict(support.domain).items()),
        "source: prebleexp calibrate hardware",
    ]
    return "\n".join(lines) + "\n"


CALIBRATE = Command(
    "fit step times to benchmarks of your own, about 8 of one configuration that differ in clients and lengths; say "
    "how good they are by leaving each out; and write them as an option of hardware=, to use and to share",
    _calibrate,
    "python -m prebleexp calibrate hardware data=my_runs.csv",
    others="of a ladder: what served it, as gpus=8 policy=llmd_precise engine.max_num_seqs=128, or +sweeps=NAME",
    settings=(
        path(
            "data",
            "a CSV with the columns of closed_loop.csv (prebleexp/hardware/measured/README.md), or results of vLLM's "
            "or SGLang's bench_serving with a fixed max_concurrency: .json, .jsonl, or a folder of them; or the CSV "
            "that `hardware measure` wrote: its whole steps say all but what a request takes beside the GPU. A ladder: "
            "results of those benchmarks at several finite request rates, a folder of such folders, each called as the "
            "router of its arm, or a CSV with rate_rps, any of output_tokens_per_s, ttft_mean_s, ttft_p90_s, "
            "tpot_mean_s, latency_mean_s, and perhaps experiment, arm and duration_s",
        ),
        Setting("gpu", "where the data does not say it: one of conf/hardware/gpu/, as h200", "NAME"),
        Setting(
            "engine", "likewise: vllm, sglang or trtllm; of measured steps: whose parameters are begun with", "NAME"
        ),
        Setting("model", "likewise: a name of conf/hardware/model/, as llama-3.1-70b", "NAME"),
        Setting("precision", "likewise, of weights", "bf16|fp8|fp4|int4"),
        Setting("kv_precision", "likewise, of the KV cache; else bf16 if the weights are, and fp8", "bf16|fp8"),
        Setting("tensor_parallel", "likewise: GPUs that serve one copy of the model", "N"),
        Setting("fit", "of a ladder with several arms: the one to fit to; the others are judged", "ARM"),
        Setting("experiment", "of a CSV with several: which one", "NAME"),
        number("counted", "the share of the output tokens that the ladder's client counts", 1.0),
        integer("replications", "streams of requests that a ladder is simulated with", 3, 1, 100),
        choice("write", "when to write the fit: if what is left out is predicted better by it", "if_better", "always"),
        choice(
            "output", "how to print; json: all of it as a document, and the text on standard error", "table", "json"
        ),
        path("to", "the file to write; without it: conf/hardware/, by the configuration"),
    ),
)
