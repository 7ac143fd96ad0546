"""Commands of a checkout, in processes of their own: what they took and what they said."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryFile
from typing import IO

from prebleexp.errors import InvalidInput, PrebleexpError

BAD_INPUT = 2
"""the exit code that says so"""


@dataclass(frozen=True)
class Done:
    """What a process took, with all that it had started and waited for, and what it wrote."""

    wall_s: float
    cpu_s: float
    out: str
    err: str


def python(arguments: Sequence[str], folder: Path, *path: Path, numba: Path | None = None) -> Done:
    """Run Python with these arguments in a folder, to the end. Modules are looked for in `path` first, the root of a
    checkout and others; machine code is kept in `numba`, or where the caller keeps it.

    Raises InvalidInput, with what it said last, if its exit code is that of bad input; PrebleexpError if it failed
    otherwise."""
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(map(str, path))}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    if numba is not None:
        environment["NUMBA_CACHE_DIR"] = str(numba)
    with TemporaryFile() as out, TemporaryFile() as err:
        start = time.perf_counter()
        process = subprocess.Popen([sys.executable, *arguments], cwd=folder, env=environment, stdout=out, stderr=err)  # noqa: S603
        try:
            _, status, used = os.wait4(process.pid, 0)
        except BaseException:
            process.kill()
            process.wait()
            raise
        wall_s = time.perf_counter() - start
        process.returncode = os.waitstatus_to_exitcode(status)
        done = Done(wall_s, used.ru_utime + used.ru_stime, _text(out), _text(err))
    if process.returncode:
        said = (done.err.splitlines() or ["nothing"])[-1].removeprefix("prebleexp: ")
        if process.returncode == BAD_INPUT:
            raise InvalidInput(f"in {path[0]}: {said}")
        raise PrebleexpError(f"in {path[0]}: {said} (exit code {process.returncode})")
    return done


def prebleexp(root: Path, arguments: Sequence[str], folder: Path, numba: Path | None = None) -> Done:
    """Run a command of the checkout `root` likewise."""
    return python(["-m", "prebleexp", *arguments], folder, root, numba=numba)


def _text(file: IO[bytes]) -> str:
    file.seek(0)
    return file.read().decode(errors="replace")
