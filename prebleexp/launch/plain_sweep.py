"""A sweep of plain words, composed without Hydra as single runs are (`at_once`): its keys have names and numbers,
lists of them, and ranges."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import product
from typing import TYPE_CHECKING

from prebleexp.launch.at_once import INTEGER, KEY, NAME, NUMBER, Plain
from prebleexp.launch.configure import Settings, composed, settings_of
from prebleexp.launch.jobs import Lines, Swept, check, fitting
from prebleexp.launch.session import Session

if TYPE_CHECKING:
    from omegaconf import DictConfig

ONE = rf"(?:{INTEGER}|{NUMBER}|{NAME})"
LIST = re.compile(rf"({KEY})=({ONE}(?:,{ONE})*)")
RANGE = re.compile(rf"({KEY})=range\(({INTEGER}),({INTEGER})(?:,({INTEGER}))?\)")
INTEGERS, FLOATS = re.compile(INTEGER), re.compile(NUMBER)


@dataclass(frozen=True)
class PlainSweep:
    """What `Multirun` is of the same overrides."""

    overrides: Lines
    plain: Plain
    settings: Settings
    choices: Sequence[Lines]
    """of each override"""

    @classmethod
    def of(cls, overrides: Lines) -> PlainSweep | None:
        """None where Hydra has to be asked: some word is not plain, or not valid, or jobs leave records."""
        choices = [_choices(line) for line in overrides]
        keys = {of[0].partition("=")[0] for of in choices if of}
        if len(keys) < len(overrides):
            return None
        plain = Plain()
        own = plain.composed([line for line in overrides if "," not in line])
        if own is None or own.values["job_dirs"] is not False:
            return None
        return cls(overrides, plain, settings_of(own.values), choices)

    @cached_property
    def master(self) -> DictConfig:
        """Its configuration as Hydra composes it, for who shows all of it."""
        from prebleexp.launch.multirun import Multirun

        return Multirun.of(self.overrides).master

    def launch(self, session: Session) -> None:
        """As `Multirun.launch`."""
        jobs = list(product(*self.choices))
        found = fitting(session, ((lines, composed(self.plain, lines)) for lines in jobs))
        check(session, found)
        session.run([job for _, job in found], Swept().axes(jobs))


def _choices(line: str) -> list[str]:
    """The overrides of a key with each of its values, as Hydra writes them; none if it is not plain."""
    if found := LIST.fullmatch(line):
        return [f"{found[1]}={_text(value)}" for value in found[2].split(",")]
    if found := RANGE.fullmatch(line):
        start, stop, step = int(found[2]), int(found[3]), int(found[4] or 1)
        return [f"{found[1]}={value}" for value in range(start, stop, step)] if step else []
    return []


def _text(value: str) -> str:
    if INTEGERS.fullmatch(value):
        return str(int(value))
    return str(float(value)) if FLOATS.fullmatch(value) else value
