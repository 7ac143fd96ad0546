"""What SGLang's `bench_serving` sends."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import ClassVar

import numpy as np

from prebleexp.checks import flag, integer, is_number, one_of, require
from prebleexp.errors import InvalidInput
from prebleexp.sim.types import Floats, Workload
from prebleexp.workloads import bench_client
from prebleexp.workloads.base import WorkloadSource
from prebleexp.workloads.bursty import ENDLESS
from prebleexp.workloads.few_shot import ARRIVALS, LONGEST, MOST_REQUESTS, QUESTIONS, random
from prebleexp.workloads.output_length import OutputLength
from prebleexp.workloads.sglang_datasets import DATASETS, FROM_FILES

LONGEST_WARM = 32
"""tokens of the answer of a warm-up"""
DISTRIBUTIONS = ("uniform", "zipf")
FROM_0 = ("warmup_requests", "gsp_system_prompt_len")
LENGTHS = ("random_input_len", "random_output_len", "gsp_num_groups", "gsp_prompts_per_group", "gsp_question_len")


@dataclass(frozen=True)
class SglangBench(WorkloadSource):
    """The requests of one benchmark, under the tool's names, and when its client sends them.

    The first request is sent at once, the others after exponential gaps. At most `max_concurrency` are in flight: the
    others wait at the client, in order, and times count from when a request is sent. Warm-ups repeat the first prompt
    before all other requests, with answers of at most 32 tokens. Each answer has exactly the length that was asked for.

    Source: SGLang 0.5.23, `python -m sglang.bench_serving`, read. Otherwise than there, texts of files count a token
    each 4 letters, and numbers are drawn by other generators. Raises InvalidInput for what is not valid.
    """

    dataset_name: str = "random"
    """what its requests are like: one of `prebleexp.workloads.sglang_datasets.DATASETS`"""
    dataset_path: str | None = None
    """the file, where it is of one"""
    num_prompts: int = 1000
    """requests, without warm-ups; generated-shared-prefix has groups times prompts"""
    request_rate: float | str = math.inf
    """requests/s over all GPUs; inf: all are there at once"""
    max_concurrency: int | None = None
    """requests that are under way at a time; null: all"""
    warmup_requests: int = 1
    """requests before all others, of the first prompt, that averages leave out"""
    flush_cache: bool = False
    """whether caches are emptied after them"""
    random_input_len: int = 1024
    """random: the most tokens of a prompt"""
    random_output_len: int = 1024
    """random: the most tokens of an answer"""
    random_range_ratio: float = 0.0
    """random: lengths are uniform from this share of the most to the most; 1: all are the most"""
    gsp_num_groups: int = 64
    """generated-shared-prefix: system prompts"""
    gsp_prompts_per_group: int = 16
    """generated-shared-prefix: questions that follow each prefix"""
    gsp_system_prompt_len: int = 2048
    """generated-shared-prefix: the most tokens of a system prompt"""
    gsp_question_len: int = 128
    """generated-shared-prefix: the most tokens of a question"""
    gsp_output_len: int = 256
    """generated-shared-prefix: the most tokens of an answer"""
    gsp_range_ratio: float = 1.0
    """generated-shared-prefix: lengths are uniform from this share of the most to the most"""
    gsp_ordered: bool = False
    """generated-shared-prefix: whether requests come group by group"""
    gsp_group_distribution: str = "uniform"
    """generated-shared-prefix: uniform, each group equally often; zipf: at random, the first most often"""
    gsp_zipf_alpha: float | None = None
    """generated-shared-prefix: with zipf, a group's weight is 1 / rank to the power of this"""
    sharegpt_output_len: int | None = None
    """sharegpt and custom: tokens of an answer; null: those of the file"""
    sharegpt_context_len: int | None = None
    """sharegpt and custom: tokens of prompt and answer that are not exceeded; null: any"""

    own_outputs: ClassVar[bool] = True

    def __post_init__(self) -> None:
        one_of("workload.dataset_name", self.dataset_name, tuple(DATASETS))
        if self.dataset_name in FROM_FILES and not (isinstance(self.dataset_path, str) and self.dataset_path):
            raise InvalidInput(
                f"workload.dataset_name={self.dataset_name} needs workload.dataset_path=FILE; or take "
                "azure_conversations, whose lengths ship"
            )
        if self.dataset_name not in FROM_FILES and self.dataset_path is not None:
            valid = f"null with dataset_name={self.dataset_name}, which reads no file; {', '.join(FROM_FILES)} do"
            require(False, "workload.dataset_path", self.dataset_path, valid)
        integer("workload.num_prompts", self.num_prompts, 1, MOST_REQUESTS)
        for name in (*LENGTHS, "gsp_output_len", *FROM_0):
            integer(f"workload.{name}", getattr(self, name), 0 if name in FROM_0 else 1, LONGEST)
        for name in ("sharegpt_output_len", "sharegpt_context_len", "max_concurrency"):
            if getattr(self, name) is not None:
                integer(f"workload.{name}", getattr(self, name), 1, LONGEST)
        for name in ("random_range_ratio", "gsp_range_ratio"):
            value = getattr(self, name)
            require(is_number(value) and 0 <= value <= 1, f"workload.{name}", value, "a number from 0 to 1")
        flag("workload.flush_cache", self.flush_cache)
        flag("workload.gsp_ordered", self.gsp_ordered)
        one_of("workload.gsp_group_distribution", self.gsp_group_distribution, DISTRIBUTIONS)
        alpha, zipf = self.gsp_zipf_alpha, self.gsp_group_distribution == "zipf"
        valid_alpha = (alpha is not None and is_number(alpha) and alpha > 0) if zipf else alpha is None
        needed = "a number > 0 with gsp_group_distribution=zipf, and null without"
        require(valid_alpha, "workload.gsp_zipf_alpha", alpha, needed)
        rate = self.request_rate
        valid_rate = rate in ENDLESS or (is_number(rate) and rate > 0)
        require(valid_rate, "workload.request_rate", rate, "a number > 0, or inf")
        object.__setattr__(self, "request_rate", "inf" if rate in ENDLESS else float(rate))

    @property
    def rate(self) -> float:
        """Requests/s that the client sends; infinity: all at once."""
        return math.inf if self.request_rate == "inf" else float(self.request_rate)

    @property
    def count(self) -> int:
        """Requests that are asked for, without warm-ups."""
        grouped = self.dataset_name == "generated-shared-prefix"
        return self.gsp_num_groups * self.gsp_prompts_per_group if grouped else self.num_prompts

    @property
    def warm(self) -> int:
        """Warm-ups that matter: if caches are emptied after them nothing of them is left."""
        return 0 if self.flush_cache else self.warmup_requests

    @property
    def staged(self) -> bool:
        return self.warm > 0

    @property
    def own_rps(self) -> float | None:
        return None if math.isinf(self.rate) else self.rate

    @property
    def retimed_by(self) -> tuple[str, ...]:
        return ()

    @property
    def says(self) -> str | None:
        clients = "" if self.max_concurrency is None else f"{self.max_concurrency:,} at a time"
        rate = f"at {self.rate:g} requests/s" if not math.isinf(self.rate) else "" if clients else "all at once"
        return ", ".join(filter(None, (rate, clients, f"{self.count:,} prompts")))

    @property
    def obeys(self) -> tuple[str, ...]:
        return ("seed",)

    def identity(self) -> dict[str, object]:
        """The file's contents stand for its path."""
        return bench_client.identity(asdict(self), self.dataset_name, self.dataset_path)

    def draw(self, *, rps: float, duration_s: float, seed: int, output_length: OutputLength) -> Workload:
        made = DATASETS[self.dataset_name](self, random(seed, QUESTIONS))
        due_s = self.due_s(len(made.outputs), seed)
        return bench_client.sent(made, due_s, self.max_concurrency, self.warm, LONGEST_WARM)

    def due_s(self, n: int, seed: int) -> Floats:
        """(n,) seconds from when the benchmark begins until each request comes to the client's queue."""
        if math.isinf(self.rate):
            return np.zeros(n)
        gaps = random(seed, ARRIVALS).exponential(1 / self.rate, n - 1)
        return np.concatenate([[0.0], np.cumsum(gaps)])
