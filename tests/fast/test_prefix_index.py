"""The tree that prefix routers share, against sets of prefixes; and the routers of docs/policy.md that use it."""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from prebleexp.policies.prefix_index import forget, forget_all, insert, longest_match, matches, prefix_index, store
from prebleexp.sim import addresses
from prebleexp.sim import records as of
from prebleexp.sim.handles import Block
from prebleexp.sim.types import Setup, Workload
from prebleexp.sim.world import made_cache, made_view, records
from prebleexp.testing import check_policy
from tests.support.reference.prefix_sets import Model
from tests.support.sampled import examples
from tests.support.strategies.paths import workload_of
from tests.support.tutorial import policies  # noqa: F401


def index_of(workload: Workload, gpus: int, counted: bool = True) -> tuple[Block, Block]:
    setup = Setup(gpus, 0, len(workload), 1000, 1000, workload, counted=counted)
    cache = made_cache(setup, 8)
    view = made_view(cache.requests, cache.prompts, records(gpus, of.REPORT), records(gpus, addresses.COST))
    return Block(prefix_index(setup)), Block(view)


@st.composite
def stories(draw: st.DrawFn) -> tuple[Workload, int, list[tuple[int, int, str, float]]]:
    """Turns whose prompts have the answers of others in them, on caches that store and drop parts of them, or all."""
    n = draw(st.integers(1, 12))
    prompts = draw(st.lists(st.lists(st.integers(0, 2), min_size=1, max_size=4), min_size=n, max_size=n))
    workload = workload_of(prompts, [0.0] * n, [draw(st.integers(1, 40)) for _ in range(n)], 1)
    if draw(st.booleans()):
        workload = with_answers(workload, draw(st.lists(st.integers(-3, 9), min_size=n, max_size=n)))
    gpus = draw(st.sampled_from([1, 3, 70]))
    what = st.sampled_from([*("store", "forget") * 5, "lose"])
    steps = st.tuples(st.integers(0, n - 1), st.integers(0, gpus - 1), what, st.floats(0, 1))
    return workload, gpus, draw(st.lists(steps, max_size=60))


def with_answers(workload: Workload, longer_by: list[int]) -> Workload:
    """The same, where what follows upon a whole prompt in another is its answer, which may have been longer, or cut
    short."""
    offsets, ids = workload.segment_offsets, workload.segment_ids
    paths = [tuple(ids[a:b].tolist()) for a, b in itertools.pairwise(offsets)]
    tokens = dict(zip(ids.tolist(), workload.segment_tokens.tolist(), strict=True))
    answers, outputs = [], []
    for path, output, more in zip(paths, workload.output_tokens.tolist(), longer_by, strict=True):
        longer = [other[len(path)] for other in paths if len(other) > len(path) and other[: len(path)] == path]
        answers.append(longer[0] if longer else -1)
        outputs.append(max(1, tokens[longer[0]] + more) if longer else output)
    return replace(workload, answer_segment=np.array(answers), output_tokens=np.array(outputs))


@pytest.mark.slow
@settings(max_examples=examples(150), deadline=None)
@given(stories(), st.booleans())
def test_it_holds_what_was_stored_and_not_forgotten(
    story: tuple[Workload, int, list[tuple[int, int, str, float]]], counted: bool
) -> None:
    workload, gpus, steps = story
    index, view = index_of(workload, gpus, counted)
    model = Model(workload, gpus)
    for request, gpu, what, share in steps:
        tokens = int(share * len(model.context(request)) + 0.5)
        if what == "lose":
            forget_all(index, gpu)
            model.forget_all(gpu)
        elif what == "store":
            store(index, view, request, gpu, tokens)
            model.store(request, gpu, tokens)
        elif model.is_leaf(request, gpu, tokens):
            forget(index, view, request, gpu, tokens)
            model.forget(request, gpu, tokens)
        into = np.zeros(gpus, np.int64)
        for asked in range(len(workload)):
            expected = [model.matched(asked, g) for g in range(gpus)]
            matches(index, view, asked, into)
            assert into.tolist() == expected
            longest, first = longest_match(index, view, asked, view.candidates)
            assert longest == max(expected)
            assert longest == 0 or expected.index(longest) == first
        assert index.value.held.tolist() == [len(held) for held in model.held]


