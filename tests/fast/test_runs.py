"""Running cells: cached, in parallel, with the same bytes however they are run."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import ClassVar

import pytest

import prebleexp
from prebleexp.experiment.cache import Cache
from prebleexp.experiment.cell import Cell
from prebleexp.experiment.key import digest
from prebleexp.experiment.results import run_all
from prebleexp.launch import configure
from tests.support.places import ROOT
from tests.support.policies.plain import Last, Nowhere
from tests.support.small_cells import bytes_of


@dataclass(frozen=True)
class CompiledLast(Last):
    compiled: ClassVar[bool] = True


def cells(*overrides: str) -> list[Cell]:
    return configure.cells(["gpus=2", "rps=4", "duration_s=3", *overrides])


def grid() -> list[Cell]:
    return [
        one
        for policy in ("lor", "random")
        for rps in (2, 4)
        for one in cells(f"policy={policy}", f"rps={rps}", "replications=3")
    ]


def test_the_number_of_workers_changes_no_byte(tmp_path: Path) -> None:
    made = []
    for workers in (1, 2):
        cache = Cache(tmp_path / str(workers))
        made.append(bytes_of(run_all(grid(), cache, workers=workers, keep_requests="all"), cache))
    assert made[0] == made[1]
    assert all(requests for _, requests in made[0])


def test_nothing_is_computed_twice(tmp_path: Path) -> None:
    cache, told = Cache(tmp_path), []
    first = run_all(grid() + grid(), cache, on_done=lambda: told.append(1))
    assert len(told) == 12
    assert first[:12] == first[12:]
    assert not any(one.cached for one in first)
    again = run_all(grid(), cache)
    assert all(one.cached for one in again)
    assert [one.metrics for one in again] == [one.metrics for one in first[:12]]
    more = run_all(cells("replications=5", "policy=lor", "rps=4"), cache)
    assert [one.cached for one in more] == [True, True, True, False, False]


def test_requests_are_kept_as_asked(tmp_path: Path) -> None:
    cache = Cache(tmp_path)
    three = cells("replications=3")
    for keep, expected in (("none", 0), ("first", 1), ("all", 3)):
        results = run_all(three, cache, keep_requests=keep)
        assert sum(cache.requests_path(one.key).exists() for one in results) == expected
    assert [one.cached for one in run_all(three, cache, keep_requests="none")] == [True] * 3


def test_runs_without_requests_are_computed_again_for_who_wants_them(tmp_path: Path) -> None:
    cache = Cache(tmp_path)
    three = cells("replications=3")
    without = run_all(three, cache, keep_requests="none")
    assert [one.cached for one in run_all(three[::-1], cache, keep_requests="first")] == [True, True, False]
    complete = run_all(three, cache, keep_requests="all")
    assert [one.cached for one in complete] == [True, False, False]
    assert [one.metrics for one in complete] == [one.metrics for one in without]


def test_a_damaged_entry_is_computed_again(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    cache = Cache(tmp_path)
    (first,) = run_all(cells(), cache)
    path = cache.requests_path(first.key).with_suffix(".json")
    whole = path.read_bytes()
    path.write_bytes(whole[:-30])
    (again,) = run_all(cells(), cache)
    assert "damaged" in capsys.readouterr().err
    assert not again.cached
    assert again.metrics == first.metrics


@pytest.mark.parametrize("workers", [1, 2])
def test_a_run_that_fails_does_not_stop_the_rest(tmp_path: Path, workers: int) -> None:
    good = cells("replications=4")
    bad = [replace(one, policy=Nowhere()) for one in good[:2]]
    results = run_all([*bad, *good], Cache(tmp_path), workers=workers)
    assert [one.error is None for one in results] == [False, False, True, True, True, True]
    error = results[0].error
    assert error is not None
    assert error.type == "PrebleexpError"
    assert "to GPU 99" in error.message
    assert "Traceback" in error.traceback


def test_plain_python_in_threads_in_processes_and_compiled_give_the_same(tmp_path: Path) -> None:
    four = cells("replications=4")
    made = []
    for policy, workers in ((Last(), 1), (Last(), 2), (CompiledLast(), 1)):
        cache = Cache(tmp_path / f"{type(policy).__name__}{workers}")
        made.append(
            [one.metrics for one in run_all([replace(one, policy=policy) for one in four], cache, workers=workers)]
        )
    assert made[0] == made[1] == made[2]


SCRIPT = """
from dataclasses import dataclass, replace
from pathlib import Path
from prebleexp.experiment.cache import Cache
from prebleexp.experiment.results import run_all
from prebleexp.launch import configure
from prebleexp.policies.base import Policy

@dataclass(frozen=True)
class Mine(Policy):
    compiled = False

    def route(self, mine, view, request, now):
        return 1

if __name__ == "__main__":
    cells = configure.cells(["gpus=2", "rps=4", "duration_s=3", "replications=4"])
    results = run_all([replace(one, policy=Mine()) for one in cells], Cache(Path("cache")), workers=2)
    print(*(result.key for result in results if result.error is None))
"""


@pytest.mark.slow
def test_a_policy_of_a_script_runs_in_processes_and_its_entries_say_what_their_keys_stand_for(tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text(SCRIPT)
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, "script.py"], cwd=tmp_path, env=environment, capture_output=True, text=True, check=True
    )
    keys = done.stdout.split()
    assert len(keys) == 4
    cache = Cache(tmp_path / "cache")
    for key in keys:
        entry = cache.get(key)
        assert entry is not None
        assert digest(entry.content) == key


def test_the_same_stream_for_every_policy_and_number_of_gpus() -> None:
    settings = {"rps": 8, "duration_s": 5, "seed": 3}
    one = prebleexp.run(gpus=2, policy="lor", **settings, cache_dir=None).requests
    other = prebleexp.run(gpus=5, policy="random", **settings, cache_dir=None).requests
    for column in ("arrival_s", "prompt_tokens", "output_tokens", "prefix_group"):
        assert (one[column] == other[column]).all()
