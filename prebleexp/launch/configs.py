"""Where configurations lie, and a Hydra loader that finds them."""

from __future__ import annotations

import importlib
from pathlib import Path

from hydra import version
from hydra._internal.config_loader_impl import ConfigLoaderImpl
from hydra._internal.utils import create_config_search_path
from hydra.core.config_search_path import ConfigSearchPath, SearchPathQuery
from hydra.core.plugins import Plugins
from hydra.core.utils import setup_globals

CONFIG = "config"
PLUGIN = "hydra_plugins.prebleexp_plugin"

_PACKAGE = Path(__file__).resolve().parent.parent
HOME = _PACKAGE if (_PACKAGE / "conf").is_dir() else _PACKAGE.parent
"""The folder that holds conf/ and sweeps/: the package in a wheel, else the checkout."""


def loader() -> ConfigLoaderImpl:
    """A loader of this package's configurations. Leaves Hydra's global state (GlobalHydra) alone."""
    version.setbase("1.3")
    setup_globals()  # resolvers: ${now:…} and the like
    _register_plugin()
    return ConfigLoaderImpl(create_config_search_path(str(HOME / "conf")))


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


def own_groups() -> list[Path]:
    """Config groups of the user, in the current folder."""
    here = Path.cwd()
    if here == HOME:
        return []
    groups = sorted(path for path in (here / "conf").iterdir() if path.is_dir()) if (here / "conf").is_dir() else []
    return [*groups, here / "sweeps"] if (here / "sweeps").is_dir() else groups


def _register_plugin() -> None:
    """Hydra finds plugins by walking folders; an editable install need not be one, so tell it what it missed."""
    plugins = Plugins.instance()
    if f"{PLUGIN}.PrebleexpLauncher" in plugins.class_name_to_class:
        return
    module = importlib.import_module(PLUGIN)
    for name in ("GroupSource", "PrebleexpSearchPath", "PrebleexpSweeper", "PrebleexpLauncher"):
        plugins.register(getattr(module, name))
