"""A Hydra loader that finds the package's configurations and the user's."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

from hydra import version
from hydra._internal import defaults_list
from hydra._internal.config_loader_impl import ConfigLoaderImpl
from hydra._internal.utils import create_config_search_path
from hydra.core.config_search_path import ConfigSearchPath, SearchPathQuery
from hydra.core.config_store import ConfigStore
from hydra.core.default_element import InputDefault
from hydra.core.plugins import Plugins
from hydra.core.utils import setup_globals
from omegaconf import OmegaConf

from prebleexp.errors import InvalidInput
from prebleexp.launch.places import CONFIG, HOME, PACKAGE, own_groups

GIVEN = "command-line"
"""who adds the folder of --config-dir, as Hydra calls it"""
PLUGIN = "hydra_plugins.prebleexp_plugin"


def _copy_no_store(store: ConfigStore, memo: dict[int, Any]) -> ConfigStore:
    """Each composition copies the sources of configurations, to have its own search path, and with them this one store
    of all, which nobody changes there: what is taken from it is copied then."""
    return store


def _choices(overrides: Any, defaults: Sequence[InputDefault], self_added: bool, usual: Any) -> Any:
    """Each file's list of defaults has all choices made a configuration, of which interpolations in the list are looked
    up. Hardly any list has one."""
    asks = any(not one.is_self() and one.is_interpolation() for one in defaults)
    return usual(overrides, defaults, self_added) if asks else None


def _compose_no_more_than_is_used() -> None:
    """A quarter of what Hydra does to compose a configuration is used by nobody, and takes a fifth of the time."""
    usual = defaults_list._create_interpolation_map
    ConfigStore.__deepcopy__ = _copy_no_store  # type: ignore[attr-defined]
    defaults_list._create_interpolation_map = partial(_choices, usual=usual)


_compose_no_more_than_is_used()


class Loader(ConfigLoaderImpl):
    """Knows which of the configurations that it finds is where composing begins."""

    def __init__(self, search_path: ConfigSearchPath, primary: str) -> None:
        super().__init__(search_path)
        self.primary = primary


def loader(more: Path | None = None, primary: str = CONFIG) -> Loader:
    """A loader of this package's configurations, and of those in the folder `more`. Leaves Hydra's global state
    (GlobalHydra) alone. Raises InvalidInput if there is no such folder."""
    version.setbase("1.3")
    setup_globals()  # resolvers: ${now:…} and the like
    OmegaConf.register_new_resolver("package", lambda path: str(PACKAGE / path), replace=True)
    _register_plugin()
    search_path = create_config_search_path(str(HOME / "conf"))
    if more is not None:
        if not more.is_dir():
            raise InvalidInput(f"--config-dir={more} is not a folder")
        search_path.prepend(GIVEN, f"file://{more.resolve()}", anchor=SearchPathQuery(provider="main"))
    return Loader(search_path, primary)


def primary_of(loader: ConfigLoaderImpl) -> str:
    """The name of the configuration with which it begins."""
    return loader.primary if isinstance(loader, Loader) else CONFIG


def extend(search_path: ConfigSearchPath, scheme: str) -> None:
    """Add sweeps/, and ./conf and ./sweeps of the current folder before everything else; only for this application.

    `scheme` is that of sources that show one folder as the config group of its name.
    """
    if not is_of_this_package(search_path):
        return
    main = SearchPathQuery(provider="main", path=str(HOME / "conf"))
    for folder in own_groups():
        search_path.prepend("prebleexp", f"{scheme}://{folder}", anchor=main)
    search_path.append("prebleexp", f"{scheme}://{HOME / 'sweeps'}")


def is_of_this_package(search_path: ConfigSearchPath) -> bool:
    """Whether it is this package's application, not another of the same environment."""
    return any((place.provider, place.path) == ("main", str(HOME / "conf")) for place in search_path.get_path())


def has_own(loader: ConfigLoaderImpl) -> bool:
    """Whether it finds configurations of the user."""
    return bool(own_groups()) or any(place.provider == GIVEN for place in loader.get_search_path().get_path())


def _register_plugin() -> None:
    """Hydra finds plugins by walking folders; an editable install need not be one, so tell it what it missed."""
    plugins = Plugins.instance()
    if f"{PLUGIN}.PrebleexpLauncher" in plugins.class_name_to_class:
        return
    module = importlib.import_module(PLUGIN)
    for name in ("GroupSource", "PrebleexpSearchPath", "PrebleexpSweeper", "PrebleexpLauncher"):
        plugins.register(getattr(module, name))
