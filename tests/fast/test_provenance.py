"""A run says how it came about, and that changes nothing of it."""

from __future__ import annotations

import importlib
import re
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from prebleexp import sources
from prebleexp.experiment import provenance as module
from prebleexp.experiment.cache import Cache
from prebleexp.experiment.provenance import FIELDS, provenance
from prebleexp.experiment.results import run_all
from tests.support.counted import calls
from tests.support.small_cells import cells


@pytest.fixture(autouse=True)
def fresh() -> None:
    module._of_this_process.cache_clear()
    module._is_uncommitted.cache_clear()


def test_a_run_says_which_code_and_which_machine_made_it(tmp_path: Path) -> None:
    (result,) = run_all(cells(1), Cache(tmp_path))
    entry = Cache(tmp_path).get(result.key)
    assert entry is not None
    assert set(FIELDS) | {"seconds"} == set(entry.provenance)
    assert entry.provenance["python"] == sys.version.split()[0]
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", entry.provenance["finished"])
    assert 2**24 < entry.provenance["peak_memory_bytes"] < 2**40
    assert entry.provenance["seconds"] > 0
    (cached,) = run_all(cells(1), Cache(tmp_path))
    assert cached.provenance == result.provenance


def package_in(folder: Path) -> Path:
    """A checkout with a package of one file."""
    package = folder / "checkout" / "package"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("")
    for words in (["init", "-q"], ["add", "."], ["commit", "-q", "-m", "First"]):
        identity = ["-c", "user.name=x", "-c", "user.email=x@example.org"]
        subprocess.run(["git", "-C", str(package.parent), *identity, *words], check=True)
    return package


def test_the_commit_is_that_of_the_packages_checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = package_in(tmp_path)
    monkeypatch.setattr(sources, "PACKAGE", package)
    made = provenance()
    assert re.fullmatch("[0-9a-f]{40}", made["git_commit"])
    assert made["git_dirty"] is False
    (package.parent / "elsewhere.txt").write_text("not of the package")
    module._of_this_process.cache_clear()
    assert provenance()["git_dirty"] is False
    (package / "__init__.py").write_text("changed")
    module._of_this_process.cache_clear()
    assert provenance() | {"git_dirty": True, "git_commit": made["git_commit"]} == provenance()


POLICY = """
from dataclasses import dataclass
from prebleexp.policies.lor import LeastOutstanding

@dataclass(frozen=True)
class Mine(LeastOutstanding):
    pass
"""


def test_a_policy_of_ones_own_counts_unless_it_is_committed_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = package_in(tmp_path)
    file = package.parent / "mine_of_provenance.py"
    file.write_text(POLICY)
    monkeypatch.syspath_prepend(str(file.parent))
    own = replace(cells(1)[0], policy=importlib.import_module("mine_of_provenance").Mine())
    monkeypatch.setattr(sources, "PACKAGE", package)
    monkeypatch.setattr(sources, "is_own", lambda file: "mine_of_provenance" not in str(file))
    assert provenance()["git_dirty"] is False
    assert provenance(cells(1)[0])["git_dirty"] is False
    assert provenance(own)["git_dirty"] is True
    for words in (["add", "."], ["commit", "-q", "-m", "Mine"]):
        identity = ["-c", "user.name=x", "-c", "user.email=x@example.org"]
        subprocess.run(["git", "-C", str(package.parent), *identity, *words], check=True)
    module._is_uncommitted.cache_clear()
    assert provenance(own)["git_dirty"] is False
    file.write_text(POLICY + "# more")
    module._is_uncommitted.cache_clear()
    assert provenance(own)["git_dirty"] is True


def test_a_package_that_is_only_installed_below_a_checkout_has_no_commit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = package_in(tmp_path)
    installed = shutil.copytree(package, package.parent / "venv")
    monkeypatch.setattr(sources, "PACKAGE", installed)
    assert (provenance()["git_commit"], provenance()["git_dirty"]) == (None, None)


def test_without_git_there_is_no_commit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    assert provenance()["git_commit"] is None


def test_it_costs_next_to_nothing_a_run() -> None:
    provenance()
    each = calls(lambda: [provenance() for _ in range(100)]) / 100
    print(f"{each:.0f} calls")
    assert each < 60
