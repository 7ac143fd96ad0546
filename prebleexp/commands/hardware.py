"""`python -m prebleexp hardware`: which hardware there is, and how well each combination is known; or one of them
explained: what fits, and what its steps take."""

from __future__ import annotations

import itertools
import shutil
import textwrap
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from prebleexp.commands.arguments import Command, Commands, Given, Setting, choice, path, text
from prebleexp.commands.hardware_check import CHECK
from prebleexp.commands.hardware_measure import MEASURE
from prebleexp.engines.vllm.groups import grouping, requests_at_once
from prebleexp.errors import InvalidInput, significant, unknown
from prebleexp.experiment import durable
from prebleexp.hardware import parameters
from prebleexp.hardware.base import Hardware
from prebleexp.hardware.composed import ENGINES, Composed
from prebleexp.hardware.equations import all_reduces_s
from prebleexp.hardware.gpu import Gpu
from prebleexp.hardware.model import Model
from prebleexp.hardware.transfers import paths
from prebleexp.launch import configs, configure, tables
from prebleexp.launch.from_cache import Options
from prebleexp.launch.narrow import narrowed
from prebleexp.report.stored import in_fp8
from prebleexp.report.wording import as_sentence

SPARE = ("support", "n", "p90_error")
"""columns that a terminal does without, in this order, where it has no room"""
ANY = "any"
BATCHES = (1, 4, 16, 64, 256)
CONTEXTS = (1000, 8000)
"""tokens of each request of a batch"""
PROMPTS = (128, 512, 2048, 8192, 32768)
SIZES = tuple(2**i for i in range(14))
"""of steps in the picture"""
MOVED = 8192
"""tokens"""
LENGTHS = (200, 1_000, 8_000)
"""of requests, in tokens"""
VLLM, BLOCK = "vllm", 16
"""an engine, and tokens of a block of its KV"""
CHOSEN = ("gpu", "model")
"""settings that are options of groups; the others are fields"""
SPREAD = ("data_parallel_size", "enable_expert_parallel", "expert_imbalance", "pipeline_parallel_size")
LISTED = ("gpu", "model", "engine", "tensor_parallel", "precision", "kv_precision")
"""settings that may have several values"""
FIELDS = ("engine", "tensor_parallel", *SPREAD, "precision", "kv_precision", "utilisation")


def _hardware(given: Given) -> int:
    asked = {name: given[name] for name in (*CHOSEN, *FIELDS) if given[name] is not None}
    if asked or given.others or given["hardware"] != "composed" or given["to"]:
        _explain_each(given, asked)
    else:
        _list(given["output"])
    return 0


# ---------------------------------------------------------------- all of them
def _list(output: str) -> None:
    options = Options(configs.loader())
    known = list(_known(options))
    if output != "table":
        tables.write_rows(known, output)
        return
    gpus = [Gpu(**config) for config in options.configs("hardware/gpu").values()]
    _show(
        "GPUs: hardware/gpu=",
        [_gpu(one, name) for name, one in zip(options.configs("hardware/gpu"), gpus, strict=True)],
    )
    models = {name: Model(**config) for name, config in options.configs("hardware/model").items()}
    _show("models: hardware/model=", [_model(one, name) for name, one in models.items()])
    _show_known(known)
    fits = [{"hardware": name, "support": _support(name)} for name in options.configs("hardware") if name != "composed"]
    print("fits of one model on one GPU each")
    for one in fits:
        _say(f"hardware={one['hardware']}: {one['support']}")
    print()
    print("explain one: prebleexp hardware gpu=h200 model=llama_3_1_70b tensor_parallel=4")


def _show_known(known: Sequence[Mapping[str, Any]]) -> None:
    """Without what a terminal has no room for, and by GPU and model, as people look for theirs."""
    order = sorted(known, key=lambda row: (row["gpu"] == ANY, row["gpu"], row["model"], row["engine"]))
    heads = list(order[0])
    lines = [[tables.number(row[head], 3) for head in heads] for row in order]
    shown, rows, gone = narrowed(heads, lines, SPARE)
    tables.show(shown, rows, title="how well combinations are known (others: by the parameters of gpu any)")
    if gone:
        print(f"… also {', '.join(gone)}: output=csv prints all, and naming one explains it")
    print()


