"""The search in hindsight: never worse than where it began, the same answer for the same cell, and the best of all
where all can be tried."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

from prebleexp.__main__ import main
from prebleexp.experiment import runs
from prebleexp.launch import configure
from prebleexp.planning.hindsight import Assigned, search

SMALL = ["gpus=2", "rps=12", "duration_s=0.5"]
METRIC = "latency_mean_s"


@pytest.mark.thorough
def test_it_finds_the_best_of_all_assignments_of_a_few_requests() -> None:
    (cell,) = configure.cells([*SMALL, "policy=random"])
    workload = runs.draw(cell)
    n = len(workload)
    assert 4 <= n <= 10
    found = search({"random": cell}, [METRIC], 200)
    least = min(_mean(cell, workload, gpus) for gpus in product(range(2), repeat=n))
    print(f"{n} requests, {2**n} assignments: the least is {least / found.best[METRIC]:.4f} of a random one's")
    assert found.found.metrics[METRIC] == pytest.approx(least, rel=1e-12)
    assert found.found.metrics[METRIC] <= found.best[METRIC] == min(one.metrics[METRIC] for one in found.routers)
    again = search({"random": cell}, [METRIC], 200)
    assert (again.found.gpus == found.found.gpus).all()
    assert again.kept == found.kept
    assert _mean(cell, workload, found.found.gpus) == found.found.metrics[METRIC], "it is a run's"


def _mean(cell, workload, gpus) -> float:  # type: ignore[no-untyped-def]
    from dataclasses import replace

    made = replace(cell, policy=Assigned(np.asarray(gpus, np.int64)))
    return float(runs.run(made, workload, check=False).metrics[METRIC])


def test_the_command_says_what_was_to_be_won(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["hindsight", *SMALL, "policy=lor,round_robin", "runs=30", f"metric={METRIC}"]) == 0
    said = capsys.readouterr()
    assert [line.split()[0] for line in said.out.splitlines()[1:]] == ["lor", "round_robin", "hindsight"]
    assert "30 runs of which" in said.err
    assert "At least so much was to be won" in said.err


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["metric=ttft"], "metric=ttft is not valid; it must be one of all, "),
        (["policy=lro"], "unknown policy 'lro'. Did you mean 'lor'?"),
        (["runs=0"], "runs=0 is not valid"),
        (["gpus=4", "rps=5000", "duration_s=20"], "requests are more than 5,000"),
        (["gpus=1"], "gpus=1 is not valid; it must be at least 2: there is nothing to choose"),
        (["engine=released"], "there is no assignment to search"),
    ],
)
def test_what_it_cannot_search_is_said(words: list[str], expected: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["hindsight", *words]) == 2
    assert expected in capsys.readouterr().err
