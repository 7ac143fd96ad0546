"""The jobs of a sweep, whoever composed them: their cells, which of them do not fit, which keys are swept."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from prebleexp.errors import DoesNotFit
from prebleexp.launch import idle, parts
from prebleexp.launch.configure import NUMBERS, Job, axes_of, job_of
from prebleexp.launch.parts import key_of
from prebleexp.launch.written import Composition

if TYPE_CHECKING:
    from prebleexp.launch.session import Session

Lines = Sequence[str]
"""the overrides of a job"""


def fitting(session: Session, composed: Iterable[tuple[Lines, Composition]]) -> list[tuple[Lines, Job]]:
    """Jobs, and what they say. Raises InvalidInput if any of them is not valid; of what does not fit only where the
    session does not leave it out, or nothing does fit."""
    found: list[tuple[Lines, Job]] = []
    misfits: list[tuple[Lines, DoesNotFit]] = []
    for lines, composition in composed:
        try:
            found.append((lines, job_of(composition)))
        except DoesNotFit as error:
            if not session.leaves_out:
                raise
            misfits.append((lines, error))
    if misfits and not found:
        raise misfits[0][1]
    session.misfits += misfits
    return found


def check(session: Session, jobs: Sequence[tuple[Lines, Job]]) -> None:
    """Raises InvalidInput if a key that has several values does nothing."""
    if not session.settings.parts and all(job.settings == jobs[0][1].settings for _, job in jobs):
        idle.refuse([lines for lines, _ in jobs], [job.cells[0] for _, job in jobs])


def of_parts(
    session: Session,
    arguments: Lines,
    values: Mapping[str, Any],
    composed: Callable[[Lines], Composition],
    choices_of: Callable[[str], list[str]],
) -> list[list[str]]:
    """The jobs of a sweep's parts, of which the session learns where they belong. `values` are what the arguments make,
    `composed` says what others do."""
    shared = _without_sweep(arguments, values, composed)
    found = parts.jobs(session.settings.parts, shared, choices_of)
    session.places = [place for place, _ in found]
    return [lines for _, lines in found]


def axes_of_parts(session: Session) -> list[str]:
    return ["part", "line", *axes_of(key for part in session.settings.parts for key in part.params)]


def _without_sweep(arguments: Lines, values: Mapping[str, Any], composed: Callable[[Lines], Composition]) -> list[str]:
    """The arguments with what the sweep's file sets written out in its place: it is a large file, and composing it for
    every distinct choice would take longer than all the rest. If it sets more than numbers, it stays."""
    rest = [line for line in arguments if not line.startswith("+sweeps=")]
    given = {key_of(line) for line in rest}
    without = composed([line for line in rest if "," not in line]).values
    changed = [key for key in without if key not in given and key != "sweep" and values[key] != without[key]]
    if values.keys() != without.keys() or not set(changed) <= set(NUMBERS):
        return list(arguments)
    return [*rest, *(f"{key}={values[key]}" for key in changed)]


class Swept:
    """The keys that have had more than one value so far, in the order in which they came."""

    def __init__(self) -> None:
        self._values: dict[str, set[str]] = {}

    def axes(self, jobs: Iterable[Lines]) -> list[str]:
        """With these jobs."""
        for line in dict.fromkeys(line for lines in jobs for line in lines):
            self._values.setdefault(key_of(line), set()).add(line.partition("=")[2])
        return axes_of(key for key, values in self._values.items() if len(values) > 1)
