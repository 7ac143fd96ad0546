"""Sweepers that optimise: they get a job's objective, from Optuna's to one of the user's own."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml
from hydra.core.config_store import ConfigStore
from hydra.core.plugins import Plugins
from hydra.plugins.sweeper import Sweeper
from hydra.types import HydraContext, TaskFunction
from omegaconf import DictConfig

import prebleexp.sim.simulate
from prebleexp.__main__ import main
from prebleexp.launch import configs
from prebleexp.metrics import METRICS
from tests.support.stand_in import served

SHORT = ["duration_s=1", "report=none", "output=json"]
OPTUNA = ["hydra/sweeper=optuna", "hydra/sweeper/sampler=random", "hydra.sweeper.sampler.seed=1"]
# hydra-optuna-sweeper needs optuna 2, which is older than its SQLAlchemy.
pytestmark = pytest.mark.filterwarnings("ignore:.*declarative_base:DeprecationWarning")


@pytest.fixture(autouse=True)
def folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(prebleexp.sim.simulate, "simulate", served)  # the TTFT is 1/(GPUs + seed)
    monkeypatch.chdir(tmp_path)


class Walk(Sweeper):
    """Doubles the GPUs while that makes the objective less. Only uses what Hydra documents of sweepers."""

    returned: tuple[Any, ...] = ()

    def setup(self, *, hydra_context: HydraContext, task_function: TaskFunction, config: DictConfig) -> None:
        self.launcher = Plugins.instance().instantiate_launcher(
            hydra_context=hydra_context, task_function=task_function, config=config
        )

    def sweep(self, arguments: list[str]) -> None:
        found: list[Any] = []
        for i, gpus in enumerate((1, 2, 4)):
            job = self.launcher.launch([[*arguments, f"gpus={gpus}"]], initial_job_idx=i)[0]
            found.append(job.return_value)
        Walk.returned = tuple(found)


@pytest.fixture
def walk(monkeypatch: pytest.MonkeyPatch) -> Sequence[str]:
    configs.loader()
    monkeypatch.setattr(Walk, "__module__", "hydra_plugins.walk")  # where Hydra wants plugins to be
    monkeypatch.setitem(sys.modules, "hydra_plugins.walk", sys.modules[__name__])
    Plugins.instance().register(Walk)
    ConfigStore.instance().store(group="hydra/sweeper", name="walk", node={"_target_": "hydra_plugins.walk.Walk"})
    return ["-m", "hydra/sweeper=walk", *SHORT]


@pytest.mark.slow
def test_a_sweeper_of_the_users_own_gets_the_objective(walk: Sequence[str]) -> None:
    assert main([*walk, "objective=ttft_mean_s"]) == 0
    assert Walk.returned == (1, 1 / 2, 1 / 4)


def test_of_several_replications_the_mean(walk: Sequence[str]) -> None:
    assert main([*walk, "objective=ttft_mean_s", "replications=2"]) == 0
    assert Walk.returned == pytest.approx(((1 + 1 / 2) / 2, (1 / 2 + 1 / 3) / 2, (1 / 4 + 1 / 5) / 2))


@pytest.mark.slow
def test_several_objectives_are_a_list_in_their_order(walk: Sequence[str]) -> None:
    assert main([*walk, "objective=[n_requests,ttft_mean_s]"]) == 0
    assert [numbers[1] for numbers in Walk.returned] == [1, 1 / 2, 1 / 4]
    assert main([*walk, "objective=[ttft_mean_s]"]) == 0
    assert Walk.returned == ([1], [1 / 2], [1 / 4])


def test_without_an_objective_it_gets_all_metrics(walk: Sequence[str]) -> None:
    assert main(list(walk)) == 0
    assert [set(metrics) for metrics in Walk.returned] == [set(METRICS)] * 3


def test_jobs_keep_their_numbers_whatever_the_batches(walk: Sequence[str], tmp_path: Path) -> None:
    assert main([*walk, "job_dirs=true"]) == 0
    jobs = tmp_path / "reports" / "sweep" / "jobs"
    written = {path.name: yaml.safe_load((path / ".hydra" / "config.yaml").read_text()) for path in jobs.iterdir()}
    assert {name: config["gpus"] for name, config in written.items()} == {"0": 1, "1": 2, "2": 4}


def test_a_metric_without_a_value_is_a_failed_job(walk: Sequence[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*walk, "objective=hit_ratio", "rps=0.001"]) == 1
    assert "the objective hit_ratio has no value" in capsys.readouterr().err


@pytest.mark.slow
@pytest.mark.parametrize(
    ("value", "says"),
    [
        (
            "ttft_mean",
            "unknown objective 'ttft_mean'. Did you mean 'ttft_mean_s'? Valid: acceptance_length, ",
        ),
        ("ttft_mean", "Did you mean 'ttft_mean_s'?"),
        ("[hit_ratio,x]", "unknown objective 'x'; valid: "),
        ("[]", "objective=[] is not valid; it must be a metric, a list of metrics, or null"),
        ("3", "unknown objective '3'; valid: "),
        ("{a: 1}", "unknown objective"),
    ],
)
def test_an_unknown_objective_is_one_clear_line(
    value: str, says: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["-m", "gpus=1,2", f"objective={value}"]) == 2
    printed = capsys.readouterr()
    assert says in printed.err
    assert (printed.out, printed.err.count("\n")) == ("", 1)
    assert not list(tmp_path.iterdir())


@pytest.mark.slow
def test_optuna_finds_the_least(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("hydra_plugins.hydra_optuna_sweeper")
    space = ["gpus=choice(1,2,4,8)", "rps=interval(1.0,4.0)", "policy=lor,random", "objective=ttft_mean_s"]
    assert main(["-m", *OPTUNA, "hydra.sweeper.n_trials=12", *space, *SHORT]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert len(rows) == 12
    best = min(rows, key=lambda row: row["ttft_mean_s"])
    found = yaml.safe_load((tmp_path / "reports" / "sweep" / "optimization_results.yaml").read_text())
    assert found["best_value"] == pytest.approx(best["ttft_mean_s"])
    assert found["best_params"]["gpus"] == best["gpus"] == 8
    assert sorted(path.name for path in tmp_path.iterdir()) == ["cache", "reports"]


@pytest.mark.slow
def test_optuna_minimises_two_things_at_once(tmp_path: Path) -> None:
    pytest.importorskip("hydra_plugins.hydra_optuna_sweeper")
    objectives = ["objective=[ttft_mean_s,requests_max_over_mean]", "hydra.sweeper.direction=[minimize,maximize]"]
    assert main(["-m", *OPTUNA, *objectives, "hydra.sweeper.n_trials=6", "gpus=1,2,4", *SHORT]) == 0
    found = yaml.safe_load((tmp_path / "reports" / "sweep" / "optimization_results.yaml").read_text())
    assert all(len(solution["values"]) == 2 for solution in found["solutions"])


@pytest.mark.slow
def test_optuna_without_an_objective_says_what_to_set(capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("hydra_plugins.hydra_optuna_sweeper")
    assert main(["-m", *OPTUNA, "hydra.sweeper.n_trials=2", "gpus=1,2", *SHORT]) == 2
    assert capsys.readouterr().err.endswith("it gets all metrics of a job, set objective=METRIC for one\n")
