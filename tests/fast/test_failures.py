"""A run that fails is known, and why; the others go on."""

from __future__ import annotations

import errno
import importlib
import os
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest

from prebleexp.errors import InvalidInput, PrebleexpError
from prebleexp.experiment import durable
from prebleexp.experiment.backends import Loky
from prebleexp.experiment.cache import Cache
from prebleexp.experiment.results import look_up, run_all
from prebleexp.launch import configure
from prebleexp.policies.base import Policy
from prebleexp.sim.types import Setup
from tests.support.policies.plain import Deadly, First, Slow
from tests.support.small_cells import cells, kinds


@dataclass(frozen=True)
class CompiledFirst(First):
    compiled: ClassVar[bool] = True


@dataclass(frozen=True)
class Broken(First):
    """Fails as long as a file is there."""

    switch: str = ""

    def start(self, setup: Setup) -> Any:
        if Path(self.switch).exists():
            raise RuntimeError("the switch\nis on")


@dataclass(frozen=True)
class Endless(First):
    def start(self, setup: Setup) -> Any:
        while True:
            pass


@dataclass(frozen=True)
class Greedy(First):
    def start(self, setup: Setup) -> Any:
        np.empty(1 << 60, np.int8)


@dataclass(frozen=True)
class Growing(First):
    """Never gives memory back."""

    seen: str = ""
    """folder for the numbers of the processes"""
    kept: ClassVar[list[Any]] = []

    def start(self, setup: Setup) -> Any:
        (Path(self.seen) / str(os.getpid())).touch()
        self.kept.append(np.ones(400 << 20, np.int8))
        time.sleep(1.1)  # a worker's memory is looked at no more often than that


def test_a_failure_is_kept_beside_where_the_result_would_be(tmp_path: Path) -> None:
    cache = Cache(tmp_path / "cache")
    (tmp_path / "on").touch()
    policy = Broken(str(tmp_path / "on"))
    (failed,) = run_all(cells(1, policy), cache)
    kept = cache.failure(failed.key)
    assert kept is not None
    assert kept.error["type"] == "PrebleexpError"
    assert kept.error["message"].startswith(f"policy Broken, {__file__}, line ")
    assert kept.error["message"].endswith(": RuntimeError: the switch\nis on")
    assert "in start" in kept.error["traceback"]
    assert kept.content["cell"]["policy"]["switch"] == policy.switch
    assert cache.failure_path(failed.key).parent == cache.path(failed.key).parent
    assert cache.get(failed.key) is None


def test_what_failed_is_tried_again_or_taken_as_failed_as_one_likes(tmp_path: Path) -> None:
    cache = Cache(tmp_path / "cache")
    switch = tmp_path / "on"
    switch.touch()
    all_cells = [*cells(1, Broken(str(switch))), *cells(2)]
    run_all(all_cells, cache)
    switch.unlink()
    again = run_all(all_cells, cache, retry="none")
    assert kinds(again) == ["PrebleexpError", None, None]
    assert all(one.cached for one in again)
    plan = look_up(all_cells, cache)
    assert len(plan.missing) == 1
    (before,) = plan.failed_before.values()
    assert before.message.endswith(": RuntimeError: the switch\nis on")
    assert kinds(run_all(all_cells, cache, retry="failed")) == [None, None, None]
    assert cache.failure(again[0].key) is None, "it has succeeded"


def test_all_may_be_computed_again(tmp_path: Path) -> None:
    cache = Cache(tmp_path)
    first = run_all(cells(3), cache)
    written = [cache.path(one.key).stat().st_mtime_ns for one in first]
    again = run_all(cells(3), cache, retry="all")
    assert [one.metrics for one in again] == [one.metrics for one in first]
    assert not any(one.cached for one in again)
    assert all(cache.path(one.key).stat().st_mtime_ns > at for one, at in zip(again, written, strict=True))


@pytest.mark.slow
@pytest.mark.parametrize("how", ["kill", "exit"])
def test_a_worker_that_dies_takes_one_run_with_it(tmp_path: Path, how: str) -> None:
    good = cells(6, First())
    bad = [replace(one, policy=Deadly(os.getpid(), how)) for one in good[:2]]
    cache = Cache(tmp_path)
    results = run_all([*good[:3], *bad, *good[3:]], cache, workers=2)
    assert kinds(results) == [None] * 3 + ["WorkerDied"] * 2 + [None] * 3
    error = results[3].error
    assert error is not None
    if how == "kill":
        assert "SIGKILL" in error.message
        assert "when memory runs out: 2 at a time" in error.message
    kept = cache.failure(results[3].key)
    assert kept is not None
    assert kept.error["type"] == "WorkerDied"
    assert all(one.cached for one in run_all(good, cache)), "finished runs were kept"


@pytest.mark.slow
def test_a_worker_that_stops_by_itself_is_replaced(tmp_path: Path) -> None:
    """Joblib stops one that has grown or was idle, and warns of it in the thread that is to replace it; warnings are
    errors here."""
    (tmp_path / "seen").mkdir()
    results = run_all(cells(8, Growing(str(tmp_path / "seen"))), Cache(tmp_path / "cache"), workers=2)
    assert kinds(results) == [None] * 8
    assert len(list((tmp_path / "seen").iterdir())) > 2


