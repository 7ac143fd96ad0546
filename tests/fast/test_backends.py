"""The same runs, the same bytes, wherever they are computed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from prebleexp.errors import InvalidInput, PrebleexpError
from prebleexp.experiment import backends, work
from prebleexp.experiment.backends import Dask, Loky, Slurm, Threads
from prebleexp.experiment.cache import Cache
from prebleexp.experiment.results import run_all
from tests.support.places import ROOT
from tests.support.policies.plain import Deadly, First, Slow
from tests.support.small_cells import bytes_of, cells, kinds

# Dask's own affair, on the way down
pytestmark = [
    pytest.mark.filterwarnings("ignore::DeprecationWarning:distributed"),
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
]


@pytest.fixture(scope="module")
def cluster() -> Iterator[Any]:
    from distributed import LocalCluster

    variables = {"PYTHONPATH": str(ROOT)}
    os.environ |= variables
    with LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=":0", processes=True) as made:
        made.adapt(minimum=2, maximum=2)  # a nanny gives up if its worker is killed while it starts
        yield made


@pytest.mark.slow
def test_every_backend_gives_the_same_bytes(tmp_path: Path, cluster: Any) -> None:
    made = []
    for backend in (Threads(), Loky(), Dask(cluster.scheduler_address)):
        cache = Cache(tmp_path / type(backend).__name__)
        made.append(bytes_of(run_all(cells(6), cache, workers=2, backend=backend), cache))
    assert made[0] == made[1] == made[2]
    assert made[0][0][1] is not None, "requests came back too"


@pytest.mark.slow
def test_a_worker_that_is_killed_costs_nothing(tmp_path: Path, cluster: Any) -> None:
    """Its runs go to the other one."""
    assert len(cluster.scheduler_info["workers"]) == 2
    victim = next(iter(cluster.workers.values())).process.pid
    timer = threading.Timer(1.0, os.kill, (victim, signal.SIGKILL))
    timer.start()
    cache = Cache(tmp_path / "cluster")
    wanted = cells(20, Slow())
    results = run_all(wanted, cache, backend=Dask(cluster.scheduler_address))
    timer.join()
    assert kinds(results) == [None] * 20
    cluster.wait_for_workers(2)
    assert victim not in [worker.process.pid for worker in cluster.workers.values()], "it was killed, and started anew"
    here = Cache(tmp_path / "here")
    assert bytes_of(results, cache) == bytes_of(run_all(wanted, here, workers=2), here)


@pytest.mark.slow
def test_a_run_that_kills_workers_fails_and_the_others_do_not(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    wanted = [*cells(3, First()), *cells(1, Deadly(os.getpid())), *cells(3)]
    cache = Cache(tmp_path)
    results = run_all(wanted, cache, workers=2, backend=Dask())
    assert kinds(results) == [None] * 3 + ["WorkerDied"] + [None] * 3
    assert cache.failure(results[3].key) is not None


OWN = """
from dataclasses import dataclass
from prebleexp.policies.base import Policy

@dataclass(frozen=True)
class Mine(Policy):
    def route(self, mine, view, request, now):
        return {gpu}
"""


@pytest.mark.slow
def test_a_policy_of_the_users_own_is_sent_along(tmp_path: Path, cluster: Any) -> None:
    (tmp_path / "own_policy.py").write_text(OWN.format(gpu=1))
    (tmp_path / "conf" / "policy").mkdir(parents=True)
    (tmp_path / "conf" / "policy" / "own.yaml").write_text("_target_: own_policy.Mine\n")
    backend = ("backend=dask", f"backend.address={cluster.scheduler_address}")
    command = [sys.executable, "-m", "prebleexp", "-m", "policy=own,lor", "gpus=2", "rps=2", "duration_s=2"]
    done = subprocess.run(
        [*command, *backend, "report=none", "output=csv"],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": f"{ROOT}{os.pathsep}{tmp_path}"},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "2 runs: 2 computed" in done.stderr


def test_other_code_on_a_worker_is_noticed(tmp_path: Path) -> None:
    task = work.Task(cells(1)[0], "ab" * 32, {"format": 1, "code": {"sources": "other"}}, False)
    (attempt,) = work.work([task], work.Orders(None, None, 1))
    assert attempt.error is not None
    assert attempt.error.type == "OtherCode"
    assert "the worker would compute another run: cell is " in attempt.error.message


@pytest.mark.slow
def test_no_scheduler_there_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(backends, "CONNECT_S", 1)
    with pytest.raises(PrebleexpError, match=r"backend.address=tcp://127.0.0.1:9: no Dask scheduler answers there"):
        run_all(cells(1), Cache(tmp_path), backend=Dask("tcp://127.0.0.1:9"))


def test_bad_settings_are_refused() -> None:
    with pytest.raises(InvalidInput, match=r"backend.address=there is not valid; it is like tcp://host:8786"):
        Dask("there")
    with pytest.raises(InvalidInput, match=r"backend.cores=0 is not valid"):
        Slurm(cores=0)


def test_without_dask_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(sys.modules, "distributed", None)
    with pytest.raises(InvalidInput, match=r"pip install 'prebleexp\[cluster\]'"):
        run_all(cells(1), Cache(tmp_path), backend=Dask())


def test_a_job_of_slurm_asks_for_what_was_said() -> None:
    script = Slurm(jobs=3, cores=4, memory="8GB", walltime="00:30:00", queue="short", account="lab").job_script()
    assert script is not None
    for line in ("#SBATCH -p short", "#SBATCH -A lab", "#SBATCH --cpus-per-task=4", "#SBATCH --mem=8G", "-t 00:30:00"):
        assert line in script, script
    assert Threads().job_script() is None


SBATCH = """#!/bin/sh
for script; do :; done
cp "$script" {folder}/job.sh
setsid bash {folder}/job.sh > {folder}/job.txt 2>&1 &
echo $!
"""


@pytest.mark.slow
def test_a_sweep_on_slurm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A cluster of one machine: what is submitted is run at once."""
    for name, text in (("sbatch", SBATCH.replace("{folder}", str(tmp_path))), ("scancel", "#!/bin/sh\nkill -- -$1\n")):
        (tmp_path / name).write_text(text)
        (tmp_path / name).chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    cache = Cache(tmp_path / "cluster")
    results = run_all(cells(6), cache, backend=Slurm(jobs=1, cores=2, memory="2GB"))
    here = Cache(tmp_path / "here")
    assert bytes_of(results, cache) == bytes_of(run_all(cells(6), here), here)
    assert "Nanny" in (tmp_path / "job.txt").read_text(), "it was a job that did it"
