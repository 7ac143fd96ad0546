"""`python -m prebleexp bench-serve … -- vllm bench serve …`: what that benchmark would say, in its words."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple

from prebleexp import losses
from prebleexp.commands.arguments import Command, Commands, Given, choice
from prebleexp.errors import InvalidInput
from prebleexp.experiment import counting, durable, runs
from prebleexp.experiment.cell import Cell
from prebleexp.launch import configs, configure, overrides
from prebleexp.launch.loads import files_of
from prebleexp.sim.steps import Steps
from prebleexp.vllm_bench import flags
from prebleexp.vllm_bench.flags import Pasted
from prebleexp.vllm_bench.result import DETAILS, Result, Wanted, result
from prebleexp.vllm_bench.served import served
from prebleexp.workloads.vllm_bench import VllmBench

GOES_ON = "--"
OUTPUT = choice(
    "output", "how the result is printed; vllm_bench: the JSON that --save-result writes", "table", "vllm_bench"
)


class Simulated(NamedTuple):
    cell: Cell
    source: VllmBench
    result: Result
    says: tuple[str, ...]
    """what is to be known of it, in sentences"""


def simulate(serves: Sequence[str], load: Mapping[str, Any], wanted: Wanted, date: datetime) -> Simulated:
    """A benchmark of what `serves`. Raises InvalidInput for what is not valid."""
    for one in serves:
        if one.lstrip("+~").startswith("workload"):
            raise InvalidInput(f"{one} is not valid here; the benchmark is the load")
    asked = {"workload": "vllm_bench"} | dict(load)
    if any(one.startswith("seed=") for one in serves):
        asked.pop("seed", None)
    try:
        job = configure.job([*serves, *overrides.lines(asked)], configs.loader())
    except InvalidInput as error:
        if "add -m" in str(error):
            raise InvalidInput(f"{str(error).partition(';')[0]}; a benchmark is of one configuration") from None
        raise
    cell = job.cells[0]
    assert isinstance(cell.workload, VllmBench)
    steps = Steps()
    run = runs.run(cell, on_event=steps)
    steps.since(run.outcome.begun.at_s if run.outcome.begun else 0.0)
    seen = served(run, steps)
    says = [f"simulated: {_served_by(cell)}", *files_of(cell)]
    says += losses.sentences([("", [run.metrics | {"horizon": cell.horizon, "duration_s": cell.duration_s}])])
    if len(job.cells) > 1:
        says.append(f"of {len(job.cells):,} replications it is the first")
    if seen.spread:
        says.append(
            f"of {seen.spread:,} of {len(seen.ok):,} requests it is not known in which steps their tokens came, as of "
            "those that left the batch for a while: their gaps are taken to be even, so that the longest are longer "
            "than ITL says"
        )
    return Simulated(cell, cell.workload, result(seen, cell.workload, wanted, date), tuple(says))


def _served_by(cell: Cell) -> str:
    seed = f", seed {cell.seed}" if cell.draws else ""
    called = f"{counting.words(cell)}, policy={cell.called('policy')}, engine={cell.called('engine')}{seed}"
    return f"{called}; {_hardware(cell)}: {cell.hardware.support}" if cell.hardware.support else called


def _hardware(cell: Cell) -> str:
    columns = cell.columns()
    parts = (columns.get(f"hardware.{name}") for name in ("model", "gpu"))
    return " on ".join(str(one) for one in parts if one) or cell.called("hardware")


def _bench_serve(given: Given) -> int:
    before, words = _parted(given.arguments)
    serves, output = [one for one in before if not one.startswith(OUTPUT.name + "=")], OUTPUT.default
    for one in before:
        if one not in serves:
            output = OUTPUT.read(OUTPUT.name, one.partition("=")[2])
    pasted, date = flags.read(words), datetime.now()
    found = simulate(serves, pasted.settings, pasted.wanted, date)
    fields = _json(pasted, found, date)
    print(*(found.result.lines if output == "table" else [json.dumps(fields)]), sep="\n")
    said = [*found.says, *pasted.says]
    if pasted.save:
        path = _path(pasted, found, date)
        _write(path, fields, pasted.append)
        said.append(
            f"written: {path}; date is that of this command, and there are no texts: generated_texts are empty"
            if pasted.detailed
            else f"written: {path}; date is that of this command"
        )
    for sentence in said:
        print(f"prebleexp: {sentence}", file=sys.stderr)
    return 0


def _parted(arguments: Sequence[str]) -> tuple[Sequence[str], Sequence[str]]:
    """Settings of what serves, and the command line that was pasted."""
    for at, one in enumerate(arguments):
        if one == GOES_ON:
            return arguments[:at], arguments[at + 1 :]
        if "=" not in one or one.startswith("--"):
            return arguments[:at], arguments[at:]
    return arguments, []


def _json(pasted: Pasted, found: Simulated, date: datetime) -> dict[str, Any]:
    source, model = found.source, _model(pasted, found.cell)
    head: dict[str, Any] = {
        "date": f"{date:%Y%m%d-%H%M%S}",
        "endpoint_type": pasted.backend,
        "backend": pasted.backend,
        "label": pasted.label,
        "model_id": model,
        "tokenizer_id": (pasted.tokenizer or model) if pasted.wanted.counts_tokens else None,
        "num_prompts": source.num_prompts,
        **pasted.metadata,
        "request_rate": source.request_rate,
        "burstiness": source.burstiness,
        "max_concurrency": source.max_concurrency,
    }
    if source.ramp_up_strategy is not None:
        for name in ("ramp_up_strategy", "ramp_up_start_rps", "ramp_up_end_rps"):
            head[name] = getattr(source, name)
    left_out = () if pasted.detailed else DETAILS
    return head | {name: value for name, value in found.result.fields.items() if name not in left_out}


def _model(pasted: Pasted, cell: Cell) -> str:
    return pasted.model or str(cell.columns().get("hardware.model") or cell.called("hardware"))


def _path(pasted: Pasted, found: Simulated, date: datetime) -> Path:
    """As the tool calls it."""
    source = found.source
    rate = f"{source.request_rate}qps"
    if source.ramp_up_strategy is not None:
        ends = f"{source.ramp_up_start_rps}qps-{source.ramp_up_end_rps}qps"
        rate = f"ramp-up-{source.ramp_up_strategy}-{ends}"
    most = "" if source.max_concurrency is None else f"-concurrency{source.max_concurrency}"
    model = _model(pasted, found.cell).rpartition("/")[2]
    name = pasted.file or f"{pasted.label or pasted.backend}-{rate}{most}-{model}-{date:%Y%m%d-%H%M%S}.json"
    return Path(pasted.folder or "", name).expanduser()


def _write(path: Path, fields: Mapping[str, Any], append: bool) -> None:
    text = json.dumps(fields)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        if append and path.exists() and path.stat().st_size:
            text = f"{path.read_text(encoding='utf-8')}\n{text}"
        durable.write(path, text.encode())
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidInput(f"{path} cannot be written: {error}") from None


COMMANDS: Commands = {
    "": Command(
        "what a benchmark would say of a simulated cluster: paste a command line of vllm bench serve, as of 0.32.0, "
        "behind --, and the result is printed as that tool's table, and written as its JSON if --save-result is there",
        _bench_serve,
        "python -m prebleexp bench-serve gpus=4 policy=e2 -- vllm bench serve --num-prompts 200 --max-concurrency 64",
        others="what serves, before --, as one is set for a run (prebleexp --help); all but the workload; "
        "output=vllm_bench prints the JSON that --save-result writes, in place of the table",
        is_word=lambda one, arguments: False,
    )
}
