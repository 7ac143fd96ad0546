"""What recordings of llm-d and BLIS do not cover: pickers, tokens in flight, settings; by hand."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from prebleexp.errors import InvalidInput
from prebleexp.launch import configure
from prebleexp.policies.blis.weighted import BlisWeighted
from prebleexp.policies.llmd.picker import LlmD
from tests.support.interpreted import SCARCE, digest, interpreted
from tests.support.recordings.routers import ALL_OF_IT, Driven, workload_of

pytestmark = pytest.mark.uncompiled

DRAWS = 4000
CHI_SQUARE = {2: 10.83, 3: 13.82, 4: 16.27}
"""which one in a thousand exceeds, by degrees of freedom + 1"""


def one_prompt(policy: Any, gpus: int = 4) -> Driven:
    return Driven(policy, workload_of([[(0, 100)]]), gpus)


def assert_drawn(driven: Driven, chances: list[float]) -> None:
    """Each GPU as often as it should be."""
    seen = np.bincount(driven.answers(0, 0.0, DRAWS), minlength=len(chances))
    likely = [gpu for gpu, chance in enumerate(chances) if chance > 0]
    expected = DRAWS * np.array(chances)[likely]
    assert seen[likely].sum() == DRAWS
    assert ((seen[likely] - expected) ** 2 / expected).sum() < CHI_SQUARE[len(likely)]


def waiting(driven: Driven, requests: list[int]) -> Driven:
    driven.gpus.queued = requests
    return driven


# ---------------------------------------------------------------- pickers
@pytest.mark.slow
def test_equals_are_drawn_alike() -> None:
    queue = {"queue-scorer": 1.0}
    assert_drawn(one_prompt(LlmD(queue)), [0.25] * 4)
    assert_drawn(waiting(one_prompt(LlmD(queue)), [3, 0, 0, 0]), [0, 1 / 3, 1 / 3, 1 / 3])
    assert_drawn(waiting(one_prompt(LlmD(queue)), [0, 5, 2, 0]), [0.5, 0, 0, 0.5])
    assert set(waiting(one_prompt(LlmD(queue)), [3, 4, 1, 2]).answers(0, 0.0, 50)) == {2}


@pytest.mark.slow
def test_a_weighted_draw_is_by_the_score() -> None:
    policy = LlmD({"queue-scorer": 5.0}, picker="weighted-random")
    assert_drawn(waiting(one_prompt(policy), [4, 0, 2, 3]), [0, 4 / 7, 2 / 7, 1 / 7])
    busy = one_prompt(LlmD({"active-request-scorer": 1.0}, picker="weighted-random"))
    busy.sent.outstanding = 7
    assert_drawn(busy, [0.25] * 4)  # all score 0


@pytest.mark.slow
def test_a_random_draw_is_not() -> None:
    policy = LlmD({"queue-scorer": 1.0}, picker="random")
    assert_drawn(waiting(one_prompt(policy), [4, 0, 2, 3]), [0.25] * 4)


@pytest.mark.slow
def test_blis_takes_the_first_of_equals() -> None:
    assert set(one_prompt(BlisWeighted()).answers(0, 0.0, 20)) == {0}
    assert set(waiting(one_prompt(BlisWeighted()), [1, 1, 0, 0]).answers(0, 0.0, 20)) == {2}


# ---------------------------------------------------------------- scores
def totals(driven: Driven, request: int) -> Any:
    driven.decide(request, 0.0)
    return driven.mine.scores.total.tolist()


MOST = 4_194_304


def test_tokens_in_flight_are_whole_blocks_with_those_of_the_request_until_the_first_token() -> None:
    """100 tokens are two blocks of 64. The same prompt is found where it was sent, and counts nothing there."""
    driven = Driven(LlmD({"token-load-scorer": 1.0}), workload_of([[(0, 100)], [(0, 100)], [(1, 64)]]), 1)
    assert totals(driven, 0) == [1 - 128 / MOST]
    driven.sends(0, 0)
    assert totals(driven, 1) == [1 - 128 / MOST]
    driven.sends(1, 0)
    assert driven.mine.scores.tokens.tolist() == [128]
    driven.first_token(1, 0.0)
    assert driven.mine.scores.tokens.tolist() == [128]
    driven.first_token(0, 0.0)
    assert totals(driven, 2) == [1 - 64 / MOST]
    driven.mine.scores.tokens[:] = 2 * MOST
    assert totals(driven, 2) == [0.0]


def test_tokens_beyond_the_blocks_that_count_are_in_flight_too() -> None:
    driven = Driven(LlmD({"token-load-scorer": 1.0}, max_prefix_blocks=2), workload_of([[(0, 200)], [(0, 200)]]), 1)
    assert totals(driven, 0) == [1 - 200 / MOST]
    driven.sends(0, 0)
    driven.first_token(0, 0.0)
    assert totals(driven, 1) == [1 - 72 / MOST]


def test_a_match_may_count_by_its_length() -> None:
    """Half of 8,192 tokens, all of the prompt: a quarter, of which three parts of four are taken."""
    prompt = [(0, 4096)]
    driven = Driven(LlmD({"prefix-cache-scorer": 1.0}, match_length_weight=0.75), workload_of([prompt] * 2), 1)
    assert totals(driven, 0) == [0.0]
    assert totals(driven, 1) == [0.75 * 0.25 + 0.25]
    long = Driven(LlmD({"prefix-cache-scorer": 1.0}, match_length_weight=1.0), workload_of([[(0, 10_000)]] * 2), 1)
    assert totals(long, 0) == [0.0]
    assert totals(long, 1) == [1.0]


def test_memory_that_only_the_cache_holds_is_free() -> None:
    driven = one_prompt(LlmD({"kv-cache-utilization-scorer": 1.0}), 2)
    driven.gpus.kv_free, driven.gpus.evictable = [0, ALL_OF_IT // 4], [ALL_OF_IT // 2, ALL_OF_IT // 2]
    assert totals(driven, 0) == [0.5, 0.75]


def test_smaller_blocks_are_raised() -> None:
    """100 tokens, of which 50 are shared: no block of 64 is, two of 25 would be."""
    prompts = workload_of([[(0, 50), (1, 50)], [(0, 50), (2, 50)]])
    driven = Driven(LlmD({"prefix-cache-scorer": 1.0}, block_size=25), prompts, 1)
    assert totals(driven, 0) == totals(driven, 1) == [0.0]


def test_blis_knows_what_gpus_have_from_them_alone() -> None:
    """What was sent somewhere is not believed to be there; 40 tokens are two blocks of 16."""
    driven = Driven(BlisWeighted({"precise-prefix-cache": 3.0}), workload_of([[(0, 100)]] * 3), 3)
    assert totals(driven, 0) == [1.0, 1.0, 1.0]
    driven.stored(0, 1, 100, 0.0)
    driven.stored(0, 2, 40, 0.0)
    assert totals(driven, 1) == [0.0, 1.0, 2 / 6]
    driven.evicted(0, 1, 17, 0.0)
    assert totals(driven, 2) == [0.0, 0.5, 1.0]


# ---------------------------------------------------------------- settings
def test_a_scorer_that_weighs_nothing_is_left_out_and_pairs_are_as_good() -> None:
    one = LlmD({"queue-scorer": 1, "prefix-cache-scorer": 0})
    assert one == LlmD((("queue-scorer", 1.0),)) == dataclasses.replace(one)
    assert hash(one) == hash(dataclasses.replace(one))


@pytest.mark.parametrize(("option", "made"), [("llmd", LlmD), ("blis_weighted", BlisWeighted)])
def test_the_option_is_the_class_with_its_defaults_and_names_all_scorers(option: str, made: Callable[[], Any]) -> None:
    (cell,) = configure.cells([f"policy={option}"])
    assert cell.policy == made()
    for name in ("kv-cache-utilization-scorer", "no-hit-lru-scorer") if option == "llmd" else ("vllm-dp", "no-hit-lru"):
        (cell,) = configure.cells([f"policy={option}", f"policy.scorers.{name}=9"])
        policy: Any = cell.policy
        assert dict(policy.scorers)[name] == 9


WRONG: list[tuple[dict[str, Any], str]] = [
    ({"scorers": {"queue": 1}}, r"policy\.scorers: there is no 'queue'; valid: prefix-cache-scorer, queue-scorer, kv-"),
    ({"scorers": {"queue-scorer": -1}}, r"policy\.scorers\.queue-scorer=-1 is not valid; it must be a number >= 0"),
    ({"scorers": {"queue-scorer": "2"}}, r"policy\.scorers\.queue-scorer=2 is not valid; it must be a number >= 0"),
    ({"scorers": {"queue-scorer": 0}}, r"policy\.scorers={'queue-scorer': 0} is not valid; it must be .* above 0"),
    ({"picker": "min"}, r"policy\.picker=min is not valid; it must be one of max-score, weighted-random, random"),
    ({"block_size": 0}, r"policy\.block_size=0 is not valid; it must be an integer >= 1"),
    ({"max_prefix_blocks": 1.5}, r"policy\.max_prefix_blocks=1\.5 is not valid; it must be an integer >= 1"),
    ({"lru_capacity": 0}, r"policy\.lru_capacity=0 is not valid; it must be an integer >= 1"),
    ({"match_length_weight": 2}, r"policy\.match_length_weight=2 is not valid; it must be a number from 0 to 1"),
]


@pytest.mark.parametrize(("given", "said"), WRONG)
def test_what_is_not_valid_is_said(given: dict[str, Any], said: str) -> None:
    with pytest.raises(InvalidInput, match=said):
        LlmD(**given)


def test_what_is_not_valid_for_blis_is_said() -> None:
    with pytest.raises(
        InvalidInput, match=r"there is no 'queue-scorer'; valid: prefix-affinity, precise-prefix-cache, "
    ):
        BlisWeighted({"queue-scorer": 1})
    with pytest.raises(InvalidInput, match=r"policy\.block_size=-1 is not valid; it must be an integer >= 1"):
        BlisWeighted(block_size=-1)


# ---------------------------------------------------------------- as plain Python
INTERPRETED = [
    ("llmd", "lru_capacity=20", "scorers.no-hit-lru-scorer=1", "scorers.token-load-scorer=1"),
    ("llmd", "picker=weighted-random"),
    ("blis_weighted", "scorers.prefix-affinity=2", "scorers.no-hit-lru=1"),
    ("blis_least_loaded",),
]


@pytest.mark.slow
def test_they_do_the_same_interpreted() -> None:
    how = f"engine=preble overhead=serial reports_ms=20 {SCARCE}"
    runs = [
        " ".join((f"policy={option}", *(f"policy.{field}" for field in fields), how)) for option, *fields in INTERPRETED
    ]
    assert interpreted(*runs) == [digest(*run.split()) for run in runs]