def _say(text: str) -> None:
    """In lines that a terminal has room for."""
    print(textwrap.fill(text, shutil.get_terminal_size().columns, subsequent_indent="    ", break_long_words=False))


def _support(option: str) -> str:
    return configure.cells([f"hardware={option}"])[0].hardware.support


def _gpu(gpu: Gpu, name: str) -> dict[str, Any]:
    return {
        "gpu": name,
        "TFLOP/s bf16": gpu.bf16_tflops,
        "fp8": gpu.fp8_tflops or None,
        "fp4": gpu.fp4_tflops or None,
        "memory GB": gpu.memory_gb,
        "GB/s": gpu.hbm_gb_s,
        "tensor_parallel": ", ".join(map(str, gpu.groups)),
    }


def _model(model: Model, name: str) -> dict[str, Any]:
    billion = 1e9
    embeddings = model.embeddings / billion
    return {
        "model": name,
        "parameters 1e9": (model.linear + model.experts * model.expert) / billion + embeddings,
        "active 1e9": (model.linear + model.active * model.expert) / billion + embeddings,
        "KV bytes a token (bf16)": 2 * model.kv_elements,
        "context": model.context_length,
    }


def _known(options: Options) -> Iterator[dict[str, Any]]:
    """A row for each combination that was measured, the best known first."""
    measured = parameters.measured()
    experts = {config["name"]: config.get("experts", 0) > 0 for config in options.configs("hardware/model").values()}
    rows = []
    for gpu, engine, model, precision in measured:
        _, support = parameters.parameters_for(gpu, engine, model, precision, moe=experts.get(model, False))
        of = {"gpu": gpu, "engine": engine, "model": model, "precision": precision, "level": support.level}
        known = support.median == support.median
        errors = {"median_error": support.median if known else None, "p90_error": support.p90 if known else None}
        rows.append(of | {"n": support.n} | errors | {"support": parameters.said(support)})
    return iter(sorted(rows, key=lambda row: (row["median_error"] is None, row["median_error"] or 0, row["gpu"])))


def _show(title: str, rows: list[dict[str, Any]]) -> None:
    heads = list(rows[0])
    tables.show(heads, [[tables.number(row[head], 3) for head in heads] for row in rows], title=title)
    print()


# ---------------------------------------------------------------- one of them
def _explain_each(given: Given, asked: Mapping[str, str]) -> None:
    """Each combination of values with commas between, as gpu=h100,h200: one after the other, or in one table."""
    lists = [value.split(",") if name in LISTED else [value] for name, value in asked.items()]
    every = [dict(zip(asked, values, strict=True)) for values in itertools.product(*lists)]
    if len(every) > 1 and given["to"]:
        raise InvalidInput(f"to={given['to']} is a picture of one, and these are {len(every)}: give one value each")
    made = [_made(given, dict(one)) for one in every]  # what is wrong is said before the first is explained
    steps = []
    for one, hardware in zip(every, made, strict=True):
        if one is not every[0] and given["output"] == "table":
            print()
        names = {name: one[name] for name in asked if len({each[name] for each in every}) > 1}
        steps += [names | row for row in _explain(given, hardware)]
    if given["output"] != "table":
        tables.write_rows(steps, given["output"])


def _made(given: Given, asked: dict[str, str]) -> Hardware:
    """Raises InvalidInput for values that are not valid, alone or together."""
    engine = asked.pop("engine", "vllm")
    lines = [f"hardware={given['hardware']}"]
    lines += [f"hardware/{name}={asked[name]}" for name in CHOSEN if name in asked]
    lines += [f"hardware.{name}={asked[name]}" for name in FIELDS if name in asked]
    lines += [f"hardware.engine={engine}"] if given["hardware"] == "composed" else []
    lines += [f"replicas={asked.get('data_parallel_size', '1')}", "engine.async_scheduling=false"]  # of no matter here
    return configure.cells([*lines, *given.others])[0].hardware


