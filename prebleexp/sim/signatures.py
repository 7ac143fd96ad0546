"""What the functions of plugs take and return, beside what a plug is given of itself (see `prebleexp.sim.plug`)."""

from __future__ import annotations

from prebleexp.sim.plug import FLOAT, INT, NOTHING, Signatures
from prebleexp.sim.pools import PULL, PUSH_AT_END, RESERVE_FIRST
from prebleexp.sim.world import EXAMPLE

WORLD = EXAMPLE.layout
_SUBJECT = (INT, FLOAT)
ENGINE: Signatures = {
    "submit": (NOTHING, (WORLD, *_SUBJECT)),
    "begin": (FLOAT, (WORLD, *_SUBJECT)),
    "end": (NOTHING, (WORLD, *_SUBJECT)),
    "settle": (NOTHING, (WORLD, *_SUBJECT)),
    "lacks_room": (INT, (WORLD, *_SUBJECT)),
}
CANCELLING: Signatures = {"cancel": (INT, (WORLD, *_SUBJECT))}
"""what an engine needs besides where requests give up: all that only some runs need takes a while to compile"""
DECODING: Signatures = {"decode": (FLOAT, (WORLD, *_SUBJECT))}
"""… may have where all requests are served whole, by GPUs that step alone"""
_MOVING: Signatures = {"arrive": (NOTHING, (WORLD, *_SUBJECT)), "let_go": (NOTHING, (WORLD, *_SUBJECT))}
MOVING: dict[int, Signatures] = {
    PULL: {**_MOVING, "pull": (INT, (WORLD, *_SUBJECT)), "hear": (NOTHING, (WORLD, *_SUBJECT))},
    RESERVE_FIRST: {**_MOVING, "reserve": (NOTHING, (WORLD, *_SUBJECT))},
    PUSH_AT_END: {**_MOVING, "push": (INT, (WORLD, *_SUBJECT))},
}
"""… where KV goes from one GPU to another, by protocol"""
_HANDOFF: Signatures = {
    **dict.fromkeys(("placed", "lost_on_the_way", "is_lost", "refused", "expire"), (INT, (WORLD, *_SUBJECT))),
    "goes_on": (INT, (WORLD, INT, INT)),
}
_COMPUTED: Signatures = {"computed": (NOTHING, (WORLD, *_SUBJECT))}
HANDOFF: dict[int, Signatures] = {
    PULL: {**_HANDOFF, **_COMPUTED},
    RESERVE_FIRST: {**_HANDOFF, "waits": (INT, (WORLD, *_SUBJECT))},
    PUSH_AT_END: {**_HANDOFF, **_COMPUTED},
}
"""what requests have whose prompts are computed elsewhere, by protocol"""
DECIDING: Signatures = {"found": (INT, (WORLD, *_SUBJECT))}
"""… where it is decided of each prompt whether it goes"""
DECIDER: Signatures = {"goes": (INT, (WORLD, *_SUBJECT))}
TIERING: Signatures = {
    "fetch": (INT, (WORLD, *_SUBJECT)),
    "offload": (INT, (WORLD, *_SUBJECT)),
    "landed": (NOTHING, (WORLD, *_SUBJECT)),
    "hear": (NOTHING, (WORLD, *_SUBJECT)),
    "heard": (NOTHING, (WORLD, *_SUBJECT)),
    "part": (NOTHING, (WORLD, *_SUBJECT)),
}
"""… and where KV comes from tiers"""
LENDING: Signatures = {
    "has": (INT, (WORLD, INT, INT, INT)),
    "lend": (NOTHING, (WORLD, INT, INT, INT)),
    "take_back": (NOTHING, (WORLD, *_SUBJECT)),
    "do_without": (NOTHING, (WORLD, *_SUBJECT)),
}
"""… and from other GPUs"""
FAILING: Signatures = {"fail": (NOTHING, (WORLD, *_SUBJECT))}
"""… and where it may not arrive, for its sender is lost"""
MIGRATING: Signatures = {
    **dict.fromkeys(("move", "copied", "stop", "abandon"), (NOTHING, (WORLD, *_SUBJECT))),
    "spares": (INT, (WORLD, INT, INT)),
    "set_aside": (NOTHING, (WORLD, INT, INT, INT)),
    "set_free": (NOTHING, (WORLD, INT, INT)),
    "take_in": (NOTHING, (WORLD, INT, INT, INT, INT, INT, INT)),
}
"""… and where requests are moved"""
PAIRING: Signatures = {"pair": (NOTHING, (WORLD, FLOAT))}
LINK: Signatures = {
    "ask": (NOTHING, (INT, INT, INT, FLOAT, FLOAT)),
    "happens": (INT, (INT, FLOAT)),
    "takes": (FLOAT, (INT, INT, FLOAT, FLOAT)),
    "drop": (NOTHING, (INT, FLOAT)),
}
SENDING: Signatures = {
    "open_for": (NOTHING, (INT, INT, INT, FLOAT)),
    "more": (NOTHING, (INT, FLOAT, INT, FLOAT, INT, FLOAT)),
    "happens": (INT, (INT, FLOAT)),
    "drop": (NOTHING, (INT, FLOAT)),
}
"""… and one over which KV goes part by part"""
GATEWAY: Signatures = {
    "arrive": (INT, (WORLD, *_SUBJECT)),
    "join": (INT, (WORLD, *_SUBJECT)),
    "offer": (INT, (WORLD, FLOAT)),
    "misses": (INT, (WORLD, INT)),
    "leave": (INT, (WORLD, INT, INT)),
    "release": (NOTHING, (WORLD, FLOAT)),
    "expire": (INT, (WORLD, *_SUBJECT)),
    "hear": (NOTHING, (WORLD, INT, INT)),
}
BOOKS: Signatures = {
    "whose": (INT, (WORLD, INT)),
    "write": (NOTHING, (WORLD, INT, INT, INT)),
    "age": (NOTHING, (WORLD, FLOAT)),
    "lacks_room": (INT, (WORLD, INT)),
}
COST: Signatures = {
    "request_ms": (FLOAT, (INT, INT)),
    "step_s": (FLOAT, (INT, INT, INT, INT, INT, INT, FLOAT)),
    "decode_s": (FLOAT, (INT, INT, INT, INT)),
}
WAVE: Signatures = {"wave_s": (FLOAT, (INT,))}
"""… and of those whose GPUs step together"""
