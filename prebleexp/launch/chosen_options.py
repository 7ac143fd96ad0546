"""What people chose, of what keys have: options by the classes that runs are of, and what nobody chose."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from prebleexp.comparison import Value, flattened
from prebleexp.experiment.cell import SPECS, spec_identity
from prebleexp.launch import configs, configure
from prebleexp.launch.from_cache import Options


def by_class(columns: Iterable[tuple[str, Value]], said: Collection[str]) -> dict[str, str]:
    """Of columns of keys whose value is a class: by its path the name of its option, where there is one of it, or one
    of several was `said`."""
    of = {(name, value) for name, value in columns if name in SPECS and isinstance(value, str)}
    options = Options(configs.loader()) if of else None
    found = {}
    for group, path in of:
        assert options is not None
        named = [name for name, config in options.configs(group).items() if config.get("_target_") == path]
        named = [name for name in named if name in said] or named
        if len(named) == 1:
            found[path] = named[0]
    return found


def not_chosen(differs: Mapping[str, tuple[Value, Value]]) -> dict[str, Value]:
    """Of what differs that on which one side does not depend, and of which the other has the default, by its value:
    lor reads no lengths, and whoever runs llmd beside it need not have said any."""
    one_sided = {name: next(filter(None, pair), None) for name, pair in differs.items() if None in pair}
    groups = {name.partition(".")[0] for name in one_sided} & {*SPECS}
    if not groups:
        return {}
    (default,) = configure.cells([])
    usual = flattened({"cell": {group: spec_identity(getattr(default, group)) for group in groups}})
    return {name: value for name, value in one_sided.items() if name in usual and usual[name] == value}
