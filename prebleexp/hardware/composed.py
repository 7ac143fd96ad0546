"""Hardware composed of a GPU, a model, an engine, a number of GPUs and a precision: equations with a few parameters
that were fitted to public measurements (spec: hardware.md)."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, field, fields, is_dataclass, replace
from functools import cache
from typing import Any, ClassVar

from prebleexp.checks import is_integer, is_number, not_valid, one_of, require
from prebleexp.errors import DoesNotFit
from prebleexp.hardware import products, uncertain
from prebleexp.hardware.base import Hardware
from prebleexp.hardware.domain import UNKNOWN, Domain
from prebleexp.hardware.gpu import Gpu
from prebleexp.hardware.model import BYTES, KV_PRECISIONS, Model
from prebleexp.hardware.nested import nested
from prebleexp.hardware.parameters import Given, Parameters, Support, parameters_for, said
from prebleexp.hardware.touched import changed
from prebleexp.sim.types import Layers

ENGINES = ("vllm", "sglang", "trtllm", "any")
"""whose overheads were fitted; any: those that fit all of them best"""
LEAST_TOKENS = 1024
"""of KV, so that it can be said to fit: a prompt of some length"""
RESERVED_BYTES = 1.3e9
"""of a GPU's memory that engines keep for themselves"""
SPREAD: dict[str, Any] = {
    "data_parallel_size": 1,
    "enable_expert_parallel": False,
    "expert_imbalance": 1.0,
    "pipeline_parallel_size": 1,
}
"""settings that are no part of a key where they have these values"""
OVERHEADS = ("t_layer", "t_moe", "t_step", "t_req", "a0", "a1", "f")
"""parameters that are not of kernels"""
NESTED: dict[str, type[Any]] = {"gpu": Gpu, "model": Model, "parameters": Parameters, "evidence": Support}