def _explain(given: Given, hardware: Hardware) -> list[dict[str, Any]]:
    """Say it, if tables are wanted; returns what steps take."""
    steps = [*_decodes(hardware), *_prefills(hardware)]
    if given["to"]:
        _draw(hardware, given["to"])
    if given["output"] != "table":
        return steps
    title = hardware.title or given["hardware"]
    print(f"{title}: {hardware.support}")
    fixed, each = hardware.frontend_s
    of = " of each rank" if hardware.ranks > 1 else ""
    kept = f" in {str(hardware.kv_precision).upper()}" if isinstance(hardware, Composed) else ""
    print(f"{hardware.kv_tokens:,} tokens of KV{kept}{of}, {hardware.context_length:,} of a request at most", end="")
    one, token = significant(fixed * 1e3), significant(each * 1e6)
    print(f"; before the queue a request takes {one} ms and {token} µs a token of its prompt")
    if said := in_fp8(hardware):
        _say(as_sentence(said))
    print()
    alike = ", where each rank has as much" if hardware.ranks > 1 else ""
    _show(f"a step that decodes{alike}", [row for row in steps if row["step"] == "decode"])
    _show(f"a step that prefills one prompt{alike}", [row for row in steps if row["step"] == "prefill"])
    if isinstance(hardware, Composed) and hardware.tensor_parallel > 1:
        print(f"{_all_reduces(hardware)}\n")
    if isinstance(hardware, Composed) and hardware.layer_kinds and hardware.engine == VLLM:
        _show("requests that decode at once, in vLLM's groups of layers (docs/core.md)", [*_at_once(hardware)])
    if isinstance(hardware, Composed):
        _show(f"moving the KV of {MOVED:,} tokens from one GPU", [*_moves(hardware)])
    print(f"from: {hardware.source}")
    return steps


def _decodes(hardware: Hardware) -> Iterator[dict[str, Any]]:
    for context in CONTEXTS:
        for batch in BATCHES:
            if batch * context <= hardware.kv_tokens:
                seconds = _decode_s(hardware, batch, context)
                yield _row("decode", batch, context, batch, seconds)


def _prefills(hardware: Hardware) -> Iterator[dict[str, Any]]:
    for tokens in PROMPTS:
        if tokens <= min(hardware.kv_tokens, hardware.context_length):
            yield _row("prefill", 1, tokens, tokens, _prefill_s(hardware, tokens))


def _all_reduces(hardware: Composed) -> str:
    """How much of a long prompt they take: where GPUs have no fast link, more of them may be slower."""
    gpus, gpu, tokens = hardware.tensor_parallel, hardware.gpu, PROMPTS[2]
    _, rate = gpu.link(gpus)
    each_ms = all_reduces_s(hardware.model, 2 * hardware.model.layers, gpus, rate) * 1e3
    of_ms = _prefill_s(hardware, tokens) * 1e3 / tokens
    return (
        f"all-reduces among {gpus} {gpu.name}, at the {significant(rate / 1e9)} GB/s that were measured, take "
        f"{significant(each_ms)} of the {significant(of_ms)} ms of a token in a prompt of {tokens:,}"
    )


