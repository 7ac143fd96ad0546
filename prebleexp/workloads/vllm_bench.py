"""What `vllm bench serve` sends."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import ClassVar

import numpy as np

from prebleexp.checks import flag, integer, is_integer, is_number, one_of, require
from prebleexp.errors import InvalidInput
from prebleexp.sim.types import Floats, Workload
from prebleexp.workloads import bench_client, timed_trace
from prebleexp.workloads.base import WorkloadSource
from prebleexp.workloads.bursty import ENDLESS, gaps
from prebleexp.workloads.few_shot import ARRIVALS, LONGEST, MOST_REQUESTS, random
from prebleexp.workloads.output_length import OutputLength
from prebleexp.workloads.reading import Understood
from prebleexp.workloads.vllm_datasets import DATASETS, FROM_FILES, ratios, requests

STRATEGIES = ("linear", "exponential")
FROM_0 = ("random_prefix_len", "prefix_repetition_prefix_len", "num_warmups", "gsp_system_prompt_len")
LENGTHS = (
    *("random_input_len", "random_output_len", "prefix_repetition_suffix_len", "prefix_repetition_num_prefixes"),
    *("prefix_repetition_output_len", "gsp_num_groups", "gsp_prompts_per_group", "gsp_question_len", "gsp_output_len"),
    "timed_trace_chunk_hash_size",
)


@dataclass(frozen=True)
class VllmBench(WorkloadSource):
    """The requests of one benchmark, under the tool's names, and when its client sends them.

    With a rate, gaps are gamma-distributed of the shape `burstiness`, and stretched so that the last request comes at
    num_prompts / request_rate; with a ramp they are not, and the rate grows from request to request. At most
    `max_concurrency` are under way: the others wait at the client, in order, and times count from when a request was
    sent. Warm-ups are the first prompt, again and again, before all else. Each answer is as long as it is to be.

    Source: vLLM 0.32.0, `vllm bench serve`, read; generated-shared-prefix: SGLang's bench_serving. Otherwise than
    there, texts of files count a token each 4 letters, prompts of random data share nothing by chance, and numbers are
    drawn by other generators. Raises InvalidInput for what is not valid.
    """

    dataset_name: str = "random"
    """what its requests are like: one of `prebleexp.workloads.vllm_datasets.DATASETS`"""
    dataset_path: str | None = None
    """the file, where it is of one"""
    num_prompts: int = 1000
    """requests, without warm-ups"""
    request_rate: float | str = math.inf
    """requests/s over all GPUs; inf: all are there at once"""
    burstiness: float = 1.0
    """shape of the gamma distribution of gaps; 1: Poisson, less: burstier, inf: a clock"""
    max_concurrency: int | None = None
    """requests that are under way at a time; null: all"""
    num_warmups: int = 0
    """requests before all others, of the first prompt, that averages leave out"""
    ramp_up_strategy: str | None = None
    """linear or exponential: the rate grows from the first request to the last; null: it does not"""
    ramp_up_start_rps: float | None = None
    """requests/s at the first request of a ramp"""
    ramp_up_end_rps: float | None = None
    """requests/s at the last one"""
    random_input_len: int = 1024
    """random: mean tokens of a prompt after the prefix"""
    random_output_len: int = 128
    """random: mean tokens of an answer"""
    random_range_ratio: float | Mapping[str, float] = 0.0
    """random: lengths are uniform, so much of the mean below and above; {input: …, output: …}: of each"""
    random_prefix_len: int = 0
    """random: tokens that all prompts begin with"""
    prefix_repetition_prefix_len: int = 256
    """prefix_repetition: tokens of a prefix"""
    prefix_repetition_suffix_len: int = 256
    """prefix_repetition: tokens after the prefix, of each prompt alone"""
    prefix_repetition_num_prefixes: int = 10
    """prefix_repetition: prefixes, of which each begins equally many prompts"""
    prefix_repetition_output_len: int = 128
    """prefix_repetition: tokens of an answer"""
    gsp_num_groups: int = 64
    """generated-shared-prefix: system prompts"""
    gsp_prompts_per_group: int = 16
    """generated-shared-prefix: questions that follow each prefix"""
    gsp_system_prompt_len: int = 2048
    """generated-shared-prefix: tokens of a system prompt"""
    gsp_question_len: int = 128
    """generated-shared-prefix: tokens of a question"""
    gsp_output_len: int = 256
    """generated-shared-prefix: tokens of an answer"""
    sharegpt_output_len: int | None = None
    """sharegpt: tokens of an answer; null: those of the file"""
    custom_output_len: int = 256
    """custom: tokens of an answer; -1: the file's output_tokens"""
    timed_trace_chunk_hash_size: int = 16
    """timed_trace: tokens of a hash"""
    timed_trace_sec_multiplier: float = 1.0
    """timed_trace: seconds of the file's unit of time: .001 if it is ms"""
    timed_trace_label_timestamp: str = "timestamp"
    """timed_trace: the field of times"""
    timed_trace_label_input_length: str = "input_length"
    """timed_trace: the field of tokens of prompts"""
    timed_trace_label_output_length: str = "output_length"
    """timed_trace: the field of tokens of answers"""
    timed_trace_label_hash_ids: str = "hash_ids"
    """timed_trace: the field of hashes, of which equal ones are equal tokens"""
    self_timed: bool | None = None
    """timed_trace and bench_log: whether requests come when the file says; null: those of timed_trace do"""
    disable_shuffle: bool = False
    """whether requests come in the data set's order"""
    no_oversample: bool = False
    """whether a file that has fewer requests is not gone through again"""

    own_outputs: ClassVar[bool] = True

    def __post_init__(self) -> None:
        one_of("workload.dataset_name", self.dataset_name, tuple(DATASETS))
        if self.dataset_name in FROM_FILES and not (isinstance(self.dataset_path, str) and self.dataset_path):
            instead = "; or take azure_conversations, whose lengths ship" if self.dataset_name == "sharegpt" else ""
            raise InvalidInput(f"workload.dataset_name={self.dataset_name} needs workload.dataset_path=FILE{instead}")
        if self.dataset_name not in FROM_FILES and self.dataset_path is not None:
            valid = f"null with dataset_name={self.dataset_name}, which reads no file; {', '.join(FROM_FILES)} do"
            require(False, "workload.dataset_path", self.dataset_path, valid)
        integer("workload.num_prompts", self.num_prompts, 1, MOST_REQUESTS)
        for name in (*LENGTHS, *FROM_0):
            integer(f"workload.{name}", getattr(self, name), 0 if name in FROM_0 else 1, LONGEST)
        self._check_data()
        self._check_rates()

    def _check_data(self) -> None:
        given = self.random_range_ratio
        valid = not isinstance(given, Mapping) or set(given) == {"input", "output"}
        valid = valid and all(is_number(one) and 0 <= one < 1 for one in ratios(given))
        require(valid, "workload.random_range_ratio", given, "in [0, 1), or {input: …, output: …} of such")
        for name, also in (("sharegpt_output_len", None), ("custom_output_len", -1)):
            value = getattr(self, name)
            require(
                value == also or is_integer(value, 1, LONGEST), f"workload.{name}", value, f"{also} or an integer > 0"
            )
        valid = is_number(self.timed_trace_sec_multiplier) and self.timed_trace_sec_multiplier > 0
        require(valid, "workload.timed_trace_sec_multiplier", self.timed_trace_sec_multiplier, "a number > 0")
        for name in ("disable_shuffle", "no_oversample"):
            flag(f"workload.{name}", getattr(self, name))
        if self.self_timed is not None and self.dataset_name not in ("timed_trace", "bench_log"):
            require(
                False, "workload.self_timed", self.self_timed, "null but with dataset_name=timed_trace or bench_log"
            )
        if self.dataset_name == "prefix_repetition" and self.num_prompts < self.prefix_repetition_num_prefixes:
            least = self.prefix_repetition_num_prefixes
            require(False, "workload.num_prompts", self.num_prompts, f"at least {least}, one for each prefix")

    def _check_rates(self) -> None:
        valid = self.request_rate in ENDLESS or (is_number(self.request_rate) and self.request_rate > 0)
        require(valid, "workload.request_rate", self.request_rate, "a number > 0, or inf")
        object.__setattr__(self, "request_rate", "inf" if self.request_rate in ENDLESS else float(self.request_rate))
        valid = self.burstiness in ENDLESS or (is_number(self.burstiness) and self.burstiness > 0)
        require(valid, "workload.burstiness", self.burstiness, "a number > 0, or inf")
        most = self.max_concurrency
        require(most is None or is_integer(most, 1), "workload.max_concurrency", most, "null or an integer > 0")
        if self.ramp_up_strategy is None:
            return
        one_of("workload.ramp_up_strategy", self.ramp_up_strategy, STRATEGIES)
        ends = (self.ramp_up_start_rps, self.ramp_up_end_rps)
        for name, value in zip(("ramp_up_start_rps", "ramp_up_end_rps"), ends, strict=True):
            valid = value is not None and is_number(value) and value > 0
            require(valid, f"workload.{name}", value, "a number > 0 with ramp_up_strategy")
        valid = float(ends[0] or 0) <= float(ends[1] or 0)
        require(valid, "workload.ramp_up_start_rps", ends[0], f"at most ramp_up_end_rps={ends[1]}")
        valid = self.request_rate == "inf"
        require(valid, "workload.request_rate", self.request_rate, "inf with ramp_up_strategy, which has its own rates")

    @property
    def rate(self) -> float:
        """Requests/s that the client sends; infinity: all at once."""
        return math.inf if self.request_rate == "inf" else float(self.request_rate)

    @property
    def is_self_timed(self) -> bool:
        """Whether requests are sent when the data set says."""
        return self.dataset_name == "timed_trace" if self.self_timed is None else self.self_timed

    @property
    def staged(self) -> bool:
        return self.num_warmups > 0

    @property
    def own_rps(self) -> float | None:
        return None if self.is_self_timed or math.isinf(self.rate) else self.rate

    @property
    def retimed_by(self) -> tuple[str, ...]:
        return ()

    @property
    def says(self) -> str | None:
        if self.is_self_timed:
            return None
        clients = "" if self.max_concurrency is None else f"{self.max_concurrency:,} at a time"
        if self.ramp_up_strategy is not None:
            rate = f"at {self.ramp_up_start_rps:g} to {self.ramp_up_end_rps:g} requests/s"
        elif math.isinf(self.rate):
            rate = "" if clients else "all at once"
        else:
            rate = f"at {self.rate:g} requests/s"
        return ", ".join(filter(None, (rate, clients, f"{self.num_prompts:,} prompts")))

    @property
    def understood(self) -> Understood | None:
        return timed_trace.understood(self) if self.dataset_name == "timed_trace" else None

    @property
    def obeys(self) -> tuple[str, ...]:
        return ("seed",)

    def identity(self) -> dict[str, object]:
        """The file's contents stand for its path."""
        return bench_client.identity(asdict(self), self.dataset_name, self.dataset_path)

    def draw(self, *, rps: float, duration_s: float, seed: int, output_length: OutputLength) -> Workload:
        made = requests(self, seed)
        due_s = self.due_s(len(made.outputs), seed) if made.due_s is None else made.due_s
        return bench_client.sent(made, due_s, self.max_concurrency, self.num_warmups)

    def due_s(self, n: int, seed: int) -> Floats:
        """(n,) seconds from when the benchmark begins until each request comes to the client's queue."""
        if self.ramp_up_strategy is None and math.isinf(self.rate):
            return np.zeros(n)
        found: Floats
        drawn = gaps(random(seed, ARRIVALS), n, float(self.burstiness))
        if self.ramp_up_strategy is None:
            found = np.cumsum(drawn)
            found *= n / self.rate / found[-1]
            return found
        found = np.cumsum(drawn / self.ramped(n))
        return found

    def ramped(self, n: int) -> Floats:
        """(n,) requests/s at each request of a ramp."""
        first, last = float(self.ramp_up_start_rps or 0), float(self.ramp_up_end_rps or 0)
        share = np.arange(n) / max(n - 1, 1)
        linear = self.ramp_up_strategy == "linear"
        rates: Floats = first + (last - first) * share if linear else first * (last / first) ** share
        return rates
