"""A sweep: composed by Hydra, its jobs made by whichever sweeper it names, their cells run by a session."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import cast

from hydra._internal.callbacks import Callbacks
from hydra._internal.config_loader_impl import ConfigLoaderImpl
from hydra._internal.core_plugins.basic_sweeper import BasicSweeper
from hydra.core.plugins import Plugins
from hydra.errors import HydraException
from hydra.types import HydraContext, RunMode
from omegaconf import DictConfig, OmegaConf

from prebleexp.errors import InvalidInput
from prebleexp.launch import standing
from prebleexp.launch.compose import plain
from prebleexp.launch.configure import Settings, settings_of
from prebleexp.launch.messages import MULTIRUN, one_line, understood
from prebleexp.launch.places import CONFIG
from prebleexp.launch.session import Session


@dataclass(frozen=True)
class Multirun:
    loader: ConfigLoaderImpl
    master: DictConfig
    """the configuration of the sweep itself"""

    @classmethod
    def of(cls, overrides: Sequence[str]) -> Multirun:
        """Raises InvalidInput, with one line, for overrides that are not valid."""
        loader = standing.composer(overrides).loader
        lines = [*overrides, MULTIRUN]
        with understood(loader, lines):
            return cls(loader, loader.load_configuration(CONFIG, lines, RunMode.MULTIRUN))

    @cached_property
    def settings(self) -> Settings:
        with understood(self.loader, []):
            return settings_of(plain(self.master))

    def launch(self, session: Session) -> None:
        """Run all jobs. Raises InvalidInput, before anything is run, if one of them is not valid."""
        master = self.master
        launcher = master.hydra.runtime.choices["hydra/launcher"]
        if launcher != "prebleexp":
            raise InvalidInput(f"hydra/launcher={launcher}: it must be prebleexp")
        if master.hydra.sweep.dir.startswith("~"):  # as reports_dir may; else sweepers make a folder of that name
            master.hydra.sweep.dir = str(Path(master.hydra.sweep.dir).expanduser())
        sweeper = Plugins.instance().instantiate_sweeper(
            hydra_context=HydraContext(config_loader=self.loader, callbacks=Callbacks(master)),
            task_function=session,
            config=master,
        )
        try:
            sweeper.sweep(cast(list[str], OmegaConf.to_container(master.hydra.overrides.task)))  # not resolved: a job's
        except (HydraException, ValueError) as error:
            if isinstance(sweeper, BasicSweeper):
                raise
            hint = "" if session.settings.objective else "; it gets all metrics of a job, set objective=METRIC for one"
            name = master.hydra.runtime.choices["hydra/sweeper"]
            raise InvalidInput(f"hydra/sweeper={name}: {one_line(error)}{hint}") from error
