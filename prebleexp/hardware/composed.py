"""Hardware composed of a GPU, a model, an engine, a number of GPUs and a precision: equations with a few parameters
that were fitted to public measurements (spec: hardware.md)."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, field, fields, replace
from functools import cache
from typing import Any, ClassVar

from prebleexp.checks import is_integer, is_number, not_valid, one_of, require
from prebleexp.errors import DoesNotFit
from prebleexp.hardware import uncertain
from prebleexp.hardware.base import Hardware
from prebleexp.hardware.domain import UNKNOWN, Domain
from prebleexp.hardware.gpu import Gpu
from prebleexp.hardware.model import BYTES, KV_PRECISIONS, Model
from prebleexp.hardware.nested import nested
from prebleexp.hardware.parameters import NOTHING, Given, Parameters, Support, parameters_for
from prebleexp.hardware.touched import changed
from prebleexp.sim.types import Layers, records

ENGINES = ("vllm", "sglang", "trtllm", "any")
"""whose overheads were fitted; any: those that fit all of them best"""
ELEMENTWISE = 24
"""bytes of memory traffic of elementwise kernels, per layer, token and hidden element"""
LEAST_TOKENS = 1024
"""of KV, so that it can be said to fit: a prompt of some length"""
RESERVED_BYTES = 1.3e9
"""of a GPU's memory that engines keep for themselves"""
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
    precision: str = "bf16"
    """of weights: bf16, fp8, fp4 or int4"""
    kv_precision: str | None = None
    """of the KV cache: bf16 or fp8; null: as it was where this was measured, bf16 for a model that is all BF16, else
    fp8"""
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
    """how well the parameters are known; null: as it ships"""
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
            mixed = self.precision != "bf16" or bool(self.model.expert_precision)
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

    @property
    def groups(self) -> list[int]:
        """How many GPUs can serve one copy of the model, if it fits."""
        return [each for each in self.gpu.groups if self.model.heads % each == 0]

    def _fitting(self) -> int:
        """Tokens of KV that fit. Raises InvalidInput, and says what would fit, if there is too little room."""
        tokens = self._room(self.tensor_parallel, self.precision)
        if tokens >= LEAST_TOKENS:
            return tokens
        gpu, model = self.gpu, self.model
        would = [
            f"tensor_parallel={count} precision={precision}"
            for precision in gpu.precisions
            if (count := next((n for n in self.groups if self._room(n, precision) >= LEAST_TOKENS), 0))
        ]
        weights = model.weight_bytes(self.precision) / self.tensor_parallel / 1e9
        raise DoesNotFit(
            f"{model.name} in {self.precision} does not fit on {self.tensor_parallel} {gpu.name}: its weights take "
            f"{weights:.0f} GB of {self.utilisation * gpu.memory_gb:.0f} a GPU; "
            + (f"on {gpu.name} these fit: {'; '.join(would)}" if would else f"it fits on no number of {gpu.name}")
        )

    def _room(self, gpus: int, precision: str) -> int:
        memory = self.utilisation * self.gpu.memory_gb * 1e9 - RESERVED_BYTES
        free = memory - self.model.weight_bytes(precision) / gpus
        return min(2**31 - 1, math.floor(free * self.model.kv_share(gpus) / self.kv_bytes))

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
        pcie = self.gpu.pcie_gb_s * self.tensor_parallel
        return self.model.weight_bytes(self.precision) / 1e9 / min(source_gb_s, pcie or source_gb_s)

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
        other = changed(gpu) or changed(model) or own
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
        return math.exp(uncertain.off(self.evidence) * uncertain.NINE_TENTHS) - 1

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
        return self.tensor_parallel

    @property
    def frontend_s(self) -> tuple[float, float]:
        of = self._fitted
        return of.a0, of.a1

    @property
    def title(self) -> str:
        gpus = f"{self.tensor_parallel} {self.gpu.name}" if self.tensor_parallel > 1 else self.gpu.name
        engine = f", {self.engine}" if self.engine not in (None, "any") else ""
        return f"{self.model.name} in {self.precision} on {gpus}{engine}"

    @property
    def domain(self) -> Domain:
        return self.evidence.domain if self.evidence is not None else UNKNOWN

    @property
    def support(self) -> str:
        return said(self.evidence)

    @property
    def _fitted(self) -> Parameters:
        found = self.parameters if self.engine is not None else self.served_by("").parameters
        assert isinstance(found, Parameters)
        return found

    def at_peak(self) -> Composed:
        """The same if all kernels reached the peaks, and nothing else took time: a roofline."""
        free = Parameters(
            **dict.fromkeys(("e_c", "e_m", "e_xc", "e_xm", "e_p", "v"), 1.0),
            **dict.fromkeys(OVERHEADS, 0.0),
            e_kv=self.gpu.hbm_gb_s * 1e9 / self.gpu.reading(str(self.kv_precision))[0],
        )
        return replace(self, parameters=free, evidence=None)

    def identity(self) -> dict[str, object]:
        """Every number that a step's cost is made of, for a run's key; that nothing is drawn goes without saying."""
        kept = {one.name: getattr(self, one.name) for one in fields(self) if one.metadata.get("key", True)}
        if not self.uncertainty:
            del kept["uncertainty"]
        return {name: asdict(value) if name in NESTED and value else value for name, value in kept.items()}

    def columns(self) -> dict[str, Any]:
        """Its fields, with what each is composed of as gpu.hbm_gb_s."""
        shown: dict[str, Any] = {}
        for name, value in super().columns().items():
            if name in NESTED:
                parts = asdict(value) if value else {}
                shown |= {name: parts.pop("name")} if "name" in parts else {}
                shown |= {f"{name}.{part}": number for part, number in parts.items()}
            else:
                shown[name] = value
        return shown

    def start(self) -> Any:
        from prebleexp.hardware.composed_step import COST

        gpu, model, of, gpus, v = self.gpu, self.model, self._fitted, self.tensor_parallel, self._fitted.v
        bandwidth, flops, half = gpu.hbm_gb_s * 1e9, gpu.peak_flops(self.precision), gpu.peak_flops("bf16")
        expert_flops = half if model.expert_precision else flops
        expert_bytes = BYTES[model.expert_precision or self.precision]
        latency, rate = gpu.link(gpus) if gpus > 1 else (0.0, math.inf)
        fixed = of.t_step + model.layers * of.t_layer + model.expert_layers * of.t_moe
        passed = 8 * model.hidden * (gpus - 1) / (gpus * rate) + ELEMENTWISE * model.hidden / bandwidth
        # heads of KV that are fewer than GPUs are read by several of them at once
        memory, cache = gpu.reading(str(self.kv_precision))
        share = model.kv_share(gpus)
        context, again = (self.kv_bytes / (share * rate * of.e_kv) for rate in (memory, cache))
        far = 1 - model.window_share
        coefficients = {
            "token": model.layers * passed,
            "sequence": of.t_req,
            "pair_ms": 1e3 * model.pair_flops * far / (gpus * half * of.e_p),
            "linear_compute": 2 * model.linear / (gpus * flops * of.e_c),
            "linear_memory": model.linear * BYTES[self.precision] / (gpus * bandwidth * of.e_m),
            "head_compute": model.embeddings / (gpus * half * of.e_c),
            "head_memory": model.embeddings / (gpus * bandwidth * of.e_m),
            "expert_compute": 2 * model.active * model.expert / (gpus * expert_flops * of.e_xc),
            "expert_memory": model.expert * expert_bytes / (gpus * bandwidth * of.e_xm),
        }
        cost = records(1, COST)[0]
        for name, seconds in coefficients.items():
            cost[name] = v * seconds
        cost.context, cost.again, cost.near = context * far, again * far, context * model.window_share
        cost.at_once = max(1.0, of.in_step * gpu.sms * share / model.kv_heads)
        cost.fixed = of.f * fixed + v * 2 * model.layers * latency
        cost.window, cost.experts = model.window, model.experts
        cost.log_missed = math.log1p(-model.active / model.experts) if model.experts > model.active else -math.inf
        return cost


