"""What KV is kept in behind the GPUs' own caches (spec: clusters.md, section 3)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from prebleexp.checks import is_integer, is_number, one_of, positive, require
from prebleexp.cluster.link import SHARING
from prebleexp.sources import Part

CHOICES = ("always", "threshold", "cheaper")
"""in the order of `prebleexp.sim.tiers`"""
EVICTION = ("lru", "arc")


@dataclass(frozen=True)
class Tier(Part):
    """Memory that keeps copies of full blocks of KV, each as soon as it has been computed; full, it drops those that
    were used longest ago. What a waiting request lacks in its GPU's cache, and finds here without a gap, is loaded
    before it is admitted.

    Raises InvalidInput for other values.
    """

    place: ClassVar[str] = "tier"
    """what it is called in `cluster`"""

    gb: float = 0.0
    """of memory for KV, in 10^9 bytes; 0: there is none"""
    load_gb_s: float = 50.0
    """to each GPU"""
    store_gb_s: float = 50.0
    """from each GPU"""
    latency_us: float = 10.0
    """of each load and of each store, before its bytes move"""
    choose: str = "always"
    """always: whatever is there is loaded; threshold: where that is least_tokens or more; cheaper: where to wait for
    the link, and to load, takes less than to compute it, by the cost model, alone and in one step"""
    least_tokens: int = 256
    """with choose=threshold"""

    def __post_init__(self) -> None:
        for name, unit in (("gb", "GB"), ("latency_us", "microseconds")):
            value = getattr(self, name)
            require(is_number(value) and value >= 0, self._called(name), value, f"a number of {unit} >= 0")
        for name in ("load_gb_s", "store_gb_s"):
            positive(self._called(name), getattr(self, name), "a number of GB/s > 0")
        one_of(self._called("choose"), self.choose, CHOICES)
        valid = is_integer(self.least_tokens, 0)
        require(valid, self._called("least_tokens"), self.least_tokens, "an integer >= 0")

    @property
    def there(self) -> bool:
        return self.gb > 0

    def _called(self, name: str) -> str:
        return f"cluster.{self.place}.{name}"

    def simulated(self) -> Any:
        """A `prebleexp.sim.tiering.Tier`; None if there is no memory."""
        if not self.there:
            return None
        from prebleexp.sim import tiering  # nothing that is cached needs it

        rates = (self.load_gb_s * 1e9, self.store_gb_s * 1e9, self.latency_us / 1e6)
        return tiering.Tier(self.gb * 1e9, *rates, CHOICES.index(self.choose), self.least_tokens, **self._more())

    def _more(self) -> dict[str, Any]:
        """What else is said of it; as it is, each GPU has its own links, in order of request in each direction."""
        return {}


@dataclass(frozen=True)
class HostTier(Tier):
    """The host memory of each GPU, or of each group of GPUs that serves one copy of the model: what it computes itself
    is kept there. The default rates are those of PCIe 5 x16, assumed and not measured. `eviction_policy` and
    `store_threshold` have the names and defaults of vLLM's offloading connector."""

    place: ClassVar[str] = "host"

    eviction_policy: str = "lru"
    """lru: full, it drops what was used longest ago; arc: it keeps apart what was used once and more often, and gives
    each as much room as what it dropped shows to be worth it (Megiddo, Modha 2003)"""
    store_threshold: int = 0
    """a block is stored the time that it is offered so often; 0 or 1: at the first"""

    def __post_init__(self) -> None:
        super().__post_init__()
        one_of("cluster.host.eviction_policy", self.eviction_policy, EVICTION)
        valid = is_integer(self.store_threshold, 0)
        require(valid, "cluster.host.store_threshold", self.store_threshold, "an integer >= 0")

    def _more(self) -> dict[str, Any]:
        return {"adaptive": self.eviction_policy == "arc", "store_threshold": self.store_threshold}


@dataclass(frozen=True)
class DiskTier(Tier):
    """A disk of each GPU, or of each group of GPUs that serves one copy of the model, behind the host: what that has
    not is looked for here. What is loaded is stored in the host again, as all that a step had. The default rates are
    those of one NVMe disk on PCIe 4 x4, assumed and not measured."""

    place: ClassVar[str] = "disk"

    load_gb_s: float = 7.0
    store_gb_s: float = 5.0
    latency_us: float = 100.0


@dataclass(frozen=True)
class SharedTier(Tier):
    """One store for the cluster: what any GPU computes, all find there. The default rates are those of one 400 Gb/s
    adapter a GPU, as of `cluster.link`."""

    place: ClassVar[str] = "shared"

    load_gb_s: float = 36.0
    store_gb_s: float = 36.0
    latency_us: float = 20.0
    total_gb_s: float | None = None
    """that all loads take together at most, and all stores; null: as much as the GPUs can, as where the store is the
    memory of all their hosts"""
    sharing: str = "fair"
    """fair, fifo or infinite, as of `cluster.link`"""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.total_gb_s is not None:
            positive(self._called("total_gb_s"), self.total_gb_s, "null or a number of GB/s > 0")
        one_of(self._called("sharing"), self.sharing, SHARING)

    def _more(self) -> dict[str, Any]:
        total = {} if self.total_gb_s is None else {"total_rate": self.total_gb_s * 1e9}
        return {"sharing": SHARING.index(self.sharing), **total}


@dataclass(frozen=True)
class Peers(Part):
    """What other GPUs have, in their caches or their hosts' memory: what a waiting request lacks, and finds in no tier,
    comes from the GPU that has most of it, before the request is admitted. What is lent stays there until it has come.
    GPUs, or groups of GPUs that serve one copy of the model, send at one rate and receive at the same; one 400 Gb/s
    adapter for each gives 36 GB/s, as of `cluster.link`.

    Raises InvalidInput for other values.
    """

    gb_s: float = 0.0
    """that a GPU sends, and receives, at most; 0: nothing comes from other GPUs"""
    latency_us: float = 20.0
    """of each transfer, before its bytes move"""
    sharing: str = "fair"
    """fair, fifo or infinite, as of `cluster.link`"""
    choose: str = "cheaper"
    """as of other tiers"""
    least_tokens: int = 256
    """with choose=threshold"""

    def __post_init__(self) -> None:
        for name, unit in (("gb_s", "GB/s"), ("latency_us", "microseconds")):
            value = getattr(self, name)
            require(is_number(value) and value >= 0, f"cluster.peers.{name}", value, f"a number of {unit} >= 0")
        one_of("cluster.peers.sharing", self.sharing, SHARING)
        one_of("cluster.peers.choose", self.choose, CHOICES)
        require(is_integer(self.least_tokens, 0), "cluster.peers.least_tokens", self.least_tokens, "an integer >= 0")

    @property
    def there(self) -> bool:
        return self.gb_s > 0

    def simulated(self) -> Any:
        """A `prebleexp.sim.tiering.Tier` of no bytes; None if nothing comes from other GPUs."""
        if not self.there:
            return None
        from prebleexp.sim import tiering  # nothing that is cached needs it

        rates, sharing = (self.gb_s * 1e9, self.gb_s * 1e9, self.latency_us / 1e6), SHARING.index(self.sharing)
        return tiering.Tier(0.0, *rates, CHOICES.index(self.choose), self.least_tokens, sharing)
