"""Hydra's own test suites for launchers, run with `hydra/launcher=prebleexp` in applications that are not prebleexp.

All their cases are run, with Hydra's basic sweeper and with ours. To a task of another application ours are Hydra's
basic launcher and sweeper; what becomes of prebleexp's own jobs is for `tests/fast/test_cli.py` and its neighbours.
"""

from __future__ import annotations

import os

import pytest
from hydra.core.plugins import Plugins
from hydra.plugins.launcher import Launcher
from hydra.plugins.sweeper import Sweeper
from hydra.test_utils.launcher_common_tests import BatchedSweeperTestSuite, IntegrationTestSuite, LauncherTestSuite

from prebleexp.launch import configs
from tests.support.places import ROOT
from tests.support.sampled import sampled

CHANGES_FOLDER = ["hydra.job.chdir=true"]  # the suites are of a time when every job ran in its folder


@pytest.fixture(autouse=True)
def found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lets applications in other folders find the plugin, as if it were installed."""
    configs.loader()
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")]))


def test_hydra_finds_the_plugins() -> None:
    for kind, name in ((Launcher, "PrebleexpLauncher"), (Sweeper, "PrebleexpSweeper")):
        assert name in [plugin.__name__ for plugin in Plugins.instance().discover(kind)]


@pytest.mark.parametrize(("launcher_name", "sweeper"), sampled([("prebleexp", "prebleexp"), ("prebleexp", "basic")], 2))
class TestLauncher(LauncherTestSuite):
    @pytest.fixture
    def overrides(self, sweeper: str) -> list[str]:
        return [f"hydra/sweeper={sweeper}", *CHANGES_FOLDER]


@pytest.mark.parametrize(("launcher_name", "sweeper"), [("prebleexp", "basic"), ("prebleexp", "prebleexp")])
@pytest.mark.slow
class TestBatches(BatchedSweeperTestSuite):
    @pytest.fixture
    def overrides(self, sweeper: str) -> list[str]:
        return [f"hydra/sweeper={sweeper}", *CHANGES_FOLDER, "hydra.sweeper.max_batch_size=2"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("task_launcher_cfg", "extra_flags"),
    [({}, ["-m", "hydra/launcher=prebleexp", "hydra/sweeper=prebleexp"])],
    ids=[""],
)
class TestApplications(IntegrationTestSuite):
    pass
