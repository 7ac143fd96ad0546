"""The synthetic workload: shapes, laws, and agreement with the recordings of the release."""

from __future__ import annotations

from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from prebleexp.errors import InvalidInput
from prebleexp.sim.types import COLUMNS, Workload
from prebleexp.workloads.output_length import OutputLength
from prebleexp.workloads.react import React
from tests.support.counted import calls
from tests.support.sampled import examples

MIX = OutputLength((1, 300), (0.5, 0.5))
CONSTANT = OutputLength((150,), (1.0,))
SEEDS = range(20)

REACTS = st.builds(
    React,
    groups=st.integers(1, 20),
    examples=st.integers(0, 6),
    common_tokens=st.integers(1, 10),
    instruction_tokens=st.integers(1, 100),
    example_tokens=st.integers(1, 500),
)


def draw(source: React | None = None, *, n: int = 200, rps: float = 10, seed: int = 0, output: Any = MIX) -> Workload:
    return (source or React()).draw(rps=rps, duration_s=n / rps, seed=seed, output_length=output)


def prompt(workload: Workload, request: int) -> list[int]:
    first, end = workload.segment_offsets[request : request + 2]
    return workload.segment_ids[first:end].tolist()  # type: ignore[no-any-return]


def shared_tokens(workload: Workload, one: int, other: int) -> int:
    first = workload.segment_offsets[one]
    shared = 0
    for i, (mine, theirs) in enumerate(zip(prompt(workload, one), prompt(workload, other), strict=False)):
        if mine != theirs:
            break
        shared += int(workload.segment_tokens[first + i])
    return shared


def suffixes_sharing(workload: Workload, depth: int) -> float:
    """Of the pairs in a group, how many share at least their first `depth` suffix tokens (behind 1,869 tokens)."""
    ends = np.cumsum(workload.segment_tokens)
    starts = np.repeat(
        ends[workload.segment_offsets[1:] - 1] - workload.prompt_tokens, np.diff(workload.segment_offsets)
    )
    reaching = ends - starts >= 1869 + depth
    first_reaching = np.flatnonzero(reaching & ~np.concatenate(([False], reaching[:-1] & (starts[1:] == starts[:-1]))))
    _, sizes = np.unique(workload.segment_ids[first_reaching], return_counts=True)
    _, groups = np.unique(workload.prefix_group, return_counts=True)
    return float(np.sum(sizes * (sizes - 1)) / np.sum(groups * (groups - 1)))


@settings(max_examples=examples(40), deadline=None)
@given(REACTS, st.integers(1, 60), st.integers(0, 2**63 - 1))
def test_prompts_share_what_the_parameters_say(source: React, n: int, seed: int) -> None:
    workload = draw(source, n=n, seed=seed)  # Workload itself checks sums and that ids are unique to their paths
    own = source.common_tokens + source.instruction_tokens + source.examples * source.example_tokens
    for other in range(1, n):
        shared = shared_tokens(workload, 0, other)
        if workload.prefix_group[0] == workload.prefix_group[other]:
            assert own <= shared <= own + 8
        else:
            assert shared == source.common_tokens
    assert np.all((workload.prompt_tokens > own + 8) & (workload.prompt_tokens <= own + 100))


@settings(max_examples=examples(20), deadline=None)
@given(REACTS, st.integers(0, 2**63 - 1))
def test_the_same_seed_gives_the_same_bytes_and_another_seed_another_stream(source: React, seed: int) -> None:
    one, again, other = draw(source, seed=seed), draw(source, seed=seed), draw(source, seed=seed + 1)
    for name in COLUMNS:
        assert getattr(one, name).tobytes() == getattr(again, name).tobytes()
    assert one.arrival_s.tobytes() != other.arrival_s.tobytes()
    assert one.prompt_tokens.tobytes() != other.prompt_tokens.tobytes()


@given(st.integers(1, 30), st.integers(1, 200))
def test_groups_are_as_large_as_each_other(groups: int, n: int) -> None:
    sizes = np.bincount(draw(React(groups=groups), n=n).prefix_group, minlength=groups)
    assert sizes.sum() == n
    assert sizes.max() - sizes.min() <= 1


def test_groups_come_in_random_order() -> None:
    group = draw(n=1000).prefix_group
    assert np.mean(group[1:] == group[:-1]) == pytest.approx(0.1, abs=0.04)


def test_the_first_request_comes_at_once_and_gaps_are_exponential() -> None:
    n = 50_000
    arrivals = draw(n=n, rps=64).arrival_s
    gaps = np.diff(arrivals) * 64
    assert arrivals[0] == 0
    assert gaps.mean() == pytest.approx(1, abs=4 / np.sqrt(n))
    assert gaps.var() == pytest.approx(1, abs=4 * np.sqrt(8 / n))
    assert np.mean(gaps > 1) == pytest.approx(np.exp(-1), abs=4 * 0.5 / np.sqrt(n))


