"""Settings that a run's key leaves out since they change nothing there, as a gateway that lets all through."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from prebleexp.comparison import Measured, Value, flattened
from prebleexp.experiment.cell import UNLESS_DEFAULT, spec_identity


def completed(a: Sequence[Measured], b: Sequence[Measured]) -> tuple[list[Measured], list[Measured]]:
    """Sides of a comparison, in which runs without a group of settings that others have are as its default has it: so
    that gateway.replicas=1 stands beside gateway.replicas=4. What is nothing by default, and one value wherever the
    group is, does not matter there and is taken to be that value, unless all that differs is such."""
    usual = {}
    for name, (_, default) in UNLESS_DEFAULT.items():
        having = [run for run in (*a, *b) if name in run.place]
        if having:
            usual[name] = _usual(flattened({"cell": {name: spec_identity(default)}}), having)
    return [_completed(run, usual) for run in a], [_completed(run, usual) for run in b]


def _usual(default: Mapping[str, Value], having: Sequence[Measured]) -> dict[str, Value]:
    values = {name: {run.place.get(name) for run in having} for name in default}
    differs = [name for name in default if default[name] not in values[name]]
    idle = [name for name in differs if default[name] is None and len(values[name]) == 1]
    if len(idle) == len(differs):
        idle = idle[1:]
    return {**default, **{name: next(iter(values[name])) for name in idle}}


def _completed(run: Measured, usual: Mapping[str, Mapping[str, Value]]) -> Measured:
    missing = {name: value for group, of in usual.items() if group not in run.place for name, value in of.items()}
    return replace(run, place={**run.place, **missing}) if missing else run
