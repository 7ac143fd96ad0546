"""vLLM's `--speculative-config`, and what its server finds out: how many drafts are accepted, and what they cost."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from typing import Any

import numpy as np

from prebleexp.checks import integer, is_number, one_of, require
from prebleexp.errors import InvalidInput
from prebleexp.sim.types import Floats

ONE_LAYER = 0.04
"""of a step: a layer of 36 and the head, as an EAGLE head or a module for multi-token prediction has them; a guess"""
COSTS: dict[str, float | None] = {
    "eagle": ONE_LAYER,
    "eagle3": ONE_LAYER,
    "mtp": ONE_LAYER,
    "draft_model": None,
    "ngram": 0.0,
}
"""by method: what a draft's pass takes where nothing is said, as a share of a step; None: that must be said"""
MOST = 32
"""drafts of a step"""


@dataclass(frozen=True)
class SpeculativeConfig:
    """`method` and `num_speculative_tokens` as vLLM has them; no method: no drafts."""

    method: str | None = None
    """eagle, eagle3, mtp, draft_model or ngram"""
    num_speculative_tokens: int | None = None
    """drafts of a request and step"""
    acceptance_rate: Any = None
    """of a draft whose predecessors were accepted; or a list by position, as vLLM's log has it: the share of steps in
    which that draft was accepted; or that log, a file, which is read once and says how many drafts there are, too"""
    draft_rate: float = 1.0
    """share of steps after which ngram finds anything to draft"""
    draft_cost: float | None = None
    """seconds of a draft's pass, as a share of the same step of the model; null: what `COSTS` says"""

    def __post_init__(self) -> None:
        here = "engine.speculative_config"
        if self.method is None:
            return
        one_of(f"{here}.method", self.method, tuple(COSTS))
        if isinstance(self.acceptance_rate, str):
            from prebleexp.engines.vllm.acceptance_log import rates

            object.__setattr__(self, "acceptance_rate", rates(self.acceptance_rate))
            if self.num_speculative_tokens is None:
                object.__setattr__(self, "num_speculative_tokens", len(self.acceptance_rate))
        integer(f"{here}.num_speculative_tokens", self.num_speculative_tokens, 1, MOST)
        rate = self.acceptance_rate
        if isinstance(rate, Sequence) and not isinstance(rate, str):
            object.__setattr__(self, "acceptance_rate", tuple(rate))
            falls = all(is_number(one) and 0 <= one <= 1 for one in rate) and list(rate) == sorted(rate, reverse=True)
            valid = f"{self.num_speculative_tokens} numbers from 0 to 1, one for each draft, none above the one before"
            require(falls and len(rate) == self.num_speculative_tokens, f"{here}.acceptance_rate", rate, valid)
        else:
            valid = "a number from 0 to 1, a list by position, or a file: vLLM logs it as per-position acceptance rate"
            require(is_number(rate) and 0 <= rate <= 1, f"{here}.acceptance_rate", rate, valid)
        known = is_number(self.draft_rate) and 0 <= self.draft_rate <= 1
        known = known and (self.method == "ngram" or self.draft_rate == 1)
        valid = "a number from 0 to 1, and 1 where method is not ngram"
        require(known, f"{here}.draft_rate", self.draft_rate, valid)
        cost = self.cost
        valid = "a share of a step, >= 0; how large the draft model is cannot be known"
        require(is_number(cost) and cost >= 0, f"{here}.draft_cost", cost, valid)

    @classmethod
    def of(cls, given: Any) -> SpeculativeConfig:
        """Raises InvalidInput for what is no mapping of its fields."""
        if isinstance(given, SpeculativeConfig):
            return given
        names = [one.name for one in fields(cls)]
        if given is None:
            return cls()
        if not isinstance(given, Mapping) or set(given) - set(names):
            valid = f"a mapping of {', '.join(names)}"
            raise InvalidInput(f"engine.speculative_config={given} is not valid; it must be {valid}")
        return cls(**given)

    @property
    def drafts(self) -> int:
        """A request and step; 0: none."""
        return (self.num_speculative_tokens or 0) if self.method is not None else 0

    @property
    def cost(self) -> Any:
        """Of a draft's pass, as a share of a step."""
        return COSTS.get(self.method or "ngram") if self.draft_cost is None else self.draft_cost

    @property
    def lookahead(self) -> int:
        """Positions behind a step's own for which a request holds blocks: drafts are computed there."""
        return 0 if self.method == "ngram" else self.drafts

    @property
    def first_step(self) -> int:
        """Positions behind what is known that a first step with drafts needs; 0: none."""
        return 1 + self.drafts + self.lookahead if self.drafts else 0

    @property
    def slots(self) -> int:
        """Tokens of a step's budget that a request takes beside its own."""
        return int(self.method == "draft_model")

    @property
    def key_ahead(self) -> int:
        """Tokens behind a block that its key covers, for a head that looks at them."""
        return int(self.method in ("eagle", "eagle3", "mtp"))

    @property
    def at_least(self) -> Floats:
        """(drafts,) how often so many are accepted, or more: one, two, …"""
        if isinstance(self.acceptance_rate, tuple):
            return np.array(self.acceptance_rate, np.float64)
        return np.cumprod(np.full(self.drafts, float(self.acceptance_rate)))

    @property
    def draws(self) -> bool:
        """Whether chance decides how many are accepted."""
        rates = self.at_least if self.drafts else np.zeros(0)
        return bool(((rates > 0) & (rates < 1)).any() or self.draft_rate not in (0, 1))

    def identity(self) -> dict[str, object]:
        return asdict(self)
