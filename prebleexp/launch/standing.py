"""One composer for this process: to start Hydra's takes hundreds of times as long as to compose with it."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path

from prebleexp.launch import configs, places
from prebleexp.launch.compose import Composer

_LOCK = threading.Lock()
_standing: tuple[object, Composer] | None = None
"""what it was made of, and it"""


def composer(overrides: Sequence[str]) -> Composer:
    """One for these overrides. Made anew when the current folder, or any file of a configuration, is another than
    before, and for overrides that name other folders."""
    global _standing
    if any("searchpath" in line for line in overrides):
        return Composer(configs.loader())
    with _LOCK:
        made_of = (Path.cwd(), *_files())
        if _standing is None or _standing[0] != made_of:
            _standing = made_of, Composer(configs.loader())
        return _standing[1]


def _files() -> Iterator[tuple[str, int, int, int]]:
    """Every file that a configuration may be made of, with what an edit changes."""
    for place in (places.HOME / "conf", places.HOME / "sweeps", *places.own_groups()):
        for folder, _, names in os.walk(place, followlinks=True):
            for name in names:
                with suppress(OSError):  # what editors leave beside a file may be gone by now, or point nowhere
                    at = os.stat(f"{folder}/{name}")  # noqa: PTH116 -- paths as objects take ten times as long
                    yield f"{folder}/{name}", at.st_mtime_ns, at.st_size, at.st_ino
