"""A command line of `vllm bench serve` (0.32.0), read: what its flags ask for here."""

from __future__ import annotations

import argparse
import difflib
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

from prebleexp.checks import one_of
from prebleexp.errors import InvalidInput
from prebleexp.vllm_bench.pasting import of_the_command
from prebleexp.vllm_bench.result import METRICS, Wanted

TOOL, VERSION = "vllm bench serve", "0.32.0"
INTEGER: Mapping[str, Any] = {"type": int}
NUMBER: Mapping[str, Any] = {"type": float}
TEXT: Mapping[str, Any] = {}
SWITCH: Mapping[str, Any] = {"action": "store_true"}
SEVERAL: Mapping[str, Any] = {"nargs": "+"}
ANY: Mapping[str, Any] = {"nargs": "*"}
EITHER: Mapping[str, Any] = {"action": argparse.BooleanOptionalAction}

OF_THE_LOAD: Mapping[str, Mapping[str, Any]] = {
    **dict.fromkeys(("max-concurrency", "num-prompts", "num-warmups", "seed", "input-len", "output-len"), INTEGER),
    **dict.fromkeys(("ramp-up-start-rps", "ramp-up-end-rps", "custom-output-len", "sharegpt-output-len"), INTEGER),
    **dict.fromkeys(("random-input-len", "random-output-len", "random-prefix-len"), INTEGER),
    **dict.fromkeys(("prefix-repetition-prefix-len", "prefix-repetition-suffix-len"), INTEGER),
    **dict.fromkeys(("prefix-repetition-num-prefixes", "prefix-repetition-output-len"), INTEGER),
    **dict.fromkeys(("request-rate", "burstiness", "timed-trace-sec-multiplier"), NUMBER),
    **dict.fromkeys(("dataset-name", "dataset-path", "ramp-up-strategy", "random-range-ratio"), TEXT),
    **dict.fromkeys(("timed-trace-label-timestamp", "timed-trace-label-input-length"), TEXT),
    **dict.fromkeys(("timed-trace-label-output-length", "timed-trace-label-hash-ids"), TEXT),
    **dict.fromkeys(("no-oversample", "disable-shuffle"), SWITCH),
    "timed-trace-chunk-hash-size": INTEGER,
    "self-timed": EITHER,
}
OF_THE_RESULT: Mapping[str, Mapping[str, Any]] = {
    **dict.fromkeys(("save-result", "save-detailed", "append-result", "skip-tokenizer-init"), SWITCH),
    **dict.fromkeys(("result-dir", "result-filename", "percentile-metrics", "metric-percentiles"), TEXT),
    **dict.fromkeys(("label", "backend", "model", "tokenizer"), TEXT),
    "goodput": SEVERAL,
    "metadata": ANY,
}
NO_EFFECT: Mapping[str, Mapping[str, Any]] = {
    **dict.fromkeys(("base-url", "host", "port", "endpoint", "served-model-name", "tokenizer-mode"), TEXT),
    **dict.fromkeys(("request-id-prefix", "ready-check-timeout-sec", "chat-template-kwargs", "extra-body"), TEXT),
    **dict.fromkeys(("logprobs", "top-p", "top-k", "min-p", "temperature", "frequency-penalty"), TEXT),
    **dict.fromkeys(("presence-penalty", "repetition-penalty", "timeline-itl-thresholds"), TEXT),
    **dict.fromkeys(("insecure", "trust-remote-code", "disable-tqdm", "profile", "ignore-eos", "no-stream"), SWITCH),
    **dict.fromkeys(("plot-timeline", "plot-dataset-stats", "skip-chat-template"), SWITCH),
    **dict.fromkeys(("enable-multimodal-chat", "custom-ensure-client-side-data", "no-reranker"), SWITCH),
    **dict.fromkeys(("spec-bench-output-len", "spec-bench-category", "blazedit-min-distance"), TEXT),
    **dict.fromkeys(("blazedit-max-distance", "asr-max-audio-len-sec", "asr-min-audio-len-sec"), TEXT),
    **dict.fromkeys(("hf-subset", "hf-split", "hf-name", "hf-output-len", "bfcl-categories"), TEXT),
    **dict.fromkeys(("speed-bench-dataset-subset", "speed-bench-output-len", "speed-bench-category"), TEXT),
    **dict.fromkeys(("random-mm-base-items-per-request", "random-mm-num-mm-items-range-ratio"), TEXT),
    **dict.fromkeys(("random-mm-limit-mm-per-prompt", "random-mm-bucket-config"), TEXT),
    "header": ANY,
}
"""they say where the server is and how it is asked, what a token is, how it is drawn, or are of data sets that are
refused; answers are as long as they are to be, and drawings are not made"""
NOT_SIMULATED: Mapping[str, Mapping[str, Any]] = {
    **dict.fromkeys(("probe-request-rate", "lora-assignment", "random-batch-size"), TEXT),
    "use-beam-search": SWITCH,
    "lora-modules": SEVERAL,
}
"""they change what the server has to do, and are left out here"""
FLAGS = {**OF_THE_LOAD, **OF_THE_RESULT, **NO_EFFECT, **NOT_SIMULATED}

