"""What Hydra and OmegaConf say about bad input, in one line that names the thing, the value and what is valid."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from hydra._internal.config_loader_impl import ConfigLoaderImpl
from hydra.core.object_type import ObjectType
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override
from hydra.errors import HydraException, OverrideParseException
from omegaconf.errors import OmegaConfBaseException
from yaml import YAMLError

from prebleexp.errors import InvalidInput, SeveralValues, unknown
from prebleexp.hardware.same_shape import of_shape
from prebleexp.launch.bases import Bases
from prebleexp.launch.specs import located, unknown_field
from prebleexp.launch.written import Written

MODELS = "hardware/model"
MULTIRUN = "hydra.mode=MULTIRUN"
"""what `-m` stands for"""
PERCENTILE = re.compile(r"(?:p(?P<before>\d+)_)?(?P<limit>[a-z]+)(?:_p(?P<after>\d+))?(?:_s)?")
"""of a limit, as people write one: ttft_p95, p95_ttft_s"""


@contextmanager
def understood(loader: ConfigLoaderImpl, overrides: Sequence[str]) -> Iterator[None]:
    """Turns what composing `overrides` raises into InvalidInput. Looks for a cause only once something was raised."""
    try:
        yield
    except (HydraException, OmegaConfBaseException, YAMLError, ValueError) as error:
        raise _cause(loader, overrides) or InvalidInput(one_line(error)) from error


def one_line(error: BaseException) -> str:
    """What an error says, and what caused it if it says nothing."""
    says = str(error).strip() or (str(error.__cause__).strip() if error.__cause__ else "") or type(error).__name__
    lines = [line.strip() for line in says.splitlines()]
    if isinstance(error, OverrideParseException):
        why = [line for line in lines if not line.startswith(("Error parsing", "LexerNoViable", "^", "See https"))]
        reason = "a quote or bracket is not closed"
        if str(error.override).partition("=")[2].startswith("~"):
            reason = "~ stands for nothing here: write $HOME"
        elif odd := sorted({letter for letter in str(error.override) if not letter.isascii()}):
            reason = f"{' '.join(odd)} must stand in quotes within its value: key='\"…\"'"
        return f"{error.override} is not valid: {' '.join(why) or reason}"
    return " ".join(line for line in lines if line and not line.startswith(("See https", "full_key:", "object_type=")))


def _cause(loader: ConfigLoaderImpl, lines: Sequence[str]) -> InvalidInput | None:
    for line in lines:
        if line.startswith("=") or ("=" not in line and not line.startswith("~")):
            return InvalidInput(f"{line!r} is not valid; settings are written key=value")
    parser = OverridesParser.create(config_loader=loader)
    try:
        overrides = [parser.parse_override(line) for line in lines]
    except HydraException:
        return None
    bases = Bases(loader)
    plain = _composed(bases, [])
    for override in overrides:
        found = _group_trouble(bases, override, overrides)
        if found is None and plain:
            found = _value_trouble(bases, override, overrides, plain)
        if found:
            return found
    return _given_twice(overrides)


def _given_twice(overrides: Sequence[Override]) -> InvalidInput | None:
    """Of a single value the last one counts, but mappings would be merged."""
    lines: dict[str, str] = {}
    for override in overrides:
        if (before := lines.get(override.key_or_group)) is not None and isinstance(override.value(), dict):
            return InvalidInput(f"{override.key_or_group} is given twice: {before} and {override.input_line}")
        lines[override.key_or_group] = str(override.input_line)
    return None


def _group_trouble(bases: Bases, override: Override, overrides: Sequence[Override]) -> InvalidInput | None:
    name, loader = override.key_or_group, bases.loader
    options = loader.get_group_options(name)
    value = override.value()
    if not options or override.is_delete() or override.is_sweep_override() or isinstance(value, dict):
        return None
    chosen = value if isinstance(value, list) else [value]
    wrong = [option for option in chosen if option not in options]
    if wrong:
        for inner in loader.get_group_options(name, ObjectType.GROUP):
            if wrong[0] in loader.get_group_options(f"{name}/{inner}"):
                within = "GPU" if inner == "gpu" else inner
                return InvalidInput(f"unknown {name} {wrong[0]!r}; it is a {within}: say {name}/{inner}={wrong[0]}")
        if name == MODELS and (alike := of_shape(str(wrong[0]))) is not None:
            return InvalidInput(
                f"unknown {name} {wrong[0]!r}; it has the layers, widths and vocabulary of {alike}, so steps take as "
                f"long and as much KV fits: say {name}={alike}"
            )
        return unknown(name.removesuffix("s") if name == "sweeps" else name, str(wrong[0]), options)
    return _orphan(bases, override, overrides) if "/" in name and not override.is_add() else None


def _orphan(bases: Bases, override: Override, overrides: Sequence[Override]) -> InvalidInput | None:
    """An error for an option of a group within a group, if what is chosen of the outer one has no such group."""
    group = override.key_or_group.partition("/")[0]
    made = _composed(bases, [str(one.input_line) for one in overrides if one.key_or_group == group])
    choices = made.choices if made else {}
    if group not in choices or override.key_or_group in choices:
        return None
    outer = [f"{group}={one}" for one in bases.loader.get_group_options(group)]
    holders = [line for line in outer if _holds(bases, line, override.key_or_group)]
    return InvalidInput(
        f"{override.input_line}: {group}={choices[group]} has no {override.key_or_group}; choose "
        f"{' or '.join(holders)} with it"
    )


def _holds(bases: Bases, line: str, name: str) -> bool:
    made = _composed(bases, [line])
    return made is not None and name in made.choices


def _value_trouble(
    bases: Bases, override: Override, overrides: Sequence[Override], plain: Written
) -> InvalidInput | None:
    if override.is_sweep_override():
        if any(other.input_line == MULTIRUN for other in overrides):
            return None
        return SeveralValues(str(override.input_line), "add -m to run a sweep over them")
    if override.is_add() or override.is_force_add() or bases.loader.repository.group_exists(override.key_or_group):
        return None
    path = override.key_or_group.split(".")
    if path[0] == "hydra":
        return None
    if path[0] not in plain.written:
        value = str(override.input_line).partition("=")[2]
        if len(path) == 1 and (places := _within(bases.loader, path[0], value, plain.written)):
            return InvalidInput(f"unknown key {path[0]!r}; say {' or '.join(f'{one}={value}' for one in places)}")
        return unknown("key", path[0], list(plain.written))
    if len(path) == 2 and isinstance(plain.written[path[0]], dict):
        chosen = [str(o.input_line) for o in overrides if o.key_or_group == path[0] and not o.is_sweep_override()]
        made = _composed(bases, chosen)
        node = made.written[path[0]] if made else None
        if made and isinstance(node, dict) and path[1] not in node:
            name = made.choices.get(path[0])
            fields = [str(k) for k in node if k != "_target_"]
            return (
                _percentile(path, fields)
                or _unlisted(path, str(name), node)
                or unknown_field(path[0], str(name or path[0]), path[1], fields)
            )
    return None


def _within(loader: ConfigLoaderImpl, key: str, value: str, plain: Mapping[str, Any]) -> list[str]:
    """Where a key is that was written without its group: gpu=h100 is hardware/gpu, precision=fp8 hardware.precision.
    A number is no option of a group: gpu=4 means gpus."""
    groups = [group for group in plain if isinstance(plain[group], dict)]
    named = [one for one in groups if key in loader.get_group_options(one, ObjectType.GROUP)]
    if named:
        return [] if value[:1].isdigit() else [f"{one}/{key}" for one in named]
    return [f"{one}.{key}" for one in groups if key in plain[one]]


def _percentile(path: Sequence[str], fields: Sequence[str]) -> InvalidInput | None:
    """An error for a percentile as a key of its own: it is a share that a limit has."""
    found = PERCENTILE.fullmatch(path[1])
    at = found and (found["before"] or found["after"])
    if path[0] != "slo" or not found or not at or f"{found['limit']}_s" not in fields:
        return None
    key = f"slo.{found['limit']}_s"
    return InvalidInput(f"unknown key {'.'.join(path)!r}; a percentile is a share of a limit: '{key}={{p{at}: 1}}'")


def _unlisted(path: Sequence[str], name: str, node: Mapping[str, Any]) -> InvalidInput | None:
    """An error for a field that the class has and its YAML does not list."""
    try:
        kind = located(path[0], name, str(node.get("_target_")))
    except InvalidInput:
        return None
    found = {one.name: one.default for one in dataclasses.fields(kind) if one.init}
    if path[1] not in found:
        return None
    default = found[path[1]]
    line = f"{path[1]}: {'…' if default is dataclasses.MISSING else default}"
    return InvalidInput(
        f"unknown key {'.'.join(path)!r}; {kind.__name__} has this field, and its YAML does not list it: write "
        f"'{line}' into conf/{path[0]}/{name}.yaml"
    )


def _composed(bases: Bases, lines: Sequence[str]) -> Written | None:
    try:
        return bases.made(tuple(lines))
    except Exception:
        return None
