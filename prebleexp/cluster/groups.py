"""A cluster of several kinds of GPU: groups, each with its number of GPUs, what they cost, and what they do."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import Any

from prebleexp.checks import flag, integer, one_of
from prebleexp.cluster.link import SEND, SHARING, Link
from prebleexp.cluster.migration import CHOOSES, Migration
from prebleexp.cluster.replicas import Size, size_of
from prebleexp.cluster.tiers import DiskTier, HostTier, Peers, SharedTier
from prebleexp.errors import InvalidInput
from prebleexp.hardware.base import Hardware
from prebleexp.policies.base import Policy
from prebleexp.sim.compatibility import PROTOCOLS
from prebleexp.sources import Part

MOST_TOKENS = 2**24
ROLES = ("prefill", "decode", "both")
"""in the order of `prebleexp.sim.pools`"""
DECIDERS = ("always", "never", "uncached_tokens", "predicted")
"""likewise"""
TIERS = ("host", "disk", "shared", "peers")


@dataclass(frozen=True)
class Group:
    """GPUs of one kind; `replicas` in place of `gpus` says how many copies of the model they serve. Raises InvalidInput
    if there are none, for a role that there is not, and if so many GPUs are no whole number of replicas."""

    gpus: int
    """a number as soon as it is made, as is `replicas`"""
    hardware: Hardware
    role: str | None = None
    """prefill: they compute prompts; decode: they make outputs of prompts that others computed; both: requests that
    they get they serve to the end. None: as all others, they do"""
    replicas: int = None  # type: ignore[assignment]  # a number as soon as it is made
    engine: Any = None
    """of its GPUs, in place of the cell's, where it has a role; it differs in settings alone"""

    def __post_init__(self) -> None:
        of = self.hardware
        by = {"by": of.replica_said, "where": "cluster.groups: "}
        size = size_of(self.gpus, self.replicas, of.gpus_per_replica, together=of.ranks, **by)
        object.__setattr__(self, "gpus", size.gpus)
        object.__setattr__(self, "replicas", size.replicas)
        if self.role is not None:
            one_of("cluster.groups: role", self.role, ROLES)

    @property
    def size(self) -> Size:
        return Size(self.gpus, self.replicas, self.hardware.ranks)

    @property
    def said(self) -> str:
        """What tables show of its role, and of settings of its engine that are not the usual ones."""
        known = {one.name: getattr(self.engine, one.name) for one in fields(self.engine)} if self.engine else {}
        usual = type(self.engine)()
        changed = [f"{name}={value}" for name, value in known.items() if value != getattr(usual, name)]
        return ", ".join([str(self.role), *changed])