@cache
def _under(hardware: Composed, engine: str, evidence: Support | None) -> Composed:
    return replace(hardware, engine=engine, evidence=evidence)  # evidence is not compared, nor is it in the hash


@cache
def _shipped(gpu: str, engine: str, model: str, precision: str, moe: bool, gpus: int) -> tuple[Parameters, Support]:
    return parameters_for(gpu, engine, model, precision, moe=moe, tp=gpus)


def said(support: Support | None) -> str:
    """How well parameters are known, in a line."""
    if support is None:
        return "parameters of your own: nothing says how good they are"
    errors = f"median {support.median:.1%}, p90 {support.p90:.1%}"
    if not math.isnan(support.ttft_median):
        errors += f"; TTFT in {support.ttft_n}: median {support.ttft_median:.1%}, p90 {support.ttft_p90:.1%}"
    errors = errors.replace("%", " %") + (f"; {support.domain}" if support.domain else "")
    known = not math.isnan(support.median)
    if support.level == "measured" and known:
        return f"TPOT measured against {support.n} closed loops ({support.against}): {errors}"
    if support.level == "ladder measured" and known:
        return f"measured against {support.n} stages of {support.against}, each by a fit to the others: {errors}"
    if support.level == "measured":
        return f"fitted to {support.against}; its error was not measured"
    if support.level == "steps measured" and known:
        return f"step times measured against {support.n} whole steps ({support.against}), no serving engine: {errors}"
    if support.level == "unseen model" and known:
        return f"not measured itself; TPOT of models that were left out, in {support.n} closed loops: {errors}"
    if support.level == "kernels only":
        return f"kernels only: {support.against} were measured, no serving engine"
    what = support.against if support.against != NOTHING else "nothing like it was measured"
    return f"theory only: {what}"
