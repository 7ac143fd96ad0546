"""What happens on GPUs of which routers hear: each kind declared once, with the function of a policy that is told."""

from __future__ import annotations

from typing import NamedTuple

OF_REQUEST, OF_CONTEXT, OF_GPU = range(3)
"""a notice is of a request that is served, of KV of a request's context, or of a GPU"""


class Notice(NamedTuple):
    function: str
    """of a policy"""
    of: int
    """its function is given the request; the request, the GPU and so many tokens; or the GPU; and then the time"""


_declared: list[Notice] = []


def _kind(function: str, of: int) -> int:
    _declared.append(Notice(function, of))
    return len(_declared) - 1


FIRST_TOKEN = _kind("first_token", OF_REQUEST)
STORED = _kind("stored", OF_CONTEXT)
EVICTED = _kind("evicted", OF_CONTEXT)
FINISHED = _kind("finished", OF_REQUEST)
CANCELLED = _kind("finished", OF_REQUEST)
LOST = _kind("finished", OF_REQUEST)
CHANGED = _kind("changed", OF_GPU)
COPIED = _kind("copied", OF_CONTEXT)
DROPPED = _kind("dropped", OF_CONTEXT)
LEFT = _kind("finished", OF_REQUEST)
ROUTED = _kind("routed", OF_REQUEST)

NOTICES = tuple(_declared)
"""by kind"""
FUNCTIONS = {one.function: one.of for one in NOTICES}
SUBJECTS = tuple(one.of for one in NOTICES)
"""by kind, what it is of"""