@dataclass(frozen=True)
class Cluster(Part):
    """Groups of GPUs, which are numbered one group after the other; none: all `gpus` are of one kind, `hardware`.

    In YAML a group says how many GPUs it has, and in what they differ from `hardware`, in the words of the command
    line: `{gpus: 8, hardware/gpu: h200}`, `{gpus: 4, hardware/gpu: h100, hardware.utilisation: 0.8}`; or how many
    replicas: `{replicas: 2, hardware.tensor_parallel: 4}`. How many there are in all is then no matter of `gpus`.

    Groups may have roles, as `{gpus: 4, role: prefill}`: all or none, and then some compute prompts and some make
    outputs (docs/pools.md), each with settings of its own, as `{gpus: 4, role: decode, engine.max_num_seqs: 64}`.
    Behind the GPUs' caches there may be tiers of memory (docs/tiers.md). Requests may be moved
    from one GPU to another (docs/migration.md). Raises InvalidInput for clusters that cannot serve so.
    """

    groups: tuple[Group, ...] = ()
    """how many GPUs of which kind, and with which role; none: one kind"""
    link: Link = field(default_factory=Link)
    """between GPUs; no matter where groups have no roles and no requests are moved"""
    protocol: str | None = None
    """how KV goes from prompts to outputs. pull: who makes the output is chosen when the prompt is computed, and reads
    it (vLLM); reserve_first: both are chosen at arrival, and the prompt is computed when there is room for it where the
    output is made (SGLang); push_at_end: both are chosen at arrival, and it is sent when the prompt is computed
    (Splitwise). null: the engine's own"""
    decider: str = "always"
    """which prompts go to GPUs for prompts; the others are computed where their outputs are made. always: all; never:
    none; uncached_tokens: those of which decider_tokens or more are not cached there; predicted: those that would be
    there later, by the cost model"""
    decider_tokens: int = 512
    """with decider=uncached_tokens"""
    decode_policy: Policy | None = None
    """the router among GPUs that make outputs: a name, as of policy=, or {policy: random, policy.seed: 3}; null: as
    policy, with a memory of its own"""
    host: HostTier = field(default_factory=HostTier)
    """of each GPU, for KV that leaves its cache"""
    disk: DiskTier = field(default_factory=DiskTier)
    """of each GPU, below host memory"""
    shared: SharedTier = field(default_factory=SharedTier)
    """of all, likewise"""
    peers: Peers = field(default_factory=Peers)
    """what GPUs have of one another"""
    offload_prompt_only: bool = True
    """whether host, disk and store get prompts alone, and an answer with the next turn's prompt: vLLM's default"""
    migration: Migration = field(default_factory=Migration)
    """when requests are moved from one GPU to another"""

    def __post_init__(self) -> None:
        roles = [group.role for group in self.groups]
        if self.protocol is not None:
            one_of("cluster.protocol", self.protocol, PROTOCOLS)
        one_of("cluster.decider", self.decider, DECIDERS)
        flag("cluster.offload_prompt_only", self.offload_prompt_only)
        integer("cluster.decider_tokens", self.decider_tokens, 0, MOST_TOKENS)
        if not self.has_roles:
            if self.decode_policy is not None:
                raise InvalidInput("cluster.decode_policy has nothing to route: no group of cluster.groups has a role")
            return
        if None in roles:
            raise InvalidInput(f"cluster.groups[{roles.index(None)}] has no role; it must be one of {', '.join(ROLES)}")
        if self.decider != "always" and "both" in roles:
            raise InvalidInput(f"cluster.decider={self.decider} is not valid beside groups with role both; take always")
        for role, does in (("prefill", "computes prompts"), ("decode", "makes outputs")):
            if role not in roles:
                raise InvalidInput(f"no group of cluster.groups {does}; one must have role: {role}")

    @property
    def gpus(self) -> int:
        """How many GPUs all groups have together; a replica has one or more."""
        return sum(group.gpus for group in self.groups)

    @property
    def replicas(self) -> int:
        """How many replicas all groups have together: places that a router may send to."""
        return sum(group.replicas for group in self.groups)

    @property
    def has_roles(self) -> bool:
        return any(group.role is not None for group in self.groups)

    @property
    def has_tiers(self) -> bool:
        return any(getattr(self, name).there for name in TIERS)

    @property
    def stores(self) -> bool:
        """Whether any of them gets copies of what GPUs compute."""
        return any(getattr(self, name).there for name in TIERS if name != "peers")

    @property
    def migrates(self) -> bool:
        """Whether requests are moved between GPUs while they run."""
        return self.migration.interval_ms is not None

    def columns(self) -> dict[str, Any]:
        """What tables show, such as "8 x gpt-oss-120b in bf16 on h200, vllm"."""
        texts = [f"{group.replicas} x {group.hardware.title or type(group.hardware).__name__}" for group in self.groups]
        if self.has_roles:
            texts = [f"{text} ({group.said})" for text, group in zip(texts, self.groups, strict=True)]
        link: dict[str, Any] = {}
        if self.has_roles or self.migrates:
            link = {f"link.{name}": getattr(self.link, name) for name in ("sharing", "gb_s", "latency_us")}
        return {
            "groups": " + ".join(texts) or None,
            **({"protocol": self.protocol} if self.has_roles else {}),
            **link,
            **(self._of_roles() if self.has_roles else {}),
            **(self._of_migration() if self.migrates else {}),
            **self._of_tiers(),
        }

    def _of_roles(self) -> dict[str, Any]:
        second = None if self.decode_policy is None else type(self.decode_policy).__name__
        return {"link.send": self.link.send, **self._of_decider(), "decode_policy": second}

    def _of_migration(self) -> dict[str, Any]:
        return {f"migration.{one.name}": getattr(self.migration, one.name) for one in fields(self.migration)}

    def _of_decider(self) -> dict[str, Any]:
        tokens = self.decider_tokens if self.decider == "uncached_tokens" else None
        return {"decider": self.decider, "decider_tokens": tokens}

    def _of_tiers(self) -> dict[str, Any]:
        """What tables show of those that there are."""
        there = {name: getattr(self, name) for name in TIERS if getattr(self, name).there}
        made = {f"{name}.{one.name}": getattr(tier, one.name) for name, tier in there.items() for one in fields(tier)}
        return made | ({"offload_prompt_only": self.offload_prompt_only} if self.stores else {})

    def tiers(self, kv_bytes: float) -> Any:
        """What the simulator is told of tiers: a `prebleexp.sim.tiering.Tiering`, or None without them. `kv_bytes` are
        those of a token."""
        if not self.has_tiers:
            return None
        from prebleexp.sim.tiering import Tiering  # nothing that is cached needs it

        kinds = {name: getattr(self, name).simulated() for name in TIERS}
        return Tiering(kv_bytes, **kinds, prompts_only=self.offload_prompt_only)

    def pools(self, policy: Policy) -> Any:
        """What the simulator is told of roles: a `prebleexp.sim.pools.Disaggregation`, or None without them. `policy`
        routes prompts."""
        if not self.has_roles:
            return None
        from prebleexp.sim.pools import Disaggregation  # nothing that is cached needs it

        return Disaggregation(
            roles=tuple(ROLES.index(str(group.role)) for group in self.groups),
            decode_policy=self.decode_policy or policy,
            kv_bytes=self.groups[0].hardware.kv_bytes,
            **self._linked(),
            protocol=PROTOCOLS.index(str(self.protocol)),
            decider=DECIDERS.index(self.decider),
            least_tokens=self.decider_tokens,
            send=SEND.index(str(self.link.send)),
            layers=self.groups[0].hardware.layers,
        )

    def moves(self, kv_bytes: float) -> Any:
        """What the simulator is told of migration: a `prebleexp.sim.migration.Migration`, or None without it.
        `kv_bytes` are those of a token."""
        interval_ms, of = self.migration.interval_ms, self.migration
        if interval_ms is None:
            return None
        from prebleexp.sim.migration import Migration  # nothing that is cached needs it

        return Migration(
            interval_s=interval_ms / 1e3,
            kv_bytes=kv_bytes,
            **self._linked(),
            below_freeness=float(of.below_freeness),
            chooses=CHOOSES.index(of.chooses),
            last_stage_blocks=of.last_stage_blocks,
            max_stages=of.max_stages,
        )

    def _linked(self) -> dict[str, Any]:
        """What the simulator is told of the link."""
        of = self.link
        return {
            "sharing": SHARING.index(of.sharing),
            "rate": float(of.gb_s * 1e9),
            "latency_s": float(of.latency_us / 1e6),
        }


ONE_KIND = Cluster()
