"""What inference-perf asks: its shared_prefix data, at rates that grow from stage to stage."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import ClassVar

import numpy as np

from prebleexp.checks import integer, require
from prebleexp.errors import InvalidInput
from prebleexp.sim.types import Floats, Workload
from prebleexp.workloads.base import WorkloadSource
from prebleexp.workloads.few_shot import LONGEST, MOST, MOST_REQUESTS, random
from prebleexp.workloads.load_stages import Given, LoadStage, stage_of, stages_of
from prebleexp.workloads.output_length import OutputLength

ORDER, ARRIVALS = range(30, 32)
"""random streams"""
WARM_UP = -1


VALID = "{rate: …, duration: …}, numbers > 0 that make a request or more"


@dataclass(frozen=True)
class InferencePerf(WorkloadSource):
    """`num_groups` system prompts, each with `num_prompts_per_group` questions. All prompts are shuffled once. Each
    stage asks them in that order from the first on, again and again, rate · duration of them, and begins when all of
    the one before is answered; caches are kept. In each second as many arrive as in one of a Poisson process, the last
    at its end.

    Source: kubernetes-sigs/inference-perf, data type shared_prefix, load type poisson; read. Not there: its workers,
    lengths that are distributions, chats of several turns, and the second or two that it waits between stages.

    Raises InvalidInput for fields that are not counts, stages without a request, and more than 100 million requests.
    """

    num_groups: int = 10
    """system prompts"""
    num_prompts_per_group: int = 10
    """questions that each of them has"""
    system_prompt_len: int = 100
    """tokens that a group shares"""
    question_len: int = 50
    """tokens of a prompt's own"""
    output_len: int = 50
    """tokens"""
    stages: Sequence[Given] = (LoadStage(10, 30),)
    """rate (requests/s over all GPUs) and duration (s) of each, one after the other"""
    warmup: Given | None = None
    """a stage before them that averages leave out; null: none"""

    own_outputs: ClassVar[bool] = True

    def __post_init__(self) -> None:
        for one in fields(self)[:5]:
            integer(f"workload.{one.name}", getattr(self, one.name), 1, MOST)
        tokens = self.system_prompt_len + self.question_len
        require(tokens <= LONGEST, "workload.system_prompt_len", self.system_prompt_len, f"at most {LONGEST} in all")
        stages = stages_of("workload.stages", self.stages, VALID)
        for i, load in enumerate(stages):
            require(load.requests >= 1, f"workload.stages[{i}]", self.stages[i], VALID)
        object.__setattr__(self, "stages", stages)
        if self.warmup is not None:
            object.__setattr__(self, "warmup", _load("workload.warmup", self.warmup))
        total = self.num_groups * self.num_prompts_per_group + sum(one.requests for one in self._loads)
        if total > MOST_REQUESTS:
            raise InvalidInput(f"workload.stages: {total:,} prompts and requests; at most {MOST_REQUESTS:,} are valid")

    @property
    def _loads(self) -> list[LoadStage]:
        """The warm-up and the stages."""
        given = [*([] if self.warmup is None else [self.warmup]), *self.stages]
        return [_load("workload.stages", one) for one in given]

    @property
    def rates(self) -> tuple[float, ...]:
        return tuple(_load("workload.stages", one).rate for one in self.stages)

    @property
    def staged(self) -> bool:
        return len(self._loads) > 1

    @property
    def retimed_by(self) -> tuple[str, ...]:
        return ()

    @property
    def obeys(self) -> tuple[str, ...]:
        return ("seed",)

    def draw(self, *, rps: float, duration_s: float, seed: int, output_length: OutputLength) -> Workload:
        order = random(seed, ORDER).permutation(self.num_groups * self.num_prompts_per_group)
        times, loads = random(seed, ARRIVALS), self._loads
        counts = [one.requests for one in loads]
        offset_s = np.concatenate([_arrivals(times, one) for one in loads])
        first = 0 if self.warmup is None else WARM_UP
        stage = np.repeat(np.arange(first, first + len(counts)), counts)
        planned_s = np.cumsum([0.0, *(one.duration for one in loads[:-1])])
        prompt = np.concatenate([order[np.arange(n) % len(order)] for n in counts])
        group, n = prompt // self.num_prompts_per_group, len(prompt)
        return Workload(
            arrival_s=planned_s[stage - first] + offset_s,
            prompt_tokens=np.full(n, self.system_prompt_len + self.question_len),
            output_tokens=np.full(n, self.output_len),
            max_new_tokens=np.full(n, self.output_len),
            prefix_group=group,
            segment_offsets=2 * np.arange(n + 1),
            segment_ids=np.column_stack([group, self.num_groups + prompt]).ravel(),
            segment_tokens=np.tile([self.system_prompt_len, self.question_len], n),
            delay_s=np.where(stage == first, 0.0, offset_s),
            goes_on=np.ones(n, np.int32),
            stage=stage,
        )


def _load(name: str, given: object) -> LoadStage:
    load = stage_of(name, given, VALID)
    require(load.requests >= 1, name, given, VALID)
    return load


def _arrivals(times: np.random.Generator, load: LoadStage) -> Floats:
    """(requests,) seconds from when the stage begins."""
    found: list[Floats] = []
    while sum(map(len, found)) < load.requests:
        gaps = times.standard_exponential(times.poisson(load.rate))
        found.append(len(found) + np.cumsum(gaps) / gaps.sum() if len(gaps) else gaps)
    return np.concatenate(found)[: load.requests]
