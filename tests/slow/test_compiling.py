"""What is compiled is compiled once, whoever needs it, and little of it. Numbers are printed (-s); how long that takes
is what `prebleexp bench starting` measures."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from prebleexp.bench.starting import EDITED
from tests.support.places import ROOT

pytestmark = pytest.mark.slow
FIRST = """
import sys
from numba.core import event
from prebleexp.experiment import runs
from prebleexp.launch import configure
from prebleexp.sim.on_disk import Kept
with event.install_recorder("numba:compile") as compiled:
    runs.run(configure.cells(["gpus=2", "rps=2", "duration_s=2", *sys.argv[1:]])[0])
print(sum(one.is_start and isinstance(one.data["dispatcher"]._cache, Kept) for _, one in compiled.buffer))
"""
"""says how many functions were compiled for the run, but for numba's own"""


def first(folder: Path, *arguments: str, root: Path = ROOT) -> subprocess.Popen[str]:
    environment = os.environ | {"PYTHONPATH": f"{root}:{folder}", "NUMBA_CACHE_DIR": str(folder / "numba")}
    command = [sys.executable, "-c", FIRST, *arguments]
    return subprocess.Popen(command, cwd=folder, env=environment, stdout=subprocess.PIPE, text=True)


def count(process: subprocess.Popen[str]) -> int:
    said, _ = process.communicate()
    assert process.returncode == 0
    return int(said)


def kept(folder: Path) -> int:
    return len(list((folder / "numba").rglob("*.nbc")))


@pytest.fixture(scope="module")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[int], int]:
    """A folder in which two processes that started at once have compiled `lor`, how many functions each, and how many
    are kept."""
    folder = tmp_path_factory.mktemp("compiled")
    counts = [count(one) for one in [first(folder) for _ in range(2)]]
    return folder, counts, kept(folder)


def test_what_two_processes_and_another_clone_need_is_compiled_once(compiled: tuple[Path, list[int], int]) -> None:
    """The clone lies elsewhere, and its files are younger."""
    folder, counts, files = compiled
    print(f"{counts} functions for lor")
    assert sum(counts) == files < 200
    clone = folder / "elsewhere" / "clone"
    for part in ("prebleexp", "conf", "sweeps", "hydra_plugins"):
        shutil.copytree(ROOT / part, clone / part, ignore=shutil.ignore_patterns("__pycache__"))
        for file in (clone / part).rglob("*.py"):
            file.touch()
    assert count(first(folder, root=clone)) == 0
    more = count(first(folder, "policy=e2"))
    print(f"{more} for e2 after it")
    assert more < 140


def test_an_edited_router_compiles_itself_alone(compiled: tuple[Path, list[int], int]) -> None:
    folder, _, _ = compiled
    (folder / "conf" / "policy").mkdir(parents=True)
    (folder / "conf" / "policy" / "edited.yaml").write_text("_target_: edited.Edited\n")
    found = []
    for number in (0, 1, 1):
        (folder / "edited.py").write_text(EDITED.format(number=number))
        found.append(count(first(folder, "policy=edited")))
    print(f"functions: {found[0]}, after an edit {found[1]}, again {found[2]}")
    assert found[1:] == [1, 0]
    # a whole number where there was another, in a field of type float
    ways = (f"policy.standard_deviation_factor={factor}" for factor in ("1.5", "2"))
    assert [count(first(folder, "policy=aibrix_prefix_cache", way)) > 0 for way in ways] == [True, False]