def test_an_answer_may_be_longer_than_the_next_turn_has_it() -> None:
    """The turn begins behind a part of it, and is still found there when all of the answer was stored once more."""
    workload = workload_of([[0], [0, 1, 2], [3]], [0.0] * 3, [1] * 3, 1)
    answer = int(workload.segment_tokens[2])
    workload = replace(workload, answer_segment=workload.segment_ids[[2, -1, -1]] * [1, 0, 0] - [0, 1, 1])
    index, view = index_of(replace(workload, output_tokens=np.array([answer + 9, 1, 1])), 2)
    prompts = workload.prompt_tokens.tolist()
    known = prompts[0] + answer
    store(index, view, 0, 0, known + 9)
    insert(index, view, 1, 0)
    store(index, view, 0, 0, known + 9)
    insert(index, view, 2, 0)
    store(index, view, 1, 1, known)
    into = np.zeros(2, np.int64)
    for asked, expected in ((0, [prompts[0]] * 2), (1, [prompts[1], known]), (2, [prompts[2], 0])):
        matches(index, view, asked, into)
        assert into.tolist() == expected
    assert index.value.held.tolist() == [prompts[1] + 9 + prompts[2], known]


@pytest.mark.parametrize("counted", [False, True])
def test_rows_that_nobody_holds_come_back(counted: bool) -> None:
    """Unless looking at them is counted: of many prompts, of which each GPU holds one at a time, rows for those remain,
    and a new prompt meets no other."""
    n = 100
    workload = workload_of([[0, 1 + i % 7, i] for i in range(n)], [0.0] * n, [1] * n, 9)
    index, view = index_of(workload, 2, counted)
    for request in range(n):
        if request >= 2:
            forget(index, view, request - 2, request % 2, 0)
        insert(index, view, request, request % 2)
    most = 3 * 3 + 2  # nodes of three prompts, the root, and one of which another is made
    assert index.value.room[0] > n if counted else index.value.room[0] <= most
    for request in (n - 2, n - 1):
        forget(index, view, request, request % 2, 0)
    assert not index.value.held.any()
    assert not index.value.holders[1 : index.value.room[0]].any()
    assert counted or not (index.value.begins.any() or index.value.nodes.branches[0])


def test_a_row_that_came_back_may_be_of_an_upper_part() -> None:
    """The first row was of a prompt that is forgotten; then it is of what another GPU holds of the second prompt."""
    workload = workload_of([[0], [1]], [0.0] * 2, [1] * 2, 9)
    index, view = index_of(workload, 2, counted=False)
    for request in (0, 1):
        insert(index, view, request, 0)
    forget(index, view, 0, 0, 0)
    whole = int(workload.prompt_tokens[1])
    store(index, view, 1, 1, whole - 1)
    assert index.value.nodes[1].tokens == whole - 1
    into = np.zeros(2, np.int64)
    matches(index, view, 1, into)
    assert into.tolist() == [whole, whole - 1]


def test_rows_come_back() -> None:
    """A long segment that is dropped token by token, and stored again, takes two rows."""
    workload = workload_of([[0, 1]], [0.0], [1], 500)
    index, view = index_of(workload, 2)
    whole = int(workload.prompt_tokens[0])
    insert(index, view, 0, 1)
    for _ in range(3):
        insert(index, view, 0, 0)
        for tokens in range(whole - 1, 0, -1):
            forget(index, view, 0, 0, tokens)
            assert index.value.room[0] <= 6
    into = np.zeros(2, np.int64)
    matches(index, view, 0, into)
    assert into.tolist() == [1, whole]


def test_rows_come_back_when_gpus_are_lost() -> None:
    """A long segment of which GPUs hold more and more, and then none anything."""
    workload = workload_of([[0, 1]], [0.0], [1], 500)
    index, view = index_of(workload, 3)
    for tokens in range(1, int(workload.prompt_tokens[0])):
        for gpu in range(3):
            store(index, view, 0, gpu, tokens * (gpu + 1) // 3)
        for gpu in range(3):
            forget_all(index, gpu)
        assert index.value.room[0] <= 6
    assert not index.value.holders.any()


@pytest.mark.slow
@pytest.mark.parametrize("name", ["PowerOfTwo", "PowerOf", "FollowPrefix"])
def test_the_policies_of_the_tutorial_are_sound(policies: Any, name: str) -> None:  # noqa: F811
    check_policy(getattr(policies, name)())


@pytest.mark.parametrize(("name", "most_lines"), [("PowerOfTwo", 10), ("FollowPrefix", 30)])
def test_they_are_short(policies: Any, name: str, most_lines: int) -> None:  # noqa: F811
    """Power of two in 10 lines, a prefix router on prefix_index in 30: of code, without the docstring."""
    import inspect

    source = inspect.getsource(getattr(policies, name)).split('"""')
    lines = [line for part in (source[0], source[2]) for line in part.splitlines() if line.strip()]
    print(f"{name}: {len(lines)} lines")
    assert len(lines) <= most_lines
