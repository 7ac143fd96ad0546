"""What jobs our sweeper makes of sweep arguments: those of a real multirun of Hydra's, batch for batch."""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

import pytest
from hydra._internal.callbacks import Callbacks
from hydra._internal.hydra import Hydra
from hydra._internal.utils import create_config_search_path
from hydra.core.global_hydra import GlobalHydra
from hydra.core.plugins import Plugins
from hydra.types import HydraContext, RunMode
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from omegaconf import DictConfig, OmegaConf

from prebleexp.errors import InvalidInput
from prebleexp.experiment.results import Result
from prebleexp.launch import configs, places
from prebleexp.launch.compose import plain
from prebleexp.launch.configure import Job, settings_of
from prebleexp.launch.loads import RPS
from prebleexp.launch.session import Session

Jobs = list[list[tuple[list[str], tuple[object, ...]]]]
"""of each batch the jobs, of each job its overrides and what is simulated"""


class Recorder(Session):
    """Takes note of jobs and runs none."""

    def __init__(self, *rest: Any) -> None:
        super().__init__(*rest)
        self.jobs: list[Job] = []

    def run(self, jobs: Sequence[Job], axes: Sequence[str] = ()) -> list[list[Result]]:
        self.jobs += jobs
        self.axes = list(axes)
        return [[] for _ in jobs]


def ours(arguments: Sequence[str]) -> tuple[Jobs, list[str]]:
    random.seed(7)
    loader = configs.loader()
    master = loader.load_configuration(places.CONFIG, [*arguments, "hydra.mode=MULTIRUN"], RunMode.MULTIRUN)
    session = Recorder(settings_of(plain(master)))
    sweeper = Plugins.instance().instantiate_sweeper(
        hydra_context=HydraContext(config_loader=loader, callbacks=Callbacks()), task_function=session, config=master
    )
    returned = sweeper.sweep(cast(list[str], OmegaConf.to_container(master.hydra.overrides.task)))
    found = iter(session.jobs)
    batches = [[(list(job.overrides), of_cell(next(found))) for job in batch] for batch in returned]
    return batches, session.axes


def of_cell(job: Job) -> tuple[object, ...]:
    cell = job.cells[0]
    kind = type(cell.policy)
    return cell.gpus, cell.rps, cell.seed, f"{kind.__module__}.{kind.__qualname__}", len(job.cells)


def by_hydra(arguments: Sequence[str], folder: Path) -> Jobs:
    random.seed(7)
    path = create_config_search_path(str(places.HOME / "conf"))
    hydra = Hydra.create_main_hydra2("prebleexp", path)
    basic = ["hydra/launcher=basic", f"hydra.sweep.dir={folder}", "hydra.mode=MULTIRUN"]
    seen: list[tuple[object, ...]] = []

    def task(cfg: DictConfig) -> None:
        rps = RPS if cfg.rps is None else cfg.rps
        seen.append((cfg.gpus or 8, rps, cfg.seed, cfg.policy._target_, cfg.replications))

    try:
        returned = hydra.multirun("config", task, [*arguments, *basic], with_log_configuration=False)
    finally:
        GlobalHydra.instance().clear()
    for batch in returned:
        for job in batch:
            job.return_value  # noqa: B018 -- raises what the job raised
    found = iter(seen)
    return [[(list(job.overrides), next(found)) for job in batch] for batch in returned]


def assert_same(arguments: Sequence[str], folder: Path) -> None:
    assert ours(arguments)[0] == by_hydra(arguments, folder)


SWEEPS = (
    "gpus=1,2 rps=3,4",
    "gpus=2 rps=3",
    "gpus=choice(1,2) policy=lor,random",
    "gpus=range(1,4)",
    "gpus=range(4,1,-1)",
    "rps=range(1.5,3,0.5)",
    "gpus=range(start=1,stop=7,step=3)",
    "gpus=sort(3,1,2)",
    "gpus=sort(choice(3,1,2),reverse=true)",
    "gpus=sort(range(1,4),reverse=true)",
    "gpus=shuffle(1,2,3)",
    "gpus=shuffle(range(1,4))",
    "gpus=tag(a,b,choice(1,2))",
    "gpus=int(choice(1.5,'2'))",
    "rps=float(range(1,3))",
    "policy=glob(r*,exclude=replay)",
    "policy=glob([l*,r*],exclude=[*_*,replay])",
    "gpus=1,2 gpus=3",
    "gpus=3 gpus=1,2",
    "gpus=1,1",
    "++gpus=1,2",
    "seed=1,2 seed=3,4 gpus=1",
    "sweep.name='a,b',\"c\",e\\,f gpus=1",
    "policy=random policy.seed=1,null",
    "sweep={name:a},{name:b,title:'c,d'} gpus=1",
    "seed=${gpus},${hydra:job.num} gpus=4",
    "~sweep.figures gpus=1,2",
    "gpus=1,2,3 rps=1,2 hydra.sweeper.max_batch_size=4",
    "gpus=1,2 hydra.sweeper.max_batch_size=1",
    "gpus=1,2 hydra.sweeper.max_batch_size=9",
    "+hydra.sweeper.params.gpus='1,2' rps=3",
    "+hydra.sweeper.params.gpus='1,2' gpus=5,6",
    "+hydra.sweeper.params.gpus='range(1,3)' +hydra.sweeper.params.policy='lor,random' seed=3",
    "+hydra.sweeper.params={rps:'2,3'} hydra.sweeper.max_batch_size=1",
    "hydra.sweeper.params=null gpus=1,2",
)


@pytest.mark.slow
@pytest.mark.parametrize("line", SWEEPS)
def test_jobs_are_those_of_hydra(line: str, tmp_path: Path) -> None:
    assert_same(line.split(" "), tmp_path)


def test_what_was_swept_is_known_whatever_the_batches(tmp_path: Path) -> None:
    for size in ("null", "1"):
        assert ours([f"hydra.sweeper.max_batch_size={size}", "gpus=1,2", "seed=3", "rps=1,2"])[1] == ["gpus", "rps"]


VALUES = {
    "gpus": ("1", "1,2", "range(1,3)", "sort(2,1)", "shuffle(1,2)"),
    "rps": ("2.5", "choice(1,2)", "float(range(1,3))", "range(1,2,0.5)"),
    "policy": ("lor", "random,lor", "glob(r*,exclude=re*)"),
    "seed": ("3", "${gpus},4", "tag(a,choice(1,2))"),
    "sweep.name": ("a", "'a b',\"c,d\"", "x\\,y"),
    "hydra.sweeper.max_batch_size": ("1", "3", "null"),
    "+hydra.sweeper.params.rps": ("'1,2'", "'choice(3,4)'"),
}


ARGUMENTS = st.sampled_from([(key, value) for key, values in VALUES.items() for value in values])


@pytest.mark.slow
@settings(max_examples=5, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(ARGUMENTS, max_size=4, unique_by=lambda argument: argument[0]))
def test_jobs_of_any_mixture_are_those_of_hydra(tmp_path: Path, arguments: list[tuple[str, str]]) -> None:
    assert_same([f"{key}={value}" for key, value in arguments], tmp_path)


def test_every_job_is_checked_before_the_first_batch() -> None:
    with pytest.raises(InvalidInput, match="gpus=0 is not valid"):
        ours(["gpus=1,0", "hydra.sweeper.max_batch_size=1"])
