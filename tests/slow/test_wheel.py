"""The package works from a wheel in an empty folder: conf/ and sweeps/ are inside, the plugin is found."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from tests.support.places import ROOT

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with what pip would put into site-packages, built without a network."""
    folder = tmp_path_factory.mktemp("wheel")
    options = ("--no-deps", "--no-build-isolation", "--no-index", "--quiet", "--wheel-dir", str(folder))
    subprocess.run([sys.executable, "-m", "pip", "wheel", *options, str(ROOT)], check=True)
    (wheel,) = folder.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(folder / "site")
    return folder / "site"


def prebleexp(installed: Path, cwd: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "prebleexp", *arguments],
        cwd=cwd,
        env=os.environ | {"PYTHONPATH": str(installed)},
        capture_output=True,
        text=True,
        check=False,
    )


def test_the_wheel_holds_the_package_its_plugin_and_its_configurations(installed: Path) -> None:
    top = {path.name for path in installed.iterdir() if not path.name.endswith(".dist-info")}
    assert top == {"prebleexp", "hydra_plugins"}
    for folder in ("conf", "sweeps"):
        here = {path.relative_to(ROOT / folder) for path in (ROOT / folder).rglob("*.yaml")}
        there = {
            path.relative_to(installed / "prebleexp" / folder)
            for path in (installed / "prebleexp" / folder).rglob("*.yaml")
        }
        assert here == there


def test_a_run_works_in_an_empty_folder(installed: Path, tmp_path: Path) -> None:
    done = prebleexp(installed, tmp_path, "gpus=2", "rps=2", "duration_s=3", "policy=random", "output=json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)[0]["policy"] == "random"


@pytest.mark.nightly
def test_a_sweep_works_in_an_empty_folder(installed: Path, tmp_path: Path) -> None:
    narrow = ("gpus=1,2", "rps=2", "duration_s=3", "replications=2")
    done = prebleexp(installed, tmp_path, "+sweeps=fig1a", *narrow)
    assert done.returncode == 0, done.stderr
    assert "40 runs: 40 computed" in done.stderr
    name = "fig1a-duration_s-3-gpus-1-2-replications-2-rps-2"
    assert (tmp_path / "reports" / name / "index.html").exists()


def test_a_folder_of_the_package_is_no_config_group(installed: Path, tmp_path: Path) -> None:
    """prebleexp/report and prebleexp/hardware lie beside prebleexp/sweeps in a wheel."""
    done = prebleexp(installed, tmp_path, "rps=2", "duration_s=3", "report=none", "hardware=a100_mistral_7b")
    assert done.returncode == 0, done.stderr


def test_own_policies_in_the_current_folder_are_found(installed: Path, tmp_path: Path) -> None:
    (tmp_path / "conf" / "policy").mkdir(parents=True)
    (tmp_path / "conf" / "policy" / "first.yaml").write_text("_target_: first.First\n")
    (tmp_path / "first.py").write_text(
        "from dataclasses import dataclass\n"
        "from prebleexp.policies.base import Policy\n"
        "@dataclass(frozen=True)\n"
        "class First(Policy):\n"
        "    def route(self, mine, view, request, now):\n"
        "        return 0\n"
    )
    line = ("policy=first", "gpus=2", "rps=2", "duration_s=3", "output=json", "workers=1")
    done = prebleexp(installed, tmp_path, *line)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)[0]["requests_max_over_mean"] == 2
