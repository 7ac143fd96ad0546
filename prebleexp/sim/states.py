"""Where a request can be when a run ends."""

from __future__ import annotations

from enum import IntEnum


class State(IntEnum):
    """Where a request was when the run ended. Every request is in exactly one state."""

    UNROUTED = 0
    """the run ended before the router saw it, or sent it again"""
    QUEUED = 1
    """routed, waiting on its GPU (also: sent back there for want of memory)"""
    RUNNING = 2
    """in its GPU's batch"""
    FINISHED = 3
    """its last token has come"""
    REFUSED = 4
    """the gateway or the router refused it, or no GPU could ever serve it"""
    NOT_DUE = 5
    """the run ended before it was due (where no request comes after another, it is unrouted instead)"""
    CANCELLED = 6
    """its patience was over before its first token, or one that it comes after was cancelled, refused or lost, or
    failed"""
    LOST = 7
    """its GPU went down, or was down when it came there"""
    HELD = 8
    """its prompt is computed and kept, and the GPU for its output has taken no room for it yet"""
    RESERVED = 9
    """the GPU for its output has taken room for it, and its KV is under way"""
    EXPIRED = 10
    """it waited too long in the gateway's queue"""
    FAILED = 11
    """its KV did not arrive at its GPU, which ended it with an error"""
