"""What prebleexp adds to Hydra: its sweeper, its launcher, and where its configurations lie.

Hydra imports every module of the namespace package `hydra_plugins`, for any application of the same environment.
So this one is thin: the work is done in `prebleexp.launch`, which is imported when it is needed.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from hydra._internal.core_plugins.basic_launcher import BasicLauncher, BasicLauncherConf
from hydra._internal.core_plugins.basic_sweeper import BasicSweeper, BasicSweeperConf
from hydra._internal.core_plugins.file_config_source import FileConfigSource
from hydra.core.config_search_path import ConfigSearchPath
from hydra.core.config_store import ConfigStore
from hydra.core.utils import JobReturn
from hydra.plugins.search_path_plugin import SearchPathPlugin
from hydra.types import HydraContext, TaskFunction
from omegaconf import DictConfig

if TYPE_CHECKING:
    from prebleexp.launch.batch import Batches


class GroupSource(FileConfigSource):
    """A folder that is one config group of the same name.

    What lies beside it stays unseen, so that a folder that happens to be called "rps" does not turn a key into a group.
    """

    def __init__(self, provider: str, path: str) -> None:
        super().__init__(provider, path)
        folder = Path(self.path)
        self.group, self.path = folder.name, str(folder.parent)

    @staticmethod
    def scheme() -> str:
        return "prebleexp-group"

    def is_group(self, config_path: str) -> bool:
        return (config_path == "" or self._inside(config_path)) and super().is_group(config_path)

    def is_config(self, config_path: str) -> bool:
        return self._inside(config_path) and super().is_config(config_path)

    def _inside(self, config_path: str) -> bool:
        return config_path == self.group or config_path.startswith(f"{self.group}/")


class PrebleexpSearchPath(SearchPathPlugin):
    """Adds the package's sweeps, and the user's own groups and sweeps in the current folder, which come first."""

    def manipulate_search_path(self, search_path: ConfigSearchPath) -> None:
        from prebleexp.launch import configs

        configs.extend(search_path, GroupSource.scheme())


class PrebleexpSweeper(BasicSweeper):
    """Every combination of the values on the command line, in one batch. Composes nothing: the launcher does.

    For the task of another application it is Hydra's basic sweeper.
    """

    def setup(self, *, hydra_context: HydraContext, task_function: TaskFunction, config: DictConfig) -> None:
        super().setup(hydra_context=hydra_context, task_function=task_function, config=config)
        self.task_function = task_function

    def sweep(self, arguments: list[str]) -> Any:
        from prebleexp.launch import batch

        return batch.sweep(self, arguments) if batch.takes(self.task_function) else super().sweep(arguments)


class PrebleexpLauncher(BasicLauncher):
    """Runs a batch of jobs as one list of cells: cached ones are looked up, the others run in parallel.

    For the task of another application it is Hydra's basic launcher.
    """

    @cached_property
    def batches(self) -> Batches:
        from prebleexp.launch.batch import Batches

        assert self.hydra_context is not None
        return Batches(
            cast(Any, self.task_function), cast(Any, self.hydra_context.config_loader), cast(Any, self.config)
        )

    def launch(self, job_overrides: Sequence[Sequence[str]], initial_job_idx: int) -> Sequence[JobReturn]:
        from prebleexp.launch import batch

        if not batch.takes(self.task_function):
            return super().launch(job_overrides, initial_job_idx)
        assert self.config is not None
        Path(self.config.hydra.sweep.dir).mkdir(parents=True, exist_ok=True)  # other sweepers keep their files there
        return self.batches.launch(job_overrides, initial_job_idx)


SWEEPER = BasicSweeperConf(_target_=f"{__name__}.{PrebleexpSweeper.__name__}", params={})
LAUNCHER = BasicLauncherConf(_target_=f"{__name__}.{PrebleexpLauncher.__name__}")

ConfigStore.instance().store(group="hydra/sweeper", name="prebleexp", node=SWEEPER, provider="prebleexp")
ConfigStore.instance().store(group="hydra/launcher", name="prebleexp", node=LAUNCHER, provider="prebleexp")