@pytest.mark.slow
def test_compiled_policies_may_run_in_processes_too(tmp_path: Path) -> None:
    good = cells(4, CompiledFirst())
    here = run_all(good, Cache(tmp_path / "here"))
    there = run_all([*good, *cells(1, Deadly(os.getpid()))], Cache(tmp_path / "there"), backend=Loky(), workers=1)
    assert [one.metrics for one in there[:4]] == [one.metrics for one in here]
    assert kinds(there) == [None] * 4 + ["WorkerDied"]


@pytest.mark.parametrize("workers", [1, 2])
def test_a_policy_that_exits_has_failed(tmp_path: Path, workers: int) -> None:
    results = run_all([*cells(2, Deadly(how="sys.exit")), *cells(1)], Cache(tmp_path), workers=workers)
    assert kinds(results) == ["SystemExit", "SystemExit", None]


@pytest.mark.slow
@pytest.mark.parametrize("policy", [Endless(), Slow(0.5)])
@pytest.mark.parametrize("workers", [1, 2])
def test_a_run_may_take_only_so_long(tmp_path: Path, policy: Policy, workers: int) -> None:
    """A hundred times as long as the others take."""
    results = run_all([*cells(2, policy), *cells(2)], Cache(tmp_path), workers=workers, time_limit_s=1)
    assert kinds(results) == ["TimeLimit", "TimeLimit", None, None]
    assert results[0].error is not None
    assert results[0].error.message == "it took longer than time_limit_s=1"


def test_a_compiled_run_may_take_only_so_long(tmp_path: Path) -> None:
    """Its requests are drawn in a tenth of a second, and served in twenty: the limit finds it in compiled code."""
    slow = ["hardware=a6000_mistral_7b", "engine=sglang_2024"]
    long = configure.cells(["gpus=1", "rps=1000", "duration_s=100", "replications=2", "policy=lor", *slow])
    results = run_all([*long, *cells(2)], Cache(tmp_path), workers=2, time_limit_s=1)
    assert kinds(results) == ["TimeLimit", "TimeLimit", None, None]


def test_who_runs_out_of_memory_is_told_what_helps(tmp_path: Path) -> None:
    (result,) = run_all(cells(1, Greedy()), Cache(tmp_path), workers=1)
    assert result.error is not None
    assert "GiB; fewer workers= need less memory" in result.error.message


def no_space(path: Path, data: bytes) -> None:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def after(count: int) -> Callable[[Path, bytes], None]:
    """A disk that takes so many files and is full then."""
    written = []
    write = durable.write

    def fill(path: Path, data: bytes) -> None:
        if len(written) == count:
            no_space(path, data)
        written.append(path)
        write(path, data)

    return fill


@pytest.mark.slow
@pytest.mark.parametrize("workers", [1, 2])
def test_a_full_disk_ends_the_sweep_and_leaves_whole_entries(
    tmp_path: Path, workers: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache = Cache(tmp_path)
    with monkeypatch.context() as patch:
        patch.setattr(durable, "write", after(5))
        with pytest.raises(PrebleexpError, match=r"cache folder .* cannot be written: No space left on device"):
            run_all(cells(20), cache, workers=workers)
        finished = set(cache.keys())
        assert 0 < len(finished) <= 5
    results = run_all(cells(20), cache)
    assert finished <= {one.key for one in results if one.cached}, "a thread may have finished its run meanwhile"
    assert [one.metrics for one in results] == [one.metrics for one in run_all(cells(20), Cache(tmp_path / "other"))]


def test_a_cache_that_cannot_be_written_gives_what_it_has(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run_all(cells(3), Cache(tmp_path))
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    cache = Cache(tmp_path)
    assert all(one.cached for one in run_all(cells(3), cache))
    with pytest.raises(InvalidInput, match=r"2 of 5 runs are not in the cache folder .*cannot be written: Permission"):
        run_all(cells(5), cache)


EDITED = """
from dataclasses import dataclass
from typing import ClassVar
from prebleexp.policies.base import Policy

@dataclass(frozen=True)
class Edited(Policy):
    compiled: ClassVar[bool] = False

    def route(self, mine, view, request, now):
        return 0
"""


@pytest.mark.slow
def test_a_process_that_loads_a_file_edited_meanwhile_keeps_nothing_of_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It would keep what the new code does under the key of the old."""
    file = tmp_path / "edited_meanwhile.py"
    file.write_text(EDITED)
    monkeypatch.syspath_prepend(tmp_path)
    policy = importlib.import_module("edited_meanwhile").Edited()
    file.write_text(EDITED.replace("return 0", "return 1"))
    cache = Cache(tmp_path / "cache")
    results = run_all(cells(2, policy), cache, backend=Loky(), workers=1)
    assert kinds(results) == ["OtherCode"] * 2
    assert all(cache.get(one.key) is None for one in results)
