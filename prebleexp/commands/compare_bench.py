"""`python -m prebleexp compare-bench FILE …`: a measured result of `vllm bench serve`, or of SGLang's `bench_serving`,
beside a simulated one, and why they differ."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

from prebleexp.commands import benchmarked, taken
from prebleexp.commands.another_model import another_model
from prebleexp.commands.arguments import Command, Commands, Given, choice
from prebleexp.commands.benchmarked import Benchmarked
from prebleexp.hardware.composed import Composed
from prebleexp.launch import tables
from prebleexp.sglang_bench import compared as sglang
from prebleexp.sglang_bench.result import numbers
from prebleexp.vllm_bench import agreement, causes, compared
from prebleexp.vllm_bench.causes import Part
from prebleexp.vllm_bench.compared import Measured
from prebleexp.vllm_bench.known import Judged, Known
from prebleexp.vllm_bench.result import result
from prebleexp.workloads.vllm_bench import VllmBench

SEEDS = 5
"""of what a file leaves to chance, as when its requests came"""
SHARED = (
    "a prefix that the measured prompts share would do the same, and the file says nothing of it: if they did, run the "
    "line of that benchmark with prebleexp bench-serve, which knows its prefixes, and compare the two before step "
    "times are calibrated"
)
"""of prompts that took less than simulated ones, which share nothing"""


def _compare_bench(given: Given) -> int:
    measured = sglang.read(str(Path(given.words[0]).expanduser()))
    seeds = 1 if measured.settings.get("workload.self_timed") else SEEDS
    found = benchmarked.of_settings(given.others, measured.workload, measured.settings, seeds)
    rows = compared.rows(measured.fields, _simulated(found, measured))
    evidence = found.cell.hardware.evidence if isinstance(found.cell.hardware, Composed) else None
    known = Known.of_support(evidence)
    times = agreement.of_rows(rows, known)
    parts, cause, why = _causes(found, measured, times)
    said = [
        *agreement.said(times, known),
        *measured.says,
        *found.says,
        *_seeds(found),
        *taken.by_default(found.cell, given.others),
        *another_model(measured.fields, found.model),
        *why,
    ]
    if given["output"] == "json":
        fields = {one.field: {"measured": one.measured, "simulated": one.simulated, "ratio": one.ratio} for one in rows}
        of = {one.name: {"measured_ms": one.measured, "simulated_ms": one.simulated} for one in parts}
        document = {"measured": measured.path, "settings": measured.settings, "fields": fields, "parts": of}
        print(json.dumps({**document, "cause": cause, "says": said}))
    else:
        lines = [
            [one.field, *map(tables.number, (one.measured, one.simulated)), tables.number(one.ratio, 3)] for one in rows
        ]
        tables.show(("field", "measured", "simulated", "simulated / measured"), lines)
        if parts:
            print()
            tables.show(("of a request, ms", "measured", "simulated", "difference"), _lines(parts))
    for sentence in said:
        tables.say(f"prebleexp: {sentence}")
    return 0


def _simulated(found: Benchmarked, measured: Measured) -> list[Mapping[str, Any]]:
    """What the same tool would have counted and timed, of each seed."""
    seeds = (found.seen, *found.others)
    if sglang.is_meant(measured.fields):
        return [numbers(one) for one in seeds]
    source = found.cell.workload
    assert isinstance(source, VllmBench)
    return [result(one, source, measured.wanted, datetime.now()).fields for one in seeds]


def _seeds(found: Benchmarked) -> list[str]:
    """What is of how many seeds."""
    if not found.others:
        return []
    return [
        f"drawn {len(found.others) + 1} times, as the file does not say it all: numbers are means over seeds, ± is "
        f"their 95 % interval, and the parts of a request are of seed {found.cell.seed}"
    ]


def _causes(
    found: Benchmarked, measured: Measured, times: Sequence[Judged]
) -> tuple[list[Part], str | None, list[str]]:
    """What a request takes in parts, which of them differs most, and sentences: why, and what to do."""
    one = causes.of_fields(measured.fields)
    if one is None or not found.seen.ok.any():
        return [], None, ["the file does not say of what a request's time was made"]
    parts = causes.parts(one, causes.of_served(found.seen, with_each=one.of_each is not None))
    cause, sentence = causes.verdict(parts, times)
    said = [sentence]
    if one.of_each is None:
        said.append(
            "with --save-detailed (SGLang: --output-details, aiperf: profile_export.jsonl) the first token could be "
            "told apart further"
        )
    if cause in causes.OF_PROMPTS and sum(part.more for part in parts if part.name != "decode") > 0:
        said.append(SHARED)
    if cause in causes.OF_COSTS:
        said.append(_calibrate(found, measured))
    elif cause is not None:
        said.append(
            "what waits depends on what comes together: look at the engine's budgets, at warm-ups and at prompts that "
            "share a prefix, of which the file says nothing"
        )
    return parts, cause, said


def _calibrate(found: Benchmarked, measured: Measured) -> str:
    """The command that fits step times to such files."""
    hardware, data = found.cell.hardware, shlex.quote(measured.path)
    if not isinstance(hardware, Composed):
        return "step times of your own: prebleexp calibrate hardware --help"
    if measured.fields.get("max_concurrency") is None:
        from prebleexp.calibration.ladder import LEAST

        folder = shlex.quote(str(Path(measured.path).parent))
        return (
            f"step times of your own, from a folder of {LEAST} such files or more, each at another request rate: "
            f"prebleexp calibrate hardware data={folder} {_words(found)}"
        )
    from prebleexp.hardware.own_runs import LEAST

    own = {
        "gpu": hardware.gpu_name,
        "model": hardware.model.name,
        "engine": hardware.engine,
        "precision": hardware.precision,
        "tensor_parallel": hardware.tensor_parallel,
    }
    words = " ".join(f"{name}={value}" for name, value in own.items())
    return (
        f"step times of your own, from {LEAST} such files or more that differ in clients and lengths, best about 8: "
        f"prebleexp calibrate hardware data={data} {words}"
    )


def _words(found: Benchmarked) -> str:
    """The settings of what serves, as a command line has them."""
    cell, hardware = found.cell, found.cell.hardware
    assert isinstance(hardware, Composed)
    names = {"gpus": cell.gpus, "policy": cell.called("policy"), "engine": cell.called("engine")}
    chosen = {"hardware/gpu": hardware.gpu_name, "hardware/model": re.sub(r"[-.]", "_", hardware.model.name)}
    fields = {"hardware.precision": hardware.precision, "hardware.tensor_parallel": hardware.tensor_parallel}
    return " ".join(f"{key}={value}" for key, value in (names | chosen | fields).items())


def _lines(parts: Sequence[Part]) -> list[list[str]]:
    rows = [(causes.NAMES[one.name], one.measured, one.simulated) for one in parts]
    rows.append(("latency", sum(one.measured for one in parts), sum(one.simulated for one in parts)))
    return [
        [name, tables.number(measured, 3), tables.number(simulated, 3), _signed(simulated - measured)]
        for name, measured, simulated in rows
    ]


def _signed(value: float) -> str:
    return f"{'+' if value > 0 else '−' if value < 0 else ''}{tables.number(abs(value), 3)}"


COMMANDS: Commands = {
    "": Command(
        "a measured result of vllm bench serve --save-result, SGLang's bench_serving --output-file or aiperf, beside "
        "that of the same benchmark of a simulated cluster: field by field, and what a request takes in parts, with "
        "the likely cause of the difference",
        _compare_bench,
        "python -m prebleexp compare-bench measured.json gpus=1 hardware/gpu=h100 hardware/model=llama_3_1_8b",
        words="FILE",
        takes="one file: what --save-result (SGLang: --output-file) wrote, best with --save-detailed "
        "(--output-details); of aiperf profile_export.jsonl, or else profile_export_aiperf.json",
        settings=(choice("output", "how the result is written", "table", "json"),),
        others="what serves, as one is set for a run (prebleexp --help); all but the workload",
    )
}