LENGTHS = {
    "input_len": ("random_input_len",),
    "output_len": (
        *("random_output_len", "sharegpt_output_len", "custom_output_len"),
        "prefix_repetition_output_len",
    ),
}
"""what stands for several, and goes before them"""
BACKENDS = (
    *("openai", "vllm", "openai-chat", "openai-responses", "openai-audio"),
    *("tgi", "sglang", "lmdeploy", "tensorrt-llm", "scalellm", "deepspeed-mii", "llama.cpp"),
)
"""the last seven are of benchmark_serving.py, before it was a command"""
RENAMED = {"endpoint-type": "backend", "custom-skip-chat-template": "skip-chat-template", "dataset": "dataset-path"}
"""flags of older versions, and what they are called now"""
SCRIPT, OF_SCRIPT = "benchmark_serving.py", "sharegpt"
"""and the data set that it had where none was named"""
OF_SONNET = "--dataset-name sonnet is no longer there; prefix_repetition has prompts with a common beginning, too"
POOLING = ("embeddings", "pooling", "rerank")
GOALS = ("ttft", "tpot", "e2el")


@dataclass(frozen=True)
class Pasted:
    """What a command line asks for."""

    settings: Mapping[str, Any]
    """of the run: `seed`, and fields of workload=vllm_bench by the names that they have there"""
    wanted: Wanted
    label: str | None
    backend: str
    model: str | None
    tokenizer: str | None
    metadata: Mapping[str, str]
    save: bool
    detailed: bool
    append: bool
    folder: str | None
    file: str | None
    no_effect: tuple[str, ...]
    not_simulated: tuple[str, ...]
    is_script: bool = False
    """whether it is of the script that was there before the command"""

    @property
    def says(self) -> tuple[str, ...]:
        """What of it does nothing, or is another thing now, in sentences."""
        said = nothing_done(self.no_effect, self.not_simulated)
        if self.is_script and "workload.random_range_ratio" in self.settings:
            said += (
                f"--random-range-ratio is read as {TOOL} {VERSION} has it, so much below and above the mean; "
                "scripts before it, and copies of these, drew from that share of the length to the length",
            )
        return said


def read(words: Sequence[str]) -> Pasted:
    """A command line, with or without the command itself. Raises InvalidInput for flags that the tool does not have,
    and values that are not valid."""
    given = parsed(TOOL, VERSION, FLAGS, _flags(words))
    line = of_the_command(words)
    is_script = any(one.endswith(SCRIPT) for one in line.command)
    if is_script:
        given.setdefault("dataset_name", OF_SCRIPT)
    backend = given.get("backend", "openai")
    if any(kind in backend for kind in POOLING):
        raise InvalidInput(f"--backend {backend} is not valid; nothing is generated there, and only that is simulated")
    one_of("--backend", backend, BACKENDS)
    return Pasted(
        settings=_settings(given),
        wanted=_wanted(given),
        label=given.get("label"),
        backend=backend,
        model=given.get("model"),
        tokenizer=given.get("tokenizer"),
        metadata=dict(_pair("--metadata", one, "=") for one in given.get("metadata", ())),
        save=given.get("save_result", False) or given.get("append_result", False),
        detailed=given.get("save_detailed", False),
        append=given.get("append_result", False),
        folder=given.get("result_dir"),
        file=given.get("result_filename"),
        no_effect=(*those_of(NO_EFFECT, given), *line.behind),
        not_simulated=those_of(NOT_SIMULATED, given),
        is_script=is_script,
    )


def nothing_done(no_effect: Sequence[str], not_simulated: Sequence[str]) -> tuple[str, ...]:
    """What is said of flags that do nothing."""
    said = [f"no effect here: {', '.join(no_effect)}"] if no_effect else []
    return (*said, *([f"not simulated, and left out: {', '.join(not_simulated)}"] if not_simulated else []))


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise InvalidInput(f"{self.prog}: {message}")


