"""What the functions of plugs take and return, beside what a plug is given of itself (see `prebleexp.sim.plug`)."""

from __future__ import annotations

from numba import float64, int64, types

from prebleexp.sim.plug import Signatures
from prebleexp.sim.pools import PULL, PUSH_AT_END, RESERVE_FIRST
from prebleexp.sim.world import EXAMPLE

WORLD = EXAMPLE.type
_SUBJECT = (int64, float64)
ENGINE: Signatures = {
    "submit": (types.none, (WORLD, *_SUBJECT)),
    "begin": (float64, (WORLD, *_SUBJECT)),
    "end": (types.none, (WORLD, *_SUBJECT)),
    "settle": (types.none, (WORLD, *_SUBJECT)),
    "lacks_room": (int64, (WORLD, *_SUBJECT)),
}
CANCELLING: Signatures = {"cancel": (int64, (WORLD, *_SUBJECT))}
"""what an engine needs besides where requests give up: all that only some runs need takes a while to compile"""
_MOVING: Signatures = {"arrive": (types.none, (WORLD, *_SUBJECT)), "let_go": (types.none, (WORLD, *_SUBJECT))}
MOVING: dict[int, Signatures] = {
    PULL: {**_MOVING, "pull": (int64, (WORLD, *_SUBJECT))},
    RESERVE_FIRST: {**_MOVING, "reserve": (types.none, (WORLD, *_SUBJECT))},
    PUSH_AT_END: {**_MOVING, "push": (types.none, (WORLD, *_SUBJECT))},
}
"""… where KV goes from one GPU to another, by protocol"""
DECIDING: Signatures = {"found": (int64, (WORLD, *_SUBJECT))}
"""… where it is decided of each prompt whether it goes"""
DECIDER: Signatures = {"goes": (int64, (WORLD, *_SUBJECT))}
TIERING: Signatures = {
    "fetch": (int64, (WORLD, *_SUBJECT)),
    "offload": (types.none, (WORLD, *_SUBJECT)),
    "landed": (types.none, (WORLD, *_SUBJECT)),
}
"""… and where KV comes from tiers"""
MIGRATING: Signatures = dict.fromkeys(("move", "copied", "stop", "abandon"), (types.none, (WORLD, *_SUBJECT)))
"""… and where requests are moved"""
PAIRING: Signatures = {"pair": (types.none, (WORLD, float64))}
LINK: Signatures = {
    "ask": (types.none, (int64, int64, int64, float64, float64)),
    "happens": (int64, (int64, float64)),
    "takes": (float64, (int64, int64, float64, float64)),
    "drop": (types.none, (int64, float64)),
}
SENDING: Signatures = {
    "open_for": (types.none, (int64, int64, int64, float64)),
    "more": (types.none, (int64, float64, int64, float64, int64, float64)),
    "happens": (int64, (int64, float64)),
}
"""… and one over which KV goes part by part"""
GATEWAY: Signatures = {
    "arrive": (int64, (WORLD, *_SUBJECT)),
    "join": (int64, (WORLD, *_SUBJECT)),
    "offer": (int64, (WORLD, float64)),
    "leave": (int64, (WORLD, int64, int64)),
    "release": (types.none, (WORLD, float64)),
    "expire": (int64, (WORLD, *_SUBJECT)),
    "hear": (types.none, (WORLD, int64, int64)),
}
COST: Signatures = {
    "request_ms": (float64, (int64, int64)),
    "step_s": (float64, (int64, int64, int64, int64, int64, int64, float64)),
    "decode_s": (float64, (int64, int64, int64, int64)),
}
