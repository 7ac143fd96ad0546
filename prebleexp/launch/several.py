"""Overrides of which some have several values, apart: `policy=lor,e2` is two lines of one key."""

from __future__ import annotations

from collections.abc import Sequence

from hydra.core.override_parser.overrides_parser import OverridesParser

from prebleexp.errors import InvalidInput
from prebleexp.launch import globs, standing
from prebleexp.launch.messages import understood
from prebleexp.launch.parts import key_of


def by_key(lines: Sequence[str]) -> dict[str, list[str]]:
    """Of each key its lines, each with one value, in the order in which they came. Raises InvalidInput for what cannot
    be read, and for intervals, which have no list of values."""
    composer = standing.composer(lines)
    with understood(composer.loader, lines):
        parsed = OverridesParser.create(config_loader=composer.loader).parse_overrides(list(lines))
        for override in parsed:
            if override.is_interval_sweep():
                raise InvalidInput(
                    f"{override.input_line}: an interval has no list of values; use range(start,stop,step)"
                )
            globs.leave_out_what_needs_a_file(override, parsed, composer.loader)
        found: dict[str, list[str]] = {}
        for override in parsed:
            line = str(override.input_line)
            key = override.get_key_element()
            own = (
                [f"{key}={one}" for one in override.sweep_string_iterator()] if override.is_sweep_override() else [line]
            )
            if not own:
                raise InvalidInput(f"{line}: there is nothing to choose from; no value matches")
            found[key_of(line)] = own  # the last of several, as everywhere
    return found
