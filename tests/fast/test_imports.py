"""What a command imports: nothing heavy before it is needed, and no more than it did. Numbers are printed (-s)."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.places import ROOT

MODULES = """
import atexit, json, runpy, sys
out = open(sys.argv.pop(1), "w")
atexit.register(lambda: print(json.dumps(sorted(sys.modules)), file=out, flush=True))
runpy.run_module("prebleexp", run_name="__main__", alter_sys=True)
"""
COMPUTED = 630
SWEEP = ["-m", "gpus=1,2", "rps=1", "duration_s=3", "policy=lor,random", "report=none"]
HEAVY = {"IPython", "distributed", "matplotlib", "seaborn", "sklearn", "torch", "transformers", "vl_convert"}


def imported(folder: Path, *words: str) -> set[str]:
    """The modules of a process in which a command has run."""
    command = [sys.executable, "-c", MODULES, str(folder / "modules"), *words]
    done = subprocess.run(
        command, cwd=folder, env=os.environ | {"PYTHONPATH": str(ROOT)}, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return set(json.loads((folder / "modules").read_text()))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("imports")


@pytest.mark.parametrize(
    ("words", "most"),
    [
        pytest.param(["--help"], 170, id="help"),
        pytest.param(["gpus=2", "rps=1", "duration_s=3"], COMPUTED, id="computed", marks=pytest.mark.slow),
        pytest.param(["gpus=2", "rps=1", "duration_s=3"], 430, id="cached", marks=pytest.mark.slow),
        pytest.param(SWEEP, 440, id="cached sweep", marks=pytest.mark.slow),
    ],
)
def test_a_command_imports_what_it_needs(words: list[str], most: int, folder: Path) -> None:
    """Where another run has left machine code, nothing makes any; what a sweep's options are, one has composed."""
    if most == COMPUTED:
        imported(folder, *words, "seed=1")
    if words == SWEEP:
        imported(folder, *words)
    modules = imported(folder, *words)
    assert not {"numba", "hydra", "omegaconf"} & modules
    print(f"{len(modules)} modules")
    assert {one.split(".")[0] for one in modules} & HEAVY == set()
    assert not any(one.startswith(("prebleexp.bench", "prebleexp.report", "prebleexp.predict")) for one in modules)
    assert len(modules) < most
