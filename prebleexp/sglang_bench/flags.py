"""A command line of SGLang's `bench_serving` (0.5.23), read: what its flags ask for here."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from prebleexp.checks import one_of
from prebleexp.errors import InvalidInput
from prebleexp.vllm_bench.flags import (
    ANY,
    INTEGER,
    NUMBER,
    SEVERAL,
    SWITCH,
    TEXT,
    goals_of,
    nothing_done,
    parsed,
    renamed,
    those_of,
)
from prebleexp.vllm_bench.pasting import of_the_command

TOOL, VERSION = "sglang.bench_serving", "0.5.23"
MODULES = ("sglang.bench_serving", "sglang.benchmark.serving")
OF_THE_LOAD: Mapping[str, Mapping[str, Any]] = {
    **dict.fromkeys(("num-prompts", "sharegpt-output-len", "sharegpt-context-len", "random-input-len"), INTEGER),
    **dict.fromkeys(("random-output-len", "max-concurrency", "seed", "warmup-requests", "gsp-num-groups"), INTEGER),
    **dict.fromkeys(("gsp-prompts-per-group", "gsp-system-prompt-len", "gsp-question-len", "gsp-output-len"), INTEGER),
    **dict.fromkeys(("random-range-ratio", "request-rate", "gsp-range-ratio", "gsp-zipf-alpha"), NUMBER),
    **dict.fromkeys(("dataset-name", "dataset-path", "gsp-group-distribution"), TEXT),
    **dict.fromkeys(("flush-cache", "gsp-ordered"), SWITCH),
}
OF_THE_RESULT: Mapping[str, Mapping[str, Any]] = {
    **dict.fromkeys(("output-file", "backend", "tag"), TEXT),
    "output-details": SWITCH,
    "goodput": SEVERAL,
}
NO_EFFECT: Mapping[str, Mapping[str, Any]] = {
    **dict.fromkeys(("base-url", "host", "port", "ready-check-timeout-sec", "model", "served-model-name"), TEXT),
    **dict.fromkeys(("tokenizer", "temperature", "top-p", "top-logprobs-num", "logprob-start-len"), TEXT),
    **dict.fromkeys(("extra-request-body", "flush-cache-timeout", "rust-worker-threads", "image-count"), TEXT),
    **dict.fromkeys(("image-resolution", "image-format", "image-content", "dataset-offset"), TEXT),
    **dict.fromkeys(("agentic-max-turns", "speed-bench-category", "speed-bench-output-len"), TEXT),
    **dict.fromkeys(("mooncake-slowdown-factor", "mooncake-num-rounds", "mooncake-workload"), TEXT),
    **dict.fromkeys(("profile-start-step", "profile-steps", "profile-num-steps", "profile-output-dir"), TEXT),
    "profile-prefix": TEXT,
    **dict.fromkeys(("print-requests", "disable-tqdm", "return-logprob", "return-routed-experts"), SWITCH),
    **dict.fromkeys(
        ("disable-ignore-eos", "apply-chat-template", "profile", "plot-throughput", "pd-separated"), SWITCH
    ),
    **dict.fromkeys(("profile-by-stage", "tokenize-prompt", "gsp-fast-prepare", "rust-client"), SWITCH),
    **dict.fromkeys(("random-image-count", "gsp-send-routing-key"), SWITCH),
    **dict.fromkeys(("token-ids-logprob", "profile-activities", "profile-stages", "header"), SEVERAL),
    **dict.fromkeys(("profile-prefill-url", "profile-decode-url"), ANY),
}
"""they say where the server is and how it is asked, what a token is, how it is drawn, or are of data sets that are
refused; answers are as long as they are to be, and drawings are not made"""
NOT_SIMULATED: Mapping[str, Mapping[str, Any]] = {
    **dict.fromkeys(("lora-request-distribution", "lora-zipf-alpha", "prompt-suffix"), TEXT),
    **dict.fromkeys(("cache-report", "disable-stream", "fake-prefill"), SWITCH),
    "lora-name": ANY,
}
"""they change what the server has to do, or what is said, and are left out here"""
REFUSED: Mapping[str, Mapping[str, Any]] = {"gsp-num-turns": INTEGER, "use-trace-timestamps": SWITCH}
"""without them the load would be another one"""
FLAGS = {**OF_THE_LOAD, **OF_THE_RESULT, **NO_EFFECT, **NOT_SIMULATED, **REFUSED}
BACKENDS = (
    *("sglang", "sglang-native", "sglang-oai", "sglang-oai-chat", "vllm", "vllm-chat", "lmdeploy", "lmdeploy-chat"),
    *("trt", "gserver", "truss"),
)
OF_GROUPS = ("num-groups", "prompts-per-group", "system-prompt-len", "question-len", "output-len")
RENAMED = {f"gen-{name}": f"gsp-{name}" for name in OF_GROUPS}
"""flags of older versions, and what they are called now"""
INSTEAD = {
    "mooncake": "workload=mooncake plays such a trace",
    "agentic-trace": "workload=agents plays sessions of agents",
}
"""of data sets that are no benchmark here"""


@dataclass(frozen=True)
class Pasted:
    """What a command line asks for."""

    settings: Mapping[str, Any]
    """of the run: `seed`, and fields of workload=sglang_bench by the names that they have there"""
    goodput_ms: Mapping[str, float]
    backend: str
    tag: str | None
    file: str | None
    detailed: bool
    no_effect: tuple[str, ...]
    not_simulated: tuple[str, ...]

    @property
    def says(self) -> tuple[str, ...]:
        """What of it does nothing, in sentences."""
        return nothing_done(self.no_effect, self.not_simulated)


def is_meant(words: Sequence[str]) -> bool:
    """Whether a command line is of this tool."""
    begin = of_the_command(words).command
    return begin[-2:] != ["bench", "serve"] and any("sglang" in one for one in begin)


def read(words: Sequence[str]) -> Pasted:
    """A command line. Raises InvalidInput for flags that the tool does not have, and values that are not valid."""
    begin, flags, behind = of_the_command(words)
    if begin[-1] not in MODULES and not begin[-1].endswith("bench_serving.py"):
        raise InvalidInput(f"bench-serve does not know {begin[-1]!r}; paste: -- python -m {MODULES[0]} --…")
    given = parsed(TOOL, VERSION, FLAGS, renamed(flags, RENAMED))
    if given.get("gsp_num_turns", 1) != 1:
        raise InvalidInput("--gsp-num-turns is not valid here; workload=chats has requests of several turns")
    if "use_trace_timestamps" in given:
        raise InvalidInput(f"--use-trace-timestamps is not valid here; {INSTEAD['mooncake']}")
    backend = given.get("backend", "sglang")
    one_of("--backend", backend, BACKENDS)
    own = {name: given[name] for name in (one.replace("-", "_") for one in OF_THE_LOAD) if name in given}
    own.setdefault("dataset_name", "sharegpt")
    if (instead := INSTEAD.get(own["dataset_name"])) is not None:
        raise InvalidInput(f"--dataset-name {own['dataset_name']} is not valid here; {instead}")
    seed = {"seed": own.pop("seed")} if "seed" in own else {}
    return Pasted(
        settings=seed | {f"workload.{name}": value for name, value in own.items()},
        goodput_ms=goals_of(given),
        backend=backend,
        tag=given.get("tag"),
        file=given.get("output_file"),
        detailed=given.get("output_details", False),
        no_effect=(*those_of(NO_EFFECT, given), *behind),
        not_simulated=those_of(NOT_SIMULATED, given),
    )
