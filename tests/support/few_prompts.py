"""A router that remembers few prompts.

Its table of them is 96 MB, written to all over when it is made, so that no client waits for a page: several times as
long as a test of a few requests takes.
"""

from __future__ import annotations

import pytest

from prebleexp.live.router import deciding
from prebleexp.live.router.prompts import BLOCK, LONGEST


def remember_few(patch: pytest.MonkeyPatch) -> None:
    """Routers that are made from now on have room for two of the longest prompts."""
    patch.setattr(deciding, "ROOM", deciding.ROOM._replace(ids=2 * LONGEST // BLOCK))
