"""Many configurations that differ in a few values, without Hydra's price for each of them.

Hydra composes a configuration from files in some 50 ms. But only choices of config groups (and changes of Hydra's own
node) take part in that; all other overrides are applied to the composed tree afterwards. So a tree is composed once for
every distinct set of choices (`_Base`); of the package's own files once in a process, in whatever folder, and what
it says is kept on disk (`written`). A job that
only puts plain values in place of plain values gets them put there; any other job gets a copy of the tree with its
values applied by Hydra's own functions. Whatever goes wrong is left to Hydra, which starts over and says so itself.
"""

from __future__ import annotations

import os
import pickle  # copies trees within this process, several times faster than copy.deepcopy; nothing is read from disk
import re
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cache, lru_cache
from typing import Any

from hydra._internal.config_loader_impl import ConfigLoaderImpl, get_overrides_dirname
from hydra._internal.config_repository import CachingConfigRepository
from hydra.core.hydra_config import HydraConfig
from hydra.core.object_type import ObjectType
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override, OverrideType
from hydra.types import RunMode
from omegaconf import AnyNode, Container, DictConfig, ListConfig, OmegaConf, flag_override, open_dict

from prebleexp.launch import written
from prebleexp.launch.configs import has_own, is_of_this_package, primary_of
from prebleexp.launch.groups import made_whole
from prebleexp.launch.messages import understood
from prebleexp.launch.places import files
from prebleexp.launch.written import Composition, Written, is_plain

LINES_KEPT = 10_000
"""overrides that a composer remembers parsed"""
_ALONE = threading.RLock()
"""Hydra has one current configuration for all threads, and no part of it is made for two at once"""
_OF_PACKAGE: dict[object, bytes] = {}
"""bases of the package's configurations alone, by what they were made of"""

_Loaded = tuple[tuple[bytes, DictConfig], Written]
"""the tree and Hydra's node, and what they say"""


@dataclass(frozen=True)
class _Base(Written):
    """A composed tree before values are applied. Jobs share what they do not change: it is most of the tree."""

    nodes: dict[str, Any]
    """to be put into the tree"""
    whole: Callable[[], tuple[bytes, DictConfig]]
    """the tree, and Hydra's node"""


