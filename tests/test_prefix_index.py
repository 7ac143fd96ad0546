"""The tree that prefix routers share, against sets of prefixes; and the routers of docs/policy.md that use it."""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from prebleexp.experiment import runs
from prebleexp.launch import configure
from prebleexp.policies.prefix_index import forget, insert, longest_match, matches, prefix_index
from prebleexp.sim import records as of
from prebleexp.sim.handles import Block
from prebleexp.sim.types import Setup, Workload
from prebleexp.sim.world import made_cache, made_view, records
from prebleexp.testing import check_policy
from tests.sampled import examples
from tests.test_laws import workload_of
from tests.yardstick import slowness_compiled

Path = tuple[int, ...]


def index_of(workload: Workload, gpus: int) -> tuple[Block, Block]:
    setup = Setup(gpus, 0, len(workload), 1000, 1000, workload)
    cache = made_cache(setup, 8)
    view = made_view(cache.requests, cache.prompts, records(gpus, of.REPORT), records(gpus, of.COST))
    return Block(prefix_index(setup)), Block(view)


class Model:
    """What each GPU holds, as a set of paths of segment ids."""

    def __init__(self, workload: Workload, gpus: int) -> None:
        offsets, self.held = workload.segment_offsets, [set[Path]() for _ in range(gpus)]
        self.ids = [tuple(workload.segment_ids[a:b].tolist()) for a, b in itertools.pairwise(offsets)]
        self.tokens = dict(zip(workload.segment_ids.tolist(), workload.segment_tokens.tolist(), strict=True))

    def length(self, path: Path) -> int:
        return sum(self.tokens[one] for one in path)

    def insert(self, request: int, gpu: int) -> None:
        self.held[gpu] |= {self.ids[request][: i + 1] for i in range(len(self.ids[request]))}

    def forget(self, request: int, gpu: int, tokens: int) -> None:
        path = self.ids[request]
        self.held[gpu] -= {path[: i + 1] for i in range(len(path)) if self.length(path[: i + 1]) > tokens}

    def matched(self, request: int, gpu: int) -> int:
        path = self.ids[request]
        return max((self.length(path[: i + 1]) for i in range(len(path)) if path[: i + 1] in self.held[gpu]), default=0)


@st.composite
def stories(draw: st.DrawFn) -> tuple[Workload, int, list[tuple[int, int, float | None]]]:
    n = draw(st.integers(1, 25))
    prompts = draw(st.lists(st.lists(st.integers(0, 2), min_size=1, max_size=5), min_size=n, max_size=n))
    gpus = draw(st.sampled_from([1, 3, 70]))
    steps = st.tuples(st.integers(0, n - 1), st.integers(0, gpus - 1), st.none() | st.floats(0, 1))
    return workload_of(prompts, [0.0] * n, [1] * n, 1), gpus, draw(st.lists(steps, max_size=40))


@settings(max_examples=examples(100), deadline=None)
@given(stories())
def test_it_holds_what_was_inserted_and_not_forgotten(
    story: tuple[Workload, int, list[tuple[int, int, float | None]]],
) -> None:
    """`forget` drops whole leaves, as caches do: what a GPU still holds below them was inserted by others."""
    workload, gpus, steps = story
    index, view = index_of(workload, gpus)
    model, inserted = Model(workload, gpus), set[tuple[int, int]]()
    for request, gpu, share in steps:
        if share is None or (request, gpu) not in inserted:
            if len(inserted | {(request, gpu)}) > len(workload):  # a run routes each request once
                continue
            inserted.add((request, gpu))
            insert(index, view, request, gpu)
            model.insert(request, gpu)
        else:
            tokens = int(share * workload.prompt_tokens[request])
            forget(index, view, request, gpu, tokens)
            model.forget(request, gpu, tokens)
        into = np.zeros(gpus, np.int64)
        for asked in range(len(workload)):
            expected = [model.matched(asked, g) for g in range(gpus)]
            matches(index, view, asked, into)
            assert into.tolist() == expected
            candidates = np.arange(gpus)[:: max(1, gpus // 3)]
            tokens, best = longest_match(index, view, asked, candidates)
            assert tokens == max(expected[g] for g in candidates)
            assert best == next(g for g in candidates if expected[g] == tokens)
        own = [sum(model.tokens[path[-1]] for path in held) for held in model.held]
        assert index.value.held.tolist() == own


@contextmanager
def tutorial(folder: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    import importlib
    import re

    from tests.recordings import ROOT

    text = (ROOT / "docs" / "policy.md").read_text(encoding="utf-8")
    blocks = [block for block in re.findall(r"```python\n(.*?)```", text, re.DOTALL) if "check_policy" not in block]
    (folder / "the_tutorial.py").write_text("\n\n".join(blocks))
    monkeypatch.syspath_prepend(folder)
    yield importlib.import_module("the_tutorial")


@pytest.fixture(scope="module")
def policies(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    with pytest.MonkeyPatch.context() as patch, tutorial(tmp_path_factory.mktemp("tutorial"), patch) as module:
        yield module


@pytest.mark.parametrize("name", ["PowerOfTwo", "PowerOf", "FollowPrefix"])
def test_the_policies_of_the_tutorial_are_sound(policies: Any, name: str) -> None:
    check_policy(getattr(policies, name)())


@pytest.mark.parametrize(("name", "most_lines"), [("PowerOfTwo", 10), ("FollowPrefix", 30)])
def test_they_are_short(policies: Any, name: str, most_lines: int) -> None:
    """Power of two in 10 lines, a prefix router on prefix_index in 30: of code, without the docstring."""
    import inspect

    source = inspect.getsource(getattr(policies, name)).split('"""')
    lines = [line for part in (source[0], source[2]) for line in part.splitlines() if line.strip()]
    print(f"{name}: {len(lines)} lines")
    assert len(lines) <= most_lines


@pytest.mark.parametrize(("name", "most_ns"), [("PowerOfTwo", 20), ("FollowPrefix", 1000)])
def test_a_decision_is_quick(policies: Any, name: str, most_ns: float) -> None:
    """On 8 GPUs, not checked, asked directly, many times over. Bounds are for the machine of docs/performance.md."""
    from numba import njit

    from prebleexp.sim.plug import call_int
    from prebleexp.sim.routing import Routing

    cell = configure.cells(["gpus=8", "rps=128"])[0]
    workload = runs.draw(cell)
    setup = Setup(8, 0, len(workload), 200_000, 32_768, workload)
    cache = made_cache(setup, 16)
    view = Block(made_view(cache.requests, cache.prompts, records(8, of.REPORT), records(8, of.COST)))
    routing = Routing(getattr(policies, name)(), setup, check=False)

    @njit
    def ask(route: int, own: int, view: Any, requests: int) -> int:
        total = 0
        for request in range(requests):
            total += call_int(route, own, view, request, 0.0)
        return total

    arguments = (int(routing.record.route), int(routing.record.own), view.handle, len(workload))
    ask(*arguments)
    best = float("inf")
    for _ in range(100):  # the least disturbed
        fresh = Routing(getattr(policies, name)(), setup, check=False)
        start = time.perf_counter()
        ask(int(fresh.record.route), int(fresh.record.own), view.handle, len(workload))
        best = min(best, (time.perf_counter() - start) / len(workload) * 1e9)
    slower = slowness_compiled()
    print(f"{name}: {best:.0f} ns a decision on 8 GPUs, on a machine {slower:.2f} times as slow")
    assert best < most_ns * slower
