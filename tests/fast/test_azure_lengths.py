"""Requests as long as those of Azure's traces of 2023."""

from __future__ import annotations

import numpy as np
import pytest

from prebleexp.errors import InvalidInput
from prebleexp.experiment.key import key
from prebleexp.experiment.runs import draw
from prebleexp.launch import configure
from prebleexp.sim.types import Workload
from prebleexp.workloads.azure_lengths import AzureLengths
from prebleexp.workloads.output_length import OutputLength

ASKED = OutputLength((7,), (1.0,))


def drawn(rps: float = 50, seed: int = 0, **fields: object) -> Workload:
    return AzureLengths(**fields).draw(rps=rps, duration_s=20_000 / rps, seed=seed, output_length=ASKED)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("fields", "prompts", "outputs", "most"),
    [
        ({}, 1126.6, 214.6, 1000),
        ({"longest": 2048}, 766.3, 234.2, 1000),
        ({"trace": "code"}, 2001.9, 32.2, 841),
    ],
)
def test_lengths_are_those_of_the_trace(fields: dict[str, object], prompts: float, outputs: float, most: int) -> None:
    """On average as long as the rows that ship, within 4 standard errors of 20,000 draws."""
    made = drawn(**fields)
    for column, mean in ((made.prompt_tokens, prompts), (made.output_tokens, outputs)):
        assert abs(column.mean() - mean) < 4 * column.std() / np.sqrt(len(column))
    assert (made.max_new_tokens == most).all()
    assert (made.output_tokens <= most).all()
    if "longest" in fields:
        assert (made.prompt_tokens + made.output_tokens).max() <= 2048


def test_prompts_share_nothing_and_the_first_comes_at_once() -> None:
    made = drawn()
    assert len(np.unique(made.segment_ids)) == len(made) == 20_000
    assert (made.segment_tokens == made.prompt_tokens).all()
    assert made.arrival_s[0] == 0
    gaps = np.diff(made.arrival_s)
    assert gaps.mean() == pytest.approx(1 / 50, rel=0.03)
    assert gaps.std() == pytest.approx(1 / 50, rel=0.03)


def test_another_rate_is_the_same_stream_and_another_seed_another() -> None:
    slow, fast, other = drawn(), drawn(rps=100), drawn(seed=1)
    np.testing.assert_array_equal(slow.prompt_tokens, fast.prompt_tokens)
    np.testing.assert_array_equal(slow.arrival_s, 2 * fast.arrival_s)
    assert (slow.prompt_tokens != other.prompt_tokens).any()
    assert drawn().arrival_s.tobytes() == slow.arrival_s.tobytes()


def test_it_is_an_option_and_its_file_is_in_the_key() -> None:
    made, code = (configure.cells(["workload=azure_lengths", *more])[0] for more in ([], ["workload.trace=code"]))
    assert key(made) != key(code)
    assert "sha256" in made.identity()["workload"]  # type: ignore[operator]
    assert made.left_out.count("output_length") == 1


@pytest.mark.parametrize(
    ("override", "said"),
    [
        ("workload.trace=chats", "workload.trace=chats is not valid; it must be one of conversations, code"),
        ("workload.longest=9", "workload.longest=9 is not valid; it must be null or an integer >= "),
        ("rps=1e9", "that must be at most 100,000,000 requests"),
    ],
)
def test_what_is_not_valid_is_said_in_a_line(override: str, said: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        draw(configure.cells(["workload=azure_lengths", override])[0])
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)
