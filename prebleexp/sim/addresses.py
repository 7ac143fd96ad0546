"""What is plugged into a run, as addresses of its functions: 0 where it gives none (see `prebleexp.sim.plug`)."""

from __future__ import annotations

import numpy as np

from prebleexp.sim.notices import NOTICES

_OF_ROUTERS = ("own", "route", "lacks_room", "compiled", "seen")
ROUTER = np.dtype([*((name, np.int64) for name in _OF_ROUTERS), ("hears", np.int64, (len(NOTICES),))], align=True)
"""`seen`: where what it sees is; `hears`: by kind of notice, the function that is told of it"""

BOOKS = np.dtype([(name, np.int64) for name in ("own", "whose", "write", "age", "lacks_room")], align=True)

_OF_ENGINES = ("own", "submit", "begin", "end", "settle", "lacks_room", "cancel", "decode")
_OF_POOLS = ("pull", "push", "reserve", "arrive", "let_go", "found", "hear")
_OF_HANDOFFS = ("placed", "waits", "computed", "lost_on_the_way", "is_lost", "goes_on", "refused", "expire")
HANDOFF = np.dtype([(name, np.int64) for name in ("own", *_OF_HANDOFFS)], align=True)
DECIDER = np.dtype([(name, np.int64) for name in ("own", "goes")], align=True)

_OF_TIERS = ("fetch", "offload", "landed", "heard", "part")
_OF_PEERS = ("has", "lend", "take_back", "do_without")
_OF_MOVES = ("move", "copied", "stop", "abandon", "spares", "set_aside", "set_free", "take_in")
_OPTIONAL = (*_OF_POOLS, *_OF_TIERS, *_OF_PEERS, "fail", *_OF_MOVES)
ENGINE = np.dtype([(name, np.int64) for name in (*_OF_ENGINES, *_OPTIONAL)], align=True)

_OF_LINKS = ("own", "ask", "happens", "takes", "drop", "open_for", "more")
LINK = np.dtype([(name, np.int64) for name in _OF_LINKS], align=True)

PAIRING = np.dtype([(name, np.int64) for name in ("own", "pair")], align=True)

_OF_GATEWAYS = ("own", "arrive", "join", "offer", "misses", "leave", "release", "expire", "hear")
GATEWAY = np.dtype([(name, np.int64) for name in _OF_GATEWAYS], align=True)

COST = np.dtype(
    [
        *((name, np.int64) for name in ("own", "request_ms", "step_s", "decode_s", "wave_s")),
        ("frontend_s", np.float64),  # from the router to the GPU's queue: a request, …
        ("frontend_token_s", np.float64),  # … and a token of its prompt
        ("handoff_s", np.float64),  # from one stage of a pipeline to the next: a step, …
        ("handoff_token_s", np.float64),  # … and each of its tokens
    ],
    align=True,
)
"""What a step costs, and what a request takes before it can be in one."""
