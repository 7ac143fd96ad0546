"""`job_dirs=true` leaves for every job what a real multirun of Hydra leaves, where Hydra's settings say."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

import prebleexp.sim.simulate
from prebleexp.__main__ import main
from prebleexp.launch import places
from tests.support.places import ROOT
from tests.support.stand_in import served

RECORDS = ("config.yaml", "hydra.yaml", "overrides.yaml")
APPLICATION = """
import sys
import hydra

sys.path.insert(0, {root!r})
from prebleexp.launch import configs, places

configs.loader()  # makes the plugin known


@hydra.main(version_base="1.3", config_path={conf!r}, config_name="config")
def job(cfg):
    pass


job()
"""
SWEEPS = (
    ["gpus=2,4", "policy=random,lor"],
    ["gpus=2", "seed=${gpus},7", "policy=random", "policy.seed=3", "+hydra.job.env_set.A=b"],
    ["+variant=released", "rps=1,2", "sweep.name='a ${gpus}'", "~sweep.figures"],
    ["gpus=1,2,3", "hydra.sweeper.max_batch_size=2", "hydra.sweep.subdir=${hydra.job.override_dirname}"],
    ["gpus=1,2", "hydra.sweep.dir=my/${now:%Y}", "hydra.sweep.subdir=job_${hydra:job.num}_${gpus}"],
    ["gpus=1,2", "hydra.output_subdir=records"],
)


@pytest.fixture(autouse=True)
def folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(prebleexp.sim.simulate, "simulate", served)
    (tmp_path / "ours").mkdir()
    monkeypatch.chdir(tmp_path / "ours")


def by_hydra(arguments: list[str], folder: Path) -> None:
    folder.mkdir()
    (folder / "app.py").write_text(APPLICATION.format(root=str(ROOT), conf=str(places.HOME / "conf")))
    subprocess.run([sys.executable, "app.py", "-m", *arguments], cwd=folder, check=True, capture_output=True)


def records(folder: Path) -> dict[str, Any]:
    """Every YAML file of a folder, with paths as if it were called HERE."""
    found = {}
    for path in sorted(folder.rglob("*.yaml")):
        text = path.read_text().replace(str(folder), "HERE")
        found[str(path.relative_to(folder))] = text
    return found


@pytest.mark.slow
@pytest.mark.parametrize("sweep", SWEEPS, ids=" ".join)
def test_the_records_are_those_of_hydra(tmp_path: Path, sweep: list[str]) -> None:
    arguments = [*sweep, "duration_s=1", "report=none", "job_dirs=true"]
    assert main(["-m", *arguments]) == 0
    by_hydra(arguments, tmp_path / "hydra")
    ours, reference = records(tmp_path / "ours"), records(tmp_path / "hydra")
    assert list(ours) == list(reference)
    assert sum(path.endswith(RECORDS) for path in ours) >= 3 * 2
    for path, text in ours.items():
        assert text == reference[path], path


@pytest.mark.slow
def test_they_lie_beside_the_report_with_what_came_out(tmp_path: Path) -> None:
    assert main(["-m", "gpus=2,13", "replications=2", "duration_s=1", "rps=9", "sweep.name=x", "job_dirs=true"]) == 1
    report = tmp_path / "ours" / "reports" / "x"
    names = sorted(path.name for path in report.iterdir())
    assert names == [".drawn", "about.json", "figures", "index.html", "jobs", "multirun.yaml", "report.json"]
    good, bad = (json.loads((report / "jobs" / name / "result.json").read_text()) for name in ("0", "1"))
    assert len(good["keys"]) == 2
    assert good["metrics"]["ttft_mean_s"] == pytest.approx((1 / 2 + 1 / 3) / 2)
    assert good["errors"] == []
    assert bad["metrics"] == {}
    assert bad["errors"] == ["PrebleexpError: 13 GPUs bring bad luck"] * 2


@pytest.mark.slow
def test_jobs_of_a_sweep_of_parts_lie_with_that_sweep(tmp_path: Path) -> None:
    lines = ["+sweeps=fig2", "rps=1", "replications=1", "duration_s=1", "report=none", "job_dirs=true"]
    assert main(lines) == 0
    name = "fig2-duration_s-1-replications-1-rps-1"
    jobs = tmp_path / "ours" / "reports" / name / "jobs"
    assert sorted(int(path.name) for path in jobs.iterdir()) == list(range(6))
    config = yaml.safe_load((jobs / "0" / ".hydra" / "config.yaml").read_text())
    assert config["sweep"]["name"] == name
    assert config["policy"]["_target_"].endswith("ReleasedE2")


def test_without_it_nothing_is_left(tmp_path: Path) -> None:
    assert main(["-m", "gpus=1,2", "duration_s=1", "report=none"]) == 0
    assert [path.name for path in (tmp_path / "ours").iterdir()] == ["cache"]


def test_it_is_true_or_false(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["-m", "gpus=1,2", "job_dirs=maybe"]) == 2
    assert "job_dirs=maybe is not valid; it must be true or false" in capsys.readouterr().err