def test_another_rate_is_the_same_stream_scaled() -> None:
    slow, fast = draw(rps=8), draw(rps=16)
    np.testing.assert_allclose(fast.arrival_s * 2, slow.arrival_s, rtol=1e-15)
    for name in COLUMNS[1:]:
        assert np.array_equal(getattr(slow, name), getattr(fast, name))


def test_another_distribution_of_output_lengths_changes_nothing_else() -> None:
    mixed, constant = draw(output=MIX), draw(output=CONSTANT)
    different = [name for name in COLUMNS if not np.array_equal(getattr(mixed, name), getattr(constant, name))]
    assert different == ["output_tokens"]


def test_max_new_tokens_is_the_parameter_and_does_not_change_what_the_model_would_generate() -> None:
    workload = draw(React(max_new_tokens=7))
    assert set(workload.max_new_tokens) == {7}
    assert set(workload.output_tokens) == {1, 300}


@pytest.mark.parametrize(("rps", "duration_s", "n"), [(64, 30, 1920), (0.001, 1, 1), (1, 2.6, 3), (128, 30, 3840)])
def test_there_are_rate_times_duration_requests_and_at_least_one(rps: float, duration_s: float, n: int) -> None:
    assert len(React().draw(rps=rps, duration_s=duration_s, seed=0, output_length=MIX)) == n


def test_one_group_without_examples_is_instructions_and_suffixes() -> None:
    workload = draw(React(groups=1, examples=0, common_tokens=1, instruction_tokens=1), n=1000)
    assert workload.prompt_tokens.max() <= 102
    assert set(workload.prefix_group) == {0}


def test_prompt_tokens_agree_with_the_recording() -> None:
    """3,840 recorded prompts: mean 1949.35, standard deviation 3.19."""
    tokens = np.concatenate([draw(n=3840, seed=seed).prompt_tokens for seed in SEEDS])
    error = 3.19 / np.sqrt(3840)
    assert tokens.mean() == pytest.approx(1949.35, abs=4 * error)
    assert tokens.std() == pytest.approx(3.19, abs=4 * error / np.sqrt(2))
    assert tokens.min() >= 1869 + 60


@pytest.mark.parametrize("seed", SEEDS)
def test_suffixes_are_cut_only_where_prompts_part(seed: int) -> None:
    """As in the recordings: behind every segment that prompts share beyond their group's, at least two ways go on."""
    workload = draw(n=960, seed=seed)
    ways: dict[int, set[int]] = {}
    for request in range(len(workload)):
        for one, following in pairwise(prompt(workload, request)[2:]):
            ways.setdefault(one, set()).add(following)
    assert len(ways) > 100
    assert min(map(len, ways.values())) >= 2


def test_numbers_of_segments_agree_with_the_recording() -> None:
    """Recorded: 872 prompts of 3 segments, 2,804 of 4 and 164 of 5. Their spread is that of 20 generated streams."""
    counts = np.array(
        [np.bincount(np.diff(draw(n=3840, seed=seed).segment_offsets), minlength=7)[3:6] for seed in SEEDS]
    )
    distance = (np.array([872, 2804, 164]) - counts.mean(0)) / counts.std(0, ddof=1)
    assert np.abs(distance).max() < 3


@pytest.mark.parametrize(("depth", "recorded", "tolerance"), [(1, 0.0095, 4e-4), (2, 0.000118, 6e-5)])
def test_chance_agreement_of_suffixes_agrees_with_the_recording(depth: int, recorded: float, tolerance: float) -> None:
    """Of 735,360 recorded pairs in a group, those that share their first one or two suffix tokens."""
    shares = [suffixes_sharing(draw(n=3840, seed=seed), depth) for seed in SEEDS]
    assert np.mean(shares) == pytest.approx(recorded, abs=tolerance)


@pytest.mark.parametrize(
    ("name", "value", "least"),
    [("groups", 0, 1), ("groups", 1.5, 1), ("groups", True, 1), ("examples", -1, 0), ("groups", 2**24, 1)],
)
def test_numbers_that_are_not_valid_are_refused_in_one_line(name: str, value: Any, least: int) -> None:
    with pytest.raises(InvalidInput) as caught:
        React(**{name: value})
    assert (
        str(caught.value) == f"workload.{name}={value} is not valid; it must be an integer from {least} to {2**24 - 1}"
    )


def test_prompts_too_long_for_a_column_are_refused_in_one_line() -> None:
    with pytest.raises(InvalidInput) as caught:
        React(examples=2**20, example_tokens=2**20)
    assert str(caught.value).startswith("workload.examples=1048576 of workload.example_tokens=1048576 is not valid; ")
    assert "\n" not in str(caught.value)


def test_requests_are_drawn_together() -> None:
    """A hundred times as many take hardly more calls."""
    few, many = (calls(partial(draw, n=n, rps=1000)) for n in (1_000, 100_000))
    print(f"{few:,} and {many:,} calls")
    assert many < 1.5 * few