class Composer:
    """Composes jobs. `fixed` overrides come before those of every job."""

    def __init__(self, loader: ConfigLoaderImpl, fixed: Sequence[str] = ()) -> None:
        self.loader = loader
        self._primary = primary_of(loader)
        groups = loader.get_group_options("", ObjectType.GROUP) if is_of_this_package(loader.get_search_path()) else []
        self._nodes = set(groups) - {"hydra", "sweeps", "variant"}
        self._fixed = tuple(fixed)
        parser = OverridesParser.create(config_loader=loader)
        self._parse = lru_cache(LINES_KEPT)(lambda line: parser.parse_overrides([line])[0])
        self._repositories: dict[tuple[str, ...], CachingConfigRepository] = {}
        self._is_group: dict[tuple[CachingConfigRepository, str], bool] = {}
        self._bases: dict[tuple[str, ...], _Base] = {}
        self._options: dict[tuple[str, str], dict[str, Any] | None] = {}
        is_of_package = is_of_this_package(loader.get_search_path()) and not has_own(loader)
        self._made_of = written.digest((self._primary, *files())) if is_of_package else None

    def compose(self, overrides: Sequence[str], number: int | None = None) -> Composition:
        """A composition of these overrides, with the values of `configuration`."""
        with _ALONE:
            made = self._compose(overrides, number)
            made_whole(made.values, overrides, self._values_of)
            return made

    def _values_of(self, group: str, overrides: Sequence[str]) -> dict[str, Any]:
        with understood(self.loader, overrides):
            return dict(self._compose(overrides, None).values[group])

    def _compose(self, overrides: Sequence[str], number: int | None) -> Composition:
        try:
            parsed, base, values = self._apart(overrides)
            assigned = base.assigned((one.key_or_group, one.value()) for one in values)
            if assigned is not None and all(map(_is_change, values)):
                return Composition(assigned, base.choices)
            cfg = self._applied(parsed, base, values, number)
            changed = {re.split(r"[.\[]", override.key_or_group)[0] for override in values}
            known = {key: value for key, value in base.final.items() if key not in changed}
        except Exception:
            cfg, known = self._by_hydra(overrides, number), {}
        return Composition(plain(cfg, known), dict(cfg.hydra.runtime.choices))

    def configuration(self, overrides: Sequence[str], number: int | None = None) -> DictConfig:
        """What `ConfigLoaderImpl.load_configuration` gives in RUN mode, as job `number`; raises what that raises.

        The node `hydra` is only good until the next call.
        """
        with _ALONE:
            try:
                return self._applied(*self._apart(overrides), number)
            except Exception:
                return self._by_hydra(overrides, number)

    def _by_hydra(self, overrides: Sequence[str], number: int | None) -> DictConfig:
        cfg = self.loader.load_configuration(self._primary, [*self._fixed, *overrides], RunMode.RUN)
        _number(cfg.hydra, number)
        return cfg

    def _apart(self, overrides: Sequence[str]) -> tuple[list[Override], _Base, list[Override]]:
        """The overrides, the tree that those of them make which take part in composing, and the others."""
        parsed = [self._parse(line) for line in (*self._fixed, *overrides)]
        self.loader.validate_sweep_overrides_legal(parsed, RunMode.RUN, from_shell=True)
        repository = self._repository(parsed)
        structure: list[str] = []
        values: list[Override] = []
        for override in parsed:
            if self._is_structural(override, repository):
                structure.append(str(override.input_line))
            else:
                values.append(override)
        return parsed, self.base(tuple(structure)), values

    def _applied(
        self, parsed: Sequence[Override], base: _Base, values: list[Override], number: int | None
    ) -> DictConfig:
        asks_hydra = base.asks_hydra or any(_asks_hydra(str(override.input_line)) for override in values)
        if asks_hydra and not all(_is_assignment(override) for override in values):
            # what looks at the tree while it is changed must see Hydra's node as it is then: not yet filled in
            lines = [str(override.input_line) for override in parsed[len(self._fixed) :]]
            return self._by_hydra(lines, number)
        tree, hydra = base.whole()
        cfg: DictConfig = pickle.loads(tree)  # noqa: S301 -- written below, in this process
        with flag_override(cfg, ["struct", "readonly", "no_deepcopy_set_nodes"], [False, False, True]):
            for group, node in base.nodes.items():
                cfg[group] = node
            cfg["hydra"] = hydra
        hydra.runtime.choices.update(base.choices)
        self.loader._apply_overrides_to_config(values, cfg)
        own = [override for override in parsed if override.is_hydra_override()]
        others = [override for override in parsed if not override.is_hydra_override()]
        job, style = hydra.job, hydra.job.config.override_dirname
        hydra.overrides.hydra = [override.input_line for override in own]
        hydra.overrides.task = [override.input_line for override in others]
        job.override_dirname = get_overrides_dirname(others, style.exclude_keys, style.item_sep, style.kv_sep)
        _number(hydra, number)
        return cfg

    def _repository(self, parsed: Sequence[Override]) -> CachingConfigRepository:
        lines = tuple(str(o.input_line) for o in parsed if o.key_or_group == "hydra.searchpath")
        if lines not in self._repositories:
            made = self.loader._parse_overrides_and_create_caching_repo(self._primary, list(lines))
            self._repositories[lines] = made[1]
        return self._repositories[lines]

    def _is_structural(self, override: Override, repository: CachingConfigRepository) -> bool:
        name = override.key_or_group
        if name.replace("/", ".").split(".")[0] == "hydra":
            return True
        if isinstance(override.value(), dict):
            return False
        at = (repository, name)
        if at not in self._is_group:
            self._is_group[at] = repository.group_exists(name)
        return self._is_group[at]

    def base(self, structure: tuple[str, ...]) -> _Base:
        """The tree that overrides make which take part in composing."""
        if structure not in self._bases:
            rest, options = self._split(structure)
            self._bases[structure] = self._with_options(rest, options) if options else self._load(structure)
        return self._bases[structure]

    def _load(self, structure: tuple[str, ...]) -> _Base:
        """By Hydra, but for what it has made of the same files before: that is only asked for its trees if need be."""
        if self._made_of is None or any("hydra" in line and not line.startswith("hydra.mode=") for line in structure):
            trees, one = self._loaded(structure)
            return _Base(**vars(one), nodes={}, whole=lambda: trees)
        known = written.kept(self._made_of, structure)
        if known is None:
            _, known = self._of_package(structure)
            written.keep(self._made_of, structure, known)
        return _Base(**vars(known), nodes={}, whole=cache(lambda: self._of_package(structure)[0]))

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

    def _split(self, structure: tuple[str, ...]) -> tuple[tuple[str, ...], dict[str, str]]:
        """Apart from the rest, the options chosen of groups of this package that are nothing but their group's node:
        then the node is what its file says. Groups of the user's own are left to Hydra."""
        if has_own(self.loader) or any(line.startswith("hydra") and "searchpath" in line for line in structure):
            return structure, {}
        names = [line.partition("=")[0] for line in structure]
        options = {}
        for line, name in zip(structure, names, strict=True):
            option = self._parse(line).value()
            if name in self._nodes and names.count(name) == 1 and isinstance(option, str) and self._node(name, option):
                options[name] = option
        if not options:
            return structure, {}
        rest = tuple(line for line, name in zip(structure, names, strict=True) if name not in options)
        base = self.base(rest)
        for name in options:  # what else the rest says of a node must not be lost
            if repr(self._node(name, base.choices[name])) != repr(base.written[name]):
                return structure, {}
        return rest, options

    def _node(self, group: str, option: str) -> dict[str, Any] | None:
        """What an option's file says, if that is the group's node and no more: nothing of another node, of other
        options, or of values elsewhere."""
        at = (group, option)
        if at not in self._options:
            found = self.loader.repository.load_config(f"{group}/{option}")
            alone = found and not (found.defaults_list or found.is_schema_source or found.header["package"])
            values: Any = OmegaConf.to_container(found.config) if found and alone else None
            self._options[at] = values if isinstance(values, dict) and _is_final(values) else None
        return self._options[at]

    def _with_options(self, rest: tuple[str, ...], options: dict[str, str]) -> _Base:
        base = self.base(rest)
        nodes = {group: self._node(group, option) for group, option in options.items()}
        values = base.written | nodes
        others = (leaf for leaf in base.leaves if leaf.partition(".")[0] not in nodes)
        return replace(
            base,
            nodes=nodes,
            choices=base.choices | options,
            written=values,
            final={key: value for key, value in values.items() if key in base.final or key in nodes},
            leaves=frozenset((*others, *_leaves(OmegaConf.create(nodes)))),
        )


