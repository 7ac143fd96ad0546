"""One composer for this process: to start Hydra's takes hundreds of times as long as to compose with it."""

from __future__ import annotations

import threading
from collections.abc import Sequence
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
        made_of = (Path.cwd(), *places.files())
        if _standing is None or _standing[0] != made_of:
            _standing = made_of, Composer(configs.loader())
        return _standing[1]
