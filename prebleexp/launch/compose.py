"""Many configurations that differ in a few values, without Hydra's price for each of them.

Hydra composes a configuration from files in some 50 ms. But only choices of config groups (and changes of Hydra's own
node) take part in that; all other overrides are applied to the composed tree afterwards. So a tree is composed once for
every distinct set of choices (`bases`), of the package's own files once in a process, in whatever folder. A job that
only puts plain values in place of plain values gets them put there; any other job gets a copy of the tree with its
values applied by Hydra's own functions. Whatever goes wrong is left to Hydra, which starts over and says so itself.
"""

from __future__ import annotations

import pickle
import re
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import lru_cache
from typing import Any

from hydra._internal.config_loader_impl import ConfigLoaderImpl, get_overrides_dirname
from hydra._internal.config_repository import CachingConfigRepository
from hydra.core.hydra_config import HydraConfig
from hydra.core.object_type import ObjectType
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override, OverrideType
from hydra.types import RunMode
from omegaconf import Container, DictConfig, OmegaConf, flag_override, open_dict

from prebleexp.launch.bases import Base, Bases, asks_hydra, is_final, leaves
from prebleexp.launch.configs import has_own, is_of_this_package, primary_of
from prebleexp.launch.groups import made_whole
from prebleexp.launch.messages import understood
from prebleexp.launch.written import Composition

LINES_KEPT = 10_000
"""overrides that a composer remembers parsed"""
_ALONE = threading.RLock()
"""Hydra has one current configuration for all threads, and no part of it is made for two at once"""


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
        self._bases: dict[tuple[str, ...], Base] = {}
        self._options: dict[tuple[str, str], dict[str, Any] | None] = {}
        self._trees = Bases(loader)

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

    def _apart(self, overrides: Sequence[str]) -> tuple[list[Override], Base, list[Override]]:
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
        self, parsed: Sequence[Override], base: Base, values: list[Override], number: int | None
    ) -> DictConfig:
        asks = base.asks_hydra or any(asks_hydra(str(override.input_line)) for override in values)
        if asks and not all(_is_assignment(override) for override in values):
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

    def base(self, structure: tuple[str, ...]) -> Base:
        """The tree that overrides make which take part in composing."""
        if structure not in self._bases:
            rest, options = self._split(structure)
            self._bases[structure] = self._with_options(rest, options) if options else self._trees.made(structure)
        return self._bases[structure]

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
            self._options[at] = values if isinstance(values, dict) and is_final(values) else None
        return self._options[at]

    def _with_options(self, rest: tuple[str, ...], options: dict[str, str]) -> Base:
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
            leaves=frozenset((*others, *leaves(OmegaConf.create(nodes)))),
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