def plain(cfg: DictConfig, known: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """The configuration without Hydra's node as dicts, lists and scalars, interpolations resolved.

    Values that are `known` are not looked at again.
    """
    known = known or {}
    keys = [str(key) for key in cfg if key != "hydra"]
    with as_current(cfg):
        return {key: known[key] if key in known else _plain(cfg[key]) for key in keys}


@contextmanager
def as_current(cfg: DictConfig) -> Iterator[None]:
    """Lets `${hydra:…}` find this configuration's node, as it does while Hydra runs a job."""
    with _ALONE:
        current: Any = HydraConfig.instance()
        before, current.cfg = current.cfg, cfg
        try:
            yield
        finally:
            current.cfg = before


def _plain(value: Any) -> Any:
    if isinstance(value, Container):
        return OmegaConf.to_container(value, resolve=True, throw_on_missing=True)
    return value


def _written_of(cfg: DictConfig, hydra: DictConfig) -> Written:
    tree = OmegaConf.to_container(cfg)
    assert isinstance(tree, dict)
    values = {str(key): value for key, value in tree.items()}
    final = {key: value for key, value in values.items() if _is_final(value)}
    choices, multirun = dict(hydra.runtime.choices), hydra.mode == RunMode.MULTIRUN
    return Written(choices, values, final, frozenset(_leaves(cfg)), _asks_hydra(repr(values)), multirun)


def _leaves(cfg: DictConfig, path: str = "") -> Iterator[str]:
    for key in cfg:
        child = cfg._get_node(key)
        if not isinstance(key, str) or not key.isidentifier():
            continue
        if isinstance(child, DictConfig):
            if not path and child._metadata.ref_type is Any and not child._get_flag("readonly"):
                yield key  # as report=none
            yield from _leaves(child, f"{path}{key}.") if isinstance(child._value(), dict) else ()
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


def _asks_hydra(text: str) -> bool:
    return "${" in text and "hydra" in text


def _is_change(override: Override) -> bool:
    """Whether it sets what is there."""
    return override.type == OverrideType.CHANGE and override.package is None


def _is_assignment(override: Override) -> bool:
    """Whether it sets a top-level key, whatever is there."""
    return override.type == OverrideType.CHANGE and override.key_or_group.isidentifier()


def _number(hydra: DictConfig, number: int | None) -> None:
    if number is not None:
        with open_dict(hydra):
            hydra.job.id = hydra.job.num = number


def _is_final(value: Any) -> bool:
    if isinstance(value, dict):
        return all(map(_is_final, value.values()))
    if isinstance(value, list):
        return all(map(_is_final, value))
    return not isinstance(value, str) or is_plain(value)
