"""What inference-perf asks: its shared_prefix data, at rates that grow from stage to stage."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, ClassVar, NamedTuple

import numpy as np

from prebleexp.checks import integer, is_number, require
from prebleexp.errors import InvalidInput
from prebleexp.sim.types import Floats, Workload
from prebleexp.workloads.base import WorkloadSource
from prebleexp.workloads.few_shot import LONGEST, MOST, MOST_REQUESTS, random
from prebleexp.workloads.output_length import OutputLength

ORDER, ARRIVALS = range(30, 32)
"""random streams"""
WARM_UP = -1


class Load(NamedTuple):
    """So much for so long."""

    rate: float
    """requests/s over all GPUs"""
    duration: float
    """seconds"""

    @property
    def requests(self) -> int:
        return int(self.rate * self.duration)


Given = Mapping[str, float] | Sequence[float]
"""a `Load` as it is written"""


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
    stages: Sequence[Given] = (Load(10, 30),)
    """rate (requests/s over all GPUs) and duration (s) of each, one after the other"""
    warmup: Given | None = None
    """a stage before them that averages leave out; null: none"""

    own_outputs: ClassVar[bool] = True

    def __post_init__(self) -> None:
        for one in fields(self)[:5]:
            integer(f"workload.{one.name}", getattr(self, one.name), 1, MOST)
        tokens = self.system_prompt_len + self.question_len
        require(tokens <= LONGEST, "workload.system_prompt_len", self.system_prompt_len, f"at most {LONGEST} in all")
        valid = isinstance(self.stages, list | tuple) and len(self.stages) > 0
        require(valid, "workload.stages", self.stages, "a list of stages, as [{rate: 10, duration: 30}]")
        stages = tuple(_load(f"workload.stages[{i}]", one) for i, one in enumerate(self.stages))
        object.__setattr__(self, "stages", stages)
        if self.warmup is not None:
            object.__setattr__(self, "warmup", _load("workload.warmup", self.warmup))
        total = self.num_groups * self.num_prompts_per_group + sum(one.requests for one in self._loads)
        if total > MOST_REQUESTS:
            raise InvalidInput(f"workload.stages: {total:,} prompts and requests; at most {MOST_REQUESTS:,} are valid")

    @property
    def _loads(self) -> list[Load]:
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


def _load(name: str, given: object) -> Load:
    pair: Any = [given.get("rate"), given.get("duration")] if isinstance(given, Mapping) else given
    valid = isinstance(pair, list | tuple) and len(pair) == 2 and all(is_number(one) and one > 0 for one in pair)
    valid = valid and (not isinstance(given, Mapping) or len(given) == 2)
    load = Load(*map(float, pair)) if valid else Load(0.0, 0.0)
    require(load.requests >= 1, name, given, "{rate: …, duration: …}, numbers > 0 that make a request or more")
    return load


def _arrivals(times: np.random.Generator, load: Load) -> Floats:
    """(requests,) seconds from when the stage begins."""
    found: list[Floats] = []
    while sum(map(len, found)) < load.requests:
        gaps = times.standard_exponential(times.poisson(load.rate))
        found.append(len(found) + np.cumsum(gaps) / gaps.sum() if len(gaps) else gaps)
    return np.concatenate(found)[: load.requests]
