"""Random replicas of a router."""

from __future__ import annotations

import math

from hypothesis import strategies as st

from prebleexp.sim.replicated import BY_SESSION, IN_TURN, RANDOM, Replication

REPLICAS = st.builds(
    Replication,
    count=st.sampled_from([1, 2, 3, 5]),
    spread=st.sampled_from([IN_TURN, RANDOM, BY_SESSION]),
    gossip_s=st.sampled_from([0.0, 0.001, 0.25, 1.0, 30.0, math.inf]),
)