def _at_once(hardware: Hardware) -> Iterator[dict[str, Any]]:
    """In blocks of vLLM's usual size; `against one pool`: of all layers alike, as where groups are disabled."""
    of = grouping(hardware.layer_kinds, hardware.kv_tokens, BLOCK)
    for length in LENGTHS:
        tokens = requests_at_once(of, BLOCK, length) * length
        alike = hardware.kv_tokens // BLOCK // -(-length // BLOCK) * length
        if alike > 0:
            size = {"tokens of each": length, "requests": tokens // length, "tokens of KV": tokens}
            yield size | {"against one pool": tokens / alike}


def _moves(hardware: Composed) -> Iterator[dict[str, Any]]:
    """Each GPU of a group moves its own share, at once with the others."""
    size = MOVED * hardware.kv_bytes / hardware.model.kv_share(hardware.tensor_parallel) / hardware.stages
    for name, way in paths(hardware.gpu).items():
        yield {"by": name, "ms": way.seconds(size) * 1e3, "known": way.known}


def _row(step: str, batch: int, context: int, tokens: int, seconds: float) -> dict[str, Any]:
    size = {"step": step, "requests": batch, "tokens of each": context}
    return size | {"ms": seconds * 1e3, "tokens per second": round(tokens / seconds)}


def _decode_s(hardware: Hardware, batch: int, context: int) -> float:
    return float(
        hardware.kernels().decode_s(hardware.numbers(), hardware.start(), batch, batch * context, batch * context, 1)
    )


def _prefill_s(hardware: Hardware, tokens: int) -> float:
    cost, of, mine = hardware.kernels(), hardware.numbers(), hardware.start()
    ms = cost.request_ms(of, mine, tokens, tokens)
    return float(cost.step_s(of, mine, 1, tokens, tokens, 0, 0, tokens, ms))


# ---------------------------------------------------------------- as a picture
def _draw(hardware: Hardware, file: Path) -> None:
    """Raises InvalidInput for another ending, or for hardware that has no roofs."""
    from prebleexp.report.roofline import roofline
    from prebleexp.report.sheet import pdf, png, sheet

    kinds: dict[str, Callable[[str], bytes]] = {".svg": str.encode, ".pdf": pdf, ".png": png}
    if file.suffix not in kinds:
        raise unknown("kind of file", file.suffix, kinds)
    curves = {
        f"decode, {context:,} tokens each": [
            (size, _decode_s(hardware, size, context)) for size in SIZES if size * context <= hardware.kv_tokens
        ]
        for context in CONTEXTS
    }
    curves["prefill of one prompt"] = [
        (size, _prefill_s(hardware, size)) for size in SIZES if size <= hardware.context_length
    ]
    if isinstance(hardware, Composed):
        peak = hardware.at_peak()
        curves["at peak FLOP/s and bandwidth"] = [(size, _prefill_s(peak, size)) for size in SIZES]
    title = hardware.title or "step times"
    durable.write(file, kinds[file.suffix](sheet(roofline(title, hardware.support, curves))))
    print(file)


COMMANDS: Commands = {
    "": Command(
        "list GPUs, models and how well their combinations are known; or explain one, or each of several, as "
        "gpu=h100,h200: what fits, and what steps take",
        _hardware,
        "python -m prebleexp hardware gpu=h200 model=llama_3_1_70b tensor_parallel=4 precision=fp8",
        settings=(
            text("hardware", "another option than a composed one", "composed"),
            Setting("gpu", "one of conf/hardware/gpu/"),
            Setting("model", "one of conf/hardware/model/"),
            Setting("engine", "whose overheads", "|".join(ENGINES)),
            Setting("tensor_parallel", "GPUs that serve one copy of the model", "N"),
            Setting("data_parallel_size", "such groups of GPUs that are ranks of one deployment", "N"),
            Setting("enable_expert_parallel", "whole experts on each GPU, not parts of all", "true|false"),
            Setting(
                "expert_imbalance", "tokens of the busiest GPU's experts over the mean", "X|{zipf: X}|{loads: [...]}"
            ),
            Setting("pipeline_parallel_size", "stages of layers, each on GPUs of its own", "N"),
            Setting("precision", "of weights", "bf16|fp8|fp4|int4"),
            Setting("kv_precision", "of the KV cache", "bf16|fp8"),
            Setting("utilisation", "share of the memory that the engine takes", "X"),
            path("to", "draw its roofline to this file: .svg, .pdf or .png", None),
            choice("output", "what is printed", "table", "json", "csv"),
        ),
        others="fields of the hardware, as hardware.gpu.hbm_gb_s=4000",
    ),
    "check": CHECK,
    "measure": MEASURE,
}
