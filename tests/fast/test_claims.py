"""Sweeps that share a cache folder do not compute the same run, and wait for no dead process."""

from __future__ import annotations

import fcntl
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from prebleexp.experiment import results
from prebleexp.experiment.cache import Cache
from prebleexp.experiment.claims import Claims
from prebleexp.experiment.results import run_all
from prebleexp.experiment.work import Task
from tests.support.places import ROOT
from tests.support.policies.plain import Slow
from tests.support.small_cells import cells

KEY, OTHER = "ab" * 32, "cd" * 32
HOLD = "import sys, time; from pathlib import Path; from prebleexp.experiment.claims import Claims\n"
HOLD += "claims = Claims(Path(sys.argv[1])); print(claims.take(sys.argv[2]), flush=True); time.sleep(60)"


def holder(folder: Path, key: str) -> subprocess.Popen[str]:
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    process = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(folder), key], env=environment, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "True\n"
    return process


def end(process: subprocess.Popen[str]) -> None:
    process.kill()
    process.communicate()


def test_one_of_two_has_it(tmp_path: Path) -> None:
    with Claims(tmp_path) as first, Claims(tmp_path) as second:
        assert first.take(KEY)
        assert first.take(KEY), "what one has one may take"
        assert not second.take(KEY)
        assert second.take(OTHER)
        first.release(KEY)
        assert second.take(KEY)
        assert not first.take(KEY)


def test_leaving_gives_up_all(tmp_path: Path) -> None:
    with Claims(tmp_path) as first:
        assert first.take(KEY)
    with Claims(tmp_path) as second:
        assert second.take(KEY)


def test_a_dead_process_has_nothing(tmp_path: Path) -> None:
    process = holder(tmp_path, KEY)
    with Claims(tmp_path) as claims:
        assert not claims.take(KEY)
        end(process)
        assert claims.take(KEY)


def test_another_handle_of_the_file_drops_nothing(tmp_path: Path) -> None:
    with Claims(tmp_path) as first:
        assert first.take(KEY)
        with Claims(tmp_path):
            pass
        with Claims(tmp_path) as third:
            assert not third.take(KEY)


def test_without_locks_of_open_files_those_of_processes_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(fcntl, "F_OFD_SETLK")
    with Claims(tmp_path) as claims:
        assert claims.take(OTHER)
        process = holder(tmp_path, KEY)
        assert not claims.take(KEY)
        end(process)
        assert claims.take(KEY)
        claims.release(KEY)


def test_where_there_are_no_locks_everything_may_be_had(tmp_path: Path) -> None:
    with Claims(tmp_path / "missing") as first, Claims(tmp_path / "missing") as second:
        assert first.take(KEY)
        assert second.take(KEY)
        first.release(KEY)


@pytest.mark.slow
def test_two_sweeps_at_once_compute_every_run_once(tmp_path: Path) -> None:
    """They go through the same cells in different orders."""
    made: dict[bool, list[results.Result]] = {}

    def sweep(backwards: bool) -> None:
        wanted = cells(24, Slow())
        made[backwards] = run_all(wanted[::-1] if backwards else wanted, Cache(tmp_path), workers=1)

    threads = [threading.Thread(target=sweep, args=(backwards,)) for backwards in (False, True)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    computed = {way: {one.key for one in made[way] if not one.cached} for way in made}
    assert len(computed[False] | computed[True]) == 24
    assert not computed[False] & computed[True]
    assert computed[False], "both had work"
    assert computed[True], "both had work"
    assert [one.metrics for one in made[False]] == [one.metrics for one in made[True][::-1]]


@pytest.mark.slow
def test_a_run_that_a_dead_process_had_is_computed_after_all(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    wanted = cells(2)
    key = results.look_up(wanted, Cache(tmp_path)).missing[0].key
    process = holder(tmp_path, key)

    def die_while_waited_for(tasks: Sequence[Task], *rest: Any) -> Any:
        if tasks:
            process.kill()
        return wait(tasks, *rest)

    wait = results._wait
    monkeypatch.setattr(results, "_wait", die_while_waited_for)
    made = run_all(wanted, Cache(tmp_path))
    assert process.wait() == -signal.SIGKILL, "it had it until then"
    assert "waiting for a run that another process computes" in capsys.readouterr().err.splitlines()
    assert [one.error for one in made] == [None, None]
    end(process)


def test_a_process_that_is_stuck_is_not_waited_for_for_ever(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(results, "LEASE_S", 0.5)
    wanted = cells(2)
    process = holder(tmp_path, results.look_up(wanted, Cache(tmp_path)).missing[0].key)
    assert [one.error for one in run_all(wanted, Cache(tmp_path))] == [None, None]
    assert process.poll() is None
    end(process)


@pytest.mark.nightly
@pytest.mark.slow
def test_eight_sweeps_on_one_folder_with_random_kills(tmp_path: Path) -> None:
    """200 rounds (tests/race.py): whoever survives has all results, nothing is half seen, nothing computed twice."""
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, "-m", "tests.race", str(tmp_path), "200"],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    print(done.stdout)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
