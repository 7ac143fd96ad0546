"""A configuration with its options chosen and no values applied: by Hydra, but for what it has made of the same files
before. That is known in a process and kept on disk (`written`)."""

from __future__ import annotations

import os
import pickle  # copies trees within this process, several times faster than copy.deepcopy; nothing is read from disk
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any

from hydra._internal.config_loader_impl import ConfigLoaderImpl
from hydra.types import RunMode
from omegaconf import AnyNode, DictConfig, ListConfig, OmegaConf, open_dict

from prebleexp.launch import written
from prebleexp.launch.configs import has_own, is_of_this_package, primary_of
from prebleexp.launch.places import files
from prebleexp.launch.written import Written, is_plain

_OF_PACKAGE: dict[object, bytes] = {}
"""bases of the package's configurations alone, by what they were made of"""

_Loaded = tuple[tuple[bytes, DictConfig], Written]
"""the tree and Hydra's node, and what they say"""


@dataclass(frozen=True)
class Base(Written):
    """A composed tree before values are applied. Jobs share what they do not change: it is most of the tree."""

    nodes: dict[str, Any]
    """to be put into the tree"""
    whole: Callable[[], tuple[bytes, DictConfig]]
    """the tree, and Hydra's node"""


class Bases:
    """Makes them."""

    def __init__(self, loader: ConfigLoaderImpl) -> None:
        self.loader = loader
        self._primary = primary_of(loader)
        is_of_package = is_of_this_package(loader.get_search_path()) and not has_own(loader)
        self._made_of = written.digest((self._primary, *files())) if is_of_package else None

    def made(self, structure: tuple[str, ...]) -> Base:
        """By Hydra, but for what it has made of the same files before: that is only asked for its trees if need be."""
        if self._made_of is None or any("hydra" in line and not line.startswith("hydra.mode=") for line in structure):
            trees, one = self._loaded(structure)
            return Base(**vars(one), nodes={}, whole=lambda: trees)
        known = written.kept(self._made_of, structure)
        if known is None:
            _, known = self._of_package(structure)
            written.keep(self._made_of, structure, known)
        return Base(**vars(known), nodes={}, whole=cache(lambda: self._of_package(structure)[0]))

    def _of_package(self, structure: tuple[str, ...]) -> _Loaded:
        """Once in a process."""
        at = (self._made_of, structure)
        if at not in _OF_PACKAGE:
            _OF_PACKAGE[at] = pickle.dumps(self._loaded(structure))
        made: _Loaded = pickle.loads(_OF_PACKAGE[at])  # noqa: S301 -- written in this process
        made[0][1].runtime.cwd = os.getcwd()  # noqa: PTH109 -- as Hydra writes it
        return made

    def _loaded(self, structure: tuple[str, ...]) -> _Loaded:
        cfg = self.loader.load_configuration(self._primary, list(structure), RunMode.RUN)
        with open_dict(cfg):
            hydra = cfg.pop("hydra")
        return (pickle.dumps(cfg), hydra), _written_of(cfg, hydra)


def _written_of(cfg: DictConfig, hydra: DictConfig) -> Written:
    tree = OmegaConf.to_container(cfg)
    assert isinstance(tree, dict)
    values = {str(key): value for key, value in tree.items()}
    final = {key: value for key, value in values.items() if is_final(value)}
    choices, multirun = dict(hydra.runtime.choices), hydra.mode == RunMode.MULTIRUN
    return Written(choices, values, final, frozenset(leaves(cfg)), asks_hydra(repr(values)), multirun)


def leaves(cfg: DictConfig, path: str = "") -> Iterator[str]:
    """Paths of what may be changed without Hydra: values and lists of no declared type, and groups that are off."""
    for key in cfg:
        child = cfg._get_node(key)
        if not isinstance(key, str) or not key.isidentifier():
            continue
        if isinstance(child, DictConfig):
            if not path and child._metadata.ref_type is Any and not child._get_flag("readonly"):
                yield key  # as report=none
            yield from leaves(child, f"{path}{key}.") if isinstance(child._value(), dict) else ()
        elif isinstance(child, AnyNode | ListConfig) and _is_free(child):
            yield path + key


def _is_free(node: AnyNode | ListConfig) -> bool:
    """Whether it is of no declared type, and may be changed."""
    if isinstance(node, ListConfig):
        of = node._metadata
        untyped = isinstance(node._value(), list) and of.ref_type is Any and of.element_type is Any
    else:
        untyped = type(node) is AnyNode
    return untyped and not node._get_flag("readonly")


def asks_hydra(text: str) -> bool:
    """Whether Hydra's node is interpolated in it."""
    return "${" in text and "hydra" in text


def is_final(value: Any) -> bool:
    """Whether nothing in it is interpolated or missing."""
    if isinstance(value, dict):
        return all(map(is_final, value.values()))
    if isinstance(value, list):
        return all(map(is_final, value))
    return not isinstance(value, str) or is_plain(value)
