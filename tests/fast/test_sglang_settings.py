"""What `engine=sglang` takes for its settings, and what it refuses."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from prebleexp.engines.sglang.engine import SGLang
from prebleexp.errors import InvalidInput
from prebleexp.lengths.known import Max
from prebleexp.sim.simulate import simulate
from prebleexp.sim.types import Setup, State
from tests.support.by_hand.small_cluster import alike, cluster_of
from tests.support.recordings.sglang import engine_of, run, stream_of
from tests.support.strategies.engine_streams import random_setting

CHUNK, REQUESTS = "an integer from 1 to 16384", "an integer from 1 to 65536"


@pytest.mark.parametrize(
    ("name", "value", "valid"),
    [
        ("chunked_prefill_size", 0, CHUNK),
        ("chunked_prefill_size", 16385, CHUNK),
        ("chunked_prefill_size", 512.0, CHUNK),
        ("max_running_requests", 0, REQUESTS),
        ("max_running_requests", True, REQUESTS),
        ("schedule_policy", "lof", "one of fcfs, lpm"),
        ("schedule_conservativeness", -0.1, "a number, >= 0"),
        ("schedule_conservativeness", float("nan"), "a number, >= 0"),
        ("disable_overlap_schedule", 1, "true or false"),
        ("skip_finishing_decode", None, "true or false"),
        ("host_s", -1, "a number of seconds, >= 0"),
        ("host_s", "1", "a number of seconds, >= 0"),
    ],
)
def test_a_value_that_is_not_valid_gets_one_line(name: str, value: Any, valid: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        SGLang(**{name: value})
    assert str(caught.value) == f"engine.{name}={value} is not valid; it must be {valid}"


def setup(memory: float = 0.0, kv: int = 400_000, context: int = 32_768) -> Setup:
    _, columns = random_setting(0)
    workload = stream_of(columns)
    return Setup(1, 0, len(workload), kv, context, workload, "", memory)


@pytest.mark.parametrize(
    ("memory", "chunk"), [(0, 4096), (16, 2048), (24, 4096), (48, 4096), (80, 8192), (141, 8192), (192, 16384)]
)
def test_the_default_chunk_follows_the_memory_of_the_gpu(memory: float, chunk: int) -> None:
    assert SGLang().limits(setup(memory))[0] == chunk
    assert SGLang(chunked_prefill_size=300).limits(setup(memory))[0] == 300


@pytest.mark.parametrize(
    ("kv", "context", "given", "requests"),
    [
        (100_000, 32_768, None, 2048),
        (400_000, 65_536, None, 3125),
        (4_000_000, 32_768, None, 4096),
        (3_000, 32_768, None, 1500),
        (100_000, 32_768, 7, 7),
        (10, 32_768, 7, 5),
        (1, 32_768, None, 1),
    ],
)
def test_so_many_requests_run_at_most(kv: int, context: int, given: int | None, requests: int) -> None:
    assert SGLang(max_running_requests=given).limits(setup(0, kv, context))[1] == requests


def test_who_might_never_fit_is_refused_when_it_arrives() -> None:
    config, columns = random_setting(0)
    workload = stream_of(columns)
    wanted = workload.prompt_tokens + np.minimum(workload.max_new_tokens, workload.output_tokens + 4095) + 1
    for kv in sorted(set((wanted + 1).tolist())):
        made = run(config | {"max_total_tokens": int(kv), "max_running_requests": 256}, columns, engine_of(config))
        assert ((made.state == State.REFUSED) == (wanted >= kv)).all()
        assert (made.state[wanted < kv] == State.FINISHED).all()


@pytest.mark.uncompiled
def test_what_is_held_at_most_is_told() -> None:
    """Two prompts of 64 tokens, and of both outputs all but the last token."""
    made = simulate(alike([0.0, 0.0], 64, 4), **cluster_of(engine=SGLang(), lengths=Max()))
    assert made.gpu_peak_kv_tokens.tolist() == [2 * (64 + 3)]
