"""From a run in the cache back to the overrides that make it."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from hydra._internal.config_loader_impl import ConfigLoaderImpl

from prebleexp.errors import InvalidInput
from prebleexp.experiment.cache import Cache
from prebleexp.experiment.cell import NUMBERS, SPECS, Cell, spec_identity

LEAST_LETTERS = 4
HASH = "sha256"
"""what stands for a file in the identity of a spec"""


def content_of(prefix: str, cache: Cache) -> tuple[str, Mapping[str, Any]]:
    """The key of the run whose key starts so, and what its cell was. Raises InvalidInput if there is none or more than
    one."""
    key = _key(prefix, cache)
    kept = cache.get(key) or cache.failure(key)
    if kept is None:
        raise InvalidInput(f"run {key} is damaged")
    return key, kept.content["cell"]


def overrides_of(key: str, content: Mapping[str, Any], loader: ConfigLoaderImpl) -> list[str]:
    """What to write on the command line for this cell, but for the paths of files, of which only hashes are known.

    Raises InvalidInput if it is of a class that no option of conf/ has: what a cache says is not imported.
    """
    made = [f"{name}={json.dumps(content[name])}" for name in NUMBERS if name in content]
    for spec in SPECS:
        if spec in content:
            made += _of_spec(spec, content[spec], key, loader)
    return made


def check_files(key: str, content: Mapping[str, Any], cell: Cell) -> None:
    """Raises InvalidInput if a cell reads another file than the one that this run had read."""
    for spec in SPECS:
        wanted = content.get(spec, {}).get(HASH)
        if wanted is not None and spec_identity(getattr(cell, spec)).get(HASH) != wanted:
            raise InvalidInput(f"run {key} had read another file; say which, as {spec}.path=FILE")


def _key(prefix: str, cache: Cache) -> str:
    if not re.fullmatch("[0-9a-f]{4,64}", prefix):
        raise InvalidInput(f"{prefix!r} is no key; it has at least {LEAST_LETTERS} digits, hexadecimal")
    found = cache.beginning(prefix)
    if len(found) != 1:
        many = f"{len(found)} runs in" if found else "no run in"
        raise InvalidInput(f"{many} the cache folder {cache.folder} have a key that starts with {prefix}")
    return found.pop()


def _of_spec(spec: str, content: Mapping[str, Any], key: str, loader: ConfigLoaderImpl) -> list[str]:
    fields = {name: value for name, value in content.items() if name not in ("_target_", HASH)}
    for option in loader.get_group_options(spec):
        loaded: Any = loader.repository.load_config(f"{spec}/{option}")
        if loaded is not None and loaded.config.get("_target_") == content["_target_"]:
            return [f"{spec}={option}", *(f"++{spec}.{name}={json.dumps(value)}" for name, value in fields.items())]
    raise InvalidInput(f"run {key}: no option of conf/{spec}/ is a {content['_target_']}")
