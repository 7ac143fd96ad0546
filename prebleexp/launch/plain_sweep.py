"""A sweep of plain words, composed without Hydra as single runs are (`at_once`): its keys have names and numbers,
lists of them, and ranges, or they are those of the parts of a file in sweeps/."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import product
from typing import TYPE_CHECKING, Any

from prebleexp.launch import naming, parts
from prebleexp.launch.at_once import CHOSEN, INTEGER, KEY, LISTED, NUMBER, ONE, Plain
from prebleexp.launch.configure import Settings, composed, settings_of
from prebleexp.launch.jobs import Lines, Swept, axes_of_parts, check, fitting, of_parts
from prebleexp.launch.session import Session
from prebleexp.launch.written import Composition

if TYPE_CHECKING:
    from omegaconf import DictConfig

LIST = re.compile(rf"({KEY})=({ONE}(?:,{ONE})*)")
RANGE = re.compile(rf"({KEY})=range\(({INTEGER}),({INTEGER})(?:,({INTEGER}))?\)")
INTEGERS, FLOATS = re.compile(INTEGER), re.compile(NUMBER)


@dataclass(frozen=True)
class PlainSweep:
    """What `Multirun` is of the same overrides."""

    overrides: Lines
    plain: Plain
    own: Mapping[str, Any]
    """the configuration of the sweep itself"""
    settings: Settings

    @classmethod
    def of(cls, overrides: Lines, multirun: bool) -> PlainSweep | None:
        """None where it is no sweep (which `multirun` says, or one of its options), or where Hydra has to be asked:
        some word is not plain, or not valid, jobs leave records, the parts are plans, a file has no parts but a
        sweeper's values, or a name is made for it."""
        keys = {line.partition("=")[0] for line in overrides if _choices(line)}
        if len(keys) < len(overrides) or naming.named(overrides) != list(overrides):
            return None
        plain, fixed = Plain(), [line for line in overrides if not _is_swept(line)]
        own = plain.composed(fixed)
        if own is None or own.values["job_dirs"] is not False or not (multirun or plain.is_sweep(fixed)):
            return None
        settings = settings_of(own.values)
        if settings.plans is not None or ("+sweeps" in keys and not settings.parts):
            return None
        return cls(overrides, plain, own.values, settings)

    @cached_property
    def master(self) -> DictConfig:
        """Its configuration as Hydra composes it, for who shows all of it."""
        from prebleexp.launch.multirun import Multirun

        return Multirun.of(self.overrides).master

    def launch(self, session: Session) -> None:
        """As `Multirun.launch`."""
        if not self.settings.parts:
            self._run(session, list(product(*map(_choices, self.overrides))), {})
            return
        jobs = of_parts(session, self.overrides, self.own, self._composed, self._choices)
        self._run(session, jobs, {"sweep": self.own["sweep"]})
        session.axes = axes_of_parts(session)

    def _run(self, session: Session, jobs: Sequence[Lines], common: Mapping[str, Any]) -> None:
        composed = ((lines, self._composed(lines)) for lines in jobs)
        found = fitting(session, ((lines, replace(one, values={**one.values, **common})) for lines, one in composed))
        check(session, found)
        session.run([job for _, job in found], Swept().axes(jobs))

    def _composed(self, lines: Lines) -> Composition:
        return composed(self.plain, lines)

    def _choices(self, line: str) -> list[str]:
        """What an override of a part stands for."""
        if found := _choices(line):
            return found if _is_swept(line) else [line]
        from hydra.core.override_parser.overrides_parser import OverridesParser

        from prebleexp.launch.messages import understood

        loader = self.plain.composer.loader
        with understood(loader, self.overrides):
            return parts.choices(line, OverridesParser.create(config_loader=loader))


def _choices(line: str) -> list[str]:
    """The overrides of a key with each of its values, as Hydra writes them; none if it is not plain."""
    if found := LIST.fullmatch(line):
        return [f"{found[1]}={_text(value)}" for value in found[2].split(",")]
    if CHOSEN.fullmatch(line) or LISTED.fullmatch(line):
        return [line]
    if found := RANGE.fullmatch(line):
        start, stop, step = int(found[2]), int(found[3]), int(found[4] or 1)
        return [f"{found[1]}={value}" for value in range(start, stop, step)] if step else []
    return []


def _is_swept(line: str) -> bool:
    """Whether a plain override has several values, or a range."""
    return "," in line and LISTED.fullmatch(line) is None


def _text(value: str) -> str:
    if INTEGERS.fullmatch(value):
        return str(int(value))
    return str(float(value)) if FLOATS.fullmatch(value) else value