def parsed(tool: str, version: str, known: Mapping[str, Mapping[str, Any]], words: Sequence[str]) -> dict[str, Any]:
    """The flags that are given, with their values. Raises InvalidInput for those that the tool does not know."""
    parser = _Parser(prog=tool, add_help=False, argument_default=argparse.SUPPRESS)
    for name, kind in known.items():
        parser.add_argument(f"--{name}", **({"default": argparse.SUPPRESS} | dict(kind)))
    found, strange = parser.parse_known_args(words)
    if strange:
        name = strange[0].partition("=")[0]
        close = difflib.get_close_matches(name, [f"--{one}" for one in known], 1)
        hint = f"; did you mean {close[0]}?" if close else ""
        raise InvalidInput(f"{tool} ({version}) does not know {name!r}{hint}")
    return vars(found)


def renamed(flags: Sequence[str], names: Mapping[str, str]) -> list[str]:
    """Flags of older versions under the names that they have now."""
    made = []
    for one in flags:
        name, equals, value = one.partition("=")
        new = names.get(name.removeprefix("--"))
        made.append(one if new is None or not name.startswith("--") else f"--{new}{equals}{value}")
    return made


def _flags(words: Sequence[str]) -> list[str]:
    """Without what stands before them; underscores in their names are hyphens, as the tool has it."""
    begin, rest, _ = of_the_command(words)
    if begin and begin[-2:] != ["bench", "serve"] and not begin[-1].endswith(SCRIPT):
        raise InvalidInput(f"bench-serve does not know {begin[-1]!r}; paste a command line: -- vllm bench serve --…")
    flags = []
    for one in rest:
        name, equals, value = one.partition("=")
        flags.append(f"{name.replace('_', '-')}{equals}{value}" if one.startswith("--") else one)
    if any(one.startswith("--sonnet-") for one in flags):
        raise InvalidInput(OF_SONNET)
    return renamed(flags, RENAMED)


def those_of(flags: Mapping[str, object], given: Mapping[str, Any]) -> tuple[str, ...]:
    """The flags of a kind that are given."""
    return tuple(f"--{one}" for one in flags if one.replace("-", "_") in given)


def _settings(given: Mapping[str, Any]) -> dict[str, Any]:
    own = {name: given[name] for name in (one.replace("-", "_") for one in OF_THE_LOAD) if name in given}
    for name, stands_for in LENGTHS.items():
        if name in own:
            own |= dict.fromkeys(stands_for, own.pop(name))
    if "random_range_ratio" in own:
        own["random_range_ratio"] = _ratio(own["random_range_ratio"])
    seed = {"seed": own.pop("seed")} if "seed" in own else {}
    return seed | {f"workload.{name}": value for name, value in own.items()}


def _ratio(text: str) -> Any:
    try:
        return float(text)
    except ValueError:
        pass
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        raise InvalidInput(
            f'--random-range-ratio {text} is not valid; it must be a number, or JSON: {{"input": …, "output": …}}'
        ) from None


def _wanted(given: Mapping[str, Any]) -> Wanted:
    metrics = tuple(given.get("percentile_metrics", "ttft,tpot,itl").split(","))
    for one in metrics:
        one_of("--percentile-metrics", one, tuple(METRICS))
    percentiles = tuple(
        _number("--metric-percentiles", one, 100) for one in given.get("metric_percentiles", "99").split(",")
    )
    return Wanted(
        metrics=metrics,
        percentiles=percentiles,
        goodput_ms=goals_of(given),
        counts_tokens=not given.get("skip_tokenizer_init", False),
    )


def goals_of(given: Mapping[str, Any]) -> dict[str, float]:
    """Limits of `--goodput` in milliseconds, by metric (ttft, tpot, e2el). Raises InvalidInput for others."""
    goals = dict(_pair("--goodput", one, ":") for one in given.get("goodput", ()))
    for name in goals:
        one_of("--goodput", name, GOALS)
    return {name: _number("--goodput", value, math.inf) for name, value in goals.items()}


def _number(flag: str, text: str, most: float) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0 <= value <= most:
        ends = "at least 0" if math.isinf(most) else f"from 0 to {most:g}"
        raise InvalidInput(f"{flag} {text!r} is not valid; it must be a number {ends}")
    return value


def _pair(flag: str, text: str, between: str) -> tuple[str, str]:
    key, found, value = text.partition(between)
    if not found:
        raise InvalidInput(f"{flag} {text!r} is not valid; it must be KEY{between}VALUE")
    return key.strip(), value.strip()
