"""The plain model of SGLang's scheduler, and `engine=sglang`, equal what SGLang's own code decided, step for step, and
on random streams each other.

All of the folder named in PREBLEEXP_SGLANG_FIDELITY (default: ../shared/fidelity/sglang beside the checkout) if there
is one, else the few recordings that are committed.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from prebleexp.sim.types import Outcome
from tests.support.outcomes import assert_same
from tests.support.recordings.columns import Columns, load
from tests.support.recordings.engines import of_requests
from tests.support.recordings.sglang import RECORDINGS, engine_of, run
from tests.support.recordings.sglang import replay as replay_engine
from tests.support.reference import sglang as reference_sglang
from tests.support.reference.sglang import LISTS, Batch, Cache, Node, Scheduler, replay
from tests.support.sampled import seeds
from tests.support.strategies.engine_streams import random_setting

RESULTS = {"first_token_ns", "finish_ns", "first_cached_tokens"}
SEEDS = 30
"""of a test"""


def assert_equal(ours: Columns, theirs: Columns) -> None:
    assert set(ours) == RESULTS | set(LISTS) | {name for name in theirs if name.startswith("step_")}
    for name, values in ours.items():
        np.testing.assert_array_equal(values, theirs[name], err_msg=name)


@pytest.mark.parametrize("path", RECORDINGS, ids=lambda path: path.stem)
def test_the_reference_equals_every_column(path: Path) -> None:
    config, recorded = load(path)
    assert_equal(replay(config, recorded), recorded)


@pytest.mark.parametrize("path", RECORDINGS, ids=lambda path: path.stem)
def test_the_engine_equals_every_column(path: Path) -> None:
    config, recorded = load(path)
    assert_equal(replay_engine(config, recorded), recorded)
    assert_requests_equal(run(config, recorded, engine_of(config)), recorded, recorded)


def assert_requests_equal(made: Outcome, columns: Columns, theirs: Columns) -> None:
    for name, values in of_requests(columns, made).items():
        np.testing.assert_array_equal(values, theirs[name], err_msg=name)


@pytest.mark.slow
@pytest.mark.parametrize("first", seeds(range(5 * SEEDS), range(10 * SEEDS), SEEDS))
def test_the_engine_equals_the_reference_on_random_streams(first: int) -> None:
    """Retractions, chunks, both loops, both policies, ends by length and before."""
    for seed in range(first, first + SEEDS):
        config, columns = random_setting(seed)
        theirs = replay(config, columns)
        assert_equal(replay_engine(config, columns), theirs)


@pytest.mark.slow
@pytest.mark.parametrize("first", range(10_000, 10_000 + 10 * SEEDS, SEEDS))
def test_gpus_side_by_side_each_do_what_one_alone_does(first: int) -> None:
    """Nobody watches. All share one store of nodes."""
    for seed in range(first, first + SEEDS):
        config, columns = random_setting(seed)
        gpus = min(1 + seed % 3, len(columns["arrival_ns"]))
        made = run(config, columns, engine_of(config), gpus=gpus)
        for g in range(gpus):
            rows = np.arange(g, len(columns["arrival_ns"]), gpus)
            theirs = replay(config, of_some(columns, rows))
            for name, values in of_requests(columns, made).items():
                np.testing.assert_array_equal(values[rows], theirs[name], err_msg=f"{name} of GPU {g}, seed {seed}")


def of_some(columns: Columns, rows: np.ndarray) -> Columns:
    """The stream of these requests alone."""
    offsets = columns["segment_offsets"]
    segments = np.concatenate([np.arange(offsets[row], offsets[row + 1]) for row in rows]).astype(np.int64)
    some: dict[str, Any] = {name: columns[name][rows] for name in columns if len(columns[name]) == len(offsets) - 1}
    some |= {name: columns[name][segments] for name in ("segment_ids", "segment_tokens")}
    return some | {"segment_offsets": np.concatenate([[0], np.cumsum(np.diff(offsets)[rows])])}


def test_who_watches_changes_nothing() -> None:
    config, columns = random_setting(5)
    seen: list[Any] = []
    one = run(config, columns, engine_of(config))
    other = run(config, columns, engine_of(config), seen.append)
    assert len(seen) > 100
    assert_same(one, other)


class Audited(Scheduler):
    """Counts every token and every lock behind each scheduling."""

    def schedule(self) -> Batch | None:
        before = [r for r in self.last.requests if not r.done] if self.last else []
        batch = super().schedule()
        live = {*self.running, *(batch.requests if batch else []), *(r for r in before if not r.retracted)}
        locks: Counter[Node] = Counter()
        for request in live:
            assert 0 <= request.protected <= request.computed <= request.known + self.config["overlap"]
            node = request.lock
            while node.parent is not None:
                locks[node] += 1
                node = node.parent
        nodes = _nodes(self.cache)
        assert {node: node.locks for node in nodes if node.locks} == locks
        assert self.cache.leaves == {node for node in nodes if not node.children}
        assert self.cache.evictable == sum(len(node.tokens) for node in nodes if not node.locks)
        tree = sum(len(node.tokens) for node in nodes)
        own = sum(request.computed - request.protected for request in live)
        assert self.cache.free >= 0
        assert self.cache.free + tree + own == self.config["max_total_tokens"]
        assert len(self.running) <= self.config["max_running_requests"]
        return batch


def _nodes(cache: Cache) -> list[Node]:
    found, rest = [], list(cache.root.children.values())
    while rest:
        found.append(node := rest.pop())
        rest += node.children.values()
    return found


@pytest.mark.slow
@pytest.mark.parametrize("first", range(0, 100, 25))
def test_no_token_is_lost_and_every_request_ends(first: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reference_sglang, "Scheduler", Audited)
    retractions = chunks = found = 0
    for seed in range(first, first + 25):
        config, workload = random_setting(seed)
        ours = replay(config, workload)
        assert (workload["arrival_ns"] < ours["first_token_ns"]).all()
        assert (ours["first_token_ns"] <= ours["finish_ns"]).all()
        ends = ours["step_start_ns"] + ours["step_ns"]
        assert (ends[:-1] <= ours["step_start_ns"][1:]).all()
        assert not np.isin(workload["arrival_ns"], ends).any()
        retractions += len(ours["retracted_request"])
        chunks += int((ours["scheduled_tokens"] == config["chunked_prefill_size"]).sum())
        found += int((ours["first_cached_tokens"] > 0).sum())
    assert min(retractions, chunks, found) > 0
