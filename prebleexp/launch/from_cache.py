"""From a run in the cache back to the words of the command line: its options by name, the overrides that make it."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from prebleexp.cluster.groups import TIERS, Cluster, Group
from prebleexp.errors import InvalidInput
from prebleexp.experiment.cell import NUMBERS, SPECS, UNLESS_DEFAULT, Cell, spec_identity
from prebleexp.experiment.counting import counted
from prebleexp.experiment.key import differences
from prebleexp.experiment.spec_columns import columns_of, spec_columns
from prebleexp.launch import specs

if TYPE_CHECKING:
    from hydra._internal.config_loader_impl import ConfigLoaderImpl

PARTS, WORDS = ("link", "migration", *TIERS), ("protocol", "decider", "decider_tokens", "offload_prompt_only")
"""of a cluster: what has fields of its own, and what has none"""
HASH = "sha256"
"""what stands for a file in the identity of a spec"""


def overrides_of(key: str, content: Mapping[str, Any], loader: ConfigLoaderImpl) -> list[str]:
    """What to write on the command line for this cell, but for the paths of files, of which only hashes are known.

    Raises InvalidInput if it is of a class that no option of conf/ has: what a cache says is not imported.
    """
    content = counted(content)
    made = [f"{name}={json.dumps(content[name])}" for name in NUMBERS if name in content]
    options = Options(loader)
    cluster = content.get("cluster", ())
    for one in _groups(cluster):
        options.option(key, "hardware", one["hardware"])
        if "engine" in one:
            options.option(key, "engine", one["engine"])
    if isinstance(cluster, Mapping) and "decode_policy" in cluster:
        options.option(key, "policy", cluster["decode_policy"])
    if "alone_on" in content.get("slo", ()):
        options.option(key, "hardware", content["slo"]["alone_on"])
    for spec in (*SPECS, *UNLESS_DEFAULT):
        if spec in content:
            option = options.option(key, spec, content[spec])
            fields = {name: value for name, value in content[spec].items() if name not in ("_target_", HASH)}
            made += [f"{spec}={option}", *(f"++{path}={_flow(value)}" for path, value in _leaves(spec, fields))]
    if isinstance(cluster, Mapping):
        tiers = {"host.gb": 0}  # there are no others unless one says so
        option, none = (_option(cluster), {} if "link" in cluster else tiers)
        fields = {name: one for name, one in none.items() if name.partition(".")[0] not in cluster} | dict(cluster)
        way = "++" if "link" in cluster and any(name in cluster for name in TIERS) else ""  # else the option has all
        way = "++" if {"protocol", "migration"} <= cluster.keys() else way
        return [*made, f"cluster={option}", *(f"{way}cluster.{name}={_flow(one)}" for name, one in fields.items())]
    return [*made, f"cluster.groups={_flow(cluster)}"] if cluster else made


def _option(cluster: Mapping[str, Any]) -> str:
    """The option that a cluster with more than groups is of, if it has but one such thing; else one of them."""
    if "protocol" in cluster:
        return "disaggregated"
    return "migrating" if "migration" in cluster else "tiered"


def _groups(cluster: Any) -> Sequence[Mapping[str, Any]]:
    found: Sequence[Mapping[str, Any]] = cluster["groups"] if isinstance(cluster, Mapping) else cluster
    return found


def _flow(value: Any) -> str:
    """As JSON, but for names, which Hydra takes without quotes alone."""
    if isinstance(value, Mapping):
        return "{" + ",".join(f"{name}:{_flow(one)}" for name, one in value.items()) + "}"
    return f"[{','.join(map(_flow, value))}]" if isinstance(value, list) else json.dumps(value)


def _leaves(path: str, value: Any) -> Iterator[tuple[str, Any]]:
    """Mappings as the paths of what is in them."""
    if isinstance(value, Mapping):
        for name, one in value.items():
            yield from _leaves(f"{path}.{name}", one)
    else:
        yield path, value


def check_files(key: str, content: Mapping[str, Any], cell: Cell) -> None:
    """Raises InvalidInput if a cell reads another file than the one that this run had read."""
    for spec in (*SPECS, *UNLESS_DEFAULT):
        wanted = content.get(spec, {}).get(HASH)
        if wanted is not None and spec_identity(getattr(cell, spec)).get(HASH) != wanted:
            raise InvalidInput(f"run {key} had read another file; say which, as {spec}.path=FILE")


class Options:
    """The options of all groups, those of ./conf included, by what they stand for."""

    def __init__(self, loader: ConfigLoaderImpl) -> None:
        self._loader = loader
        self._configs: dict[str, dict[str, dict[str, Any]]] = {}
        self._columns: dict[tuple[str, str], dict[str, Any]] = {}

    def nearest(self, spec: str, content: Mapping[str, Any]) -> str | None:
        """The option of this class whose fields differ least; None if no option is of this class."""
        found = {
            option: len(differences(_identity(spec, option, config), content))
            for option, config in self.configs(spec).items()
            if config.get("_target_") == content["_target_"]
        }
        return min(found, key=lambda option: found[option]) if found else None

    def option(self, key: str, spec: str, content: Mapping[str, Any]) -> str:
        """The nearest option. Raises InvalidInput, naming the run, if there is none."""
        found = self.nearest(spec, content)
        if found is None:
            raise InvalidInput(f"run {key}: no option of conf/{spec}/ is a {content['_target_']}")
        return found

    def columns(self, content: Mapping[str, Any]) -> dict[str, Any]:
        """What `Cell.columns` said of the cell that has this content, without what does not matter to its result.

        Of files, of which only hashes are known, the hashes.
        """
        content = counted(content)
        row = {"gpus": content["gpus"], "replicas": content.get("replicas", content["gpus"])}
        row |= {name: content[name] for name in NUMBERS if name in content}
        for spec in (*SPECS, *UNLESS_DEFAULT):
            if spec in content:
                at = (spec, json.dumps(content[spec]))
                if at not in self._columns:
                    self._columns[at] = self._of_spec(spec, content[spec])
                row |= self._columns[at]
        row |= spec_columns("cluster", *self._of_cluster(content.get("cluster", ())))
        for spec, (option, nothing) in UNLESS_DEFAULT.items():
            if spec not in content:
                row |= spec_columns(spec, option, columns_of(nothing))
        return row

    def _of_cluster(self, cluster: Any) -> tuple[str, dict[str, Any]]:
        groups = _groups(cluster)
        kept = [self.nearest(spec, one[spec]) for one in groups for spec in ("hardware", "engine") if spec in one]
        if None in kept:  # is not imported
            return "groups", {"groups": None}
        found = tuple(
            Group(
                one["gpus"],
                specs.build("hardware", "", one["hardware"]),
                one.get("role"),
                engine=specs.build("engine", "", one["engine"]) if "engine" in one else None,
            )
            for one in groups
        )
        if not isinstance(cluster, Mapping):
            return "groups" if found else "one_kind", Cluster(found).columns()
        policy = cluster.get("decode_policy")
        if policy is not None and self.nearest("policy", policy) is None:
            return "groups", {"groups": None}
        parts = {name: specs.build(name, "", cluster[name]) for name in PARTS if name in cluster}
        parts |= {name: cluster[name] for name in WORDS if name in cluster}
        parts["decode_policy"] = None if policy is None else specs.build("policy", "", policy)
        return "groups" if "protocol" in cluster else _option(cluster), Cluster(found, **parts).columns()

    def _of_spec(self, spec: str, content: Mapping[str, Any]) -> dict[str, Any]:
        fields = {name: value for name, value in content.items() if name != "_target_"}
        option = self.nearest(spec, content)
        alone_on = content.get("alone_on") if spec == "slo" else None
        if option is None or (alone_on is not None and self.nearest("hardware", alone_on) is None):  # is not imported
            return spec_columns(spec, content["_target_"].rpartition(".")[2], fields)
        given, config = {name: value for name, value in fields.items() if name != HASH}, self.configs(spec)[option]
        for name, value in given.items():  # in a key's text 180.0 is 180
            given[name] = float(value) if isinstance(config.get(name), float) and type(value) is int else value
        try:
            built = specs.build(spec, option, {**config, **given})
            if not differences(spec_identity(built), content):
                fields = columns_of(built)
        except InvalidInput:  # such as a file that is not known
            pass
        return spec_columns(spec, option, fields)

    def configs(self, spec: str) -> dict[str, dict[str, Any]]:
        """What the files of a group's options say, by option."""
        if spec not in self._configs:
            from omegaconf import OmegaConf

            loaded: dict[str, Any] = {
                option: self._loader.repository.load_config(f"{spec}/{option}")
                for option in self._loader.get_group_options(spec)
            }
            configs: dict[str, Any] = {
                option: OmegaConf.to_container(one.config) for option, one in loaded.items() if one is not None
            }
            self._configs[spec] = {option: config for option, config in configs.items() if isinstance(config, dict)}
        return self._configs[spec]


def _identity(spec: str, option: str, config: Mapping[str, Any]) -> Mapping[str, Any]:
    """What stands for an option: as far as that takes a file that is not known, what it says itself."""
    try:
        return spec_identity(specs.build(spec, option, config))
    except InvalidInput:
        return config
