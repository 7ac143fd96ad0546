"""A request that comes while a run is stepped (see `prebleexp.sim.stepped`)."""

from __future__ import annotations

import math
from typing import NamedTuple

from prebleexp.sim.arrays import Ints
from prebleexp.sim.records import NONE


class Coming(NamedTuple):
    """A request that comes while a run is under way, as `Stepped` takes it."""

    prompt_tokens: int
    max_new_tokens: int
    output_tokens: int
    """that the model will generate; nobody but its engine may know"""
    ids: Ints
    """(s,) segments of its prompt, as in `Workload`, …"""
    ends: Ints
    """… and tokens from the prompt's beginning to the end of each"""
    expected_output: float = math.nan
    """what routers are told of its output; NaN: max_new_tokens"""
    answer_segment: int = NONE
    prefix_group: int = NONE
    session: int = NONE
    turn: int = 0
    parent_session: int = NONE
    priority: int = 0
    slo_ttft_s: float = math.nan
    slo_tpot_s: float = math.nan
    patience_s: float = math.inf
    length_class: int = 0

    @property
    def target(self) -> int:
        """Tokens after which it is finished."""
        return min(self.output_tokens, self.max_new_tokens)
