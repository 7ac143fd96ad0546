"""`python -m prebleexp bench-serve … -- vllm bench serve …`: what that benchmark would say, in its words; of SGLang's
bench_serving likewise."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path

from prebleexp.commands import benchmarked
from prebleexp.commands.arguments import Command, Commands, Given, choice
from prebleexp.sglang_bench import flags as sglang
from prebleexp.sglang_bench.result import DETAILS
from prebleexp.sglang_bench.result import result as sglang_result
from prebleexp.vllm_bench import flags as vllm
from prebleexp.vllm_bench.result import Result, result
from prebleexp.vllm_bench.written import fields_of, path_of
from prebleexp.workloads.sglang_bench import SglangBench
from prebleexp.workloads.vllm_bench import VllmBench

GOES_ON = "--"
OUTPUT = choice(
    "output", "how the result is printed; vllm_bench: the JSON that --save-result writes", "table", "vllm_bench"
)
DATED = "date is that of this command"


def _bench_serve(given: Given) -> int:
    before, words = _parted(given.arguments)
    serves, output = [one for one in before if not one.startswith(OUTPUT.name + "=")], OUTPUT.default
    for one in before:
        if one not in serves:
            output = OUTPUT.read(OUTPUT.name, one.partition("=")[2])
    serve = _sglang if sglang.is_meant(words) else _vllm
    found, said = serve(serves, words)
    print(*(found.lines if output == "table" else [json.dumps(found.fields)]), sep="\n")
    for sentence in said:
        print(f"prebleexp: {sentence}", file=sys.stderr)
    return 0


def _vllm(serves: Sequence[str], words: Sequence[str]) -> tuple[Result, list[str]]:
    pasted, date = vllm.read(words), datetime.now()
    of = benchmarked.of_settings(serves, "vllm_bench", pasted.settings)
    source = of.cell.workload
    assert isinstance(source, VllmBench)
    found = result(of.seen, source, pasted.wanted, date)
    found = found._replace(fields=fields_of(pasted, source, found, of.model, date))
    said = [*of.says, *pasted.says]
    if pasted.save:
        path = path_of(pasted, source, of.model, date)
        benchmarked.write(path, json.dumps(found.fields), pasted.append)
        texts = ", and there are no texts: generated_texts are empty" if pasted.detailed else ""
        said.append(f"written: {path}; {DATED}{texts}")
    return found, said


def _sglang(serves: Sequence[str], words: Sequence[str]) -> tuple[Result, list[str]]:
    """The tool always writes a line; here --output-file says so."""
    pasted = sglang.read(words)
    of = benchmarked.of_settings(serves, "sglang_bench", pasted.settings)
    source = of.cell.workload
    assert isinstance(source, SglangBench)
    found = sglang_result(of.seen, source, pasted)
    if not pasted.detailed:
        found = found._replace(fields={name: one for name, one in found.fields.items() if name not in DETAILS})
    said = [*of.says, *pasted.says]
    if pasted.file is not None:
        path = Path(pasted.file).expanduser()
        benchmarked.write(path, json.dumps(found.fields) + "\n", append=True)
        said.append(f"a line is written to {path}; there is no server_info, and generated_texts are empty")
    return found, said


def _parted(arguments: Sequence[str]) -> tuple[Sequence[str], Sequence[str]]:
    """Settings of what serves, and the command line that was pasted."""
    for at, one in enumerate(arguments):
        if one == GOES_ON:
            return arguments[:at], arguments[at + 1 :]
        if "=" not in one or one.startswith("--"):
            return arguments[:at], arguments[at:]
    return arguments, []


COMMANDS: Commands = {
    "": Command(
        "what a benchmark would say of a simulated cluster: paste a command line of vllm bench serve, as of 0.32.0, or "
        "of python -m sglang.bench_serving, as of 0.5.23, after --, and the result is printed as that tool's table, "
        "and written as its JSON if --save-result, or --output-file, is there",
        _bench_serve,
        "python -m prebleexp bench-serve gpus=4 policy=e2 -- vllm bench serve --num-prompts 200 --max-concurrency 64",
        others="what serves, before --, as one is set for a run (prebleexp --help); all but the workload; "
        "output=vllm_bench prints the JSON that the tool writes, in place of the table",
        is_word=lambda one, arguments: False,
    )
}
