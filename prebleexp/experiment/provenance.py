"""How a run came about: which code, which libraries, which machine, when."""

from __future__ import annotations

import platform
import subprocess
from datetime import UTC, datetime
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from prebleexp.experiment.limits import peak_memory_bytes
from prebleexp.sources import PACKAGE

LIBRARIES = ("numpy", "numba", "pyarrow")
PATIENCE_S = 5.0
FIELDS = ("prebleexp", "git_commit", "git_dirty", "python", *LIBRARIES, "host", "finished", "peak_memory_bytes")


def provenance() -> dict[str, Any]:
    """The fields of `FIELDS`. `peak_memory_bytes` is the most that this process has used so far, for all its runs;
    `finished` is UTC; the commit is None where the package is not part of a git checkout."""
    return _of_this_process() | {"finished": now(), "peak_memory_bytes": peak_memory_bytes()}


def now() -> str:
    """UTC, as in ISO 8601."""
    return datetime.now(UTC).isoformat(timespec="seconds").removesuffix("+00:00") + "Z"


@cache
def _of_this_process() -> dict[str, Any]:
    commit, dirty = _git()
    libraries = {name: version(name) for name in LIBRARIES}
    return {
        "prebleexp": _package(),
        "git_commit": commit,
        "git_dirty": dirty,
        "python": platform.python_version(),
        **libraries,
        "host": platform.node(),
    }


def _package() -> str:
    try:
        return version("prebleexp")
    except PackageNotFoundError:
        return "a source tree"


def _git() -> tuple[str | None, bool | None]:
    """The commit of the checkout that the package is tracked in, and whether its files differ from it."""
    try:
        _ask_git("ls-files", "--error-unmatch", "__init__.py")
        return _ask_git("rev-parse", "HEAD"), bool(_ask_git("status", "--porcelain", "--", "."))
    except (OSError, subprocess.SubprocessError):  # no git, no checkout, or somebody else's
        return None, None


def _ask_git(*words: str) -> str:
    command = ["git", "--no-optional-locks", "-C", str(PACKAGE), *words]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=PATIENCE_S)  # noqa: S603
    return done.stdout.strip()
