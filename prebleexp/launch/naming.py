"""What a sweep of sweeps/ is called: as its file says, or, with other settings on the command line, so that one sees
them. So a quick look with few seeds takes the place of no whole sweep, neither in reports/ nor in the tables."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence

from prebleexp.launch.configure import GROUPS, KEYS, NUMBERS
from prebleexp.launch.parts import key_of

HOW = {*KEYS, "hydra", "sweeps"} - {*NUMBERS, *GROUPS}
"""the keys that change no result"""
MOST_LETTERS = 80


def settings(overrides: Sequence[str]) -> list[str]:
    """Those that change what is simulated."""
    return [line for line in overrides if re.split(r"[./]", key_of(line))[0] not in HOW]


def named(overrides: Sequence[str]) -> list[str]:
    """The overrides with a name for the sweep, if one is needed: fig1a-replications-3."""
    sweeps = [line.partition("=")[2] for line in overrides if key_of(line) == "sweeps"]
    own = sorted(line.lstrip("+") for line in settings(overrides))
    if len(sweeps) != 1 or not own or any(key_of(line) in ("sweep", "sweep.name") for line in overrides):
        return list(overrides)
    return [*overrides, f"sweep.name={folder(sweeps[0], *own)}"]


def page(kind: str, overrides: Sequence[str]) -> str:
    """What the page of a command that is no sweep is called: sweep.name=, else what it was asked."""
    given = [line.partition("=")[2] for line in overrides if key_of(line) == "sweep.name"]
    return given[-1] if given else folder(kind, *(one.lstrip("+") for one in overrides))


def folder(*texts: str) -> str:
    """What a page that these tell from others is called."""
    name = "-".join(re.sub(r"[^\w.]+", "-", text).strip("-.") for text in texts)
    if len(name) > MOST_LETTERS:
        digest = hashlib.sha256("\n".join(texts).encode()).hexdigest()[:8]
        name = f"{name[: MOST_LETTERS - 9]}-{digest}"
    return name
