"""SGLang's hashing of prefixes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import xxhash

from prebleexp.checks import is_integer, positive, require
from prebleexp.policies.base import Policy, tuned
from prebleexp.policies.choices import least_outstanding
from prebleexp.policies.hashes import Hashes, Names, blake3_64, of_prefixes
from prebleexp.policies.loads import loads
from prebleexp.policies.ring import UNBOUNDED, Bounded, bound, clockwise, places
from prebleexp.policies.sglang.consistent_hashing import sglang_ring
from prebleexp.sim.records import View
from prebleexp.sim.types import Setup


@dataclass(frozen=True)
class SGLangPrefixHash(Policy):
    """The next of 150 points a GPU from the hash of the prompt's first tokens on, unless the GPU has more unfinished
    requests than `load_factor` times the mean: then the one with the fewest, the first of several.

    The source of sglang-router 0.3.2 alone, so unproven: over HTTP the release answers every request with an error,
    since it has no tokens there. Tokens have no numbers here; what is hashed is a name of the prefix."""

    prefix_token_count: int = tuned(256, 16, 4096, log=True)
    """tokens that are hashed"""
    load_factor: float = tuned(1.25, 1.0, 4.0)
    """of the mean load, which no GPU's may exceed"""

    reads_lengths: ClassVar[bool] = False

    def __post_init__(self) -> None:
        valid = is_integer(self.prefix_token_count, 1)
        require(valid, "policy.prefix_token_count", self.prefix_token_count, "an integer >= 1")
        positive("policy.load_factor", self.load_factor)

    def start(self, setup: Setup) -> Bounded:
        made = sglang_ring(setup)
        return Bounded(made, places(made, of_prefixes(setup, self.prefix_token_count, twice)), loads(setup))

    def named(self, mine: Any, request: int, names: Names) -> None:
        mine.places[request] = places(mine.ring, twice([names.prefix(self.prefix_token_count)]))[0]

    def route(self, mine: Any, view: View, request: int, now: float) -> int:
        gpu, most = (
            clockwise(mine.ring, mine.places[request], view, UNBOUNDED),
            bound(mine.loads, view, self.load_factor),
        )
        if view.sent[gpu].outstanding <= most:
            return gpu
        least = least_outstanding(view)
        return least if view.sent[least].outstanding <= most else gpu


def twice(names: Sequence[str]) -> Hashes:
    """Tokens by XXH3, and the digits of that by the ring's hash."""
    return blake3_64([f"{xxhash.xxh3_64_intdigest(name.encode()):016x}" for name in names])
