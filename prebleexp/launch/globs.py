"""policy=glob(*): all that may be chosen, as far as it is complete without a file of the user's."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from hydra._internal.config_loader_impl import ConfigLoaderImpl
from hydra.core.override_parser.types import Glob, Override
from omegaconf import OmegaConf

from prebleexp.errors import InvalidInput
from prebleexp.launch import specs
from prebleexp.launch.configure import GROUPS


def leave_out_what_needs_a_file(override: Override, given: Sequence[Override], loader: ConfigLoaderImpl) -> None:
    """Of a glob over a group leave out the options that ask for a path, and say so; not if one of the `given` overrides
    is that path, nor those that the glob names in full."""
    group, glob = override.key_or_group, override.value()
    if not isinstance(glob, Glob) or group not in GROUPS or any(one.key_or_group == f"{group}.path" for one in given):
        return
    for option in glob.filter(loader.get_group_options(group)):
        if option not in glob.include and (why := _refusal(group, option, loader)):
            glob.exclude.append(option)
            print(f"prebleexp: {override.input_line} leaves out {option}: {why}", file=sys.stderr)


def _refusal(group: str, option: str, loader: ConfigLoaderImpl) -> InvalidInput | None:
    """Why it cannot be made as its own file has it, without a path."""
    loaded = loader.repository.load_config(f"{group}/{option}")
    config = OmegaConf.to_container(loaded.config) if loaded else None
    if isinstance(config, dict) and config.get("path", "") is None:
        try:
            specs.build(group, option, config)
        except InvalidInput as error:
            return error
    return None