@dataclass(frozen=True)
class Composed(Hardware):
    """A step's cost from the sizes of a model and the peaks of a GPU, chosen as `hardware/gpu=` and `hardware/model=`.

    `prebleexp hardware` lists what there is, how well each combination is known, and explains one.

    Raises InvalidInput for combinations that do not exist or do not fit; says what would.
    """

    compiles: ClassVar[str] = "prebleexp.hardware.composed_step"

    gpu: Gpu
    """one of conf/hardware/gpu/, chosen as hardware/gpu=h200; its numbers as hardware.gpu.hbm_gb_s=4000"""
    model: Model
    """one of conf/hardware/model/, likewise"""
    engine: str | None = None
    """whose overheads: vllm, sglang, trtllm or any; null: those of the engine that is simulated"""
    tensor_parallel: int = 1
    """GPUs that serve one copy of the model, a replica; `gpus` counts them all"""
    data_parallel_size: int = field(default=1, kw_only=True)
    """such groups of GPUs that are data-parallel ranks of one deployment: each has its own requests, and where the
    model has experts these are spread over all, so that all step together"""
    enable_expert_parallel: bool = field(default=False, kw_only=True)
    """whether each GPU of a deployment has whole experts, in place of a part of every one"""
    expert_imbalance: Any = field(default=1.0, kw_only=True)
    """how many times the mean the busiest GPU's experts get; or {zipf: exponent}, or {loads: [tokens of each]}"""
    pipeline_parallel_size: int = field(default=1, kw_only=True)
    """stages of layers, each on a group of GPUs of its own"""
    precision: str = "bf16"
    """of weights: bf16, fp8, fp4 or int4"""
    kv_precision: str | None = None
    """of the KV cache: bf16 or fp8; null: as it was where this was measured, bf16 for a model that is all BF16 or a GPU
    without FP8, else fp8"""
    utilisation: float = 0.9
    """share of the GPU's memory that the engine takes"""
    kv_tokens: int | None = None  # type: ignore[assignment]  # a number as soon as it is made
    """tokens of KV; null: what fits beside the weights"""
    context_length: int | None = None  # type: ignore[assignment]
    """tokens of a request, at most; null: the model's, or what fits"""
    parameters: Parameters | Given | None = None
    """of the equations, as `prebleexp calibrate hardware` writes them; null, also for one of them: as it ships for this
    combination"""
    evidence: Support | None = field(default=None, compare=False, metadata={"key": False})
    """how well they are known; null: as it ships"""
    uncertainty: bool = False
    """whether each seed draws anew what measurements leave open of the parameters; intervals are then of one draw"""
    source: str = field(default="", metadata={"key": False})
    """where the numbers are from"""

    def __post_init__(self) -> None:
        for name, kind in NESTED.items():
            object.__setattr__(self, name, nested(name, kind, getattr(self, name)))
        if self.engine is not None:
            one_of("hardware.engine", self.engine, ENGINES)
        self._check_combination()
        if self.kv_precision is None:
            mixed = self.gpu.fp8_tflops > 0 and (self.precision != "bf16" or bool(self.model.expert_precision))
            object.__setattr__(self, "kv_precision", "fp8" if mixed else "bf16")
        one_of("hardware.kv_precision", self.kv_precision, KV_PRECISIONS)
        require(isinstance(self.uncertainty, bool), "hardware.uncertainty", self.uncertainty, "true or false")
        share = self.utilisation
        require(is_number(share) and 0 < share <= 1, "hardware.utilisation", share, "a number above 0, at most 1")
        tokens = self._fitting() if self.kv_tokens is None else self.kv_tokens
        object.__setattr__(self, "kv_tokens", tokens)
        if self.context_length is None:
            object.__setattr__(self, "context_length", min(self.model.context_length, tokens))
        for name in ("kv_tokens", "context_length"):
            value = getattr(self, name)
            require(is_integer(value, 1, 2**31 - 1), f"hardware.{name}", value, "a positive number of tokens, or null")
        if self.engine is not None:
            self._take_parameters(self.engine)

    def _check_combination(self) -> None:
        gpu, model, count = self.gpu, self.model, self.tensor_parallel
        if not is_integer(count) or count not in self.groups:
            least = f"one of {', '.join(map(str, self.groups))}" if len(self.groups) > 1 else "1"
            said = not_valid("hardware.tensor_parallel", count, f"{least} for {model.name} on {gpu.name}")
            raise DoesNotFit(str(said))
        if self.precision not in gpu.precisions:
            valid = f"one of {', '.join(gpu.precisions)} on {gpu.name}"
            raise DoesNotFit(str(not_valid("hardware.precision", self.precision, valid)))
        if self.is_spread:
            self._spread().check(self)

    @property
    def is_spread(self) -> bool:
        """Whether anything is spread over GPUs beside each layer over those of a tensor-parallel group."""
        return bool(
            self.data_parallel_size != 1
            or self.enable_expert_parallel
            or self.expert_imbalance != 1
            or self.pipeline_parallel_size != 1
        )

    @property
    def groups(self) -> list[int]:
        """How many GPUs can serve one copy of the model, if it fits."""
        return [each for each in self.gpu.groups if self.model.heads % each == 0]

    def _fitting(self) -> int:
        """Tokens of KV that fit. Raises InvalidInput, and says what would fit, if there is too little room."""
        tokens = self._room(self.tensor_parallel, self.precision)
        if tokens >= LEAST_TOKENS:
            return tokens
        raise self._spread().does_not_fit(self, lambda gpus, precision: self._room(gpus, precision) >= LEAST_TOKENS)

    def _room(self, gpus: int, precision: str) -> int:
        memory = self.utilisation * self.gpu.memory_gb * 1e9 - RESERVED_BYTES
        free = (
            memory - self.gpu_weights(gpus, precision)
        ) * self.pipeline_parallel_size  # each stage has its own layers
        return min(2**31 - 1, math.floor(free * self.model.kv_share(gpus) / self.kv_bytes))

    def gpu_weights(self, gpus: int, precision: str) -> float:
        """Bytes on the GPU that has most, in groups of so many."""
        return self.model.gpu_weight_bytes(precision, gpus, self.ranks, self.stages)

    @property
    def kv_bytes(self) -> float:
        """Of a token, over all GPUs that share it."""
        return self.model.kv_elements * BYTES[str(self.kv_precision)]

    @property
    def layers(self) -> int:
        return self.model.layers

    @property
    def layer_kinds(self) -> tuple[Layers, ...]:
        return self.model.layer_kinds

    def load_s(self, source_gb_s: float) -> float:
        """Seconds of its weights, from a source over the PCIe of all of its GPUs, if that is known."""
        pcie, own = self.gpu.pcie_gb_s * self.gpus_per_replica, self.model.weight_bytes(self.precision)
        if self.ranks > 1:
            own = self.gpus_per_replica * self.gpu_weights(self.tensor_parallel, self.precision)
        return own / 1e9 / min(source_gb_s, pcie or source_gb_s)

    def _take_parameters(self, engine: str) -> None:
        """What ships for this combination, and how well it is known, where nothing else is given."""
        gpu, model, given = self.gpu, self.model, self.parameters
        shipped, evidence = _shipped(
            gpu.name, engine, model.name, self.precision, model.experts > 0, self.tensor_parallel
        )
        own = ""
        if given is None:
            object.__setattr__(self, "parameters", shipped)
        elif isinstance(given, Given):
            object.__setattr__(self, "parameters", given.over(shipped))
            own = given.said(shipped)
        if self.evidence is None and (given is None or self.parameters == shipped):
            object.__setattr__(self, "evidence", evidence)
        other = changed(gpu) or changed(model) or own or self._spread_said("unmeasured")
        if other:
            object.__setattr__(self, "evidence", Support("theory", other, 0, math.nan, math.nan))

    def served_by(self, project: str) -> Composed:
        return _under(self, project or "any", self.evidence) if self.engine is None else self

    @property
    def draws_costs(self) -> bool:
        return self.uncertainty

    def drawn(self, seed: int) -> Composed:
        if not self.uncertainty:
            return self
        usual = replace(self, parameters=None, evidence=None)._fitted
        parameters = uncertain.drawn(self._fitted, self.evidence, seed, self.gpu.name, shipped=self._fitted == usual)
        return replace(self, parameters=parameters, evidence=self.evidence, uncertainty=False)

    @property
    def off(self) -> float:
        return uncertain.within(self.evidence)

    def slowed(self, factor: float) -> Composed:
        of = self._fitted
        return replace(
            self,
            parameters=replace(of, f=of.f * factor, v=of.v * factor, e_kv=of.e_kv / factor),
            evidence=self.evidence,
        )

    # ---------------------------------------------------------------- what others ask
    @property
    def gpu_name(self) -> str:
        return self.gpu.name

    @property
    def gpu_memory_gib(self) -> float:
        return self.gpu.memory_gib

    @property
    def gpus_per_replica(self) -> int:
        return self.tensor_parallel * self.pipeline_parallel_size

    @property
    def replica_said(self) -> str:
        return self._spread_said("said") if self.is_spread else f"hardware.tensor_parallel={self.tensor_parallel}"

    def _spread_said(self, what: str) -> str:
        """What `spread` has to say; empty: it is not of this one."""
        return str(getattr(self._spread(), what)(self)) if self.is_spread else ""

    def _spread(self) -> Any:
        from prebleexp.hardware import spread

        return spread

    @property
    def spreads_experts(self) -> bool:
        """Whether experts are spread otherwise than as all else is."""
        return self.model.experts > 0 and (self.data_parallel_size > 1 or self.enable_expert_parallel)

    @property
    def ranks(self) -> int:
        return self.data_parallel_size if self.model.experts else 1

    @property
    def stages(self) -> int:
        return self.pipeline_parallel_size

    @property
    def handoff_s(self) -> tuple[float, float]:
        seconds: tuple[float, float] = self._spread().handoff_s(self) if self.is_spread else (0.0, 0.0)
        return seconds

    @property
    def frontend_s(self) -> tuple[float, float]:
        of = self._fitted
        return of.a0, of.a1

    @property
    def title(self) -> str:
        count = self.gpus_per_replica
        gpus = (f"{count} {self.gpu.name}" if count > 1 else self.gpu.name) + self._spread_said("words")
        engine = f", {self.engine}" if self.engine not in (None, "any") else ""
        return f"{self.model.stored(self.precision)} on {gpus}{engine}"

    @property
    def domain(self) -> Domain:
        return self.evidence.domain if self.evidence is not None else UNKNOWN

    @property
    def support(self) -> str:
        return said(self.evidence)

    def kernels(self) -> Any:
        if not self.spreads_experts:
            return super().kernels()
        from prebleexp.hardware import parallel_step

        return parallel_step

    @property
    def _fitted(self) -> Parameters:
        found = self.parameters if self.engine is not None else self.served_by("").parameters
        assert isinstance(found, Parameters)
        return found

    def at_peak(self) -> Composed:
        """The same if all kernels reached the peaks, and nothing else took time: a roofline."""
        free = Parameters(
            **dict.fromkeys(("e_c", "e_m", "e_xm", "e_p", "v"), 1.0),
            e_xc=products.at_peak(self.gpu, self.precision, self.model.expert_precision),
            **dict.fromkeys(OVERHEADS, 0.0),
            e_kv=self.gpu.hbm_gb_s * 1e9 / self.gpu.reading(str(self.kv_precision))[0],
        )
        return replace(self, parameters=free, evidence=None)

    def identity(self) -> dict[str, object]:
        """Every number that a step's cost is made of, for a run's key; that nothing is drawn goes without saying."""
        kept = {one.name: getattr(self, one.name) for one in fields(self) if one.metadata.get("key", True)}
        for name, usual in {"uncertainty": False, **SPREAD}.items():
            if kept[name] == usual:
                del kept[name]
        nested = kept.keys() & {*NESTED, "expert_imbalance"}
        return kept | {name: _plain(kept[name]) for name in nested}

    def columns(self) -> dict[str, Any]:
        """Its fields, with what each is composed of as gpu.hbm_gb_s."""
        shown: dict[str, Any] = {}
        for name, value in super().columns().items():
            if name in NESTED:
                parts = asdict(value) if value else {}
                shown |= {name: parts.pop("name")} if "name" in parts else {}
                shown |= {f"{name}.{part}": number for part, number in parts.items()}
            else:
                shown[name] = value if name != "expert_imbalance" else _plain(value)
        return shown

    def start(self) -> Any:
        from prebleexp.hardware.composed_step import coefficients

        cost = coefficients(self, self._fitted)
        return self._spread().cost(self, cost, self._fitted.v) if self.spreads_experts else cost


def _plain(value: Any) -> Any:
    return asdict(value) if is_dataclass(value) and not isinstance(value, type) else value


@cache
def _under(hardware: Composed, engine: str, evidence: Support | None) -> Composed:
    return replace(hardware, engine=engine, evidence=evidence)  # evidence is not compared, nor is it in the hash


@cache
def _shipped(gpu: str, engine: str, model: str, precision: str, moe: bool, gpus: int) -> tuple[Parameters, Support]:
    return parameters_for(gpu, engine, model, precision, moe=moe, tp=gpus)
