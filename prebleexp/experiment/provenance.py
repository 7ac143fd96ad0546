"""How a run came about: which code, which libraries, which machine, when."""

from __future__ import annotations

import platform
import subprocess
from datetime import UTC, datetime
from functools import cache
from importlib.metadata import version
from typing import Any

from prebleexp import sources
from prebleexp.experiment.cell import Cell
from prebleexp.experiment.limits import peak_memory_bytes

LIBRARIES = ("numpy", "numba", "pyarrow")
PATIENCE_S = 5.0
FIELDS = ("prebleexp", "git_commit", "git_dirty", "python", *LIBRARIES, "host", "finished", "peak_memory_bytes")


def provenance(*cells: Cell) -> dict[str, Any]:
    """The fields of `FIELDS`, for runs of these cells. `peak_memory_bytes` is the most that this process has used so
    far, for all its runs; `finished` is UTC; the commit is None where the package is not part of a git checkout, and
    `git_dirty` is True unless that commit has all the code of these cells as it is."""
    found = _of_this_process() | {"finished": now(), "peak_memory_bytes": peak_memory_bytes()}
    if found["git_dirty"] is False:
        kinds = {spec.__class__ for cell in cells for spec in cell.parts.values()}
        found["git_dirty"] = any(_is_uncommitted(kind) for kind in kinds)
    return found


def now(timespec: str = "seconds") -> str:
    """The present time in UTC as ISO 8601 has it: "2026-01-31T12:00:00Z"."""
    return datetime.now(UTC).isoformat(timespec=timespec).removesuffix("+00:00") + "Z"


@cache
def _of_this_process() -> dict[str, Any]:
    commit, dirty = _git()
    libraries = {name: version(name) for name in LIBRARIES}
    return {
        "prebleexp": sources.version_of("prebleexp") or "a source tree",
        "git_commit": commit,
        "git_dirty": dirty,
        "python": platform.python_version(),
        **libraries,
        "host": platform.node(),
    }


def _git() -> tuple[str | None, bool | None]:
    """The commit of the checkout that the package is tracked in, and whether its files differ from it."""
    try:
        _ask_git("ls-files", "--error-unmatch", "__init__.py")
        return _ask_git("rev-parse", "HEAD"), bool(_ask_git("status", "--porcelain", "--", "."))
    except (OSError, subprocess.SubprocessError):  # no git, no checkout, or somebody else's
        return None, None


@cache
def _is_uncommitted(kind: type[Any]) -> bool:
    """Whether a class is somebody's own, and the commit of the package's checkout does not have its files so."""
    place = sources.place_of(kind)
    if place is None:
        return True
    if sources.is_own(place[0]):
        return False
    files = [str(file) for file in sorted(sources.with_imports(*place))]
    try:
        _ask_git("ls-files", "--error-unmatch", "--", *files)
        return bool(_ask_git("status", "--porcelain", "--", *files))
    except (OSError, subprocess.SubprocessError):  # not in that checkout
        return True


def _ask_git(*words: str) -> str:
    command = ["git", "--no-optional-locks", "-C", str(sources.PACKAGE), *words]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=PATIENCE_S)  # noqa: S603
    return done.stdout.strip()
