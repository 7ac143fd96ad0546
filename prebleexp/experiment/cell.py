"""A cell: one complete configuration with one seed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

from prebleexp.autoscalers.base import FIXED, Autoscaler
from prebleexp.checks import integer, is_integer, is_number, positive, require
from prebleexp.cluster.groups import ONE_KIND, Cluster, Group
from prebleexp.cluster.replicas import MOST_GPUS, Size
from prebleexp.engines.base import Engine
from prebleexp.errors import InvalidInput
from prebleexp.experiment import clustered, counting, drawn, load, roles, together, warming
from prebleexp.experiment.itself import once_of_itself
from prebleexp.experiment.spec_columns import columns_as, fields_of
from prebleexp.faults.base import NEVER, Faults
from prebleexp.gateway.base import OPEN, Gateway
from prebleexp.hardware.base import Hardware
from prebleexp.lengths.base import Lengths
from prebleexp.overhead.model import Overhead
from prebleexp.policies.base import Policy
from prebleexp.service.level import NONE, ServiceLevel
from prebleexp.warm.base import COLD, Warm
from prebleexp.workloads import adapters
from prebleexp.workloads.adapters import Adapters
from prebleexp.workloads.arrivals import POISSON, Arrivals
from prebleexp.workloads.base import WorkloadSource
from prebleexp.workloads.output_length import OutputLength
from prebleexp.workloads.profiles import FLAT, Profile

HORIZONS = ("drain", "stop")
SPECS = ("policy", "workload", "output_length", "lengths", "hardware", "engine", "overhead", "slo")
UNLESS_DEFAULT = {
    "faults": ("none", NEVER),
    "gateway": ("open", OPEN),
    "autoscaler": ("none", FIXED),
    "arrivals": ("poisson", POISSON),
    "profile": ("flat", FLAT),
    "adapters": ("none", adapters.NONE),
    "warm": ("none", COLD),
}
"""what stands in an identity only where it changes something, and the option that does not"""
CHOSEN = (*SPECS, "cluster", *UNLESS_DEFAULT)
"""groups of which tables say which option was chosen"""
NUMBERS = ("gpus", "rps", "duration_s", "horizon", "seed", "reports_ms")


@dataclass(frozen=True)
class Cell:
    """What determines a run. Raises InvalidInput, naming the key and what is valid, for values that are not.

    `names` says what tables call the specs (`lor`, `react` …); it changes no result and is not compared.
    """

    gpus: int
    """all of them; `replicas` are simulated, each of one or several"""
    rps: float
    """mean requests per second over all GPUs; does not matter to a recorded workload"""
    duration_s: float
    horizon: str
    """drain: until all is finished; stop: at duration_s"""
    seed: int
    policy: Policy
    workload: WorkloadSource
    output_length: OutputLength
    """does not matter to a recorded workload"""
    lengths: Lengths
    """does not matter to a policy that does not read lengths"""
    hardware: Hardware
    """becomes what it is under the engine, if it left that open"""
    engine: Engine
    overhead: Overhead
    slo: ServiceLevel = NONE
    """does not matter where it promises nothing"""
    cluster: Cluster = ONE_KIND
    """its groups stand in place of `hardware`, if it has any; that is then the first one's"""
    faults: Faults = NEVER
    """what happens to GPUs; no matter where nothing does"""
    gateway: Gateway = OPEN
    """what requests pass before the router; no matter where it changes nothing"""
    autoscaler: Autoscaler = FIXED
    """how many replicas there are to be, of all; no matter where all are always there"""
    arrivals: Arrivals = POISSON
    """gaps between requests, or starts of sessions; no matter where these are the workload's own"""
    profile: Profile = FLAT
    """how the rate changes over time; no matter where it does not"""
    adapters: Adapters = adapters.NONE
    """LoRA adapters that requests ask for; no matter where there are none"""
    warm: Warm = COLD
    """what was served before, so that caches are not empty; no matter where nothing was"""
    reports_ms: float | None = None
    """how often routers hear of the GPUs' state; 0: they see that as it is; None becomes what the policy has"""
    names: Mapping[str, str] = field(default_factory=dict, compare=False)

    def __post_init__(self) -> None:
        integer("gpus", self.gpus, 1, MOST_GPUS)
        for name in ("rps", "duration_s"):
            positive(name, getattr(self, name), "a finite number > 0")
        require(self.horizon in HORIZONS, "horizon", self.horizon, " or ".join(HORIZONS))
        _check_seed(self.seed)
        if self.reports_ms is None:
            object.__setattr__(self, "reports_ms", self.policy.reports_ms)
        valid = is_number(self.reports_ms) and self.reports_ms >= 0
        require(valid, "reports_ms", self.reports_ms, "a number of milliseconds >= 0, or null for the policy's own")
        object.__setattr__(self, "hardware", _served(self.hardware, self.engine.project))
        if self.cluster.groups:
            self._check_groups()
            groups = (replace(one, hardware=one.hardware.served_by(self.engine.project)) for one in self.cluster.groups)
            object.__setattr__(self, "cluster", replace(self.cluster, groups=tuple(groups)))
        if self.slo.alone_on is not None:
            object.__setattr__(self, "slo", replace(self.slo, alone_on=self.alone_on.served_by(self.engine.project)))
        if self.cluster.has_roles:
            engine = self.names.get("engine", type(self.engine).__name__)
            object.__setattr__(self, "cluster", roles.completed(self.cluster, self.engine, engine))
            self._check_kv_bytes("where groups have roles")
        if self.cluster.has_tiers:
            self._check_tiers()
        if self.cluster.migrates:
            self._check_migration()
        for part in (self.engine, self.faults):
            part.check(self.replicas)
        self._check_autoscaler()
        if not self.faults.changes_nothing and not self.engine.loses:
            name = self.names.get("engine", type(self.engine).__name__)
            raise InvalidInput(f"engine={name} takes no faults; take another engine, or faults=none")
        if self.faults.resumes and self.gpus_change and not self.engine.resumes:
            name = self.names.get("engine", type(self.engine).__name__)
            raise InvalidInput(f"faults.on_loss=resume is not valid with engine={name}; take retry or fail")
        if not self.gateway.changes_nothing:
            self._check_gateway()
        together.check(self)
        for group, usual in self.engine.brings.items():
            given, engine = self.names.get(group, usual), self.names.get("engine", type(self.engine).__name__)
            require(given == usual, group, given, f"{usual} with engine={engine}, which has its own")
        if self.slo.alone_on is not None and "hardware" in self.engine.brings:
            engine = self.names.get("engine", type(self.engine).__name__)
            raise InvalidInput(f"slo.alone_on is not valid with engine={engine}, which has its own; it must be null")
        if self.reads_lengths:
            self.lengths.check(self.workload.predictors)
        load.check(self)
        warming.check(self)

    def with_seed(self, seed: int) -> Cell:
        """The same with another seed, of which nothing else is checked. Raises InvalidInput for one that is none."""
        _check_seed(seed)
        other = object.__new__(type(self))
        vars(other).update(vars(self) | {"seed": seed})
        vars(other).pop("stream", None)  # is of the seed
        return other

    @property
    def gpus_change(self) -> bool:
        """Whether anything happens to GPUs, so that it matters on which terms."""
        return not (self.faults.changes_nothing and self.autoscaler.changes_nothing)

    def _check_autoscaler(self) -> None:
        if self.autoscaler.changes_nothing:
            return
        engine = self.names.get("engine", type(self.engine).__name__)
        if not self.engine.loses:
            raise InvalidInput(f"engine={engine} takes no autoscaler; take another engine, or autoscaler=none")
        counts: Counter[str | None] = Counter()
        for group in self.cluster.groups if self.cluster.has_roles else ():
            counts[group.role] += group.replicas
        for role, gpus in (counts or {None: self.replicas}).items():
            self.autoscaler.check(gpus, role)

    def _check_gateway(self) -> None:
        if self.engine.own_loop() is not None:
            name = self.names.get("engine", type(self.engine).__name__)
            raise InvalidInput(f"engine={name} takes no gateway; take another engine, or gateway=open")

    def _check_groups(self) -> None:
        if any(group.hardware.draws_costs for group in self.cluster.groups):
            raise InvalidInput("hardware.uncertainty=true is not valid with cluster.groups; take GPUs of one kind")
        if not self.cluster.has_roles and any(group.engine for group in self.cluster.groups):
            raise InvalidInput("cluster.groups: engine is not valid without roles; say it of all, as engine.…=")
        valid = f"{self.cluster.gpus}, as many as cluster={self.names.get('cluster', '')} has"
        require(self.gpus == self.cluster.gpus, "gpus", self.gpus, valid)
        if self.engine.own_loop() is not None:
            name = self.names.get("engine", type(self.engine).__name__)
            raise InvalidInput(f"engine={name} takes no groups of GPUs; take another engine, or cluster=one_kind")

    def _check_tiers(self) -> None:
        engine = self.names.get("engine", type(self.engine).__name__)
        if not self.engine.fetches:
            raise InvalidInput(f"engine={engine} takes no tiers; take engine=vllm, or a cluster without tiers")
        self.engine.check_tiers(self.cluster.peers.there)
        self._check_kv_bytes("where there are tiers")

    def _check_migration(self) -> None:
        engine = self.names.get("engine", type(self.engine).__name__)
        if not self.engine.moves:
            raise InvalidInput(
                f"engine={engine} cannot move requests; take engine=vllm, or a cluster without migration"
            )
        self.engine.check_moves()
        self._check_kv_bytes("where requests are moved")

    def _check_kv_bytes(self, where: str) -> None:
        kv_bytes = [group.hardware.kv_bytes for group in self.kinds]
        if 0.0 in kv_bytes:
            name = self.names.get("hardware", type(self.hardware).__name__)
            raise InvalidInput(
                f"hardware={name} does not say how large KV is, which has to be sent; take hardware=composed"
            )
        if len(set(kv_bytes)) > 1:
            sizes = " and ".join(f"{size:,.0f}" for size in kv_bytes)
            raise InvalidInput(f"cluster.groups: KV of {sizes} bytes a token; {where} it must be the same")

    @property
    def reads_lengths(self) -> bool:
        """Whether any router of the cell looks at expected lengths."""
        second = self.cluster.decode_policy
        return self.policy.reads_lengths or (second is not None and second.reads_lengths)

    @property
    def alone_on(self) -> Hardware:
        """The hardware of the idle GPU that slowdowns are against."""
        found = self.slo.alone_on or self.kinds[0].hardware
        if not isinstance(found, Hardware):
            raise InvalidInput(f"slo.alone_on={found} is not valid; it must be hardware, as {{hardware/gpu: a100}}")
        return found

    @cached_property
    def kinds(self) -> tuple[Group, ...]:
        """The GPUs in order, those of one kind together."""
        return self.cluster.groups or (Group(self.gpus, self.hardware),)

    @cached_property
    def sizes(self) -> tuple[Size, ...]:
        """How many GPUs there are of each of `kinds`, and replicas. Raises InvalidInput where they do not divide."""
        groups = self.cluster.groups
        return tuple(one.size for one in groups) or (counting.size(self.engine, self.hardware, self.gpus),)

    @property
    def replicas(self) -> int:
        """Copies of the model: what is simulated, and what requests are routed to."""
        return sum(one.replicas for one in self.sizes)

    @property
    def draws_costs(self) -> bool:
        """Whether each seed draws what step times are, of which one is true."""
        return self.hardware.draws_costs

    @property
    def load(self) -> load.Load:
        """What comes: the rate that was asked for, or a recording's own, or users."""
        return load.load_of(self)

    @cached_property
    def stream(self) -> tuple[object, ...]:
        """What determines the request stream: cells with equal streams serve the same requests."""
        also = ("arrivals", "profile", "adapters", "warm", *(() if self.profile.changes_nothing else ("duration_s",)))
        return (self.workload, *((name, getattr(self, name)) for name in (*self.workload.obeys, *also)))

    @property
    def parts(self) -> dict[str, Any]:
        """Every spec, those of groups too."""
        found = {name: getattr(self, name) for name in (*SPECS, *UNLESS_DEFAULT)}
        if self.cluster.decode_policy is not None:
            found["cluster.decode_policy"] = self.cluster.decode_policy
        if self.slo.alone_on is not None:
            found["slo.alone_on"] = self.slo.alone_on
        own = {f"cluster.groups[{i}].engine": one.engine for i, one in enumerate(self.cluster.groups) if one.engine}
        return found | own | {f"cluster.groups[{i}]": one.hardware for i, one in enumerate(self.cluster.groups)}

    @cached_property
    def draws(self) -> bool:
        """Whether another seed can make another run."""
        return drawn.draws(self)

    @property
    def left_out(self) -> list[str]:
        """What does not matter to the result: `lengths` that the policy does not read, what a recording or an engine
        has itself, the seed where nothing is drawn, a service level that promises nothing."""
        left_out = [name for name in ("rps", "output_length") if name not in self.workload.obeys]
        if not self.draws:
            left_out.append("seed")
        if self.cluster.groups:
            left_out.append("hardware")
        left_out += self.engine.brings
        if not self.reads_lengths and "lengths" not in left_out:
            left_out.append("lengths")
        if self.slo.changes_nothing:
            left_out.append("slo")
        return left_out

    def identity(self, of: Callable[[Any], dict[str, object]] | None = None) -> dict[str, object]:
        """Everything that can change the result, as JSON-able values, all defaults filled in.

        `of` says what stands for a spec; `spec_identity` unless given.
        """
        of, left_out = of or spec_identity, self.left_out
        values: dict[str, object] = {name: getattr(self, name) for name in NUMBERS if name not in left_out}
        values |= counting.apart(self.gpus, self.replicas)
        for name in SPECS:
            if name not in left_out:
                values[name] = of(getattr(self, name))
        if self.cluster.groups or self.cluster.has_tiers or self.cluster.migrates:
            values["cluster"] = clustered.identity(self.cluster, of)
        if self.gpus_change:
            values["faults"] = of(self.faults)
        for name in UNLESS_DEFAULT:
            if name != "faults" and not getattr(self, name).changes_nothing:
                values[name] = of(getattr(self, name))
        return values

    def columns(self) -> dict[str, int | float | str | bool | None]:
        """The configuration as a table's columns: numbers, names of specs, and their fields as "policy.seed"."""
        row: dict[str, Any] = {"gpus": self.gpus, "replicas": self.replicas}
        row |= {name: getattr(self, name) for name in NUMBERS} | {"rps": self.load.rps}
        for name in SPECS:
            spec = getattr(self, name)
            if name in self.engine.brings:
                row[name] = self.engine.own.get(name)
            else:
                row |= columns_as(name, self.names.get(name, type(spec).__name__), spec)
        row |= columns_as("cluster", self.names.get("cluster", "one_kind"), self.cluster)
        for name, (usual, _) in UNLESS_DEFAULT.items():
            row |= columns_as(name, self.names.get(name, usual), getattr(self, name))
        return row

    def called(self, group: str) -> str:
        """What people read that an option is: the one that was chosen, or the engine's own."""
        return self.engine.own.get(group) or self.names[group]


def _check_seed(seed: object) -> None:
    require(is_integer(seed, 0, 2**63 - 1), "seed", seed, "an integer from 0 to 2^63 - 1")


@once_of_itself
def _served(hardware: Hardware, project: str) -> Hardware:
    """What hardware is under the engine of a project."""
    return hardware.served_by(project)


def spec_identity(spec: Any) -> dict[str, object]:
    """A spec's class and what stands for it: its `identity()` if it has one (for what it reads from files), else
    its fields."""
    kind = type(spec)
    own = spec.identity() if hasattr(spec, "identity") else fields_of(spec)
    return {"_target_": f"{kind.__module__}.{kind.__qualname__}", **own}
