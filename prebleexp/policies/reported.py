"""Whether GPUs have reported since a router last looked: what it makes of their reports stands until then."""

from __future__ import annotations

from typing import Any

from prebleexp.sim.compiled import compiled
from prebleexp.sim.records import NONE, View

UNREAD = NONE
"""a number of reports that never was"""


@compiled
def is_news(read: Any, view: View) -> bool:
    """`read`: (1,) how many reports there were when it last looked, `UNREAD` at first. Where GPUs are seen as they
    are, everything is."""
    reports = view.reports[0]
    if reports != 0 and reports == read[0]:
        return False
    read[0] = reports
    return True
