"""KubeAI's consistent hashing with bounded loads (CHWBL)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from prebleexp.checks import is_integer, positive, require
from prebleexp.policies.base import Policy, tuned
from prebleexp.policies.hashes import Names, of_prefixes, xxh64
from prebleexp.policies.loads import loads
from prebleexp.policies.ring import Bounded, bound, clockwise, places, ring
from prebleexp.sim.records import View
from prebleexp.sim.types import Setup


@dataclass(frozen=True)
class KubeAICHWBL(Policy):
    """From the hash of the prompt's first characters on clockwise round a ring, the first GPU with no more unfinished
    requests than `mean_load_percentage` of the mean. Prompts that begin alike overflow to the same next GPU.

    KubeAI (commit f442a2cd6) PrefixHash, replayed from recordings of its own Go code. It hashes the first user message
    of a chat, not the system prompt; here all of the prompt counts."""

    mean_load_percentage: int = tuned(125, 100, 400, log=True)
    """of the mean load, which no GPU's may exceed"""
    replication: int = 256
    """points of a GPU on the ring"""
    prefix_char_length: int = tuned(100, 16, 16_384, log=True)
    """characters that are hashed"""
    characters_per_token: float = 4.0
    """that one token stands for"""

    reads_lengths: ClassVar[bool] = False

    def __post_init__(self) -> None:
        for name, least in (("mean_load_percentage", 100), ("replication", 1), ("prefix_char_length", 1)):
            value = getattr(self, name)
            require(is_integer(value, least), f"policy.{name}", value, f"an integer >= {least}")
        positive("policy.characters_per_token", self.characters_per_token)

    def start(self, setup: Setup) -> Bounded:
        made = ring(setup, xxh64, "{}{}", self.replication)
        return Bounded(made, places(made, of_prefixes(setup, self._tokens, xxh64)), loads(setup))

    def named(self, mine: Any, request: int, names: Names) -> None:
        mine.places[request] = places(mine.ring, xxh64([names.prefix(self._tokens)]))[0]

    @property
    def _tokens(self) -> int:
        return max(1, int(self.prefix_char_length / self.characters_per_token))

    def route(self, mine: Any, view: View, request: int, now: float) -> int:
        most = bound(mine.loads, view, self.mean_load_percentage / 100)
        return clockwise(mine.ring, mine.places[request], view, most)
