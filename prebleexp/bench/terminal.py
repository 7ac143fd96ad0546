"""What a person who watches a terminal waits for."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
import time
from itertools import pairwise
from pathlib import Path

from prebleexp.errors import PrebleexpError

COMMAND = ("gpus=2", "rps=1", "duration_s=3")
READ = 65536


def silences(root: Path, folder: Path, numba: Path) -> tuple[float, float]:
    """Seconds until the first words of a short command of a checkout, and its longest silence after these. Raises
    PrebleexpError if it failed."""
    ours, theirs = pty.openpty()
    environment = os.environ | {"PYTHONPATH": str(root), "NUMBA_CACHE_DIR": str(numba), "TERM": "xterm"}
    command = [sys.executable, "-m", "prebleexp", *COMMAND]
    start = time.perf_counter()
    said = []
    with subprocess.Popen(  # noqa: S603
        command, cwd=folder, env=environment, stdout=subprocess.DEVNULL, stderr=theirs, stdin=theirs
    ) as process:
        os.close(theirs)
        while _words(ours):
            said.append(time.perf_counter() - start)
    os.close(ours)
    if process.returncode or not said:
        raise PrebleexpError(f"in {root}: prebleexp {' '.join(COMMAND)} failed (exit code {process.returncode})")
    return said[0], max((later - earlier for earlier, later in pairwise(said)), default=0.0)


def _words(terminal: int) -> bytes:
    """The next; nothing once the other side has closed it."""
    try:
        return os.read(terminal, READ)
    except OSError:
        return b""
